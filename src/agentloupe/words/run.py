"""A run: one execution of an agent, as people look at it. A projection of its events, never edited by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal, get_args

from agentloupe.words.canonical import Json

__all__ = [
    "COUNTED",
    "STATUSES",
    "VALUES_MISSING",
    "Counts",
    "Coverage",
    "Engine",
    "Label",
    "Owner",
    "Run",
    "RunFilter",
    "RunOrder",
    "RunStatus",
    "coverage_left",
    "without_values",
]

RunStatus = Literal["running", "waiting", "ok", "error", "cancelled", "interrupted"]
STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
Coverage = Literal["full", "control_flow", "limited_replay", "trace_only", "lossy"]
RunOrder = Literal["newest", "family"]
"""How a list of runs is sorted."""

Engine = Literal["own", "generic", "imported"]
"""Who drove the run: the user's own code, the plain agent loop, or another program (an import)."""

Label = Literal["faithful", "hypothetical"]

COUNTED: tuple[str, ...] = ("cassette", "live", "stub", "sandbox", "human", "simulated", "miss", "reused")
"""Names of the counts of a fork, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How the tool calls of a fork's new part were answered. `reused` is a part of `cassette`, not beside it."""

    cassette: int = 0
    live: int = 0
    stub: int = 0
    sandbox: int = 0
    human: int = 0
    simulated: int = 0
    miss: int = 0
    reused: int = 0

    def as_dict(self) -> dict[str, int]:
        """All counts by name, also those that are 0."""
        return {name: getattr(self, name) for name in COUNTED}


VALUES_MISSING = "values that its events name are not here"
"""The note on a run that was taken over without some of its values."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The one process that may append to a run: host name, pid, start time of the process (opaque text), epoch."""

    host: str
    pid: int
    started: str
    epoch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of an agent.

    Attributes:
        id: `<agent>-<yymmdd>-<6 base32>`, or `<parent>-fork-<6 hex>`.
        started_at, ended_at: UTC, ISO 8601 with `Z`.
        model: the first model that was asked.
        total_input_tokens, total_output_tokens: sums over model steps; `None` when no step reported usage.
        usage_complete: `False` when some model step reported none (totals are then a lower bound).
        new_input_tokens, new_output_tokens: the part that this run newly spent (a fork's kept prefix left out).
        cost, new_cost: in `currency`; `None` is unknown. Filled on reading, from the price table.
        cost_complete: `False` when some model step's cost is unknown.
        parent_run_id, forked_from_step, overrides, arm: lineage. `arm` is `candidate` or `control` of a repeated fork.
        counts, label, hypothetical_from: of a fork; see `Counts`. `hypothetical_from` is the step where it stopped being faithful.
        coverage, coverage_notes: what was and was not recorded.
        error: class and short message of the failure, if the run failed. No payload.
        open_effects: effects that were begun and of which nobody has noted what became of them.
        values_dropped: values of reads that were not kept, since what waited to be stored had reached its bound.
        elsewhere: it was taken from a file before it had ended, and no process of this store's has taken it over.
    """

    id: str
    name: str
    agent: str
    status: RunStatus
    started_at: str
    ended_at: str | None = None
    model: str | None = None
    tags: tuple[str, ...] = ()
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    new_input_tokens: int | None = None
    new_output_tokens: int | None = None
    usage_complete: bool = True
    cost: Decimal | None = None
    new_cost: Decimal | None = None
    cost_complete: bool = True
    parent_run_id: str | None = None
    forked_from_step: int | None = None
    overrides: tuple[Mapping[str, Json], ...] = ()
    arm: str | None = None
    step_count: int = 0
    counts: Counts = field(default_factory=Counts)
    label: Label | None = None
    hypothetical_from: int | None = None
    engine: Engine = "own"
    coverage: Coverage = "full"
    coverage_notes: tuple[str, ...] = ()
    fidelity: str | None = None
    task_id: str | None = None
    trace_id: str | None = None
    error: str | None = None
    erased: bool = False
    open_effects: int = 0
    events: int = 0
    head: str | None = None
    owner: Owner | None = None
    elsewhere: bool = False
    values_dropped: int = 0


def coverage_left(said: Coverage, *, erased: bool = False, missing: bool = False) -> Coverage:
    """What of a recording's coverage is left where its values were deleted, or some of them are not there."""
    if erased or (missing and said in ("full", "control_flow")):
        return "limited_replay"
    return said


def without_values(run: Run) -> Run:
    """The row of a run of whose values some are not there: an import without them."""
    left = coverage_left(run.coverage, missing=True)
    return (
        run
        if left == run.coverage
        else replace(run, coverage=left, coverage_notes=(*run.coverage_notes, VALUES_MISSING))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list. Every set field must match; `limit` rows from `offset`.

    Attributes:
        model: a model that was asked, in any step.
        missed: only forks that had a miss. forked: only runs that forks were made of. roots: only runs that are no forks.
        order: `newest` first, or by `family`: a run with the forks of it and of those, the first run first and the others as
            they were begun; the family whose first run is the newest comes first.
        name: the whole name.
        text: the beginning of an id, or a part of a name; ASCII letters of a name in either case.
        error: class of an error that happened in it.
        open_effects: only runs that have some.
    """

    agent: str | None = None
    status: RunStatus | None = None
    tag: str | None = None
    task_id: str | None = None
    trace_id: str | None = None
    parent_run_id: str | None = None
    tool: str | None = None
    error: str | None = None
    model: str | None = None
    coverage: Coverage | None = None
    missed: bool = False
    forked: bool = False
    roots: bool = False
    open_effects: bool = False
    name: str | None = None
    text: str | None = None
    since: str | None = None
    until: str | None = None
    id_prefix: str | None = None
    order: RunOrder = "newest"
    limit: int | None = 50
    offset: int = 0
