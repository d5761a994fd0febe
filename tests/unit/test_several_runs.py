"""Programs that start several runs, of which one is replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.report import ReplayReport
from agentloupe.engine.tape import Tape
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed
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
