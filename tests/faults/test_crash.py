"""T3: a killed process leaves every call that had returned, whole and readable; and the store goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.verify import verify
from agentloupe.store import open_url
from tests.store.make import Author, erased_drafts
from tests.support import ROOT

pytestmark = pytest.mark.faults

CHILD = Path(__file__).with_name("writer_child.py")
COMMITTING = ["before-spool", "inside-spool"]
SETTLING = ["before-bodies", "after-bodies", "before-events", "before-view", "after-settling"]


@contextmanager
def child(db: Path, run: str, calls: int, point: str = "-") -> Generator[subprocess.Popen[str]]:
    """A recording process; killed at the end, if it still lives."""
    command = [sys.executable, str(CHILD), str(db), run, str(calls), point]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: subprocess.Popen[str], calls: int) -> int:
    """Waits until so many calls have returned, or the process is gone; how many it said."""
    assert process.stdout is not None
    done = 0
    while done < calls and process.stdout.readline():
        done += 1
    return done


def spool_of(db: Path) -> Path:
    return db.with_name(f"{db.name}-spool")


def readable(db: Path, run: str) -> int:
    """Checks everything that can be checked; how many whole calls the run has."""
    store = open_url(db)
    try:
        assert store.check() == []
        recording = store.recording(run)
        found = verify(recording)
        assert found.ok, found.head
        steps = [step for step in load_steps(recording) if step.kind == "tool" and step.status == "ok"]
        assert [step.output for step in steps] == [{"i": i} for i in range(len(steps))]
        assert store.rebuild(run, Projector) == []
        shown = store.run(run)
        assert shown is not None
        assert shown.status == "interrupted"
        return len(steps)
    finally:
        store.close()


def test_t3_a_run_killed_after_50_calls_has_50_readable_calls(tmp_path: Path) -> None:
    db = tmp_path / "loupe.db"
    with child(db, "r", 50) as process:
        assert acknowledged(process, 50) == 50
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert readable(db, "r") == 50


AGENT = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
import agentloupe as loupe

@loupe.tool(effect="read")
def look(n):
    return {"n": n}

@loupe.tool(effect="write")
async def put(n):
    await asyncio.sleep(0)
    return {"n": n}

def done(n):
    sys.stdout.write(f"{n}\\n")  # one piece, whichever thread says it
    sys.stdout.flush()

@loupe.agent
def one_by_one():
    for n in range(50):
        look(n)
        done(n)
    sys.stdin.read()

@loupe.agent
async def tasks():
    async def one(n):
        await put(n)
        done(n)
    for first in range(0, 50, 10):
        await asyncio.gather(*(one(first + more) for more in range(10)))
    sys.stdin.read()

@loupe.agent
def threads():
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: (look(n), done(n)), range(50)))
    sys.stdin.read()

made = {"one_by_one": one_by_one, "tasks": tasks, "threads": threads}[sys.argv[1]]()
if asyncio.iscoroutine(made):
    asyncio.run(made)
"""


@pytest.mark.parametrize("way", ["one_by_one", "tasks", "threads"])
def test_t3_of_a_real_agent_every_call_that_returned_is_kept(
    workdir: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOUPE_DB", str(workdir / "loupe.db"))
    command = [sys.executable, "-c", AGENT, way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        said = acknowledged(process, 50)
        process.send_signal(signal.SIGKILL)
    assert (said, process.returncode) == (50, -signal.SIGKILL)
    store = open_url(workdir / "loupe.db", new_fold=Projector)
    (run,) = store.runs()
    assert run.status == "interrupted"
    kept = [step for step in load_steps(store.recording(run.id)) if step.kind == "tool"]
    assert sorted(step.output["n"] for step in kept if step.status == "ok") == list(range(50))  # type: ignore[call-overload,index]
    assert verify(store.recording(run.id)).ok
    store.close()


@pytest.mark.parametrize("point", [*COMMITTING, *SETTLING])
def test_a_kill_inside_an_append_leaves_the_call_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    db = tmp_path / "loupe.db"
    with child(db, "r", 10, point) as process:
        assert acknowledged(process, 10) == 9
        assert process.wait() == -signal.SIGKILL
    # What was committed is in the spool, whatever becomes of it when it is settled.
    assert readable(db, "r") == (9 if point in COMMITTING else 10)
    assert not spool_of(db).exists()
    store = open_url(db)
    Author(store, "next").started().finished()
    assert store.erase("r", erased_drafts()) > 0
    assert store.size().orphans == 0
    store.close()


def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    db = tmp_path / "loupe.db"
    chance = random.Random(3)  # where in the stream of calls the kill falls; the moment itself is the machine's
    for i in range(5):
        with child(db, f"r{i}", 400) as process:
            said = acknowledged(process, chance.randint(1, 200))
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            said += len(process.stdout.readlines())
            process.wait()
        assert readable(db, f"r{i}") >= said


def test_an_open_call_shows_although_its_events_were_only_grouped(tmp_path: Path) -> None:
    """The call that was running when the process was killed is what a person looks for."""
    db = tmp_path / "loupe.db"
    with child(db, "r", 3) as process:
        assert acknowledged(process, 3) == 3
        reader = open_url(db)
        deadline = time.monotonic() + 20
        while len(reader.steps("r")) < 4 and time.monotonic() < deadline:
            threading.Event().wait(0.01)  # the file is the only thing that tells
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [step.kind for step in reader.steps("r")] == ["tool", "tool", "tool", "clock"]
    reader.close()


def killed(db: Path, calls: int) -> None:
    with child(db, "r", calls) as process:
        assert acknowledged(process, calls) == calls
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert spool_of(db).exists()


def test_who_only_reads_sees_what_a_killed_process_committed(tmp_path: Path) -> None:
    db = tmp_path / "loupe.db"
    killed(db, 5)
    store = open_url(db, read_only=True)
    recording = store.recording("r")
    assert verify(recording).ok
    assert [step.output for step in load_steps(recording) if step.kind == "tool"] == [{"i": i} for i in range(5)]
    store.close()
    assert spool_of(db).exists()
    assert readable(db, "r") == 5


def test_several_who_open_the_store_settle_a_killed_run_once(tmp_path: Path) -> None:
    db = tmp_path / "loupe.db"
    killed(db, 20)
    stores = [open_url(db, new_fold=Projector) for _ in range(4)]
    seen: list[int] = []
    threads = [threading.Thread(target=lambda s=store: seen.append(len(s.steps("r")))) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert len(set(seen)) == 1
    assert readable(db, "r") == 20


def test_a_spool_that_does_not_fit_its_run_is_set_aside_and_said(tmp_path: Path) -> None:
    db = tmp_path / "loupe.db"
    killed(db, 5)
    (file,) = spool_of(db).iterdir()
    data = bytearray(file.read_bytes())
    at = data.index(b'"type":"tool.finished"')
    data[at + 9] ^= 1
    file.write_bytes(data)
    store = open_url(db, new_fold=Projector)
    assert verify(store.recording("r")).ok
    assert [entry.suffix for entry in spool_of(db).iterdir()] == [".damaged"]
    assert any("does not fit" in line for line in store.check())
    store.close()
