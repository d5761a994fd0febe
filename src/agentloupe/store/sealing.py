"""Numbers and chains drafts: the same for every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentloupe.words.canonical import canonical
from agentloupe.words.errors import Corrupt
from agentloupe.words.event import Draft, Event, Head, sealed_event
from agentloupe.words.seal import check_chain, link_bytes, sealed_form

__all__ = ["Sealed", "after", "seal_drafts", "together", "whole_chain"]


class Sealed(NamedTuple):
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
        envelope = draft.envelope(run_id, sequence)
        text = canonical(envelope)
        sealed = link_bytes(before, text)
        events.append(sealed_event(envelope, before, sealed))
        envelopes.append(text)
        before = sealed
    return Sealed(tuple(events), tuple(envelopes), Head(sequence, before))


def together(parts: Sequence[Sealed]) -> Sealed:
    """Several parts of one chain, in order."""
    if len(parts) == 1:
        return parts[0]
    events = tuple(event for part in parts for event in part.events)
    return Sealed(events, tuple(text for part in parts for text in part.envelopes), parts[-1].head)


def after(sealed: Sealed, head: Head) -> Sealed:
    """The part of a chain behind `head`."""
    skip = len(sealed.events) - (sealed.head.sequence - head.sequence)
    return sealed if skip <= 0 else Sealed(sealed.events[skip:], sealed.envelopes[skip:], sealed.head)


def whole_chain(run_id: str, events: Sequence[Event]) -> Sealed:
    """Events that were sealed elsewhere, checked.

    Raises:
        Corrupt: there are none, or they are not one whole chain of this run.
    """
    if not events:
        raise Corrupt(f"run {run_id} has no events", reason="empty")
    envelopes = [event.envelope(event.run_id, event.sequence) for event in events]
    links = ((e.sequence, env, e.prev_hash, e.hash) for e, env in zip(events, envelopes, strict=True))
    fault = check_chain(links, run_id=run_id)
    if fault is not None:
        raise Corrupt(
            f"run {run_id}: event {fault.sequence} is not what was sealed ({fault.reason})", reason=fault.reason
        )
    last = events[-1]
    texts = tuple(sealed_form(envelope) for envelope in envelopes)
    return Sealed(tuple(events), texts, Head(last.sequence, last.hash))
