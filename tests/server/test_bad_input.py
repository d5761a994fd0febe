"""Whatever is wrong with a store, a run or a request has an answer that a person understands, and none is a fault of the server."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.owners import this_process
from tests.fork_support import weather_run
from tests.made import Maker
from tests.server.answers import good, refused
from tests.server.serving import TOKEN, client_of, put, store_in
from tests.server.test_jobs import ended, worker
from tests.server.test_streams import bodies_of
from tests.support import case_folder

READS = ("", "/steps", "/transcript", "/minimap", "/events", "/verify", "/lineage", "/search?q=x", "/export")


def edit(folder: Path, *statements: str) -> None:
    file = sqlite3.connect(folder / "runs.db")
    for statement in statements:
        file.execute(statement)
    file.commit()
    file.close()


@pytest.mark.parametrize("path", READS)
def test_an_unknown_run(client: TestClient, path: str) -> None:
    assert "nobody" in refused(client.get(f"/api/runs/nobody{path}"), 404, "run_not_found")["message"]


@pytest.mark.parametrize("path", READS)
def test_a_run_whose_bodies_are_damaged_still_shows_what_is_whole(
    client: TestClient, store: Store, tmp_path: Path, path: str
) -> None:
    run = weather_run(store)
    edit(tmp_path, "UPDATE bodies SET data = zeroblob(length(data))")
    answer = client.get(f"/api/runs/{run}{path}")
    assert answer.status_code in {200, 409}, answer.text
    if answer.status_code == 409:
        assert answer.json()["error"]["message"]
    if path == "/transcript":
        assert all(card["problem"] for card in good(answer)["items"])
    if path == "/verify":
        assert not good(answer)["ok"]


@pytest.mark.parametrize("path", ["", "/messages", "/context", "/diff", "/raw/input"])
def test_a_step_whose_bodies_are_damaged_says_so(client: TestClient, store: Store, tmp_path: Path, path: str) -> None:
    run = weather_run(store)
    edit(tmp_path, "UPDATE bodies SET data = zeroblob(length(data))")
    answer = client.get(f"/api/runs/{run}/steps/3{path}")
    if path == "":
        assert good(answer)["overview"]["problem"]
    else:
        refused(answer, 409, "body")


def test_a_run_whose_view_is_damaged_says_how_to_mend_it(client: TestClient, store: Store, tmp_path: Path) -> None:
    run = weather_run(store)
    edit(tmp_path, "UPDATE steps SET row = x'00'")
    assert "rebuild" in refused(client.get(f"/api/runs/{run}/steps"), 409, "view")["hint"]


def test_a_run_that_grows_is_shown_as_far_as_it_is(client: TestClient, store: Store) -> None:
    made = Maker("live")
    writer = store.start("live", Projector, owner=this_process())
    writer.append(made.drafts, bodies_of(made, made.drafts))
    assert good(client.get("/api/runs/live"))["status"] == "running"
    assert good(client.get("/api/runs?status=running"))["total"] == 1
    sent = len(made.drafts)
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"})
    writer.append(made.drafts[sent:], bodies_of(made, made.drafts[sent:]))
    assert [card["card"] for card in good(client.get("/api/runs/live/transcript"))["items"]] == ["question", "model"]
    assert client.delete("/api/runs/live").status_code == 409
    writer.close()


def test_an_older_and_a_newer_store_are_told_before_anything_is_served(tmp_path: Path) -> None:
    store_in(tmp_path).close()
    edit(tmp_path, "PRAGMA user_version = 99")
    argv = [
        sys.executable,
        "-m",
        "agentloupe",
        "serve",
        "--no-browser",
        "--port",
        "0",
        "--db",
        str(tmp_path / "runs.db"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 3
    assert "upgrade agent-loupe" in done.stderr


def test_a_model_that_is_gone_ends_the_job_and_says_so(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = weather_run(store)
    monkeypatch.setenv("LLM_BASE_URL", "http://127.0.0.1:9/v1")
    job_id = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}))["job"]["id"]
    with worker(store):
        job = ended(client, job_id)
    assert job["status"] == "failed"
    assert "127.0.0.1:9" in job["error"]["message"]


@pytest.mark.parametrize("body", [b"", b"no json", b"[", b"null", b'"text"', b"\xff\xfe", b'{"from_step": NaN}'])
def test_what_is_no_json_is_refused(client: TestClient, store: Store, body: bytes) -> None:
    run = weather_run(store)
    answer = client.post(f"/api/runs/{run}/fork", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {400, 422}, answer.text
    assert answer.json()["error"]["message"]


def test_hostile_texts_come_back_as_they_are_and_do_nothing(client: TestClient, store: Store) -> None:
    texts: list[str] = json.loads((case_folder("29") / "strings.json").read_text("utf-8"))
    for number, text in enumerate(texts):
        made = Maker(f"hostile-{number}", None, run_name=text, tags=[text])
        history: list[Any] = [{"role": "user", "content": text}]
        made.model(history, {"role": "assistant", "content": text}, model=text or "m")
        made.call("tool", text or "t", {"q": text}, text)
        run = put(store, made.finish())
        detail = client.get(f"/api/runs/{run}")
        assert detail.headers["content-type"] == "application/json"
        assert detail.headers["x-content-type-options"] == "nosniff"
        cards = good(client.get(f"/api/runs/{run}/transcript"))["items"]
        assert cards[0]["messages"][0]["text"] == text[:2000]
        assert cards[1]["text"] == {"text": text[:2000], "missing": max(len(text) - 2000, 0)}
        for path in READS:
            assert client.get(f"/api/runs/{run}{path}").status_code == 200
        file = client.get(f"/api/runs/{run}/export?format=jsonl")
        assert "\n" not in file.headers["content-disposition"]
    assert good(client.get("/api/runs"))["total"] == len(texts)


def test_an_empty_database_is_an_empty_list(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    client = client_of(store, TOKEN)
    assert good(client.get("/api/runs?facets=1"))["facets"] == {
        n: [] for n in ("agents", "models", "tools", "tags", "statuses")
    }
    assert good(client.get("/api/jobs"))["items"] == []
    store.close()
