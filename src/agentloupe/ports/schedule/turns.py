"""How a task waits for the turn of its call, also while it is cancelled; and where a run begins."""

from __future__ import annotations

import asyncio
import weakref
from asyncio import base_events, events, tasks
from typing import Any

from agentloupe.ports.schedule.core import Item, Schedule
from agentloupe.ports.schedule.gate import HOOKED, gate_of
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.schedule.parts import PieceTurn

__all__ = ["Cancels", "begin", "piece_turn", "turn"]

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
    loop = events._get_running_loop()
    if loop is None or gate_of(loop, schedule) is None:
        schedule.passed_by(id)
        schedule.check()
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
    waiting = _plain_create_future(loop)

    def deliver() -> None:
        if not waiting.done():
            waiting.set_result(None)

    schedule.add(Item(id, deliver, loop, piece=piece))
    while True:
        try:
            await waiting
        except GeneratorExit as closed:
            schedule.withdraw(id)
            return closed
        except asyncio.CancelledError as lost:
            if schedule.halted:
                break
            if not cancelled or schedule.closed:
                _lost(schedule, id)
                return lost
            if not waiting.cancelled():
                break  # its turn has come together with the cancel
            waiting = _plain_create_future(loop)  # its end has its turn, however often it is cancelled meanwhile
            continue
        break
    schedule.check()
    return None


def _lost(schedule: Schedule, id: str) -> None:
    """The program cancels a call that is done, before it has the answer."""
    schedule.withdraw(id)
    if schedule.follows and schedule.known(id) and schedule.keeper is not None:
        schedule.keeper.cancelled(id)
    schedule.check()
