"""What a fork will ask and cost, before it is made: told by what its parent asked from the same step on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Literal

from agentloupe.engine.costs import price_trace, total
from agentloupe.ports.protocols import Store
from agentloupe.verbs.forkfamily import ForkWishes, arms_of, check_repeat
from agentloupe.verbs.pricing import price_table
from agentloupe.words.canonical import Json
from agentloupe.words.errors import RunNotFound
from agentloupe.words.step import Step, Trace

__all__ = ["Estimate", "estimate_fork"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What all arms of a fork together are likely to ask.

    Attributes:
        runs: how many runs will be made, controls among them.
        calls: model calls.
        input_tokens, output_tokens: `None` where the parent knows none of them.
        cost: in the currency of the prices; `None` where no price is known.
        complete: whether tokens and prices of every call are known; else the sums are of a part.
    """

    runs: int
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost: Decimal | None
    complete: bool

    def as_json(self) -> dict[str, Json]:
        """The estimate as JSON, the cost as text."""
        tokens: dict[str, Json] = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        cost = None if self.cost is None else str(self.cost)
        return {"runs": self.runs, "calls": self.calls, **tokens, "cost": cost, "complete": self.complete}


def estimate_fork(
    run: str, *, from_step: int | Literal["start"], store: Store, wishes: ForkWishes | None = None
) -> Estimate:
    """Estimates a fork; asks no model, and reads headers of steps only. `run` is an exact id.

    It takes the parent's own model calls from the step on, at most `max_steps` of them, with the model of the overrides.
    What a fork really asks is told by its runs; another answer may lead further.

    Raises:
        RunNotFound: there is no such run.
        UsageError: there are too many repeats, or none.
    """
    chosen = wishes or ForkWishes()
    check_repeat(chosen)
    row = store.run(run)
    if row is None:
        raise RunNotFound(f"no run {run!r}", hint="`agentloupe list` shows what there is")
    first = 0 if from_step == "start" else from_step
    models = [step for step in store.steps(run, first=first) if step.kind == "llm"][: chosen.limits.max_steps]
    asked = {None: models, "candidate": models, "control": models}
    if chosen.overrides.model is not None:
        asked[None] = asked["candidate"] = [_asked_of(step, chosen.overrides.model) for step in models]
    arms = arms_of(chosen)
    steps = [step for arm in arms for step in asked[arm]]
    costs = [step.cost for step in price_trace(Trace(row, tuple(steps)), price_table()).steps]
    cost, priced = total(costs)
    known = all(step.input_tokens is not None and step.output_tokens is not None for step in steps)
    return Estimate(
        runs=len(arms),
        calls=len(steps),
        input_tokens=_sum([step.input_tokens for step in steps]),
        output_tokens=_sum([step.output_tokens for step in steps]),
        cost=cost,
        complete=known and priced,
    )


def _asked_of(step: Step, model: str) -> Step:
    """The step as if this model had answered."""
    return replace(step, model=model, source="live", attrs={**step.attrs, "model": model})


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
