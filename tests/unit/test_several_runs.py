"""Programs that start several runs, of which one is replayed: in one thread, in several, on one loop, as a whole program."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.report import ReplayReport
from agentloupe.engine.tape import Tape
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.isolated import replay_command
from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed
from agentloupe.verbs.running import run_recorded
from agentloupe.verbs.sessions import RecordOpener


@loupe.tool(effect="read")
def look(thing: str) -> str:
    return thing.upper()


@loupe.agent
def looker(thing: str) -> str:
    return look(thing)


def in_threads(*things: str) -> Callable[[], list[str]]:
    def program() -> list[str]:
        with ThreadPoolExecutor(len(things)) as pool:
            return list(pool.map(looker, things))

    return program


def recorded(program: Callable[[], Any]) -> dict[str, Recording]:
    """The recordings of a program, by what their agent returned."""
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener, process_wide=True):
        program()
    found: dict[str, Recording] = {}
    for run in store.runs():
        recording = store.recording(run.id)
        result: Any = recording.body(str(store.steps(run.id)[0].output_digest))
        found[result["result"]] = recording
    return found


def test_each_of_several_is_found_by_its_arguments_in_whatever_order_they_start() -> None:
    for recording in recorded(in_threads("a", "b", "c")).values():
        for order in ("abc", "cba", "bca"):
            report = replayed(recording, in_threads(*order))
            assert report.passed, report.text()


def replayed(recording: Recording, program: Callable[[], Any], wishes: Wishes | None = None) -> ReplayReport:
    """A replay of one of the runs that a program starts, by the whole program."""
    opened = open_tape(recording)
    assert isinstance(opened, Tape)
    return run_replayed(opened, lambda *_: program(), wishes or Wishes())


@pytest.mark.parametrize("thing", ["a", "c"])
def test_where_none_agrees_the_first_that_did_not_is_told(thing: str) -> None:
    recording = recorded(in_threads(thing))[thing.upper()]
    report = replayed(recording, in_threads("other", "another"), Wishes(stuck_after=0.01))
    assert report.divergence is not None
    assert (report.verdict, report.divergence.kind, report.divergence.sequence) == ("diverged", "input_changed", 1)
    assert not report.notes


def test_a_program_that_waits_for_a_run_that_was_stopped_does_not_wait_for_ever() -> None:
    recording = recorded(in_threads("a"))["A"]
    stopped = threading.Event()

    def other() -> None:
        with suppress(BaseException):  # what servers do
            looker("other")

    def program() -> None:
        threading.Thread(target=other, daemon=True).start()
        assert stopped.wait(60)

    report = replayed(recording, program, Wishes(stuck_after=0.01, stopped=stopped.set))
    assert report.divergence is not None
    assert report.divergence.kind == "input_changed"


def test_one_after_the_other_in_one_thread_the_first_must_be_the_recorded_one() -> None:
    made = recorded(lambda: [looker("a"), looker("b")])
    report = replayed(made["A"], lambda: [looker("a"), looker("b")])
    assert report.passed
    assert report.notes == ("the program starts other runs too; each was stopped where it began",)
    other = replayed(made["B"], lambda: [looker("a"), looker("b")]).divergence
    assert other is not None
    assert (other.kind, other.sequence) == ("input_changed", 1)
    assert other.suggestion is not None
    assert "name its agent" in other.suggestion


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_numbers_its_own_runs() -> None:
    store = MemoryStore()
    with ambient.opening_with(RecordOpener(store)):
        looker("a")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                looker("b")
                started = store.recording(store.runs()[0].id).events[0].attrs
                os.write(writing, f"{started['program']} {started['nth']}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        looker("c")
    there = os.read(reading, 100).decode().split()
    here = [store.recording(run.id).events[0].attrs for run in store.runs()]
    assert [facts["nth"] for facts in here] == [1, 0]
    assert here[0]["program"] == here[1]["program"] != there[0]
    assert there[1] == "0"


# --- as whole programs: each of their runs is replayed by `agentloupe replay RUN -- COMMAND` ----------------------------

PROGRAM = """
import asyncio, sys
import agentloupe as loupe

@loupe.tool(effect="write")
def pay(order, before):
    with open("paid.txt", "a") as out:
        out.write(order)
    return {"order": order, "number": len(open("paid.txt").read()), "before": before}

@loupe.agent
def payer(order, before):
    return pay(order, before)

@loupe.agent
async def waiting(order):
    await asyncio.sleep(0.001)
    return pay(order, None)

async def both():
    return await asyncio.gather(waiting("x"), waiting("y"), waiting("z"))

if __name__ == "__main__":
    before = None
    for order in ("a", "b", "b", "c"):  # each needs what came of the one before, and two are called alike
        before = payer(order, before and before["number"] % 1)
    print(asyncio.run(both()))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with a program, and the ids of the seven runs that it started."""
    folder = tmp_path_factory.mktemp("several")
    with contextlib.chdir(folder):
        Path("program.py").write_text(PROGRAM, "utf-8")
        ran = run_recorded(["program.py"], db="runs.db")
    assert (ran.code, len(ran.runs)) == (0, 7)
    (folder / "paid.txt").rename(folder / "paid.recorded")
    return folder, ran.runs


def by_the_whole_program(made: tuple[Path, list[str]], nth: int, program: str = "program.py") -> ReplayReport:
    folder, runs = made
    with contextlib.chdir(folder):
        report = replay_command(runs[nth], [program], store="runs.db")
        assert not Path("paid.txt").exists(), "nothing real ran again"
    return report


@pytest.mark.parametrize("nth", range(7))
def test_any_of_several_is_replayed_by_the_whole_program(made: tuple[Path, list[str]], nth: int) -> None:
    report = by_the_whole_program(made, nth)
    assert report.passed, report.text()
    assert report.consumed == report.events
    assert not report.unproven


def test_a_program_that_takes_another_road_before_says_where(made: tuple[Path, list[str]]) -> None:
    folder, runs = made
    (folder / "changed.py").write_text(PROGRAM.replace("return pay(order, before)", "return pay(order + '!', before)"))
    report = by_the_whole_program(made, 3, "changed.py")
    assert report.divergence is not None
    assert (report.verdict, report.divergence.kind, report.divergence.sequence) == ("diverged", "missing", 1)
    assert runs[0] in str(report.divergence.message)
    assert "input_changed" in str(report.divergence.message)
    assert by_the_whole_program(made, 0, "changed.py").verdict == "diverged"


def test_a_program_that_leaves_earlier_runs_out_says_so(made: tuple[Path, list[str]]) -> None:
    folder, runs = made
    (folder / "fewer.py").write_text(PROGRAM.replace('("a", "b", "b", "c")', '("a", "c")'))
    report = by_the_whole_program(made, 3, "fewer.py")
    assert report.passed, report.text()
    assert f"runs that came before this one, and that it did without: {runs[1]}, {runs[2]}" in report.notes
