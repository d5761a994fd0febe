"""A long run as a few columns: how much happened in each stretch of steps, and what must be seen whatever the zoom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentloupe.engine.views.flags import Flags
from agentloupe.words.step import Step

__all__ = ["Column", "columns_of"]


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of steps `first` to `last`.

    Attributes:
        tokens: of its model calls, in and out, as far as they were reported.
        model_calls: how many of its steps are model steps.
        miss, error, flag: a miss, a failed step, a changed prompt or changed tools is in it.
        cut: a fork left its parent here: the first step that was not kept.
    """

    first: int
    last: int
    tokens: int
    model_calls: int
    miss: bool
    error: bool
    flag: bool
    cut: bool


def columns_of(steps: Sequence[Step], flags: Flags, most: int, cut: int | None) -> list[Column]:
    """At most `most` columns, each of equally many steps."""
    if not steps:
        return []
    width = -(-len(steps) // most)
    return [_column(steps[at : at + width], flags, cut) for at in range(0, len(steps), width)]


def _column(steps: Sequence[Step], flags: Flags, cut: int | None) -> Column:
    models = [step for step in steps if step.kind == "llm"]
    first, last = steps[0].idx, steps[-1].idx
    return Column(
        first=first,
        last=last,
        tokens=sum((step.input_tokens or 0) + (step.output_tokens or 0) for step in models),
        model_calls=len(models),
        miss=any(step.source == "miss" for step in steps),
        error=any(step.status in {"error", "unknown", "cancelled"} for step in steps),
        flag=any(step.idx in flags.prompt or step.idx in flags.tools for step in models),
        cut=cut is not None and first <= cut <= last,
    )
