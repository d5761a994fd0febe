"""The server is killed in the middle of a job and started again: the job goes on, and nothing is paid twice."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from tests.fork_support import weather_run
from tests.server.serving import store_in
from tests.server.test_jobs import DONE
from tests.server.test_serve import get, server


def post(url: str, token: str, body: Any) -> Any:
    headers = {"Authorization": f"Bearer {token}", "X-Loupe": "1", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def ended(url: str, token: str) -> Any:
    """Reads a job's stream to its end."""
    request = urllib.request.Request(f"{url}/stream", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=50) as stream:
        stream.read()
    return get(url, token)


@pytest.mark.faults
def test_a_job_goes_on_after_its_server_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_in(tmp_path)
    run = weather_run(store)
    store.close()
    asked: list[int] = []
    second, go_on = threading.Event(), threading.Event()

    def model(_: HttpRequest) -> HttpReply:
        asked.append(1)
        if len(asked) == 2:
            second.set()
            go_on.wait(40)
        return json_reply(DONE)

    with serve(model) as model_server:
        monkeypatch.setenv("LLM_BASE_URL", f"{model_server.url}/v1")
        with server(tmp_path) as (process, address, token):
            body = {"from_step": 5, "repeat": 2, "control": False}
            begun = post(f"{address}/api/runs/{run}/fork", token, body)
            assert second.wait(40)
            process.kill()
            process.wait()
        go_on.set()
        first, other = (made["id"] for made in begun["runs"])
        with server(tmp_path) as (_, address, token):
            job = ended(f"{address}/api/jobs/{begun['job']['id']}", token)
            rows = {name: get(f"{address}/api/runs/{name}", token) for name in (first, other)}
    assert rows[first]["status"] == "ok"
    assert job["status"] == "done", job
    assert rows[other]["status"] == "ok"
    assert len(asked) == 3  # once for the first run, twice for the one that was interrupted while its model was asked
