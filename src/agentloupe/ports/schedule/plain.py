"""Threading as it is without hooks, for what belongs to no program: the recorder's own locks, threads and pauses."""

from __future__ import annotations

import threading
import time
from _thread import RLock, allocate_lock

__all__ = ["Condition", "RLock", "allocate_lock", "join", "sleep", "start", "wait"]

sleep = time.sleep
start = threading.Thread.start
join = threading.Thread.join
wait = threading.Condition.wait


class Condition(threading.Condition):
    """A condition that a schedule does not see: who waits for it waits for a moment, and for none of the program's threads."""

    def __init__(self) -> None:
        super().__init__(RLock())

    def wait(self, timeout: float | None = None) -> bool:
        """As it is without hooks."""
        return wait(self, timeout)
