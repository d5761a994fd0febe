"""What was made of runs, kept up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["Kept"]

V = TypeVar("V")


class Kept(Generic[V]):
    """What was made of runs, up to a total weight; the longest unused goes first. Safe with threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str, tuple[object, V, int]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, run_id: str, version: object) -> V | None:
        """What was made of this version of a run."""
        with self._lock:
            found = self._held.get(run_id)
            if found is None or found[0] != version:
                return None
            self._held.move_to_end(run_id)
            return found[1]

    def last(self, run_id: str) -> V | None:
        """What was made of the run last, of whatever version."""
        with self._lock:
            found = self._held.get(run_id)
            return None if found is None else found[1]

    def put(self, run_id: str, version: object, value: V, weight: int) -> V:
        """Keeps it, in place of that of another version."""
        with self._lock:
            before = self._held.pop(run_id, None)
            self._weight += weight - (before[2] if before is not None else 0)
            self._held[run_id] = (version, value, weight)
            while self._weight > self._most and len(self._held) > 1:
                self._weight -= self._held.popitem(last=False)[1][2]
        return value
