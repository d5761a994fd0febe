"""How a task waits for the turn of its call, also while it is cancelled; and where a run begins."""

from __future__ import annotations

import asyncio
import weakref
from asyncio import base_events, events, tasks
from contextlib import suppress
from typing import Any

from agentloupe.ports.schedule.core import Item, Schedule
from agentloupe.ports.schedule.gate import HOOKED, gate_of
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.schedule.parts import PieceTurn
from agentloupe.ports.schedule.scopes import cancels_several, of_a_scope

__all__ = ["Cancels", "begin", "piece_turn", "turn", "until_cancelled"]

_plain_create_future: Any = base_events.BaseEventLoop.create_future


class Cancels:
    """Counts how often the program cancels the running task from here on."""

    def __init__(self) -> None:
        self._task: Any = _task_here()
        # One that was asked for and not thrown yet will be seen by what is performed now.
        self._before = self._task.cancelling() - bool(self._task._must_cancel) if self._task is not None else 0

    def count(self) -> int:
        """So often."""
        return max(0, self._task.cancelling() - self._before) if self._task is not None else 0


class _OwnTurn(asyncio.Future[None]):
    """The turn of a call that is cancelled already: it is waited for, however often the task is cancelled meanwhile.

    Frameworks that cancel again in every pass of the loop would else wake the task in every pass, and it would never be quiet.
    """

    def __init__(self, schedule: Schedule, loop: Any) -> None:
        super().__init__(loop=loop)
        self._schedule = schedule

    def cancel(self, msg: Any | None = None) -> bool:
        """Does nothing, as long as the turn is to come."""
        stays = not (self.done() or self._schedule.closed or self._schedule.halted)
        return stays or super().cancel(msg)


def _task_here() -> asyncio.Task[Any] | None:
    loop = events._get_running_loop()
    return None if loop is None else tasks.current_task(loop)


def begin(schedule: Schedule, lane: Lane) -> None:
    """The run begins in this thread, and in the running loop, if there is one."""
    schedule.begin(lane)
    loop = events._get_running_loop()
    if loop is not None and not schedule.closed:
        gate_of(loop, schedule)
        task = tasks.current_task(loop)
        if task is not None and schedule.root_task() is None:
            schedule.root_task = weakref.ref(task)


async def turn(schedule: Schedule, id: str, *, cancelled: bool) -> BaseException | None:
    """Waits for the turn of a call that is done. `cancelled`: it was, while it was performed (or is so on the tape).

    Returns what is to be raised in place of its outcome, which is lost, when the program cancelled it while it waited.

    Raises:
        the stop signal: the run is stopped meanwhile.
    """
    if schedule.closed:
        if schedule.mode == "off" and not any(HOOKED) and not schedule.marks:
            schedule.mark("no_lane", {"call": id})  # tasks cannot be told apart without the hooks
        return None
    loop: Any = events._get_running_loop()
    if loop is None or gate_of(loop, schedule) is None:
        follows = schedule.follows
        schedule.passed_by(id)
        schedule.check()
        if loop is not None and cancelled and follows:
            await _until_cancelled(loop, schedule.stuck_after)
        return None
    return await _turn(schedule, loop, id, cancelled=cancelled)


async def piece_turn(schedule: Schedule, piece: PieceTurn, *, cancelled: bool) -> BaseException | None:
    """As `turn`, for a piece of a stream; one that has no turn is there at once."""
    loop = events._get_running_loop()
    if loop is None or not schedule.takes_turns(piece) or gate_of(loop, schedule) is None:
        return None
    return await _turn(schedule, loop, piece.id, cancelled=cancelled, piece=piece)


async def _turn(
    schedule: Schedule, loop: Any, id: str, *, cancelled: bool, piece: PieceTurn | None = None
) -> BaseException | None:
    waiting = _OwnTurn(schedule, loop) if cancelled else _plain_create_future(loop)
    at_work = not cancelled and cancels_several(loop._ready)

    def deliver() -> None:
        if not waiting.done():
            waiting.set_result(None)

    schedule.add(Item(id, deliver, loop, piece=piece))
    try:
        await waiting
    except GeneratorExit as closed:
        schedule.withdraw(id)
        return closed
    except asyncio.CancelledError as lost:
        # The end of a call that is cancelled already has its turn; it may have come together with one more cancel.
        if not schedule.halted and (not cancelled or schedule.closed):
            # It was done while others were cancelled already: nobody can tell this apart.
            if at_work and of_a_scope(lost):
                schedule.mark("tight", {"why": "a call was done while a cancel scope around it was at work"})
            _lost(schedule, id)
            return lost
    schedule.check()
    return None


async def until_cancelled(schedule: Schedule | None) -> BaseException | None:
    """Waits until the program cancels by itself what it has cancelled on the tape: in its turn where timers are the tape's, else in its own time.

    Returns the cancel, where it came.
    """
    loop: Any = events._get_running_loop()
    if loop is None or schedule is None or schedule.closed:
        return None
    if gate_of(loop, schedule) is None:
        await _until_cancelled(loop, schedule.stuck_after)
        return None
    try:
        await _plain_create_future(loop)
    except asyncio.CancelledError as error:
        schedule.check()
        return error
    return None


async def _until_cancelled(loop: Any, patience: float) -> None:
    waiting = loop.create_future()
    enough = loop.call_later(patience, waiting.cancel)
    with suppress(asyncio.CancelledError):
        await waiting
    enough.cancel()


def _lost(schedule: Schedule, id: str) -> None:
    """The program cancels a call that is done, before it has the answer."""
    schedule.withdraw(id)
    if schedule.follows and schedule.known(id) and schedule.keeper is not None:
        schedule.keeper.cancelled(id)
    schedule.check()
