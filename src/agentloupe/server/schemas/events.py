"""The log of a run, event by event."""

from __future__ import annotations

from pydantic import Field

from agentloupe.server.schemas.common import Document, Json, Page, Time
from agentloupe.server.schemas.runs import FacetCount
from agentloupe.words.call import Source

__all__ = ["EventDetail", "EventEnvelope", "EventPage"]


class EventEnvelope(Document):
    """A fact of a run's log: structure and digests, no bodies."""

    sequence: int = Field(examples=[14])
    type: str = Field(examples=["tool.finished"])
    event_id: str
    recorded_at: Time
    call_id: str | None = Field(description="Ties the events of one call together.")
    step: int | None = Field(description="Index of the call's step.")
    parent_seq: int | None = Field(description="Number of the event that caused this one, where it is known.")
    name: str | None
    source: Source | None
    lane: str | None = Field(description="The task or thread that made the call.")
    n: int | None = Field(description="Number of the call in its lane.")
    input_digest: str | None
    output_digest: str | None
    bodies: dict[str, str] = Field(description="Further bodies by what they are, as digests.")
    attrs: dict[str, Json]
    hash: str
    prev_hash: str
    copied_hash: str | None


class EventDetail(EventEnvelope):
    """An event as it was sealed."""

    sealed: dict[str, Json] = Field(description="All its members, whose hash with the one before makes its hash.")


class EventPage(Page[EventEnvelope]):
    """Events in order."""

    types: list[FacetCount] | None = Field(
        description="Only with `types=1`: types of all the run's events, the most frequent first."
    )
