"""Numbers and chains drafts: the same for every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, cast

from agentloupe.canonical import Json, canonical
from agentloupe.event import Draft, Event, Head
from agentloupe.seal import link_bytes

__all__ = ["Sealed", "seal_drafts"]

_FIELDS = tuple(f.name for f in fields(Draft))
_values = cast("Any", attrgetter(*_FIELDS))


@dataclass(frozen=True, slots=True)
class Sealed:
    """Events with their canonical envelopes, and the new end of the chain."""

    events: tuple[Event, ...]
    envelopes: tuple[bytes, ...]
    head: Head


def seal_drafts(run_id: str, head: Head, drafts: Sequence[Draft]) -> Sealed:
    """Gives drafts the numbers after `head` and chains them to it."""
    events: list[Event] = []
    envelopes: list[bytes] = []
    sequence, before = head.sequence, head.hash
    for draft in drafts:
        sequence += 1
        envelope = canonical(cast("Json", draft.envelope(run_id, sequence)))
        sealed = link_bytes(before, envelope)
        made = dict(zip(_FIELDS, _values(draft), strict=True))
        events.append(Event(**made, run_id=run_id, sequence=sequence, prev_hash=before, hash=sealed))
        envelopes.append(envelope)
        before = sealed
    return Sealed(tuple(events), tuple(envelopes), Head(sequence, before))
