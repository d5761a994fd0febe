"""Finds a replayed program that stands still: no call is answered, no work is done, and it sleeps no sleep of its own.

How long code may work between two calls is known to nobody, so time alone says nothing. A program stands still when over
a whole span of patience the tape did not move, the process used next to no processor time, and no sleep that it asked for
(`time.sleep`, timers of asyncio) reaches beyond that span. Shorter sleeps do not count: who polls for something that never
comes stands still too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

from agentloupe.ports import ambient

__all__ = ["PATIENCE_SECONDS", "Sleeps", "Watch"]

PATIENCE_SECONDS: Final = 60.0
"""The patience of `agentloupe replay` where nothing else is said."""

_IDLE: Final = 0.02
"""Share of the span below which a process that has waiting threads and timers counts as idle."""


def _wants_a_processor() -> bool:
    """Whether another thread of this process would run if it were let (known on Linux): on a busy machine that is work too."""
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError, IndexError):  # a thread that has ended meanwhile
            if task.parent.name != own and task.read_bytes().rpartition(b")")[2].split()[0] == b"R":
                return True
    return False


class Sleeps:
    """Remembers until when the program sleeps of its own will, where that is longer than `patience` seconds."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._until = 0.0

    def note(self, seconds: object) -> None:
        """The program asked to be woken after `seconds`."""
        if isinstance(seconds, int | float) and seconds > self._patience:  # the real one refuses anything else
            self._until = max(self._until, time.monotonic() + seconds)

    @property
    def asleep(self) -> bool:
        """Whether a long sleep is not over yet."""
        return time.monotonic() < self._until

    def install(self) -> None:
        """Notes every `time.sleep` and every timer of asyncio's own loops, in this process, until its end."""
        import asyncio

        ambient.install()  # what is noted comes before what a schedule makes of it
        note = self.note
        sleep, call_at = time.sleep, asyncio.BaseEventLoop.call_at

        def noted_sleep(seconds: float, /) -> None:
            note(seconds)
            sleep(seconds)

        def noted_call_at(self: asyncio.BaseEventLoop, when: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            note(when - self.time())
            return call_at(self, when, *args, **kwargs)

        time.sleep = noted_sleep
        asyncio.BaseEventLoop.call_at = noted_call_at  # pyright: ignore[reportAttributeAccessIssue]  # hands all on


class Watch:
    """Looks once in every span of `patience` seconds, in a thread of its own.

    Args:
        patience: seconds; a program that stands still is found after at most twice as many.
        progress: how many calls were answered so far.
        still: called once, when the program stands still.
    """

    def __init__(self, patience: float, progress: Callable[[], int], still: Callable[[], None]) -> None:
        self._patience = patience
        self._progress = progress
        self._still = still
        self._over = threading.Event()
        self._sleeps = Sleeps(patience)

    def start(self) -> None:
        """Begins to look."""
        self._sleeps.install()
        threading.Thread(target=self._look, name="agentloupe-watch", daemon=True).start()

    def stop(self) -> None:
        """Looks no more."""
        self._over.set()

    def _look(self) -> None:
        before, worked = -1, time.process_time()
        while not self._over.wait(self._patience):
            calls, work = self._progress(), time.process_time()
            idle = work - worked < self._patience * _IDLE and not _wants_a_processor()
            if calls == before and idle and not self._sleeps.asleep:
                self._still()
                return
            before, worked = calls, work
