"""A quick look at a stored chain: whether everything is in its place. What is wrong, where it is not, `verify` tells."""

from __future__ import annotations

from agentloupe.store import envelopes
from agentloupe.store.database import Connection
from agentloupe.store.schema import keys_of_run
from agentloupe.words.event import Head
from agentloupe.words.seal import GENESIS, link_bytes, read_sealed

__all__ = ["chain_holds"]


def chain_holds(conn: Connection, rid: int, run_id: str, head: Head) -> bool:
    """Whether the run's events are numbered without a gap and linked, from the first to `head`.

    Reads texts only and makes no events: a tenth of the time of `recording`. False says "look closer": a text that is
    not written in the canonical form, as other writers may, is sealed by another one.
    """
    first, last = keys_of_run(rid)
    rows = conn.execute("SELECT key, hash, envelope FROM events WHERE key BETWEEN ? AND ? ORDER BY key", (first, last))
    before, number, text = GENESIS, 0, b""
    for number, (key, hash_, stored) in enumerate(rows, 1):
        try:
            text = envelopes.unpack(stored)
        except ValueError:
            return False
        before = link_bytes(before, text)
        if key - first != number or not isinstance(hash_, bytes) or before != hash_.hex():
            return False
    return Head(number, before) == head and _belongs(text, run_id, number)


def _belongs(text: bytes, run_id: str, number: int) -> bool:
    """Whether the last event is of this run and of this number; the links bind those before it."""
    try:
        said, _ = read_sealed(text)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("run_id") == run_id and said.get("sequence") == number
