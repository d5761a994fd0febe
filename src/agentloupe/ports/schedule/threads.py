"""The baton: threads of a run take turns, and change only where one of them waits. Hooks into `threading` and `time`.

A thread that a run starts is a lane of that run. Where one of its strands waits (for a thread, a condition, a time), the
next one runs: the one that was woken longest ago. So whatever threads do between two inputs follows from the program.

Hooks are put in place with the first run. They do nothing for code outside of any run, and nothing on behalf of a call.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from agentloupe.ports import surroundings
from agentloupe.ports.callers import made_here
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import Item, Schedule, Strand
from agentloupe.ports.surroundings import Home, Surroundings, here
from agentloupe.words.errors import ReplayMismatch

__all__ = ["InnerHome", "Me", "ThreadHome", "end_lane", "install", "me", "noticed", "sees"]


class Me(NamedTuple):
    """The running code, where it is a strand of a run."""

    schedule: Schedule
    strand: Strand
    there: Surroundings

    def timer(self, deliver: Callable[[], object], dead: Callable[[], object]) -> Item:
        """A timer of this lane."""
        lane = self.there.lane
        return Item(lane.next_timer(), deliver, dead=lambda: bool(dead()), lane=lane.path)


def me() -> Me | None:
    """The strand that the running code is; with the baton, if it had lost that.

    `None` outside of runs and on behalf of a call, where threads are not passed the baton, and while the machinery below a
    hook waits for a thread of its own.
    """
    there = here()
    schedule = there.schedule if there is not None else None
    if there is None or schedule is None or not schedule.gates_threads:
        return None
    strand = schedule.strand()
    if strand is None or strand.inner:
        return None
    schedule.regain(strand)
    return Me(schedule, strand, there)


def sees(schedule: Schedule) -> bool:
    """Whether the running code is a part of that run, so that what it does follows from what was handed over."""
    there = here()
    return of_own_loop(schedule) if there is None else there.schedule is schedule


def of_own_loop(schedule: Schedule) -> bool:
    """Whether this is a callback, in a context of nobody's, of a loop that the run itself has started: nothing else is in there."""
    events: Any = sys.modules.get("asyncio.events")
    loop = None if events is None else events._get_running_loop()
    gate: Any = getattr(loop, "agentloupe_gate", None)
    return gate is not None and gate.owner is schedule


def noticed(schedule: Schedule) -> None:
    """A strand is woken; if not by the run itself, nobody knows why now and not later."""
    if not schedule.closed and not schedule.halted and not sees(schedule):
        schedule.mark("guess", {"why": "a thread was woken by code outside of the run"})


# --- where threads stand ------------------------------------------------------------------------------------------------


class ThreadHome(Home):
    """Where a thread, or a work item, of a run stands. A recording that is over lets go of it."""

    __slots__ = ("__weakref__",)

    def __init__(self, root: Surroundings) -> None:
        super().__init__(root)
        schedule = root.schedule
        if schedule is not None and getattr(root.boundary, "forgettable", False):
            schedule.at_close.append(_forgetting(self))

    def forget(self) -> None:
        """The run is over: what is done here from now on is no part of it."""
        self.root = Surroundings(None, self.root.lane, None, home=self.number)


def _forgetting(home: ThreadHome) -> Callable[[], None]:
    reference = weakref.ref(home)

    def forget() -> None:
        left = reference()
        if left is not None:
            left.forget()

    return forget


class InnerHome(Home):
    """Where a thread stands that was started on behalf of a call: inside of it, for as long as it is performed."""

    __slots__ = ("_outside",)

    def __init__(self, there: Surroundings) -> None:
        inside = Surroundings(there.boundary, there.lane.child("t"), there.span_id, there.performing, inner=True)
        super().__init__(inside)
        self._outside = Surroundings(None, there.lane, None, home=self.number)

    def __getattribute__(self, name: str) -> Any:
        """`root` is outside of any run when the call has come to its end."""
        root = super().__getattribute__(name)
        if name == "root" and root.performing is not None and root.performing.ended:
            return super().__getattribute__("_outside")
        return root


def end_lane(schedule: Schedule, there: Surroundings) -> None:
    """A lane has come to its end; said of those that made a call."""
    if there.lane.calls:
        schedule.started(there.lane.path)
        schedule.log("task.joined", there.lane.path, {})


# --- threads ------------------------------------------------------------------------------------------------------------

_STRAND = "_agentloupe_strand"
_plain_is_alive = threading.Thread.is_alive


@functools.wraps(plain.start)
def _start(self: threading.Thread) -> None:
    there = here()
    if there is None or there.boundary is None or _is_worker(self):
        return plain.start(self)
    if there.inner:
        self.run = _at_home(InnerHome(there), self.run)
        return plain.start(self)
    schedule = there.schedule
    home = ThreadHome(made_here(there.child("t")).root)
    if schedule is None or schedule.closed:
        self.run = _at_home(home, self.run)
        return plain.start(self)
    return _start_lane(self, schedule, home)


_MACHINERY = frozenset({"concurrent.futures.thread", "concurrent.futures.process", "multiprocessing.queues"})


def _is_worker(thread: threading.Thread) -> bool:
    """A pool's worker outlives the run that happened to need it first: its work items have lanes, it has none.

    Nor have the threads that talk to the processes of a pool.
    """
    target = getattr(thread, "_target", None)
    return getattr(target, "__module__", "") in _MACHINERY or type(thread).__module__ in _MACHINERY


def _at_home(home: Home, run: Callable[[], None]) -> Callable[[], None]:
    def at_home() -> None:
        before = surroundings.set_home(home)
        try:
            run()
        except BaseException as error:
            if not _stopped(getattr(home.root.boundary, "schedule", None), home, error):
                raise
        finally:
            surroundings.set_home(before)

    return at_home


def _stopped(schedule: Schedule | None, home: Home, error: BaseException) -> bool:
    """Whether a thread dies of nothing but that its run is stopped or over.

    It does so without a word: who drives the run tells why, and may have gone on by now. With `--debug` it says where it was.
    """
    if schedule is None or os.environ.get("LOUPE_DEBUG"):
        return False
    if isinstance(error, ReplayMismatch):
        return schedule.halted or schedule.closed
    return error is getattr(home.root.boundary, "stopped", None)  # a fork's, by a limit or a refusal


def _start_lane(thread: threading.Thread, schedule: Schedule, home: ThreadHome) -> None:
    mine = me()
    schedule.lanes += 1
    strand = Strand(home.root.lane)
    thread.__dict__[_STRAND] = strand
    thread.run = _as_strand(schedule, strand, home, thread.run)
    if mine is not None:
        schedule.take_baton(mine.strand)
        mine.strand.inner = True  # the wait for the new thread to be there is not the program's
    try:
        plain.start(thread)
    except BaseException:
        thread.__dict__.pop(_STRAND, None)
        raise
    finally:
        if mine is not None:
            mine.strand.inner = False
    schedule.join_in(strand)


def _as_strand(schedule: Schedule, strand: Strand, home: Home, run: Callable[[], None]) -> Callable[[], None]:
    def as_strand() -> None:
        home.root.lane.thread = threading.get_ident()
        before = surroundings.set_home(home)
        schedule.enter(strand)
        schedule.rest(strand)
        try:
            if not schedule.halted:
                run()
        except BaseException as error:
            if not _stopped(schedule, home, error):
                raise
        finally:
            _end(schedule, strand, home)
            surroundings.set_home(before)

    return as_strand


def _end(schedule: Schedule, strand: Strand, home: Home) -> None:
    with schedule.lock:
        strand.ended = True
        end_lane(schedule, home.root)
        joiners, strand.joiners = strand.joiners, []
        for waiting in joiners:
            schedule.wake(waiting)
        schedule.leave(strand)
        schedule.park(strand)


@functools.wraps(plain.join)
def _join(self: threading.Thread, timeout: float | None = None) -> None:
    target: Strand | None = self.__dict__.get(_STRAND)
    mine = me() if target is not None else None
    if mine is None or target is None or target is mine.strand or (timeout is not None and timeout <= 0):
        return plain.join(self, timeout)
    schedule, strand, _ = mine
    limit = None if timeout is None else time.monotonic() + timeout
    with schedule.lock:
        waits = not target.ended
        if waits:
            target.joiners.append(strand)
    if waits:
        timer = None
        if timeout is not None:
            timer = mine.timer(lambda: _expired(schedule, target, strand), lambda: strand not in target.joiners)
        schedule.block(strand, timer, timeout)
        _gone(target, strand)
    if target.ended or schedule.closed:
        strand.inner = True
        try:
            plain.join(self, None if limit is None else max(0.0, limit - time.monotonic()))
        finally:
            strand.inner = False
    return None


def _gone(target: Strand, strand: Strand) -> None:
    if strand in target.joiners:
        target.joiners.remove(strand)


def _expired(schedule: Schedule, target: Strand, strand: Strand) -> None:
    _gone(target, strand)
    schedule.wake(strand)


@functools.wraps(_plain_is_alive)
def _is_alive(self: threading.Thread) -> bool:
    """A thread of a run is over when its `run` is: how long the system takes to clear it away is chance."""
    target: Strand | None = self.__dict__.get(_STRAND)
    if target is not None and target.ended and me() is not None:
        return False
    return _plain_is_alive(self)


# --- waiting ------------------------------------------------------------------------------------------------------------


class Waiter:
    """Stands for the lock that a condition keeps for each thread that waits."""

    __slots__ = ("schedule", "state", "strand")

    def __init__(self, schedule: Schedule, strand: Strand) -> None:
        self.schedule = schedule
        self.strand = strand
        self.state = ""

    def release(self) -> None:
        """Notified: the place in the queue is fixed now, by whoever notifies."""
        self._end("notified")
        noticed(self.schedule)

    def expire(self) -> None:
        """The time is over."""
        self._end("expired")

    def _end(self, state: str) -> None:
        with self.schedule.lock:
            if self.state:
                raise RuntimeError("woken already")  # notify goes on to the next one then
            self.state = state
            self.schedule.wake(self.strand)


@functools.wraps(plain.wait)
def _wait(self: Any, timeout: float | None = None) -> bool:
    """`Condition.wait`: below `Event`, `queue.Queue`, `Semaphore`, `Barrier`, `Timer` and futures."""
    mine = me()
    if mine is None:
        return plain.wait(self, timeout)
    if timeout is not None and timeout <= 0:
        mine.strand.expired = True
        return plain.wait(self, timeout)
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    schedule, strand, _ = mine
    limit = None if timeout is None else time.monotonic() + timeout
    waiter = Waiter(schedule, strand)
    timer = None if timeout is None else mine.timer(waiter.expire, lambda: waiter.state)
    self._waiters.append(waiter)
    saved = self._release_save()
    try:
        schedule.block(strand, timer, timeout)
    finally:
        self._acquire_restore(saved)
        if waiter in self._waiters:
            self._waiters.remove(waiter)
    if waiter.state:
        strand.expired = waiter.state == "expired"
        return not strand.expired
    # The run has ended meanwhile: it waits on like any other thread.
    return plain.wait(self, None if limit is None else max(0.0, limit - time.monotonic()))


@functools.wraps(plain.sleep)
def _sleep(seconds: float) -> None:
    mine = me()
    if mine is None or not seconds >= 0:
        return plain.sleep(seconds)
    schedule, strand, _ = mine
    if not schedule.baton:  # it races with nothing; in a replay nobody waits for it
        return schedule.check() if schedule.follows else plain.sleep(seconds)
    if seconds == 0:
        schedule.yields(strand)
        return None
    limit = time.monotonic() + seconds
    over: list[bool] = []

    def expire() -> None:
        over.append(True)
        schedule.wake(strand)

    schedule.block(strand, mine.timer(expire, lambda: over), seconds)
    if not over and schedule.live:  # the run has ended meanwhile
        plain.sleep(max(0.0, limit - time.monotonic()))
    return None


# --- the end of a program -------------------------------------------------------------------------------------------------

_plain_shutdown: Callable[[], None] = cast("Any", threading)._shutdown


def _shutdown() -> None:
    """The program's first thread is done, and waits for the others: so do theirs, where they pass a baton."""
    while me() is not None:
        left = [one for one in threading.enumerate() if _STRAND in one.__dict__ and not one.daemon]
        if not left:
            break
        left[0].join()
        if left[0].is_alive():
            break
    mine = me()
    if mine is None:
        return _plain_shutdown()
    mine.schedule.away()  # workers of pools are waited for where no hook stands, and have their items still to do
    try:
        return _plain_shutdown()
    finally:
        with suppress(ReplayMismatch):  # a run that was stopped has said so
            mine.schedule.back()


# --- installing -----------------------------------------------------------------------------------------------------------

_installed: list[bool] = []


def install() -> None:
    """Puts the hooks in place, once a process."""
    if _installed:
        return
    _installed.append(True)
    from agentloupe.ports.schedule import clocks, forks, locks, pools

    thread: Any = threading.Thread
    thread.start, thread.join, thread.is_alive = _start, _join, _is_alive
    cast("Any", threading.Condition).wait = _wait
    cast("Any", threading)._shutdown = _shutdown
    locks.replace_names("sleep", plain.sleep, _sleep)
    locks.install()
    pools.install()
    forks.install()
    clocks.install()
