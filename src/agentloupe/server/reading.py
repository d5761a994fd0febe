"""Reads what routes show: rows with their prices, and the headers of a run, kept for a while since a page asks for parts of them.

What is kept is only ever used while the run's last event is still the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Generic, TypeVar

from agentloupe.engine.costs import price_trace
from agentloupe.engine.views.flags import Flags, flags_of
from agentloupe.engine.views.outline import Outline
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.verbs.pricing import price_table
from agentloupe.words.errors import RunNotFound, StepNotFound
from agentloupe.words.run import Run
from agentloupe.words.step import Step, Trace

__all__ = ["Kept", "Opened", "Reader"]

_ROWS = 20_000
_STEPS = 200_000
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

    def put(self, run_id: str, version: object, value: V, weight: int) -> V:
        """Keeps it, in place of that of another version."""
        with self._lock:
            before = self._held.pop(run_id, None)
            self._weight += weight - (before[2] if before is not None else 0)
            self._held[run_id] = (version, value, weight)
            while self._weight > self._most and len(self._held) > 1:
                self._weight -= self._held.popitem(last=False)[1][2]
        return value


@dataclass(slots=True)
class Opened:
    """A run with the headers of its steps and what follows from them.

    Attributes:
        trace: the run and its steps, with costs.
        outline: depth and number of children of each step.
    """

    trace: Trace
    outline: Outline
    _store: Store
    _flags: Flags | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def run(self) -> Run:
        """The run's row, with costs."""
        return self.trace.run

    @property
    def steps(self) -> Sequence[Step]:
        """Headers of all steps."""
        return self.trace.steps

    def step(self, idx: int) -> Step:
        """One of them. Raises `StepNotFound`."""
        if not 0 <= idx < len(self.steps):
            there = f"steps are 0 to {len(self.steps) - 1}" if self.steps else "it has no steps"
            raise StepNotFound(f"{self.run.id} has no step {idx}", hint=there)
        return self.steps[idx]

    def bodies(self) -> Recording:
        """The way to the run's bodies, without its events."""
        return Recording(self.run.id, (), self._store.get, f"run {self.run.id}")

    def flags(self) -> Flags:
        """Where instructions or tools changed between two model steps; made once."""
        with self._lock:
            if self._flags is None:
                self._flags = flags_of(self.steps, self._store.get)
            return self._flags


_Costs = tuple[Decimal | None, Decimal | None, bool]


class Reader:
    """Reads a store for the routes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._opened = Kept[Opened](_STEPS)
        self._costs = Kept[_Costs](_ROWS)

    def run(self, run_id: str) -> Run:
        """One run's row, without costs. Raises `RunNotFound`."""
        found = self.store.run(run_id)
        if found is None:
            raise RunNotFound(f"no run {run_id!r}", hint="GET /api/runs lists what there is")
        return found

    def open(self, run_id: str) -> Opened:
        """A run with its steps. Raises `RunNotFound`, `Corrupt`."""
        run = self.run(run_id)
        version = _version(run)
        kept = self._opened.get(run_id, version)
        if kept is not None:
            return kept
        trace = _priced(Trace(run, tuple(self.store.steps(run_id))))
        made = Opened(trace, Outline.of(trace.steps), self.store)
        return self._opened.put(run_id, version, made, len(trace.steps) + 1)

    def priced(self, runs: Iterable[Run]) -> list[Run]:
        """Rows with their costs; a run's steps are read once for that."""
        return [self._with_costs(run) for run in runs]

    def _with_costs(self, run: Run) -> Run:
        version = (run.events, run.head)
        costs = self._costs.get(run.id, version)
        if costs is None:
            priced = _priced(Trace(run, tuple(self.store.steps(run.id)))).run
            costs = self._costs.put(run.id, version, (priced.cost, priced.new_cost, priced.cost_complete), 1)
        return replace(run, cost=costs[0], new_cost=costs[1], cost_complete=costs[2])


def _version(run: Run) -> object:
    return run.events, run.head, run.status, run.tags


def _priced(trace: Trace) -> Trace:
    """The trace with costs; where the steps are gone nothing is known of them."""
    gone = bool(trace.run.step_count) and not trace.steps
    return trace if gone else price_trace(trace, price_table())
