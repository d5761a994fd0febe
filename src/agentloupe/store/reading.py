"""Events out of the database, as they were sealed."""

from __future__ import annotations

from agentloupe.ports.recording import Texts
from agentloupe.store import envelopes
from agentloupe.store.database import Connection
from agentloupe.store.schema import keys_of_run
from agentloupe.words.errors import Corrupt, VersionUnknown
from agentloupe.words.event import Event, from_envelope
from agentloupe.words.seal import GENESIS, link_bytes, read_sealed

__all__ = ["read_events", "read_range"]


def read_events(conn: Connection, rid: int, run_id: str) -> tuple[tuple[Event, ...], Texts | None]:
    """All events of a run, as they were sealed, and their texts where all are canonical. Gaps are left for `verify`."""
    first, last = keys_of_run(rid)
    rows = conn.execute("SELECT key, hash, envelope FROM events WHERE key BETWEEN ? AND ? ORDER BY key", (first, last))
    events: list[Event] = []
    texts: list[bytes] = []
    before = GENESIS
    for key, hash_, stored in rows:
        event, text = _event(run_id, key - first, stored, before, hash_)
        events.append(event)
        before = event.hash
        if text is not None:
            texts.append(text)
    whole = tuple(events)
    return whole, Texts(whole, tuple(texts)) if len(texts) == len(whole) else None


def read_range(conn: Connection, rid: int, run_id: str, first: int, limit: int | None) -> list[Event]:
    """Events of a run from number `first` on, each with the hash of the one before it as it is stored."""
    start, last = keys_of_run(rid)
    before = conn.execute("SELECT hash FROM events WHERE key = ?", (start + first - 1,)).fetchone()
    rows = conn.execute(
        "SELECT key, hash, envelope FROM events WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
        (start + first, last, -1 if limit is None else limit),
    )
    found: list[Event] = []
    link = before[0].hex() if before is not None and isinstance(before[0], bytes) else GENESIS
    for key, hash_, stored in rows:
        event, _ = _event(run_id, key - start, stored, link, hash_)
        found.append(event)
        link = event.hash
    return found


def _event(run_id: str, number: int, stored: object, before: str, hash_: object) -> tuple[Event, bytes | None]:
    if not isinstance(hash_, bytes):
        raise Corrupt(f"run {run_id}: the hash of event {number} is damaged", reason="event")
    try:
        envelope = envelopes.unpack(stored)
        said, plain = read_sealed(envelope)
    except ValueError as error:
        raise Corrupt(f"run {run_id}: event {number} is damaged (not readable)", reason="event") from error
    if not isinstance(said, dict) or said.get("sequence") != number:
        raise Corrupt(f"run {run_id}: event {number} is damaged (it says another number)", reason="event")
    try:
        return from_envelope(said, before, hash_.hex()), envelope if plain else None
    except (VersionUnknown, Corrupt) as error:
        if link_bytes(before, envelope) != hash_.hex():
            raise Corrupt(f"run {run_id}: event {number} is damaged (not what was sealed)", reason="event") from error
        raise
