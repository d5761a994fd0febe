"""Takes into the database what processes that are gone have committed and not settled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import NewFold
from agentloupe.store import bodies as body_rows
from agentloupe.store.database import Connection, Database
from agentloupe.store.outbox import put_messages
from agentloupe.store.reading import read_events
from agentloupe.store.sealing import together
from agentloupe.store.spool import Found, left, read, remove, set_aside
from agentloupe.store.upkeep import rebuild
from agentloupe.store.writer import put_events, spools
from agentloupe.words.event import Head

__all__ = ["recover"]

Gone = Callable[[str, int, str], bool]
"""Whether the process of this host, pid and start is gone."""


def recover(db: Database, new_fold: NewFold | None, gone: Gone, *, only: str | None = None) -> None:
    """Settles the spools whose owners are gone, each in a transaction of its own; `only` that of one run.

    Without `new_fold` no view is made.

    Several processes may do this at once: the first one settles, the others find it done.

    Raises:
        StoreError and its kin: what could not be settled stays where it is.
    """
    files = list(left(db.path))
    if not files:
        return
    mine = spools(db.path)
    for rid, path in files:
        if path not in mine:
            _recover(db, rid, path, new_fold, gone, only)


def _recover(db: Database, rid: int, path: Path, new_fold: NewFold | None, gone: Gone, only: str | None) -> None:
    with db.reading() as conn:
        run = _abandoned(conn, rid, gone)
    if run is None or only not in (None, run[0]):
        return
    with db.transaction(full=True) as conn:
        run = _abandoned(conn, rid, gone)
        if run is None:
            return
        run_id, head = run
        found = read(path, head)
        if found.frames:
            _settle(conn, rid, found)
            if new_fold is not None:
                rebuild(conn, rid, run_id, read_events(conn, rid, run_id)[0], new_fold)
        reach("recover.before_commit")
    reach("recover.after_commit")
    if found.whole:
        remove(path)
    else:
        set_aside(path)


def _abandoned(conn: Connection, rid: int, gone: Gone) -> tuple[str, Head] | None:
    """Id and end of a run whose owner is gone."""
    sql = "SELECT id, last_sequence, head, owner_host, owner_pid, owner_started FROM runs WHERE rid = ?"
    row = conn.execute(sql, (rid,)).fetchone()
    if row is None:
        return None
    run_id, sequence, head, host, pid, started = row
    if pid is not None and not gone(host or "", pid, started or ""):
        return None
    return run_id, Head(sequence, head.hex())


def _settle(conn: Connection, rid: int, found: Found) -> None:
    sealed = together([frame.sealed for frame in found.frames])
    bodies = body_rows.prepare((body for frame in found.frames for body in frame.bodies), frozenset())
    body_rows.put(conn, rid, bodies, {digest for event in sealed.events for digest in event.digests()})
    put_events(conn, rid, sealed)
    put_messages(conn, rid, sealed.events)
    conn.execute(
        "UPDATE runs SET last_sequence = ?, head = ? WHERE rid = ?",
        (sealed.head.sequence, bytes.fromhex(sealed.head.hash), rid),
    )
