"""One browser, one server and one set of runs for all browser tests of a worker; a page of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from tests.e2e.model import Model, modelled
from tests.e2e.served import Served, browsing, missing, serving
from tests.e2e.work import Work, make_work
from tests.e2e.world import World, desk_rule, make_world

expect.set_options(timeout=15_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The installed Chromium; without it, or without the built page, the test is skipped and says so."""
    if (lacking := missing()) is not None:
        if os.environ.get("LOUPE_BROWSER_REQUIRED"):
            pytest.fail(f"a test in a browser may not be skipped here, and it {lacking}")
        pytest.skip(lacking)
    with browsing() as found:
        yield found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the runs are."""
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="session")
def world(browser: Browser, folder: Path) -> World:
    """The runs that are looked at; not made where there is no browser."""
    with closing(open_url(folder / "runs.db", new_fold=Projector)) as store:
        return make_world(store)


@pytest.fixture(scope="session")
def work(world: World, folder: Path) -> Work:
    """Jobs in every state, and a replayed run."""
    with closing(open_url(folder / "runs.db", new_fold=Projector)) as store:
        return make_work(store, world.observed)


@pytest.fixture(scope="session")
def desk(browser: Browser) -> Iterator[Model]:
    """The model that the server's forks ask."""
    with modelled() as answering:
        yield answering


@pytest.fixture
def model(desk: Model) -> Iterator[Model]:
    """The same, told by this test alone what to say."""
    yield desk
    desk.rule = desk_rule


@pytest.fixture(scope="session")
def server(world: World, folder: Path, desk: Model) -> Iterator[Served]:
    """A server over the runs, with a scripted model to fork with."""
    with serving(folder / "runs.db", **desk.variables) as served:
        yield served


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new page in English; whatever it complains about in its console fails the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", color_scheme="light")
    shown = context.new_page()
    complaints: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        # Refusals are shown on the page, and tests look for them there.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    shown.on("console", heard)
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    yield shown
    context.close()
    assert complaints == []


@pytest.fixture
def store(folder: Path, world: World) -> Iterator[Store]:
    """The store that the server serves, to write to it beside the server."""
    with closing(open_url(folder / "runs.db", new_fold=Projector)) as opened:
        yield opened
