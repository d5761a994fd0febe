"""Stopping what runs in another thread: a token that is asked between calls, and that ends the waiting inside of one."""

from __future__ import annotations

import _thread
import contextvars
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TypeVar

from agentloupe.ports.schedule import plain
from agentloupe.words.errors import Cancelled, LimitReached

__all__ = ["Cancel", "waiting_for"]

T = TypeVar("T")


class Cancel:
    """Says once, from any thread, that something shall stop.

    Attributes:
        why: what was said, `""` if nothing was.
    """

    def __init__(self) -> None:
        self.why = ""
        self._said = False
        self._lock = plain.allocate_lock()
        self._wake: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        """Whether it was said."""
        return self._said

    def cancel(self, why: str = "") -> None:
        """Says it. Idempotent; the first reason stays."""
        with self._lock:
            if self._said:
                return
            self.why, self._said = why, True
            wake = list(self._wake)
        for one in wake:
            one()

    def error(self) -> Cancelled:
        """What ends that which is cancelled."""
        return Cancelled(f"cancelled{f': {self.why}' if self.why else ''}")

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Generator[None]:
        """While inside, `wake` is called (in the thread that cancels) when it is said; at once where it was before."""
        with self._lock:
            self._wake.append(wake)
            said = self._said
        if said:
            wake()
        try:
            yield
        finally:
            with self._lock:
                self._wake.remove(wake)


def waiting_for(do: Callable[[], T], cancel: Cancel | None, seconds: float | None = None) -> T:
    """Does something and waits for it, until it is cancelled or its time is over; then it is left alone where it runs.

    What waits for a network cannot be stopped from outside, so it is done in a thread of its own.

    Args:
        do: what is done; what it raises is raised.
        cancel: the token; without it and without a time it is done right here.
        seconds: how long it may take.

    Raises:
        Cancelled: it was cancelled.
        LimitReached: its time was over (reason `max_seconds`).
    """
    if cancel is None and seconds is None:
        return do()
    done: list[tuple[T, None] | tuple[None, BaseException]] = []
    over = plain.allocate_lock()
    over.acquire()

    def wake() -> None:
        with suppress(RuntimeError):  # it was woken before
            over.release()

    def work() -> None:
        try:
            done.append((do(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            done.append((None, error))
        wake()

    with (cancel or Cancel()).waking(wake):
        if cancel is None or not cancel.cancelled:
            _thread.start_new_thread(contextvars.copy_context().run, (work,))
        over.acquire(timeout=-1 if seconds is None else max(seconds, 0.0))
    return _outcome(done, cancel)


def _outcome(done: list[tuple[T, None] | tuple[None, BaseException]], cancel: Cancel | None) -> T:
    if not done:
        if cancel is not None and cancel.cancelled:
            raise cancel.error()
        raise LimitReached("stopped while a model was being asked (max_seconds)", reason="max_seconds")
    value, error = done[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # the first kind of pair
