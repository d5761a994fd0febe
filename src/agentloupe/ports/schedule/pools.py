"""Work items of thread pools. Each is a lane; the workers that happen to do them are none.

A pool that only one run uses is foreseen: an item that a worker is free for has its place in the queue when it is submitted,
another gets it when the item that it waits for has ended. So who runs when does not depend on how quick threads are. Of a
pool that others use too nothing can be foreseen: its items come as they come, and the order is not proven.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, cast

from agentloupe.ports import surroundings
from agentloupe.ports.callers import made_here
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import Schedule, Strand
from agentloupe.ports.schedule.forks import tell_of_interpreter
from agentloupe.ports.schedule.threads import InnerHome, Me, ThreadHome, end_lane, me
from agentloupe.ports.surroundings import Home, here

__all__ = ["install"]

_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.1
"""So often and so long a submit waits for a worker that is free to take the item; then it comes when it comes. Counted, not
only timed: where a process gets no processor, neither does the one that waits."""

_plain_submit = ThreadPoolExecutor.submit
_plain_shutdown = ThreadPoolExecutor.shutdown
_plain_init: Callable[[Future[Any]], None] = cast("Any", Future).__init__

# --- what is known of a pool ----------------------------------------------------------------------------------------------


class _Pool:
    """A pool, as far as hooks have seen it.

    Attributes:
        owner: the run that it is foreseen for.
        busy: items of the owner that workers have, or are about to take.
        queued: its items that wait for a worker.
        others: items of others that are not done.
        joiners: strands that wait for its end.
    """

    def __init__(self) -> None:
        self.owner: weakref.ref[Schedule] | None = None
        self.busy = 0
        self.queued: deque[_Job] = deque()
        self.others = 0
        self.joiners: list[Strand] = []

    def foreseen_by(self, schedule: Schedule, executor: Any) -> bool:
        """Whether this run alone uses the pool now; it becomes the owner of one that rests."""
        owner = self.owner() if self.owner is not None else None
        if self.others:
            return False
        if owner is schedule:
            return True
        if (owner is not None and not owner.closed and (self.busy or self.queued)) or not _rests(executor):
            return False
        self.owner = weakref.ref(schedule)
        self.busy = 0
        self.queued.clear()
        self.joiners.clear()
        return True

    def pass_cancelled(self) -> None:
        """A worker that becomes free finds these first: whoever waits for one hears of it here, not when a thread comes by."""
        while self.queued and self.queued[0].future.done():
            self.queued.popleft().pass_by()

    def outstanding(self) -> bool:
        """Whether items of the owner are not done."""
        return self.busy > 0 or any(not job.future.done() for job in self.queued)


_pools: weakref.WeakKeyDictionary[ThreadPoolExecutor, _Pool] = weakref.WeakKeyDictionary()
_guard = plain.RLock()


def _rests(executor: Any) -> bool:
    """Whether no worker of a pool has anything to do. A worker says so a moment after its item is done."""
    for _ in range(50):
        if executor._work_queue.empty() and executor._idle_semaphore._value >= len(executor._threads):
            return True
        plain.sleep(0.0002)
    return False


# --- items ----------------------------------------------------------------------------------------------------------------


class _Job:
    """One work item of a run."""

    def __init__(self, schedule: Schedule, home: Home, pool: _Pool, work: Callable[[], Any], *, foreseen: bool) -> None:
        self.schedule = schedule
        self.home = home
        self.pool = pool
        self.work = work
        self.strand = Strand(home.root.lane)
        self.foreseen = foreseen
        self.expected = False
        self.counted = False
        self.begun = False
        self.placed, self.in_hand = plain.allocate_lock(), plain.allocate_lock()
        self.placed.acquire()
        self.in_hand.acquire()
        self._before: Home | None = None
        self.passed = False
        self.notify_cancel: Callable[[], bool]
        self.future: Future[Any]

    def __call__(self) -> Any:
        """What the worker does."""
        with self.placed:
            pass
        self._begin()
        self.schedule.rest(self.strand)
        self.schedule.check()
        return self.work()

    def _begin(self) -> None:
        schedule = self.schedule
        self.home.root.lane.thread = threading.get_ident()
        self._before = surroundings.set_home(self.home)
        with schedule.lock:
            self.begun = True
            schedule.enter(self.strand)
            if self.foreseen and not self.counted:
                self._taken_unforeseen()
            schedule.queue(self.strand)
            self._arrived()
        self.in_hand.release()

    def _taken_unforeseen(self) -> None:
        """A worker has it that none was thought to be free: its place in the queue is chance."""
        with suppress(ValueError):
            self.pool.queued.remove(self)
        self._count()
        self.schedule.mark("guess", {"why": "a worker took what it was not thought to be free for"})

    def _count(self) -> None:
        self.counted = True
        self.pool.busy += 1

    def _arrived(self) -> None:
        """It is with a worker, or will never be: the baton does not wait for it any more."""
        if self.expected:
            self.expected = False
            self.schedule.beginning -= 1
            self.schedule.coming.remove(self)
        self.schedule.grant()

    def expect(self) -> None:
        """A worker is about to take it: nobody else runs before it is in hand."""
        self._count()
        self.expected = True
        self.schedule.beginning += 1
        self.schedule.coming.append(self)

    def give_up(self) -> None:
        """It was not taken so far: others go on, and it comes when it comes. The worker is not free for another one."""
        with self.schedule.lock:
            if self.expected:
                if self.future.done():  # it was cancelled from outside: no worker does anything for it
                    self._free_worker()
                self._arrived()
                self.schedule.mark("guess", {"why": "a worker did not take what it was free for"})

    def pass_by(self) -> None:
        """It was cancelled before a worker had it."""
        future = cast("Any", self.future)
        if future._state == "CANCELLED":
            self.passed = True
            self.notify_cancel()

    def asked(self) -> bool:
        """Whether a worker that has it is to do it; in place of the future's own answer, which also says if it was cancelled."""
        self.future.__dict__.pop("set_running_or_notify_cancel", None)
        return not self.passed and self.notify_cancel()

    def over(self) -> None:
        """Its result is set: those who waited for it were woken, and callbacks have run."""
        schedule = self.schedule
        if self.begun:
            self.pool.pass_cancelled()  # without the lock: those who wait for them are woken
        with schedule.lock:
            if not self.begun:  # the pool broke before a worker had it
                self._free_worker()
                self._arrived()
                if self.in_hand.locked():
                    self.in_hand.release()
                return
            self.begun = False
            end_lane(schedule, self.home.root)
            schedule.leave(self.strand)
            self._free_worker()
            schedule.park(self.strand)
        surroundings.set_home(self._before)

    def _free_worker(self) -> None:
        if not self.counted:
            return
        self.counted, pool = False, self.pool
        pool.busy -= 1
        while pool.queued and pool.queued[0].future.done():
            pool.queued.popleft()
        if pool.queued:
            pool.queued.popleft().expect()
        elif not pool.busy:
            for waiting in pool.joiners:
                self.schedule.wake(waiting)
            pool.joiners.clear()


def _telling(method: Callable[[Any], None], job: _Job, future: Future[Any]) -> Callable[[Any], None]:
    def told(value: Any) -> None:
        future.__dict__.pop("set_result", None)
        future.__dict__.pop("set_exception", None)
        try:
            method(value)
        finally:
            job.over()

    return told


@functools.wraps(_plain_submit)
def _submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    there = here()
    if there is None or there.boundary is None:
        return _count_other(self, _plain_submit(self, fn, *args, **kwargs))
    if _has_interpreters(self):
        tell_of_interpreter(there)
        return _plain_submit(self, fn, *args, **kwargs)
    if there.inner:
        work = _at(InnerHome(there), functools.partial(fn, *args, **kwargs))
        return _count_other(self, _plain_submit(self, work))
    schedule, mine = there.schedule, me()
    home = ThreadHome(made_here(there.child("p")).root)
    if schedule is None or mine is None:
        return _plain_submit(self, _at(home, functools.partial(fn, *args, **kwargs)))
    schedule.lanes += 1
    return _submit_lane(self, mine, home, functools.partial(fn, *args, **kwargs))


def _has_interpreters(executor: ThreadPoolExecutor) -> bool:
    """Whether the workers of a pool only hand their work on to interpreters of their own (Python 3.14)."""
    of_interpreters: Any = sys.modules.get("concurrent.futures.interpreter")
    return of_interpreters is not None and isinstance(executor, of_interpreters.InterpreterPoolExecutor)


def _at(home: Home, work: Callable[[], Any]) -> Callable[[], Any]:
    def at_home() -> Any:
        before = surroundings.set_home(home)
        try:
            return work()
        finally:
            surroundings.set_home(before)

    return at_home


def _count_other(executor: ThreadPoolExecutor, future: Future[Any]) -> Future[Any]:
    """An item of somebody else, in a pool that a run has used: until it is done, nothing is foreseen there."""
    pool = _pools.get(executor)
    if pool is not None:
        with _guard:
            pool.others += 1
        future.add_done_callback(lambda _: _one_less(pool))
    return future


def _one_less(pool: _Pool) -> None:
    with _guard:
        pool.others -= 1


def _submit_lane(executor: Any, mine: Me, home: ThreadHome, work: Callable[[], Any]) -> Future[Any]:
    schedule, strand, _ = mine
    schedule.take_baton(strand)
    with _guard:
        pool = _pools.setdefault(executor, _Pool())
        foreseen = pool.foreseen_by(schedule, executor)
        if not foreseen:
            pool.others += 1
    job = _Job(schedule, home, pool, work, foreseen=foreseen)
    strand.inner = True  # a worker may have to be started: that is not the program's doing
    try:
        future: Future[Any] = _plain_submit(executor, job)
    except BaseException:
        if not foreseen:
            _one_less(pool)
        raise
    finally:
        strand.inner = False
    job.future = future
    any_future = cast("Any", future)
    any_future.set_result = _telling(future.set_result, job, future)
    any_future.set_exception = _telling(future.set_exception, job, future)
    if foreseen:
        job.notify_cancel = future.set_running_or_notify_cancel
        any_future.set_running_or_notify_cancel = job.asked
        _place(job, executor, strand)
    else:
        future.add_done_callback(lambda _: _one_less(pool))
        schedule.mark("guess", {"why": "a pool of threads that others use too"})
        job.placed.release()
    return future


def _place(job: _Job, executor: Any, strand: Strand) -> None:
    """Its place in the queue: now, where a worker is free for it, so that `cancel` and `running` say what is so."""
    with job.schedule.lock:
        free = job.pool.busy < executor._max_workers
        if free:
            job.expect()
        else:
            job.pool.queued.append(job)
    job.placed.release()
    if job.future.done() and not job.begun:  # the pool broke meanwhile
        job.over()
    if free:
        strand.inner = True
        try:
            if not any(job.in_hand.acquire(True, _LOOK_SECONDS) for _ in range(_LOOKS)):
                job.give_up()
        finally:
            strand.inner = False


@functools.wraps(_plain_shutdown)
def _shutdown(self: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
    mine = me()
    pool = _pools.get(self) if mine is not None else None
    if mine is None or pool is None or pool.owner is None or pool.owner() is not mine.schedule:
        return _plain_shutdown(self, wait, cancel_futures=cancel_futures)
    schedule, strand, _ = mine
    strand.inner = True
    try:
        _plain_shutdown(self, False, cancel_futures=cancel_futures)
    finally:
        strand.inner = False
    with schedule.lock:
        if cancel_futures:  # no worker finds these any more
            pool.queued = deque(job for job in pool.queued if not job.future.done())
        left = wait and pool.outstanding()
        if left:
            pool.joiners.append(strand)
    if left:
        try:
            schedule.block(strand)
        finally:
            if strand in pool.joiners:
                pool.joiners.remove(strand)
    if wait:
        strand.inner = not pool.others  # of items that were not foreseen nobody knows when they end
        try:
            _plain_shutdown(self, wait)
        finally:
            strand.inner = False
    return None


# --- futures --------------------------------------------------------------------------------------------------------------


@functools.wraps(_plain_init)
def _init(self: Future[Any]) -> None:
    _plain_init(self)
    there = here()
    schedule = there.schedule if there is not None else None
    if there is not None and schedule is not None:
        self.__dict__["_agentloupe_hash"] = there.lane.next_future(schedule.naming.salt)


def _hash(self: Future[Any]) -> int:
    """By lane and number, so that sets of futures iterate alike in a recording and in its replay."""
    found: int | None = self.__dict__.get("_agentloupe_hash")
    return object.__hash__(self) if found is None else found


def install() -> None:
    """Puts the hooks in place."""
    executor: Any = ThreadPoolExecutor
    executor.submit, executor.shutdown = _submit, _shutdown
    future: Any = Future
    future.__init__, future.__hash__ = _init, _hash
