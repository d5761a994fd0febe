"""The clock by which the standard library limits its waits.

`Queue.get(timeout=...)`, `Condition.wait_for` and their like look at the clock between two waits, and give up without a
third one when the time is over. In a replay the time is never over, so they must not find that out by the clock: for a
strand the time is nearly over at most, and the wait that follows expires, which is an input and has its turn. After a wait
that has expired the time is over.
"""

from __future__ import annotations

import concurrent.futures._base as futures_base
import queue
import sys
import threading
import time
from types import FunctionType, SimpleNamespace
from typing import Any, Final

from agentloupe.ports.schedule import plain
from agentloupe.ports.surroundings import here

__all__ = ["install"]

_NEARLY: Final = 1e-6
_ENDS: Final = ("endtime", "end_time")
"""What the functions that wait call the time when they give up."""


def _now() -> float:
    """The time as the function sees it that asks."""
    now = time.monotonic()
    there = here()
    schedule = there.schedule if there is not None else None
    strand = schedule.strand() if schedule is not None and schedule.gates_threads else None
    if strand is None or strand.inner:
        return now
    names = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]  # there is no other way to know what it compares with
    if isinstance(names.get("self"), plain.Condition):
        return now  # Loupe's own wait is none of the program's
    expired, strand.expired = strand.expired, False
    end = next((value for name in _ENDS if isinstance(value := names.get(name), float)), None)
    if end is None:
        return now
    return max(now, end) if expired else min(now, end - _NEARLY)


def _waits_until(function: Any, end: str) -> bool:
    """Whether a function has the shape that was looked at."""
    return isinstance(function, FunctionType) and end in function.__code__.co_varnames + function.__code__.co_cellvars


def install() -> None:
    """Puts the clock in place where the functions have the shape that is known."""
    of_queue: Any = queue
    if getattr(of_queue, "time", None) is time.monotonic and _waits_until(of_queue.Queue.get, "endtime"):
        of_queue.time = _now
    of_threading: Any = threading
    if getattr(of_threading, "_time", None) is time.monotonic and _waits_until(threading.Condition.wait_for, "endtime"):
        of_threading._time = _now
    of_futures: Any = futures_base
    if of_futures.time is time and _waits_until(futures_base.as_completed, "end_time"):
        of_futures.time = SimpleNamespace(monotonic=_now)
