"""T8: nothing that a program catches hides a divergence; and what happens to programs that go on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from agentloupe.engine.ruling import REFUSALS
from agentloupe.engine.tape import Tape
from agentloupe.ports import ambient
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import Wishes, open_tape, replay, run_replayed
from agentloupe.words.errors import ReplayMismatch
from tests.tapes import Program, ask, record_in, use

STEPS = (ask("hello"), use("notify", "sent", to="ops"), ask("bye"))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_except_exception_around_a_call_does_not_hide_a_divergence(asynchronous: bool) -> None:
    recording = Program(STEPS, asynchronous=asynchronous).recorded()
    program = Program([STEPS[0], use("notify", "sent", to="boss"), STEPS[2]], asynchronous=asynchronous)
    report = program.replayed(recording)  # Program catches Exception around each call
    assert report.divergence is not None
    assert (report.verdict, report.divergence.kind) == ("diverged", "input_changed")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_catching_even_the_stop_signal_does_not_either(asynchronous: bool) -> None:
    recording = Program(STEPS, asynchronous=asynchronous, result=lambda got: "done").recorded()
    changed = [STEPS[0], use("notify", "sent", to="boss"), STEPS[2]]
    program = Program(changed, asynchronous=asynchronous, swallow=True, result=lambda got: "done")
    report = program.replayed(recording)
    assert report.divergence is not None
    assert (report.verdict, report.divergence.kind) == ("diverged", "input_changed")
    assert report.divergence.agreed == (3, "model.responded", "chat m")


def test_gather_with_return_exceptions_and_task_groups_do_not_hide_it() -> None:
    def grouped(ask: Any) -> Any:
        async def agent() -> Any:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(ask())
            except BaseExceptionGroup:
                pass
            return "yes"

        return as_agent(agent, "program")

    def gathered(ask: Any) -> Any:
        async def agent() -> Any:
            await asyncio.gather(ask(), return_exceptions=True)
            return "yes"

        return as_agent(agent, "program")

    async def same() -> Any:
        return await ambient.acall(STEPS[0].call(), lambda: _answer("yes"))

    for agent in (grouped, gathered):
        recording = record_in(MemoryStore(), agent(same))
        assert replay(recording, agent(same)).verdict == "pass"
        report = replay(recording, agent(_other))
        assert report.divergence is not None, report.text()
        assert (report.verdict, report.divergence.kind) == ("diverged", "input_changed"), agent.__name__


async def _answer(value: Any) -> Any:
    return value


async def _other() -> Any:
    return await ambient.acall(ask("something else").call(), lambda: _answer("yes"))


def test_every_later_call_fails_too_and_the_first_difference_stays() -> None:
    recording = Program(STEPS).recorded()
    stops: list[ReplayMismatch] = []

    def agent() -> None:
        for step in (use("wrong"), *STEPS):
            try:
                ambient.call(step.call(), lambda: pytest.fail("a real call"))
            except ReplayMismatch as stop:
                stops.append(stop)

    report = replay(recording, as_agent(agent, "program"))
    assert [stop.kind for stop in stops] == ["name_changed"] * 4
    assert len({id(stop) for stop in stops}) == 4
    assert report.divergence is not None
    assert report.divergence.sequence == 2


def test_a_program_that_goes_on_is_given_up_after_many_refused_calls() -> None:
    recording = Program(STEPS).recorded()
    seen: list[str] = []

    def agent() -> None:
        for _ in range(REFUSALS + 1):
            try:
                ambient.call(use("wrong").call(), lambda: pytest.fail("a real call"))
            except ReplayMismatch:
                continue

    tape = open_tape(recording)
    assert isinstance(tape, Tape)
    wishes = Wishes(stopped=lambda: seen.append("stopped"), gave_up=lambda: seen.append("gave up"))
    run_replayed(tape, as_agent(agent, "program"), wishes)
    assert seen == ["stopped", "gave up"]


def test_an_early_return_after_a_swallowed_signal_is_still_a_failure() -> None:
    recording = Program(STEPS[:1], result=lambda got: "ok").recorded()

    def agent() -> str:
        with contextlib.suppress(BaseException):
            ambient.call(ask("changed").call(), lambda: pytest.fail("a real call"))
        return "ok"

    assert replay(recording, as_agent(agent, "program")).exit_code == 1


def test_a_replay_inside_a_running_loop_works() -> None:
    program = Program(STEPS, asynchronous=True)
    recording = program.recorded()

    async def main() -> str:
        return program.replayed(recording).verdict

    assert asyncio.run(main()) == "pass"


def test_ctrl_c_of_a_person_is_not_swallowed() -> None:
    recording = Program(STEPS).recorded()

    def agent() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(recording, as_agent(agent, "program"))
