"""Headers of steps."""

from __future__ import annotations

from pydantic import Field

from agentloupe.server.schemas.common import Document, Json, Money, Page, Time
from agentloupe.words.call import Effect, Kind, Source

__all__ = ["StepHeader", "StepPage"]


class StepHeader(Document):
    """One step of a run, without what was sent and what came back."""

    run_id: str
    idx: int
    parent_idx: int | None
    kind: Kind
    name: str
    status: str = Field(description="`open`, `ok`, `error`, `cancelled`, `unknown`, `denied`.")
    source: Source = Field(description="Who answered.")
    started_at: Time
    ended_at: Time | None
    seconds: float | None
    effect: Effect | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: Money | None
    error_class: str | None
    partial: str | None = Field(description="Why the stored request is not complete.")
    call_id: str | None
    input_key: str | None
    input_digest: str | None
    output_digest: str | None
    attrs: dict[str, Json]
    events: list[int] = Field(description="First and last event.", min_length=2, max_length=2)
    depth: int = Field(description="How deep it lies in the tree; 0 at the top.")
    children: int = Field(description="How many steps lie directly in it.")
    prompt_changed: bool = Field(description="The leading instructions differ from the model step before.")
    tools_changed: bool
    forkable: bool
    fork_reason: str | None = Field(description="Why no fork can start here.")
    fork_reason_code: str | None = Field(
        description="The same as a stable word: `not_llm`, `deleted`, `cut_request`, `no_request`."
    )


class StepPage(Page[StepHeader]):
    """Steps in order."""
