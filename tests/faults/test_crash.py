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
POINTS = ["before-bodies", "after-bodies", "before-events", "before-view", "after-commit"]


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


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_inside_an_append_leaves_the_call_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    db = tmp_path / "loupe.db"
    with child(db, "r", 10, point) as process:
        assert acknowledged(process, 10) == 9
        assert process.wait() == -signal.SIGKILL
    # A tool writes twice: its intent joins the outcome's transaction, and the kill comes in that one.
    assert readable(db, "r") == (10 if point == "after-commit" else 9)
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
