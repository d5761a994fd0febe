"""Event loops that are not asyncio's own are not gated: programs run on them as they do bare, and the order is not proven."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.schedule.trial import made, marks_of, replayed
from tests.schedule.world import World, ask_async, fetch_async, living_in

uvloop: Any = pytest.importorskip("uvloop", reason="needs uvloop, which is no dependency: pip install uvloop")


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


def _in_uvloop(program: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(program())


def test_calls_one_after_another_replay_and_the_order_is_not_proven() -> None:
    one = made(lambda: _in_uvloop(_one_after_another), 1)
    assert set(marks_of(one.recording)) == {"no_lane"}
    report, trace, leaks = replayed(one)
    assert (report.verdict, leaks) == ("pass", 0), report.text()
    assert trace == one.trace
    assert any("no_lane in the recording" in why for why in report.unproven)


def test_calls_at_once_are_recorded_and_a_replay_ends_and_performs_nothing() -> None:
    one = made(lambda: _in_uvloop(_at_once), 1)
    with living_in(World(1)):
        assert [len(pair) for pair in one.trace] == [len(pair) for pair in _in_uvloop(_at_once)]
    report, trace, leaks = replayed(one)
    assert leaks == 0
    assert report.unproven, "whatever comes of it, it says so"
    assert trace in (one.trace, None)
