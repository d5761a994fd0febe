"""The page's files, and what stands in their place where it was not built."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from agentloupe.server.app import PAGE, older_than_its_sources
from tests.server.answers import refused
from tests.server.serving import HOST, app_of, client_of


@pytest.fixture
def page(store: Store, tmp_path: Path) -> TestClient:
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>the page")
    (folder / "assets" / "main-1a2b.js").write_text("export {}")
    (tmp_path / "secret.txt").write_text("secret")
    app = app_of(store)
    app.state.context.page = folder
    return TestClient(app, base_url=HOST)


def test_a_page_that_is_older_than_its_sources_is_known(tmp_path: Path) -> None:
    page, source = tmp_path / "src" / "package" / "server" / "page", tmp_path / "web" / "src" / "deep" / "main.tsx"
    page.mkdir(parents=True)
    (page / "index.html").write_text("built")
    assert not older_than_its_sources(page)  # an installed package has no sources of it
    source.parent.mkdir(parents=True)
    source.write_text("one")
    made = (page / "index.html").stat().st_mtime
    os.utime(source, (made - 5, made - 5))
    assert not older_than_its_sources(page)
    os.utime(source, (made + 5, made + 5))
    assert older_than_its_sources(page)


def test_without_a_built_page_it_is_said_how_to_build_it(store: Store) -> None:
    app = app_of(store)
    app.state.context.page = None
    answer = TestClient(app, base_url=HOST).get("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "make page" in answer.text


def test_every_address_of_the_page_is_the_page(page: TestClient) -> None:
    for path in ("/", "/runs/some-run", "/diff?a=1&b=2", "/index.html"):
        answer = page.get(path)
        assert "the page" in answer.text
        assert answer.headers["cache-control"] == "no-cache"
    script = page.get("/assets/main-1a2b.js")
    assert "immutable" in script.headers["cache-control"]
    assert "javascript" in script.headers["content-type"]


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/assets/..%2f..%2fsecret.txt", "/%00"]
)
def test_no_file_outside_of_the_page_is_given_out(page: TestClient, path: str) -> None:
    assert "secret" not in page.get(path).text


def test_a_route_that_is_none_is_no_page(store: Store) -> None:
    from tests.server.serving import TOKEN

    refused(client_of(store, TOKEN).get("/api/nothing"), 404, "not_found")
    refused(client_of(store, TOKEN).post("/runs"), 405, "method_not_allowed")


FIRST_VIEW = 250_000
"""Bytes that a browser may fetch, compressed, until the list of runs stands."""


def test_the_first_view_is_small() -> None:
    """The page and the list of runs with everything that they import, and every style sheet."""
    if not (PAGE / "index.html").is_file():
        pytest.skip("needs the built page (make page)")
    assets = PAGE / "assets"
    index = (PAGE / "index.html").read_text("utf-8")
    waiting = [*re.findall(r"/assets/([\w.-]+\.js)", index), *(file.name for file in assets.glob("RunsPage-*.js"))]
    seen = {file.name for file in assets.glob("*.css")}
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += re.findall(r"(?:from|import)\s*[\"']\./([\w.-]+\.js)", (assets / name).read_text("utf-8"))
    assert any(name.startswith("RunsPage-") for name in seen)
    assert not any(name.startswith(("MergeEditor-", "JsonView-")) for name in seen), (
        "editors are fetched when they are opened"
    )
    assert sum(len(gzip.compress((assets / name).read_bytes())) for name in seen) < FIRST_VIEW
