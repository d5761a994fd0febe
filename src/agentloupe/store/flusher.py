"""Writes grouped events that nobody has written for a while, so that a killed process loses at most a moment."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from agentloupe.ports.faultpoints import reach
from agentloupe.ports.surroundings import outside
from agentloupe.words.errors import LoupeError

__all__ = ["Flusher"]

GROUP_SECONDS = 0.05
_IDLE_SECONDS = 5.0
_RETRY_SECONDS = 1.0


class _Flushes(Protocol):
    def flush(self) -> None: ...


class Flusher:
    """One daemon thread for all writers of a store; it starts with the first grouped event and ends when idle."""

    def __init__(self) -> None:
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        with outside():
            self._lock = threading.Lock()
            self._wanted = threading.Event()
            self._stopped = threading.Event()
        self._waiting: set[_Flushes] = set()
        self._thread: threading.Thread | None = None

    def wake(self, writer: _Flushes) -> None:
        """The writer has something that should be written soon."""
        if self._pid != os.getpid():
            self._begin()  # the thread did not come along into this fork
        if writer in self._waiting:
            return
        with self._lock:
            self._waiting.add(writer)
            if self._thread is None and not self._stopped.is_set():
                thread = threading.Thread(target=self._run, name="agentloupe-flusher", daemon=True)
                # It is none of the program's threads. When the interpreter ends there are no new ones (Python 3.12): what
                # is committed is in the spool, and whoever closes the writer settles it.
                with outside(), suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
        self._wanted.set()

    def stop(self) -> None:
        """Ends the thread; what waits is left to whoever closes the writers."""
        if self._pid != os.getpid():
            return
        self._stopped.set()
        self._wanted.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            with outside():
                thread.join(timeout=_IDLE_SECONDS)

    def flush_all(self) -> None:
        """Writes what waits, once; what cannot be written stays. For the end of the process."""
        if self._pid == os.getpid():
            self._flush()

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._wanted.wait(_IDLE_SECONDS) and self._rest():
                return
            self._stopped.wait(GROUP_SECONDS)
            if not self._stopped.is_set() and not self._flush():
                self._stopped.wait(_RETRY_SECONDS)
                self._wanted.set()

    def _rest(self) -> bool:
        """Ends the thread if there is nothing to do."""
        with self._lock:
            if self._waiting:
                return False
            self._thread = None
            return True

    def _flush(self) -> bool:
        with self._lock:
            writers = list(self._waiting)
            self._waiting.clear()
            self._wanted.clear()
        failed: list[_Flushes] = []
        for writer in writers:
            reach("flusher.before_flush")
            try:
                writer.flush()
            except Exception:  # noqa: BLE001  # whatever it is, the next append of its owner tries again, and tells
                failed.append(writer)
        with self._lock:
            self._waiting.update(failed)
        return not failed


_all: weakref.WeakSet[Flusher] = weakref.WeakSet()


def _at_exit() -> None:
    for flusher in list(_all):
        with suppress(LoupeError):
            flusher.flush_all()


atexit.register(_at_exit)
