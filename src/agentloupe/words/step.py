"""A step: one thing in a run that a person looks at. A projection of events; bodies are loaded on demand."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from agentloupe.words.call import NO_ATTRS, Attrs, Effect, Kind, Source
from agentloupe.words.canonical import Json
from agentloupe.words.run import Run

__all__ = ["Step", "Trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        idx: 0, 1, 2 ... in order of start; an SDK run's root span is 0.
        parent_idx: the step that it happened in.
        input, output: whole JSON values when `loaded`, else `None`. An LLM step's input is the request body
            (`{"messages": [...], "tools": [...], ...}`), its output the assistant message; a tool's input is its arguments.
        error: class and message of a failed step (`None` when it went well), loaded with the bodies; `error_class` is always there.
        source: who answered (`recorded` is a copied prefix).
        attrs: structural facts: finish reason, usage, tries, effect, idempotency key, marks such as `partial_step`.
        first_seq, last_seq: the events behind it.
        partial: why the stored request is not complete, or `None`.
    """

    run_id: str
    idx: int
    parent_idx: int | None
    kind: Kind
    name: str
    started_at: str
    ended_at: str | None = None
    input: Json = None
    output: Json = None
    error: str | None = None
    loaded: bool = False
    status: str = "open"
    error_class: str | None = None
    source: Source = "live"
    effect: Effect | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    call_id: str | None = None
    lane: str | None = None
    n: int | None = None
    input_key: str | None = None
    input_digest: str | None = None
    output_digest: str | None = None
    attrs: Attrs = field(default=NO_ATTRS)
    partial: str | None = None
    first_seq: int = 0
    last_seq: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """The view of a recording: a run and its steps in order of `idx`."""

    run: Run
    steps: tuple[Step, ...]
