"""The gate in front of a loop's sleep.

A loop is quiet for a run when it is about to sleep and has nothing of that run to do. What other runs do on the same loop,
and what is done on behalf of a call, does not count.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final

from agentloupe.ports.schedule.core import PATIENCE, Schedule, Strand, nudge
from agentloupe.ports.schedule.faults import given_up
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.schedule.scopes import cancels_again, keep_their_order
from agentloupe.ports.surroundings import Home, Surroundings, of_context

__all__ = ["HOOKED", "OUTSIDE", "Gate", "gate_of", "plain_threadsafe"]

_PASSES: Final = 200
"""A loop that is never quiet keeps an input back for so many passes, and `PATIENCE` seconds."""
_OUTSIDE_PASSES: Final = 8
"""Code outside of any run may be what the program waits for, or not: it keeps an input back for so many passes."""
_GRACE: Final = 1.0
"""Seconds after the stop signal until tasks that still wait are cancelled."""

OUTSIDE: Final = Context
"""A context that is nobody's."""

HOOKED: Final[list[bool]] = []
"""Whether the hooks into asyncio are in place, once that was decided; without them no loop is gated."""

plain_threadsafe: Callable[..., events.Handle] = base_events.BaseEventLoop.call_soon_threadsafe
"""As it is without a hook."""


class _Seat:
    """A run at a loop."""

    __slots__ = ("again", "outside", "passes", "strand")

    def __init__(self, strand: Strand) -> None:
        self.strand = strand
        self.passes = 0
        self.outside = 0
        self.again = False


class Gate:
    """Stands for `selector.select` of one loop.

    Attributes:
        owner: the run that has started the loop, as long as it runs.
        ahead: seconds by which the loop's clock is ahead of the real one, because a replay did not wait for its timers.
    """

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.seats: dict[Schedule, _Seat] = {}
        self.new: set[Schedule] = set()
        self._inbox: deque[Any] = deque()
        self._arrivals: dict[Schedule, tuple[Strand, list[Any]]] = {}
        self._select: Callable[[float | None], list[Any]] = loop._selector.select
        self.owner: Schedule | None = None
        self.ahead = 0.0
        keep_their_order()

    def join(self, schedule: Schedule) -> None:
        """The run has something in this loop."""
        self.new.add(schedule)

    def reach(self, when: float) -> None:
        """A replay does not wait for its timers. Whoever looks at the loop's clock when one has run out sees that it has."""
        self.ahead += max(0.0, when - self.loop.time())

    def __call__(self, timeout: float | None = None) -> list[Any]:
        """Hands over what may be handed over; then sleeps like the real one."""
        if not self.seats and not self.new:
            return self._select(timeout)
        self._survives(self._hand_over)
        found = self._select(0) if self.loop._ready else self._sleep(timeout)
        self._survives(self._come)
        return found

    def _hand_over(self) -> None:
        self._sit_down()
        self._come()
        if any(one.items or one.spare or one.baton or one.follows for one in self.seats):
            self._look()

    def _survives(self, step: Callable[[], None]) -> None:
        """A fault of the gate is not the loop's: runs that are recorded go on without it."""
        try:
            step()
        except Exception as fault:
            if [one for one in (*self.seats, *self.new) if not given_up(one, fault)]:
                raise
            self.seats.clear()
            self.new.clear()
            self._let_go()

    def _come(self) -> None:
        """Others have put something into this loop: it is done when the baton has come."""
        for schedule, seat in self.seats.items():
            schedule.regain(seat.strand)
            schedule.come(seat.strand)
        self._let_go()

    def _let_go(self) -> None:
        while self._inbox:
            self.loop._ready.append(self._inbox.popleft())

    def _sit_down(self) -> None:
        while self.new:
            schedule = self.new.pop()
            if schedule not in self.seats:
                strand = schedule.strand()
                if strand is None:  # this loop's thread is none of the run's
                    strand = Strand(Lane("0"))
                    schedule.enter(strand)
                    schedule.idle[self.loop] = strand
                self.seats[schedule] = _Seat(strand)
        for schedule in [one for one in self.seats if one.closed]:
            schedule.leave(self.seats.pop(schedule).strand)

    def post(self, schedule: Schedule, handle: Any) -> None:
        """Another thread of a run puts something into this loop: its place in the queue is fixed now."""
        with schedule.lock:
            if schedule in self.seats or schedule in self.new:
                self._inbox.append(handle)
                schedule.call(self.loop)
            elif (known := self._arrivals.get(schedule)) is not None:
                known[1].append(handle)
            else:  # the run was not in this loop so far
                strand = Strand(Lane("0"))
                self._arrivals[schedule] = strand, [handle]
                schedule.join_in(strand)
                plain_threadsafe(self.loop, self._let_in, schedule, context=OUTSIDE())
                return
        nudge(self.loop)

    def _let_in(self, schedule: Schedule) -> None:
        strand, handles = self._arrivals[schedule]
        schedule.enter(strand)
        schedule.rest(strand)
        self.seats[schedule] = _Seat(strand)
        with schedule.lock:
            del self._arrivals[schedule]
            self.loop._ready.extend(handles)

    def leave(self, schedule: Schedule) -> None:
        """The loop is not run any more, and the run goes on in its thread."""
        seat = self.seats.pop(schedule, None)  # another thread may run it next
        if seat is not None and self.loop in schedule.idle:
            self._take(schedule, seat)

    def _look(self) -> None:
        ready = self.loop._ready
        busy, again, outside = _owners(ready) if ready else _NOBODY
        for schedule, seat in self.seats.items():
            if schedule in busy:
                self._busy(schedule, seat)
            elif schedule in again and not seat.again:
                seat.again = True  # if this pass wakes nobody, no other will
            elif outside and seat.outside < _OUTSIDE_PASSES:
                seat.outside += 1
            elif self._rest(schedule, seat) and outside and schedule.lanes > 1:
                schedule.mark("tight", {"why": "code outside of the run kept the loop awake"})

    def _rest(self, schedule: Schedule, seat: _Seat) -> bool:
        """Nothing of the run is left to do here: one input may come in."""
        seat.passes = seat.outside = 0
        seat.again = False
        with schedule.lock:
            if schedule.pump(self.loop):  # the run goes on in this loop
                schedule.idle.pop(self.loop, None)
                if schedule.baton and schedule.holder is None:
                    schedule.holder, schedule.since = seat.strand, time.monotonic()
                return True
            if self.loop not in schedule.idle and not seat.strand.called:
                schedule.idle[self.loop] = seat.strand
                schedule.park(seat.strand)
        schedule.complain()  # without the lock
        return False

    def _busy(self, schedule: Schedule, seat: _Seat) -> None:
        """The run has something to do here; with others, only while it has the baton. If it never rests, patience ends."""
        if self.loop in schedule.idle:
            self._take(schedule, seat)
        seat.outside = 0
        seat.again = False
        seat.passes += 1
        first = next((item for item in list(schedule.items.values()) if item.loop is self.loop), None)
        if first is None:
            return
        first.passes = first.passes or seat.passes  # counted, too: a process that gets no processor is not a busy loop
        waited = time.monotonic() - first.since > PATIENCE and seat.passes - first.passes > _PASSES
        if waited and schedule.pump(self.loop, forced=True):
            schedule.mark("tight", {"why": "the loop was never quiet"})

    def _take(self, schedule: Schedule, seat: _Seat) -> None:
        """Something of the run has come up in a loop that was idle for it: it needs the baton."""
        with schedule.lock:
            idle = schedule.idle.pop(self.loop, None)
            if idle is None or not schedule.baton or schedule.holder is seat.strand:
                return  # it has been called meanwhile, or has the baton
            schedule.runq.append(seat.strand)
            schedule.grant()
        schedule.rest(seat.strand)

    def _sleep(self, timeout: float | None) -> list[Any]:
        waits = [self._wait(schedule) for schedule in self.seats]
        if self.loop._ready:
            return self._select(0)
        limits = [wait for wait in (timeout, *waits) if wait is not None]
        return self._select(min(limits) if limits else None)

    def _wait(self, schedule: Schedule) -> float | None:
        """How long this run lets the loop sleep before it is looked after: a replay that does not move, one that does not stop."""
        if schedule.closed:
            return None
        if schedule.halted:
            rest = _GRACE - (time.monotonic() - schedule.halted_at)
            if rest <= 0:
                schedule.halted_at = time.monotonic()
                _cancel_all(self.loop, schedule)
            return max(rest, 0.01)
        if not schedule.follows:
            return None
        schedule.look()
        return schedule.until_stuck()


def _cancel_all(loop: Any, schedule: Schedule) -> None:
    """What still waits after the stop signal, for something that only a stopped task could give, waits no more."""
    for task in asyncio.all_tasks(loop):
        home: Home | None = getattr(task, "agentloupe_home", None)
        if task is schedule.root_task() or (home is not None and home.root.schedule is schedule):
            task.cancel()


_NOBODY: Final = (frozenset[Schedule](), frozenset[Schedule](), False)


def _owners(ready: Iterable[Any]) -> tuple[set[Schedule], set[Schedule], bool]:
    """The runs that have something to do among these handles, those that cancel again, and whether code outside of any has."""
    found: set[Schedule] = set()
    again: set[Schedule] = set()
    outside = False
    for handle in list(ready):  # what is collected meanwhile may put something there
        if handle._cancelled:
            continue
        there = _of_handle(handle)
        if there is None or there.boundary is None:
            outside = True
        elif (schedule := there.schedule) is not None:
            (again if cancels_again(handle) else found).add(schedule)
    return found, again, outside


def _of_handle(handle: Any) -> Surroundings | None:
    task: Any = getattr(handle._callback, "__self__", None)
    home: Home | None = getattr(task, "agentloupe_home", None)
    return of_context(handle._context, home)


def gate_of(loop: Any, schedule: Schedule, *, join: bool = True) -> Gate | None:
    """The gate of a loop, with this run at it if it is to `join`; `None` for a loop that cannot be gated."""
    gate: Gate | None = getattr(loop, "agentloupe_gate", None)
    if gate is None:
        if not (hasattr(loop, "_ready") and hasattr(getattr(loop, "_selector", None), "select") and any(HOOKED)):
            return None
        gate = loop.agentloupe_gate = Gate(loop)
        loop._selector.select = gate
    if join and schedule not in gate.seats:
        gate.join(schedule)
    return gate
