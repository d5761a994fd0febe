"""Cancel scopes of anyio cancel again in every pass of the loop until what is inside has ended: a program under one is quiet all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.schedule.trial import made, marks_of, replayed, tried
from tests.schedule.world import clean_up, fetch, fetch_async, reluctant

Seen = list[Any]


async def _moved_on() -> Seen:
    seen: Seen = []
    for who in range(3):
        with anyio.move_on_after(0.002) as scope:
            seen.append(await fetch_async(who=who))
        seen.append(scope.cancelled_caught)
    return seen


async def _given_up() -> Seen:
    seen: Seen = []
    try:
        with anyio.fail_after(0.001):
            seen.append(await reluctant(who="slow"))
    except TimeoutError:
        seen.append("late")
    return [*seen, await fetch_async(who="after")]


async def _group_cancelled() -> Seen:
    seen: Seen = []

    async def one(who: int) -> None:
        try:
            seen.append(await reluctant(who=who))
        except asyncio.CancelledError:
            seen.append(("cancelled", who))
            with anyio.CancelScope(shield=True):
                seen.append(await clean_up(who=who))
            raise

    async with anyio.create_task_group() as group:
        for who in range(4):
            group.start_soon(one, who)
        seen.append(await fetch_async(who="first"))
        group.cancel_scope.cancel()
    return seen


async def _beside_others() -> Seen:
    seen: Seen = []

    async def stubborn(who: str) -> None:
        try:
            await fetch_async(who=who)
        finally:
            try:
                await fetch_async(cleaning=who)  # not shielded: cancelled where it begins
            finally:
                seen.append(who)

    async def steady(who: str) -> None:
        for turn in range(3):
            seen.append(await fetch_async(who=who, turn=turn))

    async with anyio.create_task_group() as outer:
        outer.start_soon(steady, "a")
        outer.start_soon(steady, "b")
        with anyio.move_on_after(0.002):
            async with anyio.create_task_group() as inner:
                inner.start_soon(stubborn, "x")
                inner.start_soon(stubborn, "y")
    return seen


@pytest.mark.parametrize("program", [_moved_on, _given_up])
def test_programs_under_a_deadline_replay_exactly(program: Callable[[], Awaitable[Seen]]) -> None:
    trial = tried(program.__name__, program, recordings=8, replays=5)
    assert (trial.wrong, trial.leaks, trial.marks, trial.guessed) == (0, 0, {}, 0), trial.said


def _in_threads_of_anyio() -> Seen:
    async def main() -> Seen:
        seen: Seen = [await anyio.to_thread.run_sync(lambda: fetch(who="first"))]

        async def one(who: int) -> None:
            seen.append(await anyio.to_thread.run_sync(lambda: fetch(who=who)))

        async with anyio.create_task_group() as group:
            for who in range(3):
                group.start_soon(one, who)
        return seen

    return anyio.run(main)


def test_threads_of_anyio_are_proven_where_the_run_has_started_the_loop() -> None:
    trial = tried("threads", _in_threads_of_anyio, recordings=6, replays=4)
    assert (trial.wrong, trial.leaks, trial.marks, trial.guessed) == (0, 0, {}, 0), trial.said


@pytest.mark.parametrize("program", [_group_cancelled, _beside_others])
def test_cancelled_groups_replay_exactly_or_say_that_they_may_not(program: Callable[[], Awaitable[Seen]]) -> None:
    exact = 0
    for seed in range(8):
        one = made(program, seed)
        assert set(marks_of(one.recording)) <= {"tight"}
        for _ in range(4):
            report, trace, leaks = replayed(one)
            assert leaks == 0
            assert report.unproven or (report.passed and trace == one.trace), report.text()
            exact += not report.unproven
    assert exact >= 4, "what is not proven is the exception"
