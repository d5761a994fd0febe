"""Programs that were recorded as they are, without an agent of their own: their threads and tasks replay exactly too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

THREADS = """
import random, threading, agentloupe as loupe
from concurrent.futures import ThreadPoolExecutor
from time import sleep

seen = []

@loupe.tool(effect="read")
def look(who):
    sleep(random.random() / 200)
    return who

def job(who):
    sleep(0.001 * (who % 3))
    seen.append((who, look(who)))

threads = [threading.Thread(target=job, args=(who,)) for who in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with ThreadPoolExecutor(2) as pool:
    list(pool.map(job, range(4, 9)))
threading.Thread(target=lambda: look(str(seen))).start()
"""

TASKS = """
import asyncio, random, agentloupe as loupe

@loupe.tool(effect="read")
async def look(who):
    await asyncio.sleep(random.random() / 200)
    return who

async def main():
    seen = []
    async def one(who):
        await asyncio.sleep(0.001 * (who % 3))
        seen.append(await look(who))
        seen.append(await look(len(seen)))
    await asyncio.gather(*(one(who) for who in range(5)))
    await look(str(seen))

asyncio.run(main())
"""

SERVER = """
import random, threading, agentloupe as loupe

@loupe.tool(effect="read")
def look(who):
    return who

@loupe.agent
def agent(who):
    return look(who)

threads = [threading.Thread(target=agent, args=(who,)) for who in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def _agentloupe(workdir: Path, *words: str) -> Any:
    environment = {**os.environ, "LOUPE_DB": str(workdir / "loupe.db")}
    command = [sys.executable, "-m", "agentloupe", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=50)


@pytest.mark.slow
@pytest.mark.parametrize("program", [THREADS, TASKS], ids=["threads", "tasks"])
def test_a_program_without_an_agent_replays_exactly(workdir: Path, program: str) -> None:
    Path("program.py").write_text(program, "utf-8")
    recorded = _agentloupe(workdir, "run", "--", "python", "program.py")
    assert recorded.returncode == 0, recorded.stderr
    for _ in range(2):
        replayed = _agentloupe(workdir, "replay", "last", "--strict-order", "--json", "--", "python", "program.py")
        report = json.loads(replayed.stdout)
        assert (report["verdict"], report["order_proven"], replayed.returncode) == ("pass", True, 0), replayed.stdout


@pytest.mark.slow
def test_a_program_that_starts_agents_has_runs_of_these_and_none_of_its_own(workdir: Path) -> None:
    Path("program.py").write_text(SERVER, "utf-8")
    recorded = _agentloupe(workdir, "run", "--", "python", "program.py")
    assert recorded.returncode == 0, recorded.stderr
    runs = json.loads(_agentloupe(workdir, "list", "--json").stdout)
    assert [(run["agent"], run["status"], run["coverage"]) for run in runs] == [("agent", "ok", "full")] * 4


WAITS_AT_THE_BEGINNING = """
import threading, agentloupe as loupe
from time import sleep

@loupe.tool(effect="read")
def look(who):
    return who

def turns():
    for _ in range(20):
        sleep(0.001)

def asks():
    look("first")

threads = [threading.Thread(target=job) for job in (asks, turns, turns)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_a_run_begins_with_its_start_however_long_that_takes(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a snapshot is taken (`git` may be slow) no thread is taken for stuck, and nothing is written before it."""
    Path("program.py").write_text(WAITS_AT_THE_BEGINNING, "utf-8")
    folder = workdir / "slow"
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\nsleep 0.3\nexit 1\n", "utf-8")
    (folder / "git").chmod(0o755)
    (workdir / ".git").mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    recorded = _agentloupe(workdir, "run", "--", "python", "program.py")
    assert recorded.returncode == 0, recorded.stderr
    events = _agentloupe(workdir, "verify", "last")
    assert events.returncode == 0, events.stdout + events.stderr
    replayed = _agentloupe(workdir, "replay", "last", "--strict-order", "--json", "--", "python", "program.py")
    report = json.loads(replayed.stdout)
    assert (report["verdict"], report["order_proven"]) == ("pass", True), replayed.stdout


LEAVES_ITEMS_BEHIND = """
import threading, agentloupe as loupe
from concurrent.futures import ThreadPoolExecutor
from time import sleep

@loupe.tool(effect="read")
def look(who):
    sleep(0.1)
    return who

def job(who):
    for n in range(2):
        look((who, n))

pool = ThreadPoolExecutor(2)
for who in range(3):
    pool.submit(job, who)
"""


@pytest.mark.slow
def test_work_that_a_program_leaves_to_a_pool_at_its_end_keeps_its_order(workdir: Path) -> None:
    Path("program.py").write_text(LEAVES_ITEMS_BEHIND, "utf-8")
    recorded = _agentloupe(workdir, "run", "--", "python", "program.py")
    assert recorded.returncode == 0, recorded.stderr
    replayed = _agentloupe(workdir, "replay", "last", "--strict-order", "--json", "--", "python", "program.py")
    report = json.loads(replayed.stdout)
    assert (report["verdict"], report["calls"], report["order_proven"]) == ("pass", 6, True), replayed.stdout


KILLED = f"""
import os, signal
{THREADS.rpartition("threading.Thread")[0]}
if os.environ.get("KILLED"):
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=lambda: look(str(seen))).start()
"""


@pytest.mark.slow
def test_a_program_without_an_agent_goes_on_in_the_recorded_order(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("program.py").write_text(KILLED, "utf-8")
    monkeypatch.setenv("KILLED", "1")
    assert _agentloupe(workdir, "run", "--", "python", "program.py").returncode != 0
    monkeypatch.delenv("KILLED")
    resumed = _agentloupe(workdir, "resume", "last", "--", "python", "program.py")
    assert resumed.returncode == 0, resumed.stderr
    replayed = _agentloupe(workdir, "replay", "last", "--strict-order", "--json", "--", "python", "program.py")
    report = json.loads(replayed.stdout)
    assert (report["verdict"], report["order_proven"]) == ("pass", True), replayed.stdout
