"""T6: the work of a replayed call does not grow with the run: operations counted, not seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from agentloupe.engine.tape import Tape
from agentloupe.ports.recording import Recording
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed
from tests.support import calls_in
from tests.tapes import Program, Step, use


def _steps(count: int) -> list[Step]:
    return [use("get", {"row": i}, id=i % 7) if i % 2 else Step("clock", "now", None, i) for i in range(count)]


def _counted(recording: Recording) -> tuple[Recording, list[int]]:
    asked: list[int] = []

    def get(digests: Sequence[str]) -> Mapping[str, bytes]:
        asked.append(len(digests))
        return recording.get(digests)

    return replace(recording, get=get), asked


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_operations_of_a_call_do_not_grow_with_the_run(asynchronous: bool) -> None:
    work: dict[int, float] = {}
    for count in (50, 500, 1500):
        program = Program(_steps(count), asynchronous=asynchronous)
        tape = open_tape(program.recorded())
        assert isinstance(tape, Tape)
        agent = as_agent(program.agent, "program")
        run_replayed(tape, agent, Wishes())  # caches of the process are warm
        work[count] = calls_in(lambda tape=tape, agent=agent: run_replayed(tape, agent, Wishes())) / count
    assert work[500] < 1.1 * work[50], work
    assert work[1500] < 1.1 * work[50], work


def test_bodies_are_read_in_batches() -> None:
    program = Program(_steps(1000))
    recording, asked = _counted(program.recorded())
    assert program.replayed(recording).verdict == "pass"
    assert len(asked) < 20, asked


def test_a_miss_near_the_end_of_a_long_run_is_explained_without_reading_it_again() -> None:
    steps = _steps(1000)
    recording, asked = _counted(Program(steps).recorded())
    report = Program([*steps[:-1], use("get", None, id="never")]).replayed(recording)
    assert report.divergence is not None
    assert report.divergence.kind == "input_changed"
    assert len(asked) < 30, asked
