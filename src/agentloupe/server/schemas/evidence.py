"""Whether evidence is whole, and files in and out."""

from __future__ import annotations

from pydantic import Field

from agentloupe.server.schemas.common import Document, Json, Time
from agentloupe.words.run import Coverage

__all__ = ["Imports", "Verdict"]


class FaultDocument(Document):
    """Something that is not as it was sealed."""

    sequence: int
    reason: str
    expected: str
    actual: str


class Verdict(Document):
    """What was proven of a recording, and what was not."""

    ok: bool
    origin: str
    run_id: str
    events: int
    linked: int
    bodies_checked: int
    bodies_missing: int
    fault: FaultDocument | None
    more: list[FaultDocument]
    ended: bool
    erased: bool
    anchored: bool = Field(description="Whether it is, up to `anchor_sequence`, what somebody signed.")
    anchored_at: str | None = Field(description="When that was signed.")
    anchor_sequence: int | None = Field(
        description="Its last event of then; nothing signed says anything about later ones."
    )
    key_id: str | None = Field(description="SHA-256 of the public key that it was signed with.")
    anchors: bool = Field(description="Whether the settings name a file of anchors.")
    anchor_problem: str | None = Field(description="Why the anchors that the settings name cannot be used.")
    coverage: Coverage
    snapshot: str | None = Field(description="Digest of the snapshot that it began with.")
    proves: list[str] = Field(description="What was proven.")
    notes: list[str] = Field(description="What was not proven.")
    reader: str
    checked_at: Time
    reason: str | None
    head: str = Field(description="One line that says it all.")


class Imports(Document):
    """What became of each file."""

    items: list[dict[str, Json]]
