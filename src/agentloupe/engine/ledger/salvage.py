"""What can still be read of a damaged log, and how to write on behind the damage. Proves nothing, and says so.

Whole lines from the beginning are *whole* as long as number, run and chain hold. A damaged line is skipped, and what stands
whole at its end or behind it is *recovered*. What is newer or unknown is never skipped: reading ends there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from agentloupe.engine.ledger.terms import is_count
from agentloupe.words.canonical import Json, digest_bytes, dumps, loads
from agentloupe.words.ledger import EVENTS, KINDS, LEDGER_VERSION, LedgerFault, line_text, linked
from agentloupe.words.seal import GENESIS

__all__ = ["SALVAGE_FORM", "Damage", "Kept", "Salvage", "next_line", "salvage"]

SALVAGE_FORM: Final = "agentloupe.ledger.salvage"
_BEGINNING = re.compile(rb'\{"(?:schema_version|seq|run_id|kind)":')
_TRIES = 8
"""Places in a damaged line at which a whole one may begin, looked at from the end."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A place in the log that is no line.

    Attributes:
        line, byte: where it begins; bytes: how long it is; sha256: what it is, so that nobody mends it unseen.
        said: what is wrong.
    """

    line: int
    byte: int
    bytes: int
    sha256: str
    said: str

    def as_json(self) -> dict[str, Json]:
        """The place for machines."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Kept:
    """A line that could be read: number of the line, how it was had, what it says."""

    line: int
    how: str
    event: Mapping[str, Json]


@dataclass(slots=True)
class Salvage:
    """What was read of a log.

    Attributes:
        kept: lines, whole ones first.
        damage: places that are no lines.
        stopped: what ended the reading before the end of the log, if anything did.
        unread: lines behind it.
    """

    kept: list[Kept] = field(default_factory=list[Kept])
    damage: list[Damage] = field(default_factory=list[Damage])
    stopped: LedgerFault | None = None
    unread: int = 0

    def count(self, how: str) -> int:
        """How many lines are `whole`, or `recovered`."""
        return sum(kept.how == how for kept in self.kept)

    def head(self) -> dict[str, Json]:
        """What the salvage says of itself. There is no state: nobody knows what is missing."""
        return {
            "report": SALVAGE_FORM,
            "partial": True,
            "whole": self.count("whole"),
            "recovered": self.count("recovered"),
            "unread": self.unread,
            "damage": [one.as_json() for one in self.damage],
            "stopped": None if self.stopped is None else self.stopped.as_json(),
        }

    def document(self) -> bytes:
        """JSON Lines: the head, then each line that was kept. No command takes it for a ledger or a report."""
        rows = [{"salvaged": kept.how, "line": kept.line, "event": dict(kept.event)} for kept in self.kept]
        return b"".join(dumps(cast("Json", row)) + b"\n" for row in (self.head(), *rows))

    def __str__(self) -> str:
        parts = [f"partial=True whole={self.count('whole')} recovered={self.count('recovered')}"]
        return f"{parts[0]} damaged={len(self.damage)} unread={self.unread}"


def salvage(data: bytes) -> Salvage:
    """Reads as much of a log as there is."""
    found = Salvage()
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    start = 0
    for number, text in enumerate(lines, 1):
        event, said = _read(text)
        torn = start + len(text) == len(data)
        if event is None or torn:
            said = said or "the last line has no line break: it was cut"
            found.damage.append(Damage(number, start, len(text), digest_bytes(text), said))
            event = event or _at_its_end(text)
        if event is not None:
            found.stopped = _take(found, number, event)
            if found.stopped is not None:
                found.unread = len(lines) - number + 1
                break
        start += len(text) + 1
    return found


def _read(text: bytes) -> tuple[dict[str, Json] | None, str]:
    if not text.strip():
        return None, "a blank line"
    try:
        value = loads(text)
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except ValueError:
        return None, "not strict JSON"
    return (value, "") if isinstance(value, dict) else (None, "no JSON object")


def _at_its_end(text: bytes) -> dict[str, Json] | None:
    """The whole line that a damaged one ends with: two that were written into each other."""
    starts = [found.start() for found in _BEGINNING.finditer(text)][-_TRIES:]
    for start in reversed(starts):
        event, _ = _read(text[start:])
        if event is not None and "seq" in event:
            return event
    return None


def _take(found: Salvage, number: int, event: dict[str, Json]) -> LedgerFault | None:
    """Keeps a line, or tells why reading ends here."""
    kind, version, seq = event.get("kind"), event.get("schema_version", 0), event.get("seq")
    last = found.kept[-1].event if found.kept else {"seq": 0, "run_id": event.get("run_id"), "hash": GENESIS}

    def fault(guard: str, said: str, *, newer: bool = False) -> LedgerFault:
        sequence = seq if is_count(seq) else None
        shown = kind[:60] if isinstance(kind, str) else None
        return LedgerFault(guard=guard, said=said, line=number, sequence=sequence, kind=shown, newer=newer, file=EVENTS)

    if not is_count(version):
        return fault("schema_version", "schema_version is no number")
    if version > LEDGER_VERSION:
        return fault("schema_version", f"schema {version} is newer than this reader ({LEDGER_VERSION})", newer=True)
    if not isinstance(kind, str) or kind not in KINDS:
        return fault("kind", "its kind is not known", newer=True)
    if event.get("run_id") != last["run_id"]:
        return fault("run_id", "of another run than the lines before it")
    whole = not found.damage
    if not is_count(seq) or (seq != cast("int", last["seq"]) + 1 if whole else seq <= cast("int", last["seq"])):
        return fault("sequence", "its number does not follow")
    if version and not _sealed(event, str(last.get("hash")) if whole else None):
        return fault("chain", "it is not what was sealed")
    found.kept.append(Kept(number, "whole" if whole else "recovered", event))
    return None


def _sealed(event: dict[str, Json], before: str | None) -> bool:
    """Whether a line has the hash that it says; behind damage its link is taken on trust."""
    previous = event.get("prev_hash")
    if not isinstance(previous, str) or (before is not None and previous != before):
        return False
    return linked({k: v for k, v in event.items() if k not in ("prev_hash", "hash")}, previous) == event


# --- writing on -------------------------------------------------------------------------------------------------------


def next_line(data: bytes, kind: str, payload: Mapping[str, Json], at: str) -> bytes:
    """The line that continues a log, numbered and linked behind the last one that can be read.

    Damage since that line is told in the payload (`after_damage`): the bytes themselves stay where they are.

    Raises:
        ValueError: the log holds nothing to go on from, or something that this reader does not know.
    """
    found = salvage(data)
    if found.stopped is not None or not found.kept:
        raise ValueError(str(found.stopped or "the log holds no whole line"))
    last = found.kept[-1].event
    said = list(_untold(found))
    body: dict[str, Json] = {**payload, **({"after_damage": list[Json](said)} if said else {})}
    line: dict[str, Json] = {"seq": cast("int", last["seq"]) + 1, "run_id": last["run_id"], "kind": kind}
    if "hash" not in last:
        return line_text({**line, "payload": body})
    line = {"schema_version": LEDGER_VERSION, **line, "recorded_at": at, "payload": body}
    return line_text(linked(line, str(last["hash"])))


def _untold(found: Salvage) -> Iterator[dict[str, Json]]:
    """Damage that no line has told yet."""
    told: list[Json] = []
    for kept in found.kept:
        payload = kept.event.get("payload")
        before = payload.get("after_damage") if isinstance(payload, dict) else None
        told += before if isinstance(before, list) else []
    return (said for one in found.damage if (said := one.as_json()) not in told)
