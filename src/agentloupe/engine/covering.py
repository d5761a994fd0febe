"""What a run's recording lacks: its coverage with the reasons, and values that no codec could read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import orjson

from agentloupe.words.canonical import Json
from agentloupe.words.event import Event
from agentloupe.words.run import Coverage

__all__ = ["MOST_NOTES", "Covered", "coverage_of", "recorded_of", "snapshot_of", "unrecordable_in", "what_is_lost"]

_RANK: Final[tuple[Coverage, ...]] = ("full", "control_flow", "limited_replay", "trace_only", "lossy")
_SIGN: Final = ord("$")
MOST_NOTES: Final = 20
"""Reasons that are kept of one run."""


@dataclass(slots=True)
class Covered:
    """How much of a run is recorded, and reasons for what is not."""

    level: Coverage = "full"
    notes: list[str] | None = None

    def lower(self, level: Coverage, note: str) -> None:
        """Lowers the level to at most this one, and keeps the reason."""
        if _RANK.index(level) > _RANK.index(self.level):
            self.level = level
        self.notes = self.notes if self.notes is not None else []
        if note not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(note)


def coverage_of(events: Sequence[Event]) -> Coverage:
    """What a run says of its coverage, at its end or (of an import) at its beginning."""
    for event in reversed(events):
        if event.type in {"run.finished", "run.started"} and "coverage" in event.attrs:
            return cast("Coverage", event.attrs["coverage"])
    return "full"


def snapshot_of(events: Sequence[Event]) -> str | None:
    """Digest of the snapshot that a run began with; `None` where it has none."""
    return events[0].bodies.get("snapshot") if events else None


def recorded_of(events: Sequence[Event]) -> dict[str, Json]:
    """What a report says of the recording itself: `coverage`, `coverage_notes`, `snapshot` (its digest, or null)."""
    told = (event.attrs["coverage_notes"] for event in reversed(events) if "coverage_notes" in event.attrs)
    notes: Json = next(told, list[Json]())
    return {"coverage": coverage_of(events), "coverage_notes": notes, "snapshot": snapshot_of(events)}


def unrecordable_in(value: Json, text: bytes | None = None) -> tuple[tuple[str, str], ...]:
    """Paths and types of what `codecs` marked as unrecordable in a wire value. `text`: its text, where that was made."""
    try:
        text = orjson.dumps(value) if text is None else text
        if _SIGN not in text or b'{"$unrecordable":' not in text:
            return ()
    except TypeError:
        pass  # integers beyond orjson's range: look at every part
    found: list[tuple[str, str]] = []
    stack: list[Json] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            marked = item.get("$unrecordable") if len(item) == 1 else None
            if isinstance(marked, dict):
                found.append((str(marked.get("path", "$")), str(marked.get("type", "?"))))
            else:
                stack.extend(reversed(item.values()))
    return tuple(found)


def what_is_lost(what: str, lost: Sequence[tuple[str, str]]) -> str:
    """Says of `what` which part cannot be recorded."""
    path, kind = lost[0]
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    return f"{what} cannot be recorded: {path} is of type {kind}{more}"
