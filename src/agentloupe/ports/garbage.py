"""Holds the garbage collector up while much is made that stays."""

from __future__ import annotations

import gc
import threading

__all__ = ["one_generation"]


class _OneGeneration:
    """Nothing made inside is garbage before the end: looking for it takes a third of the time of reading a long run.

    Several threads may be inside; the collector goes on when the last one leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._was_on:
                gc.enable()


one_generation = _OneGeneration()
"""`with one_generation:` holds the collector up."""
