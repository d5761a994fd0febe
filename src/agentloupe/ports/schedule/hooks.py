"""The hooks into asyncio: installed once a process, when the first run begins, and idle where there is no run.

Tasks get their lane when they are made, timers are inputs, and sets of tasks and futures iterate alike in a recording and
in its replay.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import types
from asyncio import base_events, events, tasks, timeouts
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, cast

from agentloupe.ports import surroundings
from agentloupe.ports.callers import made_here
from agentloupe.ports.schedule.core import Item, Schedule
from agentloupe.ports.schedule.gate import HOOKED, OUTSIDE, Gate, gate_of, plain_threadsafe
from agentloupe.ports.schedule.lanes import stable_hash
from agentloupe.ports.schedule.turns import Cancels, begin, piece_turn, turn, until_cancelled
from agentloupe.ports.surroundings import Home, here
from agentloupe.words.errors import ReplayMismatch

__all__ = ["SUPPORTED", "Cancels", "begin", "install", "piece_turn", "supported", "turn", "until_cancelled"]

SUPPORTED: Final = ((3, 11), (3, 15))
"""The first and the last Python whose asyncio was looked at."""

_Loop: Any = base_events.BaseEventLoop
_plain_create_task = _Loop.create_task
_plain_create_future = _Loop.create_future
_plain_call_at = _Loop.call_at
_plain_run_forever = _Loop.run_forever
_plain_time: Callable[[Any], float] = _Loop.time
_plain_reschedule = timeouts.Timeout.reschedule


_NEAR: Final = 3
"""Frames from a finaliser to the loop: through `asyncio.create_task`, or straight."""


class _New(threading.local):
    """The hash of the task that this thread is making: the constructor asks for it already."""

    hash = 0


_new = _New()


class _OfRun:
    """A callback that stands where it was added, whatever its context; equal to what was given, so that it can be removed."""

    __slots__ = ("_fn", "_there")

    def __init__(self, fn: Callable[[Any], object], there: surroundings.Surroundings) -> None:
        self._fn = fn
        self._there = there

    def __call__(self, future: Any) -> None:
        with surroundings.replaced(self._there):
            self._fn(future)

    def __eq__(self, other: object) -> bool:
        return self._fn == other

    def __hash__(self) -> int:
        return hash(self._fn)


class LaneTask(asyncio.Task[Any]):
    """A task of a run: hashed by its lane, so that sets of tasks iterate alike in a recording and in its replay."""

    agentloupe_home: Home | None = None
    agentloupe_hash: int | None = None

    def __hash__(self) -> int:
        """By lane."""
        known = self.agentloupe_hash
        return _new.hash if known is None else known

    def add_done_callback(self, fn: Callable[[Any], object], /, *, context: Context | None = None) -> None:
        """What a run adds is of the run, also in a context that is nobody's: anyio ends its worker threads so."""
        there = (
            here() if context is not None and not isinstance(getattr(fn, "__self__", None), asyncio.Future) else None
        )
        if context is not None and there is not None and surroundings.of_context(context, None) is None:
            fn = _OfRun(fn, there)
        super().add_done_callback(fn, context=context)

    def __del__(self) -> None:
        """Nobody has to hear of a task that was stopped with its replay."""
        if not isinstance(getattr(self, "_exception", None), ReplayMismatch):
            super().__del__()


class LaneFuture(asyncio.Future[Any]):
    """The same for futures that a run makes."""

    agentloupe_hash: int = 0

    def __hash__(self) -> int:
        """By lane and number."""
        return self.agentloupe_hash

    def __del__(self) -> None:
        """Nobody has to hear of what was stopped with its replay."""
        if not isinstance(getattr(self, "_exception", None), ReplayMismatch):
            super().__del__()


def home_here() -> Home | None:
    """The home that the running code is in: of its task, or of its thread outside of loops. A callback has none."""
    loop = events._get_running_loop()
    if loop is None:
        return surroundings.thread_home()
    task = tasks.current_task(loop)
    return None if task is None else getattr(task, "agentloupe_home", None)


def _create_task(loop: Any, coro: Coroutine[Any, Any, Any], **options: Any) -> Any:
    there = here()
    if there is None or there.inner:
        return _plain_create_task(loop, coro, **options)
    schedule = there.schedule
    left = None if schedule is None else _left(schedule, coro)
    if left is None:
        home = made_here(there.child("a", thread=loop._thread_id or threading.get_ident()))
    else:
        home = made_here(there.at(there.lane.closer(left)))
    if schedule is not None:
        schedule.lanes += 1
    with surroundings.replaced(home.root):  # the task copies this context, where it is given none
        if loop.get_task_factory() is None:
            task: Any = _lane_task(
                loop, coro, stable_hash(home.root.lane.path, schedule.naming.salt if schedule else 0), options
            )
        else:
            task = _plain_create_task(loop, coro, **options)
    task.agentloupe_home = home
    if schedule is not None and not schedule.closed:
        gate_of(loop, schedule)
    return task


def _left(schedule: Schedule, coro: object) -> str | None:
    """The name of what was left behind, and is tidied up by this; `None` where the program itself makes a task."""
    if schedule.naming.closers_apart and (name := _left_generator(coro)) is not None:
        return name
    return _finalised(coro) if schedule.naming.finalisers_apart else None


def _finalised(coro: object) -> str | None:
    """The name of what a finaliser makes a task of: a client that nobody closed is collected when the collector likes."""
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]  # there is no other way
    for _ in range(_NEAR):
        if frame.f_code.co_name == "__del__":
            return str(getattr(coro, "__name__", "finaliser"))
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def _left_generator(coro: object) -> str | None:
    """The name of the async generator that this closes; `None` where it is something else."""
    if type(coro).__name__ != "async_generator_athrow":
        return None
    for held in gc.get_referents(coro):
        if isinstance(held, types.AsyncGeneratorType):
            return cast("Any", held).ag_code.co_name.strip("<>")
    return None


def _lane_task(loop: Any, coro: Coroutine[Any, Any, Any], hash: int, options: dict[str, Any]) -> LaneTask:
    loop._check_closed()
    _new.hash = hash
    task = LaneTask(coro, loop=loop, **options)
    task.agentloupe_hash = hash
    source = getattr(task, "_source_traceback", None)
    if source:
        del source[-1]
    return task


def _create_future(loop: Any) -> asyncio.Future[Any]:
    there = here()
    schedule = there.schedule if there is not None else None
    if there is None or schedule is None:
        return _plain_create_future(loop)
    made = LaneFuture(loop=loop)
    made.agentloupe_hash = there.lane.next_future(schedule.naming.salt)
    return made


def _call_at(loop: Any, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
    """A program's timer: runs in real time and waits for its turn; in a replay it does nothing but wait for its turn."""
    there = here()
    schedule = there.schedule if there is not None else None
    if there is None or schedule is None or schedule.closed or schedule.halted:
        return _plain_call_at(loop, when, callback, *args, context=context)
    gate = gate_of(loop, schedule)
    if gate is None:
        return _plain_call_at(loop, when, callback, *args, context=context)

    def deliver() -> None:
        loop._ready.append(handle)
        if schedule.follows:
            gate.reach(when)

    name = there.lane.next_timer()
    item = Item(name, deliver, loop, dead=lambda: handle._cancelled, lane=there.lane.path)
    if schedule.follows and schedule.known(name):
        handle: Any = events.TimerHandle(when, callback, args, loop, context)
        schedule.add(item)
        return handle
    context = copy_context() if context is None else context

    def due() -> None:
        # The handle that the program has is the one that runs in its turn, unless the program cancels it before.
        handle._callback, handle._args, handle._context = callback, args, context
        schedule.due(item)

    handle = _plain_call_at(loop, when, due, context=OUTSIDE())
    return handle


def _time(loop: Any) -> float:
    gate: Gate | None = getattr(loop, "agentloupe_gate", None)
    return _plain_time(loop) if gate is None else _plain_time(loop) + gate.ahead


def _reschedule(self: Any, when: float | None) -> None:
    """`asyncio.timeout`: one whose time is over when it begins fires without a timer, which the tape has to tell."""
    there = here()
    schedule = there.schedule if there is not None else None
    loop = events.get_running_loop()
    if when is None or there is None or schedule is None or schedule.closed or schedule.halted:
        return _plain_reschedule(self, when)
    if gate_of(loop, schedule) is None:
        return _plain_reschedule(self, when)
    _plain_reschedule(self, None)  # looks whether this may be, and gives up the timer before
    self._when = when
    if schedule.over(there.lane, when <= loop.time()):
        self._timeout_handler = loop.call_soon(self._on_timeout)
    else:
        self._timeout_handler = loop.call_at(when, self._on_timeout)
    return None


def _call_soon_threadsafe(loop: Any, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Any:
    """The callback stands where the caller stands; and the loop's place in the queue is fixed now, not when it wakes."""
    there = here()
    schedule = there.schedule if there is not None else None
    if there is None:
        return plain_threadsafe(loop, callback, *args, context=context)
    with surroundings.replaced(there):
        if schedule is None:
            return plain_threadsafe(loop, callback, *args, context=context)
        if schedule.gates_threads and loop._thread_id not in (None, threading.get_ident()):
            schedule.take_baton_here()
            gate = gate_of(loop, schedule, join=False)
            if gate is not None:
                loop._check_closed()
                handle: Any = events.Handle(callback, args, loop, context)
                gate.post(schedule, handle)
                return handle
        with schedule.lock:
            handle = plain_threadsafe(loop, callback, *args, context=context)
            schedule.call(loop)
        return handle


def _run_forever(loop: Any) -> None:
    there = here()
    schedule = there.schedule if there is not None else None
    gate = gate_of(loop, schedule) if schedule is not None else None
    if gate is not None:
        gate.owner = schedule
    try:
        _plain_run_forever(loop)
    finally:
        if gate is not None and schedule is not None:
            gate.owner = None
            gate.leave(schedule)


# --- asyncio.as_completed walks over a set of coroutines: its tasks would be made in the order of addresses -------------


def _as_completed(fs: Any, *, timeout: Any = None) -> Generator[Any]:
    from asyncio.tasks import _agentloupe_plain, ensure_future  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]  # runs in asyncio's module

    if hasattr(fs, "__iter__"):
        fs = [ensure_future(f) for f in dict.fromkeys(fs)]
    yield from _agentloupe_plain(fs, timeout=timeout)


def _as_completed_in_order() -> None:
    """Changes the code of the function itself, so that names which were imported before are met too."""
    found = tasks.as_completed
    if not isinstance(found, types.FunctionType):
        return
    if sys.version_info >= (3, 13):
        iterator: Any = tasks._AsCompletedIterator  # type: ignore[attr-defined]
        plain = iterator.__init__

        def init(self: Any, aws: Any, timeout: Any) -> None:
            plain(self, [asyncio.ensure_future(one) for one in dict.fromkeys(aws)], timeout)

        iterator.__init__ = init
        return
    plain = types.FunctionType(found.__code__, found.__globals__, "as_completed", None, found.__closure__)
    plain.__kwdefaults__ = found.__kwdefaults__
    cast("Any", tasks)._agentloupe_plain = plain
    found.__code__ = _as_completed.__code__


def _without_lock() -> bool:
    import sysconfig  # takes a millisecond to tell, and no older Python can be made so

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def supported() -> str | None:
    """Why this Python's asyncio is not known well enough to be gated; `None` when it is."""
    if not SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} was not looked at"
    if sys.version_info >= (3, 13) and _without_lock():
        return "Python without its global lock was not looked at"
    loop_parts = ("create_task", "create_future", "call_at", "call_soon_threadsafe", "run_forever", "time", "_run_once")
    if not all(isinstance(getattr(_Loop, name, None), types.FunctionType) for name in loop_parts):
        return "asyncio's loop has another shape"
    if "_selector" not in _Loop._run_once.__code__.co_names or "_ready" not in _Loop._run_once.__code__.co_names:
        return "asyncio's loop waits in another way"
    if not {"_when", "_timeout_handler", "_on_timeout"} <= {*_plain_reschedule.__code__.co_names}:
        return "asyncio's timeouts have another shape"
    return None


def install() -> bool:
    """Puts the hooks in place, once a process; `False`: this Python is not known, nothing is touched."""
    if not HOOKED:
        HOOKED.append(supported() is None)
        if HOOKED[0]:
            surroundings.hook(home_here)
            _Loop.create_task = _create_task
            _Loop.create_future = _create_future
            _Loop.call_at = _call_at
            _Loop.time = _time
            _Loop.call_soon_threadsafe = _call_soon_threadsafe
            _Loop.run_forever = _run_forever
            cast("Any", timeouts.Timeout).reschedule = _reschedule
            _as_completed_in_order()
    return HOOKED[0]
