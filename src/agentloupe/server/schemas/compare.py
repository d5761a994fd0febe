"""Comparisons, summaries and families."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentloupe.engine.compare import RowStatus
from agentloupe.server.schemas.common import Document, Json, Money, Page
from agentloupe.server.schemas.runs import Counts, Run, RunShort
from agentloupe.words.call import Effect
from agentloupe.words.run import Label, RunStatus

__all__ = ["ComparePage", "Family", "Only", "RowDetail", "Summary"]

Only = Literal["differences"]


class StepName(Document):
    """What a list of steps shows of one."""

    idx: int
    kind: str
    name: str
    status: str
    source: str
    error_class: str | None
    effect: Effect | None = Field(description="What a tool does to the world, as far as it was stated.")
    line: str = Field(
        description="What it did, in one short line; empty where that is not known, or far down in a long stretch.",
        examples=['{"city": "Beijing"} -> {"temp_c": 11.9}'],
    )


class Row(Document):
    """A pair of steps, or one without a partner."""

    row: int
    status: RowStatus
    left: StepName | None
    right: StepName | None
    notes: list[str]


class FirstDifference(Document):
    """Where two runs part."""

    row: int
    left_idx: int
    right_idx: int


class Delta(Document):
    """A figure on both sides; costs are exact text."""

    left: float | str | None
    right: float | str | None
    change: float | str | None


class Answers(Document):
    """The final answers."""

    left: Json | None
    right: Json | None


class SnapshotChange(Document):
    """One thing that the runs depended on, and that differs; null is absent."""

    what: str = Field(examples=["packages.openai", "given.prompt_template", "tools.refund.source_digest"])
    left: Json | None
    right: Json | None


class Snapshots(Document):
    """How what two runs depended on differs."""

    left: str | None = Field(description="Digest of the left snapshot.")
    right: str | None
    changes: list[SnapshotChange]
    lines: list[str] = Field(
        description="The same for people.", examples=[["3 packages changed: openai 3.56.0 -> 3.57.0"]]
    )


class Header(Document):
    """What stands above the rows."""

    left: Run
    right: Run
    identical: bool
    first: FirstDifference | None
    counts: dict[str, int]
    deltas: dict[str, Delta]
    answers: Answers
    snapshot: Snapshots


class ComparePage(Page[Row]):
    """Two runs aligned."""

    header: Header


class RowDetail(Document):
    """What differs in a row. What does not apply to its kind of step is null."""

    row: int
    status: RowStatus
    notes: list[str]
    left: dict[str, Json] | None
    right: dict[str, Json] | None
    input: list[dict[str, Json]] | None
    output: list[dict[str, Json]] | None
    words: list[list[str]] | None
    messages: list[dict[str, Json]] | None
    answer: list[dict[str, Json]] | None
    tools: list[dict[str, Json]] | None


class SummaryRow(Document):
    """One run in the table."""

    id: str
    name: str
    agent: str
    status: RunStatus
    parent_run_id: str | None
    forked_from_step: int | None
    arm: str | None
    overrides: list[dict[str, Json]]
    label: Label | None
    hypothetical_from: int | None
    counts: Counts
    steps: int
    usage_complete: bool
    cost_complete: bool
    figures: dict[str, float | str | None] = Field(
        description="steps, model_calls, misses, errors, input_tokens, output_tokens, cost (exact text), seconds."
    )
    answer: Json | None
    group: int = Field(description="Equal final answers have one number.")


class Path(Document):
    """A stretch of road that some runs took together."""

    stretch: list[StepName]
    runs: list[str]
    ends: list[str]
    children: list[Path]


class Summary(Document):
    """Several runs side by side."""

    runs: list[SummaryRow]
    groups: int
    agreement: float = Field(description="Share of the largest group of equal answers, 0 to 1.")
    paths: list[Path]


class FamilyRun(RunShort):
    """A run of a family."""

    cost: Money | None


class Edge(Document):
    """A fork."""

    parent: str
    child: str
    step: int | None
    arm: str | None
    overrides: list[dict[str, Json]]


class Family(Document):
    """Everything that comes from one run."""

    root: str
    nodes: list[FamilyRun]
    edges: list[Edge]
    capped: bool = Field(description="There are more than 500.")
