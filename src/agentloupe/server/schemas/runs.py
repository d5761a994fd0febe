"""Runs in lists and on their own page."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentloupe.server.schemas.common import Document, Json, Money, Page, Time
from agentloupe.server.schemas.evidence import Verdict
from agentloupe.words.run import Coverage, Engine, Label, RunStatus

__all__ = ["Badges", "Facets", "Lineage", "Run", "RunDetail", "RunPage", "RunShort", "Tags"]


class Counts(Document):
    """How the tool calls of a fork's new part were answered. `reused` is a part of `cassette`."""

    cassette: int
    live: int
    stub: int
    sandbox: int
    human: int
    simulated: int
    miss: int
    reused: int


class Badges(Document):
    """What was checked of a run, and what came of it."""

    chain: Literal["ok", "broken", "not_checked"] = Field(description="Whether the evidence is whole; see `verify`.")
    replay: dict[str, Json] | None = Field(description="The last replay of this run, if there was one.")


class Run(Document):
    """One execution of an agent."""

    id: str = Field(examples=["weather-260401-k7m2qa"])
    name: str
    agent: str
    status: RunStatus
    started_at: Time
    ended_at: Time | None
    seconds: float | None = Field(description="How long it took; null while it is open.")
    model: str | None = Field(description="The first model that was asked.")
    tags: list[str]
    parent_run_id: str | None
    forked_from_step: int | None
    arm: str | None = Field(description="`candidate` or `control` of a repeated fork.")
    overrides: list[dict[str, Json]]
    steps: int
    counts: Counts
    label: Label | None
    hypothetical_from: int | None
    total_input_tokens: int | None
    total_output_tokens: int | None
    usage_complete: bool = Field(description="False: some model step reported no usage, totals are lower bounds.")
    new_input_tokens: int | None
    new_output_tokens: int | None
    cost: Money | None
    new_cost: Money | None
    cost_complete: bool
    engine: Engine
    coverage: Coverage
    coverage_notes: list[str]
    fidelity: str | None = Field(description="Of an import: what its source did not keep.")
    task_id: str | None
    trace_id: str | None
    error: str | None
    events: int
    head: str | None
    children: int = Field(description="How many forks were made of it.")
    misses: int
    badges: Badges
    erased: bool = Field(description="Its content was deleted; its events stay.")
    open_effects: int = Field(description="Writes that were begun and of which nobody has noted what became of them.")


class FacetCount(Document):
    """A value that lists can be filtered by, and how many runs have it."""

    value: str
    count: int


class Facets(Document):
    """Values that lists can be filtered by, of the whole store, the most frequent first; at most 50 of each."""

    agents: list[FacetCount]
    models: list[FacetCount]
    tools: list[FacetCount]
    tags: list[FacetCount]
    statuses: list[FacetCount]


class RunPage(Page[Run]):
    """Runs, newest first."""

    capped: bool = Field(description="True: there are more than `total`; they were not counted to the end.")
    facets: Facets | None = Field(description="Only with `facets=1`.")


class RunShort(Document):
    """A relative of a run."""

    id: str
    name: str
    status: RunStatus
    arm: str | None
    parent_run_id: str | None
    forked_from_step: int | None
    label: Label | None
    steps: int
    misses: int
    started_at: Time


class Relatives(Document):
    """Some of the relatives of a run, and how many there are."""

    items: list[RunShort]
    total: int


class Lineage(Document):
    """Where a run comes from and what came of it."""

    ancestors: list[RunShort] = Field(description="From the parent up to the first run.")
    children: Relatives
    siblings: Relatives = Field(description="Other forks of the same step of the same parent.")


class Totals(Document):
    """Sums over the whole path, or over the new part of a fork."""

    input_tokens: int | None
    output_tokens: int | None
    cost: Money | None


class RunDetail(Run):
    """A run with its relatives and sums."""

    lineage: Lineage
    snapshot: Json | None = Field(description="What the run's decisions depended on, as it was recorded.")
    snapshot_digest: str | None = Field(description="Digest of the snapshot; it stays where the content was deleted.")
    changes: list[dict[str, Json]] = Field(description="What a fork changed, with values, as far as they are kept.")
    whole: Totals
    new: Totals
    verdict: Verdict | None = Field(
        description="What the last check found, see `verify`; null: nobody checked since its last event and since the server began."
    )
    newer: str | None = Field(description="Why this version cannot read all of it: a newer one wrote its last event.")
    kept_steps: int = Field(description="Steps that were kept from the parent.")
    worker_command: str = Field(
        description="What to type in the project's folder to start a worker that has the run's agent. It is never run here.",
        examples=["agentloupe worker my_app.agents"],
    )


class Tags(Document):
    """Tags of a run, in place of those that it has."""

    tags: list[str] = Field(max_length=100, examples=[["incident", "fork"]])
