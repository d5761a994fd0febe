"""Looks after a run with several strands: for what no event announces.

A strand may wait in code that cannot be seen (a lock that is older than the run, a pipe), or turn round without ever
waiting. Then others go on, and the order is a guess from there on: better than a program that stands still because it is
recorded.
"""

from __future__ import annotations

import sys
import time
import weakref
from _thread import start_new_thread
from pathlib import Path
from typing import Final

from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import Schedule, Strand
from agentloupe.ports.schedule.parts import Coming

__all__ = ["used_by", "watch"]

_SETTLE: Final = 0.04
"""So long a strand must be asleep without the processor, at `_LOOKS` looks in a row, to be taken for stuck."""
_LOOKS: Final = 8
_SETTLE_BLIND: Final = 0.5
"""The same where only its instruction can be seen, which a strand without a processor does not change either."""
_SPIN: Final = 1.0
"""So long may a strand keep the baton while others want it; the time in which it waits for a processor does not count."""
_COMING: Final = 2.0
_COMING_LOOKS: Final = 100
"""So long may a worker be on its way to an item that it is free for, and so often must that be seen: where a process gets no
processor, nothing is late."""
_EAGER, _CALM = 0.002, 0.01


def watch(schedule: Schedule) -> None:
    """Looks after the run until it is over. The thread is none of the program's, and keeps nothing alive."""
    start_new_thread(_look_after, (weakref.ref(schedule),))


def _look_after(reference: weakref.ref[Schedule]) -> None:
    eyes, pause = _Eyes(), _CALM
    while True:
        plain.sleep(pause)
        schedule = reference()
        if schedule is None or schedule.closed:
            return
        pause = eyes.look(schedule)
        del schedule


class _Eyes:
    """What was seen last."""

    def __init__(self) -> None:
        self._key: object = None
        self._since = 0.0
        self._looks = 0
        self._coming: list[Coming] = []
        self._coming_since = 0.0
        self._coming_looks = 0
        self._turn: object = None
        self._turn_began = 0.0

    def look(self, schedule: Schedule) -> float:
        """Once; returns the pause until the next look."""
        self._look_at_coming(schedule)
        with schedule.lock:
            holder = schedule.holder
            waited_for = bool(schedule.runq or schedule.items)
            if schedule.halted or schedule.beginning or (holder is not None and holder.inner) or not waited_for:
                self._key = None
                return _CALM
            if holder is not None and self._stuck(schedule, holder):
                self._key = None
                schedule.pass_over(holder)
                return _EAGER
        if holder is None:
            schedule.pump()
            schedule.look()
        return _EAGER

    def _look_at_coming(self, schedule: Schedule) -> None:
        """A work item that no worker takes must not hold up the others."""
        coming, now = list(schedule.coming), time.monotonic()
        if coming != self._coming:
            self._coming, self._coming_since, self._coming_looks = coming, now, 0
            return
        self._coming_looks += 1
        if coming and now - self._coming_since > _COMING and self._coming_looks > _COMING_LOOKS:
            for item in coming:
                item.give_up()

    def _stuck(self, schedule: Schedule, holder: Strand) -> bool:
        now = time.monotonic()
        asleep, blind, starved = _asleep(holder)
        if self._turn != (holder, schedule.since):
            self._turn, self._turn_began = (holder, schedule.since), schedule.since - starved
        if schedule.runq and now - starved - self._turn_began > _SPIN:
            return True
        key = (holder, schedule.since, asleep)
        if asleep is None or key != self._key:
            self._key, self._since, self._looks = key, now, 0
            return False
        self._looks += 1
        return self._looks > _LOOKS and now - self._since > (_SETTLE_BLIND if blind else _SETTLE)


def used_by(strand: Strand) -> object:
    """What changes while the thread computes: the processor's time that it has used, or where it is, if the system does not tell."""
    try:
        return Path(f"/proc/self/task/{strand.native}/schedstat").read_bytes().split()[0]
    except (OSError, IndexError):
        frame = sys._current_frames().get(strand.ident)  # pyright: ignore[reportPrivateUsage]  # documented
        return None if frame is None else (id(frame), frame.f_lasti)


def _asleep(strand: Strand) -> tuple[object, bool, float]:
    """What stays the same only while the thread sleeps in C without a processor, whether it was only guessed, and `starved`.

    The first is `None` where it does not sleep. Guessed: where the system does not tell, its instruction is looked at. The
    last: for how many seconds of its life it could have run, and got no processor.
    """
    task = Path(f"/proc/self/task/{strand.native}")
    try:
        state = (task / "stat").read_bytes().rpartition(b")")[2].split()
        used, starved = (task / "schedstat").read_bytes().split()[:2]
    except (OSError, IndexError, ValueError):
        frame = sys._current_frames().get(strand.ident)  # pyright: ignore[reportPrivateUsage]  # documented
        return (None if frame is None else (id(frame), frame.f_lasti)), True, 0.0
    return (used if state[0] in (b"S", b"D") else None), False, int(starved) / 1e9
