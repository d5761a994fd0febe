"""Locks that a run makes: who waits for one hands on the baton. Outside of runs, `threading` makes the ones it always made."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Any

from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.threads import Me, Waiter, me
from agentloupe.ports.surroundings import here

__all__ = ["HandedLock", "HandedRLock", "install", "replace_names"]


class _Handed:
    """What both kinds share.

    The real lock is below: who does not have to wait, and who belongs to no run, uses nothing else.
    """

    __slots__ = ("__weakref__", "_lock", "_waiting")

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._waiting: deque[Waiter] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As the real one, with its arguments."""
        if self._lock.acquire(False):
            return True
        mine = me() if blocking and timeout != 0 else None
        if mine is None:
            return self._lock.acquire(blocking, timeout)
        return self._wait(mine, timeout)

    def _wait(self, mine: Me, timeout: float) -> bool:
        limit = time.monotonic() + timeout if timeout > 0 else None
        waiter = Waiter(mine.schedule, mine.strand)
        timer = mine.timer(lambda: waiter.expire(), lambda: waiter.state) if limit is not None else None  # noqa: PLW0108  # the last waiter's
        while not mine.schedule.closed:
            self._waiting.append(waiter)
            try:
                mine.schedule.block(mine.strand, timer, None if limit is None else max(1e-6, limit - time.monotonic()))
            finally:
                with suppress(ValueError):
                    self._waiting.remove(waiter)
            if waiter.state == "expired":
                return False
            if self._lock.acquire(False):
                return True
            waiter = Waiter(mine.schedule, mine.strand)  # another one was quicker
        return self._lock.acquire(True, -1 if limit is None else max(0.0, limit - time.monotonic()))

    __enter__ = acquire

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """As the real one; the thread that waits longest may try next."""
        self._lock.release()
        if self._waiting:
            self._hand_on()

    def _hand_on(self) -> None:
        while self._waiting:
            try:
                return self._waiting.popleft().release()
            except (RuntimeError, IndexError):  # its time was over, or another thread was quicker
                pass
        return None

    def _at_fork_reinit(self) -> None:
        self._waiting.clear()
        self._lock._at_fork_reinit()

    def __getattr__(self, name: str) -> Any:
        """What else the real one can do."""
        return getattr(self._lock, name)

    def __repr__(self) -> str:
        return repr(self._lock)


class HandedLock(_Handed):
    """A `threading.Lock` of a run."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(plain.allocate_lock())

    def locked(self) -> bool:
        """Whether somebody has it."""
        return self._lock.locked()


class HandedRLock(_Handed):
    """A `threading.RLock` of a run."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(plain.RLock())

    # what conditions ask of it

    def _is_owned(self) -> bool:
        return self._lock._is_owned()

    def _release_save(self) -> Any:
        saved = self._lock._release_save()
        if self._waiting:
            self._hand_on()
        return saved

    def _acquire_restore(self, saved: tuple[int, int]) -> None:
        for _ in range(saved[0]):
            self.acquire()


# --- installing -----------------------------------------------------------------------------------------------------------


class _Made(type):
    """`threading.Lock` names a type in newer Pythons: what it makes are its instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (type(plain.allocate_lock()), HandedLock))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return HandedLock() if _in_a_run() else plain.allocate_lock(*args, **kwargs)


class Lock(metaclass=_Made):
    """Makes a lock: one that hands on the baton in a run, and outside of any the one that there always was."""


def _make_rlock(*args: Any, **kwargs: Any) -> Any:
    return HandedRLock() if _in_a_run() and not _for_signals() else _plain_rlock(*args, **kwargs)


def _for_signals() -> bool:
    """Whether trio asks: it takes its lock in handlers of signals as well, and insists on the interpreter's own."""
    asks: object = sys._getframe(2).f_globals.get("__name__")  # pyright: ignore[reportPrivateUsage]  # there is no other way
    return isinstance(asks, str) and asks.startswith("trio.")


_plain_lock: Any = threading.Lock
_plain_rlock: Any = threading.RLock


def _in_a_run() -> bool:
    there = here()
    schedule = there.schedule if there is not None else None
    return schedule is not None and schedule.gates_threads


def replace_names(name: str, old: Any, new: Any) -> None:
    """Puts `new` where a module has `old` under this name: `from time import sleep` made a name of its own."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if names is not None and names.get(name) is old and names.get("__name__") not in ("_thread", plain.__name__):
            names[name] = new


def install() -> None:
    """Puts the two names in place."""
    replace_names("Lock", _plain_lock, Lock)
    replace_names("RLock", _plain_rlock, _make_rlock)
