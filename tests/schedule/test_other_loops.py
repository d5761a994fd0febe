"""Event loops that are not asyncio's own are not gated: programs run on them as they do bare, and the order is not proven."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import agentloupe as loupe
from tests.schedule.own_loop import OwnLoop
from tests.schedule.trial import made, marks_of, replayed
from tests.schedule.world import World, ask_async, fetch_async, living_in

Made = Callable[[], asyncio.AbstractEventLoop]


@loupe.tool(effect="read")
async def long_async(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@pytest.fixture(params=["own", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Made:
    """Makes loops of one kind."""
    if request.param == "own":
        return OwnLoop
    why = "needs uvloop, which is no dependency: pip install uvloop"
    new: Made = pytest.importorskip("uvloop", reason=why).new_event_loop
    return new


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "agentloupe")


async def _one_after_another() -> Any:
    seen: list[Any] = [await fetch_async(who=who) for who in range(3)]
    await asyncio.sleep(0.001)
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)
    except TimeoutError:
        seen.append("late")
    return seen, await ask_async(seen)


async def _at_once() -> Any:
    async def one(who: int) -> Any:
        return await fetch_async(who=who), await ask_async(who)

    return await asyncio.gather(*(one(who) for who in range(3)))


async def _too_late() -> Any:
    seen: list[Any] = []
    for patience in (0.001, 5):
        try:
            async with asyncio.timeout(patience):
                seen.append(await long_async(seconds=0.03))
        except TimeoutError:
            seen.append("late")
    return seen


def _in(loop: Made, program: Any) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(program())


def test_calls_one_after_another_replay_and_the_order_is_not_proven(loop: Made) -> None:
    one = made(lambda: _in(loop, _one_after_another), 1)
    assert set(marks_of(one.recording)) == {"no_lane"}
    report, trace, leaks = replayed(one)
    assert (report.verdict, leaks) == ("pass", 0), report.text()
    assert trace == one.trace
    assert any("no_lane in the recording" in why for why in report.unproven)


def test_calls_at_once_are_recorded_and_a_replay_ends_and_performs_nothing(loop: Made) -> None:
    one = made(lambda: _in(loop, _at_once), 1)
    with living_in(World(1)):
        assert [len(pair) for pair in one.trace] == [len(pair) for pair in _in(loop, _at_once)]
    report, trace, leaks = replayed(one)
    assert leaks == 0
    assert report.unproven, "whatever comes of it, it says so"
    assert trace in (one.trace, None)


def test_what_was_cancelled_is_cancelled_by_the_program_again(loop: Made) -> None:
    one = made(lambda: _in(loop, _too_late), 1)
    assert one.trace == ["late", 0.03]
    report, trace, leaks = replayed(one)
    assert (report.verdict, leaks) == ("pass", 0), report.text()
    assert trace == one.trace


def test_a_loop_that_takes_its_lock_in_handlers_of_signals_gets_the_interpreters_own() -> None:
    trios: dict[str, Any] = {"__name__": "trio._core._entry_queue"}
    exec("import threading\ndef made():\n    return threading.RLock()", trios)  # code of a module of this name

    def program() -> Any:
        return type(trios["made"]()).__module__, type(threading.RLock()).__module__ == "_thread"

    assert made(program, 1).trace == ("_thread", False)
