"""`agentloupe worker` as a person starts it: it has the agents of a module, does what needs them, and stops cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from tests.server.answers import good, refused
from tests.server.test_jobs import ended

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
