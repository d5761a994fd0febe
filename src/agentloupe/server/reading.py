"""Reads what routes show: rows with their prices, and the headers of a run, kept for a while since a page asks for parts of them.

What is kept is only ever used while the run's last event is still the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from agentloupe.engine.costs import PriceTable, price_run
from agentloupe.engine.views.flags import Flags, flags_of
from agentloupe.engine.views.layout import Unit, level_of, units_of
from agentloupe.engine.views.outline import Outline
from agentloupe.ports.garbage import one_generation
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.server.kept import Kept
from agentloupe.verbs.pricing import price_table
from agentloupe.words.errors import RunNotFound, StepNotFound
from agentloupe.words.run import Run
from agentloupe.words.step import Step

__all__ = ["Opened", "Reader"]

_NO_FLAGS = Flags(frozenset(), frozenset())
_ROWS = 20_000
_STEPS = 200_000
_LAYOUTS = 8
_GREW = 1000
"""Events after which a run that goes on is read anew: looking at each of them would take longer."""
_GOES_ON = frozenset({"running", "waiting"})


@dataclass(slots=True)
class Opened:
    """A run with the headers of its steps and what follows from them.

    Attributes:
        run: the run's row, with costs.
        steps: headers of all steps, without costs; see `priced`.
        outline: depth and number of children of each step.
    """

    run: Run
    steps: Sequence[Step]
    outline: Outline
    _store: Store
    _flags: Flags | None = None
    _of_calls: dict[str, int] | None = None
    _layouts: dict[tuple[int | None, bool], tuple[list[Step], list[Unit]]] = field(
        default_factory=dict[tuple[int | None, bool], tuple[list[Step], list[Unit]]]
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self, idx: int) -> Step:
        """One of the steps. Raises `StepNotFound`."""
        if not 0 <= idx < len(self.steps):
            there = f"steps are 0 to {len(self.steps) - 1}" if self.steps else "it has no steps"
            raise StepNotFound(f"{self.run.id} has no step {idx}", hint=there)
        return self.steps[idx]

    def of_calls(self) -> Mapping[str, int]:
        """The index of each call's step, by the call's id; made once."""
        if self._of_calls is None:
            self._of_calls = {step.call_id: step.idx for step in self.steps if step.call_id is not None}
        return self._of_calls

    def bodies(self) -> Recording:
        """The way to the run's bodies, without its events."""
        return Recording(self.run.id, (), self._store.get, f"run {self.run.id}")

    def layout(self, inside: int | None, *, fold_kept: bool) -> tuple[list[Step], list[Unit]]:
        """The steps of a level and its cards, see `engine.views.layout`; the last few are kept."""
        found = self._layouts.get((inside, fold_kept))
        if found is None:
            with one_generation:
                level = level_of(self.steps, inside)
                found = level, units_of(level, fold_kept=fold_kept)
            if len(self._layouts) >= _LAYOUTS:
                self._layouts.clear()
            self._layouts[inside, fold_kept] = found
        return found

    def before(self, step: Step) -> Step | None:
        """The model step before this step in the same agent."""
        earlier = (self.steps[at] for at in range(step.idx - 1, -1, -1))
        return next((one for one in earlier if one.kind == "llm" and one.parent_idx == step.parent_idx), None)

    def flags(self) -> Flags:
        """Where instructions or tools changed between two model steps; made once."""
        with self._lock:
            if self._flags is None:
                self._flags = flags_of(self.steps, self._store.get)
            return self._flags

    def flags_among(self, steps: Sequence[Step]) -> Flags:
        """The same for some steps only, without looking at the others."""
        if self._flags is not None:
            return self._flags
        models = [step for step in steps if step.kind == "llm"]
        firsts = {step.parent_idx: step for step in reversed(models)}
        before = [earlier for step in firsts.values() if (earlier := self.before(step)) is not None]
        return flags_of([*before, *models], self._store.get) if models else _NO_FLAGS


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
        table = price_table()
        version = (_version(run), table)
        kept = self._opened.get(run_id, version)
        if kept is not None:
            return kept
        before = self._opened.last(run_id)
        with one_generation:
            return self._opened.put(run_id, version, *self._read(run, before, table))

    def _read(self, run: Run, before: Opened | None, table: PriceTable) -> tuple[Opened, int]:
        steps = (None if before is None else self._grown(before, run)) or tuple(self.store.steps(run.id))
        made = Opened(self._with_costs(run, table, steps), steps, Outline.of(steps), self.store)
        return made, len(steps) + 1

    def _grown(self, before: Opened, run: Run) -> tuple[Step, ...] | None:
        """The steps of a run that goes on: those that were read before, and what its new events changed or added.

        `None` where they have to be read anew: the run has ended, is not the one that it was, or grew by too much.
        """
        known = before.run
        if run.status not in _GOES_ON or run.erased or known.events >= run.events:
            return None
        events = self.store.events(run.id, first=known.events + 1, limit=_GREW + 1)
        if len(events) > _GREW or not events or events[0].prev_hash != known.head:
            return None
        if any(event.copied_hash is not None for event in events):
            return None  # times of a kept prefix move until it is whole
        calls = {event.call_id for event in events}
        steps = list(before.steps)
        for step in [step for step in steps if step.call_id in calls]:
            steps[step.idx : step.idx + 1] = self.store.steps(run.id, first=step.idx, limit=1)
        return (*steps, *self.store.steps(run.id, first=len(steps)))

    def priced(self, runs: Iterable[Run]) -> list[Run]:
        """Rows with their costs; a run's steps are read once for that."""
        table = price_table()
        return [self._with_costs(run, table) for run in runs]

    def _with_costs(self, run: Run, table: PriceTable, steps: Sequence[Step] | None = None) -> Run:
        version = (run.events, run.head, table)
        costs = self._costs.get(run.id, version)
        if costs is None:
            priced = _priced(run, self.store.steps(run.id) if steps is None else steps, table)
            costs = self._costs.put(run.id, version, (priced.cost, priced.new_cost, priced.cost_complete), 1)
        return replace(run, cost=costs[0], new_cost=costs[1], cost_complete=costs[2])


def _version(run: Run) -> object:
    return run.events, run.head, run.status, run.tags


def _priced(run: Run, steps: Sequence[Step], table: PriceTable) -> Run:
    """The run with costs; where the steps are gone nothing is known of them."""
    return run if run.step_count and not steps else price_run(run, steps, table)
