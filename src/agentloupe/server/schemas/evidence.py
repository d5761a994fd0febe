"""Whether evidence is whole, and files in and out."""

from __future__ import annotations

from pydantic import Field

from agentloupe.server.schemas.common import Document, Json
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
    anchored: bool
    coverage: Coverage
    notes: list[str] = Field(description="What was not proven.")
    reader: str
    reason: str | None
    head: str = Field(description="One line that says it all.")


class Imports(Document):
    """What became of each file."""

    items: list[dict[str, Json]]
