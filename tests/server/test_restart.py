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


@pytest.mark.faults
def test_two_servers_over_one_file_share_the_jobs_and_one_goes_on_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight forks, asked of two servers by turns, are made once each; what the first leaves behind is done by the second."""
    store = store_in(tmp_path)
    run = weather_run(store)
    store.close()
    asked: list[int] = []
    lock, held, go_on = threading.Lock(), threading.Event(), threading.Event()

    def model(_: HttpRequest) -> HttpReply:
        with lock:
            asked.append(1)
            number = len(asked)
        if number == 9:
            held.set()
            go_on.wait(60)
        return json_reply(DONE)

    with serve(model) as model_server:
        monkeypatch.setenv("LLM_BASE_URL", f"{model_server.url}/v1")
        with server(tmp_path) as (first, one, token), server(tmp_path) as (second, other, key):
            assert second.stdout is not None
            said = [second.stdout.readline() for _ in range(2)]
            assert f"process {first.pid} serves the same runs" in said[1]
            at = [(one, token), (other, key)]
            begun = [post(f"{at[n % 2][0]}/api/runs/{run}/fork", at[n % 2][1], {"from_step": 5}) for n in range(8)]
            jobs = [ended(f"{other}/api/jobs/{each['job']['id']}", key) for each in begun]
            assert {job["status"] for job in jobs} == {"done"}
            assert len(asked) == 8
            assert get(f"{one}/api/jobs", token)["total"] == 8
            last = post(f"{one}/api/runs/{run}/fork", token, {"from_step": 5})["job"]["id"]
            assert held.wait(40)
            pids = {worker["id"]: worker["pid"] for worker in get(f"{one}/api/workers", token)["items"]}
            doing = get(f"{one}/api/jobs/{last}", token)["worker"]
            victim, left = (first, (other, key)) if pids[doing] == first.pid else (second, (one, token))
            victim.kill()
            victim.wait()
            go_on.set()
            assert ended(f"{left[0]}/api/jobs/{last}", left[1])["status"] == "done"
            assert len(asked) == 10  # the one that was interrupted is asked again
