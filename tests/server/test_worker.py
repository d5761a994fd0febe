"""`agentloupe worker` as a person starts it: it has the agents of a module, does what needs them, and stops cleanly."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from tests.server.answers import good, refused
from tests.server.test_jobs import DONE, ended

MODULE = """
import agentloupe as loupe

@loupe.tool(effect="pure")
def double(n: int) -> int:
    return 2 * n

@loupe.agent(name="doubler")
def doubler(n: int) -> int:
    return double(n)
"""


def start(folder: Path, *argv: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-m", "agentloupe", *argv]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environ)


def test_a_worker_does_what_needs_its_agents(client: TestClient, store: Store, tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(MODULE)
    db = str(tmp_path / "runs.db")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "LOUPE_DB": db}
    subprocess.run(
        [sys.executable, "-c", "import my_agents; my_agents.doubler(4)"], env=environ, check=True, cwd=tmp_path
    )
    run = store.runs()[0].id
    error = refused(client.post(f"/api/runs/{run}/replay", json={}), 409, "no_worker")
    assert "agentloupe worker my_agents:doubler" in error["hint"]
    process = start(tmp_path, "worker", "my_agents:doubler", "--db", db)
    try:
        assert process.stdout is not None
        assert "has doubler" in process.stdout.readline()
        job = ended(client, good(client.post(f"/api/runs/{run}/replay", json={}))["job"]["id"])
        assert job["status"] == "done"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, "")
    finally:
        process.kill()
        process.communicate()
    assert good(client.get("/api/workers"))["items"] == []


def test_a_module_without_agents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing_here.py").write_text("x = 1\n")
    done = start(tmp_path, "worker", "nothing_here")
    _, errors = done.communicate(timeout=50)
    assert done.returncode == 64
    assert "nothing_here has no agent" in errors


def test_an_agent_that_the_module_lacks_is_refused_with_those_it_has(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(MODULE)
    done = start(tmp_path, "worker", "my_agents:trebler")
    _, errors = done.communicate(timeout=50)
    assert done.returncode == 64
    assert "my_agents has no agent trebler" in errors
    assert "its agents: doubler" in errors


def test_a_module_that_is_not_there_is_refused_with_where_it_was_looked_for(tmp_path: Path) -> None:
    done = start(tmp_path, "worker", "nowhere_at_all")
    _, errors = done.communicate(timeout=50)
    assert done.returncode == 3
    assert "nowhere_at_all cannot be loaded" in errors
    assert "the current folder" in errors


SCRIPT = """
import os, urllib.request
import agentloupe as loupe
from beside import PLACE
from openai import OpenAI

@loupe.tool(effect="write")
def pay(amount: int) -> str:
    with open(PLACE, "a") as file:
        file.write(f"paid {amount}\\n")
    return "paid"

@loupe.agent(name="payer")
def payer(amount: int) -> str:
    client = loupe.wrap(OpenAI(api_key="none", base_url=os.environ["LLM_BASE_URL"], max_retries=0))
    pay(amount)
    asked = [{"role": "user", "content": "and then?"}]
    first = client.chat.completions.create(model="m", messages=asked).choices[0].message.content
    asked += [{"role": "assistant", "content": first}, {"role": "user", "content": "and at last?"}]
    return client.chat.completions.create(model="m", messages=asked).choices[0].message.content

if __name__ == "__main__":
    payer(5)
"""


@pytest.mark.faults
def test_a_fork_of_own_code_goes_on_after_its_worker_was_killed(
    client: TestClient, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent lies in a script: the command that the server names starts a worker for it, twice, and it is paid once."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "loupe.toml").write_text("")
    (tmp_path / "scripts" / "payer agent.py").write_text(SCRIPT)
    (tmp_path / "scripts" / "beside.py").write_text(f"PLACE = {str(tmp_path / 'paid.txt')!r}")
    asked: list[int] = []
    held, go_on = threading.Event(), threading.Event()

    def model(_: HttpRequest) -> HttpReply:
        asked.append(1)
        if len(asked) == 4:  # two of the recording, the first of the fork, and this one
            held.set()
            go_on.wait(60)
        return json_reply(DONE)

    db = str(tmp_path / "runs.db")
    with serve(model) as answering:
        monkeypatch.setenv("LLM_BASE_URL", f"{answering.url}/v1")
        environ = {**os.environ, "LOUPE_DB": db}
        subprocess.run([sys.executable, "scripts/payer agent.py"], env=environ, check=True, cwd=tmp_path)
        run = store.runs()[0]
        step = next(step.idx for step in store.steps(run.id) if step.kind == "llm")
        body = {"from_step": step, "engine": "own"}
        hint = refused(client.post(f"/api/runs/{run.id}/fork", json=body), 409, "no_worker")["hint"]
        command = shlex.split(hint.partition("start one: agentloupe ")[2])
        assert command == ["worker", "scripts/payer agent.py:payer"]
        with started(tmp_path, *command, "--db", db) as process:
            begun = good(client.post(f"/api/runs/{run.id}/fork", json=body))["job"]["id"]
            assert held.wait(60)
            assert good(client.get(f"/api/jobs/{begun}"))["lacks"] is None
            process.kill()
            process.wait()
        go_on.set()
        job = good(client.get(f"/api/jobs/{begun}"))
        assert job["status"] == "running"
        assert job["lacks"]["message"] == "the worker that did it is gone"
        assert shlex.split(job["lacks"]["command"])[1:] == command
        with started(tmp_path, *command, "--db", db):
            cut, job = job, ended(client, begun)
    assert job["status"] == "done", job["error"]
    (made,) = job["run_ids"]
    (cut_off,) = cut["run_ids"]
    assert [good(client.get(f"/api/runs/{name}"))["status"] for name in (made, cut_off)] == ["ok", "interrupted"]
    assert f"{cut_off} was cut off when its worker went; {made} was made in its place" in job["notes"]
    assert job["compare_url"] == f"/diff?a={run.id}&b={made}"
    assert len(asked) == 6  # the fork asks both of its questions anew
    assert (tmp_path / "paid.txt").read_text() == "paid 5\n"


@contextmanager
def started(folder: Path, *argv: str) -> Generator[subprocess.Popen[str]]:
    """A worker that has its agents."""
    process = start(folder, *argv)
    try:
        assert process.stdout is not None
        assert "Ctrl-C stops it" in process.stdout.readline(), process.stderr
        yield process
    finally:
        process.kill()
        process.communicate()
