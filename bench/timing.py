"""Timing on a machine that others use too: short batches, several subjects by turns, the least of each.

The clock is the processor time of this process, system calls included: what other programs take away does not count.
Where waiting is the point (fsync) the wall clock is taken instead, with the machine's own limit measured beside it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bench.aside import Aside, Part

Batch = Callable[[], int]
"""Does some work, and says how many operations it was."""
Subject = Batch | Aside | Part | None
"""What is measured: here, in a process of its own, or not at all since it is not installed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds for one operation.

    Attributes:
        least: of the batches, by the clock that was chosen.
        median: of the batches, by the same clock.
        wall: median of the batches by the wall clock.
        cpu: least of the batches by processor time.
    """

    least: float
    median: float
    wall: float
    cpu: float

    @property
    def us(self) -> float:
        """The least, in microseconds."""
        return self.least * 1e6

    @property
    def ms(self) -> float:
        """The least, in milliseconds."""
        return self.least * 1e3

    @property
    def rate(self) -> float:
        """Operations a second, at best."""
        return 1 / self.least


PACE: list[float] = []
"""Seconds that a small call of the bare SDK took, in every round of all measurements: how fast the machine was just then."""

REFERENCE_PACE = 0.00076
"""The same on the machine that the targets were set on."""


def pace_since(first: int) -> float:
    """How many times slower than the reference the machine was, at best, since the `first` entry of `PACE`."""
    return min(PACE[first:], default=REFERENCE_PACE) / REFERENCE_PACE


def _sdk_calls(count: int = 20) -> int:
    from bench.clients import small_calls

    return small_calls(count)


def timed(batch: Batch, clock: Callable[[], float] = time.process_time) -> tuple[float, float]:
    """Seconds for one operation of a batch, (by the clock, wall). Garbage of before is not this batch's."""
    gc.collect()
    began, began_wall = clock(), time.perf_counter()
    count = batch()
    return (clock() - began) / count, (time.perf_counter() - began_wall) / count


def _once(batch: Batch | Aside | Part, clock: Callable[[], float]) -> tuple[float, float]:
    return batch.timed() if isinstance(batch, Aside | Part) else timed(batch, clock)


def sample(batch: Batch, rounds: int, *, waits: bool = False) -> Sample:
    """One subject. `waits`: by the wall clock."""
    return by_turns({"": batch}, rounds, waits=[""] if waits else ())[""]


def by_turns(
    batches: Mapping[str, Subject],
    rounds: int,
    *,
    waits: Collection[str] = (),
    alone: Collection[str] = (),
) -> dict[str, Sample]:
    """Several subjects, a batch of each in every round, so that all of them meet the same disturbances.

    Those named in `waits` are told by the wall clock, those in `alone` by the processor time of the calling thread.
    Those that are `None` (a peer that is not installed) are left out.
    """
    there = {name: batch for name, batch in batches.items() if batch is not None}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in there}
    for _ in range(rounds):
        PACE.append(timed(_sdk_calls)[0])
        for name, batch in there.items():
            times[name].append(_once(batch, time.thread_time if name in alone else time.process_time))
    return {name: _sampled(taken, name in waits) for name, taken in times.items()}


def _sampled(taken: list[tuple[float, float]], waits: bool) -> Sample:
    chosen = [wall if waits else cpu for cpu, wall in taken]
    walls = [wall for _, wall in taken]
    return Sample(min(chosen), statistics.median(chosen), statistics.median(walls), min(cpu for cpu, _ in taken))
