"""The hash chain of a run's events: `hash = SHA-256(prev_hash + canonical(envelope without the two hashes))`.

A chain shows any change, gap or swap between its first and its last event; it does not show that its tail was cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import orjson

from agentloupe.words.canonical import Json, canonical, loads

__all__ = ["GENESIS", "Fault", "Link", "Reason", "check_chain", "link", "link_bytes", "read_sealed", "sealed_form"]

GENESIS: Final = "0" * 64
"""`prev_hash` of a run's first event."""

Link = tuple[int, Mapping[str, Json], str, str]
"""One sealed event: sequence, envelope, prev_hash, hash."""

Reason = Literal[
    "gap",
    "sequence",
    "run_id",
    "prev_hash",
    "hash",
    "cause",
    "end",
    "empty",
    "cut",
    "relinked",
    "reused",
    "lost",
    "unreadable",
    "body",
    "body_missing",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """The first place where a chain does not hold.

    Attributes:
        sequence: the event (for `gap`: the event that came instead of the missing one).
        reason: `gap` (a number is left out or comes again), `sequence` or `run_id` (the envelope says another one),
            `prev_hash` (it does not point at the event before), `hash` (the envelope is not what was sealed). The others
            are found beside the chain, by `verify`: `cause` (an event is said to be caused by itself or a later one),
            `end`, `empty`, `body`, `body_missing`, `unreadable` (an event cannot even be read); and, where somebody
            signed how the run stood at a moment: `cut` (events of then are gone), `relinked` (a chain that is whole in
            itself, and another one than then), `reused` (the run began later than that: its id was given again), `lost`
            (no such run).
        expected: what it had to be.
        actual: what it is.
    """

    sequence: int
    reason: Reason
    expected: str
    actual: str


def link(prev_hash: str, envelope: Mapping[str, Json]) -> str:
    """The hash of an event: 64 hex digits. `prev_hash` and `hash` in the envelope take no part.

    Raises:
        TypeError: the envelope holds something that is no JSON.
    """
    if "hash" in envelope or "prev_hash" in envelope:
        envelope = {name: value for name, value in envelope.items() if name not in ("hash", "prev_hash")}
    return link_bytes(prev_hash, sealed_form(envelope))


def sealed_form(envelope: Mapping[str, Json]) -> bytes:
    """The canonical form of an envelope without the two hashes. Raises like `canonical`."""
    return canonical(dict(envelope))


def read_sealed(text: bytes) -> tuple[Json, bool]:
    """What a stored envelope says, and whether its text is plainly canonical: sorted, no spaces, every key once.

    Raises `ValueError` like `loads`. Where the second is false nobody knows; `sealed_form` tells.
    """
    try:
        value: Json = orjson.loads(text)
        if orjson.dumps(value, option=orjson.OPT_SORT_KEYS) == text:
            return value, True
    except (ValueError, TypeError):
        pass  # large integers, lone surrogates, no JSON: the strict reader knows
    return loads(text), False


def link_bytes(prev_hash: str, sealed: bytes) -> str:
    """The hash of an event whose envelope, without the two hashes, is already in canonical form."""
    return hashlib.sha256(prev_hash.encode() + sealed).hexdigest()


def check_chain(
    links: Iterable[Link], *, run_id: str | None = None, first: int = 1, head: str = GENESIS
) -> Fault | None:
    """The first fault of a chain, or `None`. Reads one event at a time.

    Args:
        links: sealed events in order.
        run_id: whose events they must be; `None` takes it from the first one.
        first: number of the first event.
        head: hash of the event before the first.
    """
    expected = first
    before = head
    for sequence, envelope, prev_hash, sealed in links:
        run_id = run_id or str(envelope.get("run_id"))
        fault = _fault_of(sequence, envelope, (expected, run_id, before), (prev_hash, sealed))
        if fault is not None:
            return fault
        expected, before = sequence + 1, sealed
    return None


def _fault_of(
    sequence: int, envelope: Mapping[str, Json], wanted: tuple[int, str, str], hashes: tuple[str, str]
) -> Fault | None:
    expected, run_id, before = wanted
    prev_hash, sealed = hashes
    if sequence != expected:
        return Fault(sequence, "gap", str(expected), str(sequence))
    if envelope.get("sequence") != sequence:
        return Fault(sequence, "sequence", str(sequence), str(envelope.get("sequence")))
    if envelope.get("run_id") != run_id:
        return Fault(sequence, "run_id", run_id, str(envelope.get("run_id")))
    if prev_hash != before:
        return Fault(sequence, "prev_hash", before, prev_hash)
    actual = link(prev_hash, envelope)
    return None if actual == sealed else Fault(sequence, "hash", actual, sealed)
