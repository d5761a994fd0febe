"""What is done to whole runs and to the whole file: taking over, making anew, erasing, checking, measuring."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import cast

from agentloupe.ports.pack import Body, needs
from agentloupe.ports.protocols import NewFold, Size
from agentloupe.ports.recording import GetBodies
from agentloupe.store import bodies as body_rows
from agentloupe.store.database import Connection, Database
from agentloupe.store.outbox import put_messages
from agentloupe.store.projection import Projection, remove_facets, remove_steps, set_facets
from agentloupe.store.queries import Facet, facets_of_run, facets_of_steps, storable
from agentloupe.store.rows import run_bytes, run_from, step_from
from agentloupe.store.schema import keys_of_run
from agentloupe.store.sealing import seal_drafts, whole_chain
from agentloupe.store.spool import aside
from agentloupe.store.writer import put_events
from agentloupe.words.errors import Corrupt, StoreError
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.jsontext import loads
from agentloupe.words.run import Run, without_values
from agentloupe.words.step import Step

__all__ = ["ELSEWHERE", "check", "erase", "insert", "rebuild", "remove_empty_runs", "size"]

ELSEWHERE = "(elsewhere)"
"""Stands for the host of an owner of whom nothing is known: no name of a host holds brackets."""
_AT_ONCE = 200
_FAULTS = 100
"""Faults that `check` lists at most, of each kind."""


# --- taking over a sealed recording -----------------------------------------------------------------------------------


def insert(
    db: Database, run_id: str, events: Sequence[Event], get: GetBodies, new_fold: NewFold, *, elsewhere: bool
) -> None:
    """See `ports.Store.insert`."""
    sealed = whole_chain(run_id, events)
    fold = new_fold(run_id)
    for event in events:
        fold.add(event)
    delta = fold.take()
    with db.transaction(full=True) as conn:
        found = conn.execute("SELECT last_sequence, head FROM runs WHERE id = ?", (run_id,)).fetchone()
        if found is not None:
            if found == (sealed.head.sequence, bytes.fromhex(sealed.head.hash)):
                return
            raise StoreError(
                f"run {run_id} exists already, with other events",
                hint="delete it, or import under another id",
                reason="exists",
            )
        rid = conn.execute(
            "INSERT INTO runs(id, owner_host, last_sequence, head, epoch, row, status, started_at, erased)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                run_id,
                ELSEWHERE if elsewhere else None,
                sealed.head.sequence,
                bytes.fromhex(sealed.head.hash),
                max(event.owner_epoch for event in events),
                run_bytes(delta.run),
                delta.run.status,
                delta.run.started_at,
                delta.run.erased,
            ),
        ).lastrowid
        assert rid is not None
        put_events(conn, rid, sealed)
        if not _take_bodies(conn, rid, events, get) and not delta.run.erased:
            delta = replace(delta, run=without_values(delta.run))
            conn.execute("UPDATE runs SET row = ? WHERE rid = ?", (run_bytes(delta.run), rid))
        Projection(rid).write(conn, replace(delta, steps=()) if delta.run.erased else delta)


def _take_bodies(conn: Connection, rid: int, events: Iterable[Event], get: GetBodies) -> bool:
    """Copies all bodies that the events name, and those that they need, some at a time; whether all were there."""
    whole = True
    seen: set[str] = set()
    todo = [digest for event in events for digest in event.digests()]
    while todo:
        some = [d for d in dict.fromkeys(todo[-_AT_ONCE:]) if d not in seen]
        del todo[-_AT_ONCE:]
        if not some:
            continue
        seen.update(some)
        found = [Body(digest, data, needs(data)) for digest, data in get(some).items()]
        whole = whole and len(found) == len(some)
        prepared = body_rows.prepare(found, frozenset())
        body_rows.put(conn, rid, [body._replace(refs=()) for body in prepared])
        todo.extend(ref for body in found for ref in body.refs if ref not in seen)
    return whole


# --- making the projection anew ---------------------------------------------------------------------------------------


def rebuild(conn: Connection, rid: int, run_id: str, events: Iterable[Event], new_fold: NewFold) -> list[str]:
    """Makes a run's row, steps and facets anew from its events; returns what differed."""
    fold = new_fold(run_id)
    count = 0
    named: set[str] = set()
    for count, event in enumerate(events, 1):  # noqa: B007  # the last number is the count
        fold.add(event)
        named.update(event.digests())
    if not count:
        return []
    delta = fold.take()
    if delta.run.erased:
        delta = replace(delta, steps=())
    elif body_rows.held(conn, list(named)) < len(named):
        delta = replace(delta, run=without_values(delta.run))
    before_run, before_steps = _stored(conn, rid, run_id)
    differences = [*_run_differences(before_run, delta.run), *_step_differences(before_steps, delta.steps)]
    remove_steps(conn, rid)
    if differences:
        remove_facets(conn, rid, delta.run.started_at, None)
    run = delta.run
    conn.execute(
        "UPDATE runs SET row = ?, status = ?, started_at = ?, erased = ? WHERE rid = ?",
        (run_bytes(run), run.status, run.started_at, run.erased, rid),
    )
    Projection(rid).write(conn, delta)
    set_facets(conn, rid, run.started_at, [(Facet.TAG, storable(tag)) for tag in _tags_by_hand(conn, rid) or ()])
    return differences


def _tags_by_hand(conn: Connection, rid: int) -> list[str] | None:
    text: str | None = conn.execute("SELECT tags_by_hand FROM runs WHERE rid = ?", (rid,)).fetchone()[0]
    return None if text is None else cast("list[str]", loads(text))


def _stored(conn: Connection, rid: int, run_id: str) -> tuple[Run | None, dict[int, Step | None]]:
    """What is stored now; what cannot be read is `None`."""
    data: bytes | None = conn.execute("SELECT row FROM runs WHERE rid = ?", (rid,)).fetchone()[0]
    first, last = keys_of_run(rid)
    rows = conn.execute("SELECT key, row FROM steps WHERE key BETWEEN ? AND ?", (first, last)).fetchall()
    steps: dict[int, Step | None] = {}
    for key, row in rows:
        try:
            steps[key - first] = step_from(run_id, row)
        except (ValueError, TypeError):
            steps[key - first] = None
    try:
        return (run_from(data) if data is not None else None), steps
    except (ValueError, TypeError):
        return None, steps


def _run_differences(before: Run | None, after: Run) -> Iterator[str]:
    if before is None:
        yield "run: was not readable"
        return
    kept_elsewhere = {"events", "head", "owner"}
    for field in fields(Run):
        if field.name not in kept_elsewhere and getattr(before, field.name) != getattr(after, field.name):
            yield f"run: {field.name} differs"


def _step_differences(before: dict[int, Step | None], after: Sequence[Step]) -> Iterator[str]:
    for step in after:
        old = before.pop(step.idx, None)
        if old is None:
            yield f"step {step.idx}: was missing or not readable"
        elif old != step:
            names = [f.name for f in fields(Step) if getattr(old, f.name) != getattr(step, f.name)]
            yield f"step {step.idx}: {', '.join(names)} differ"
    for idx in sorted(before):
        yield f"step {idx}: has no events"


# --- erasing ----------------------------------------------------------------------------------------------------------


def erase(conn: Connection, rid: int, run_id: str, head: Head, drafts: Sequence[Draft]) -> int:
    """Removes a run's bodies and steps, appends `drafts`; the epoch rises, so that no former owner writes again."""
    sealed = seal_drafts(run_id, head, drafts)
    put_events(conn, rid, sealed)
    put_messages(conn, rid, sealed.events)
    before, steps = _stored(conn, rid, run_id)
    run = None if before is None else _tombstone(before)
    conn.execute(
        "UPDATE runs SET last_sequence = ?, head = ?, erased = 1, owner_pid = NULL, epoch = epoch + 1, row = ?,"
        " status = coalesce(?, status), started_at = CASE WHEN ? THEN NULL ELSE started_at END WHERE rid = ?",
        (
            sealed.head.sequence,
            bytes.fromhex(sealed.head.hash),
            None if run is None else run_bytes(run),
            None if run is None else run.status,
            run is None,  # what has no row has no place in a list
            rid,
        ),
    )
    remove_steps(conn, rid)
    if run is None or before is None or None in steps.values():
        remove_facets(conn, rid, "", None)
    else:
        gone = facets_of_run(before) | facets_of_steps(step for step in steps.values() if step is not None)
        remove_facets(conn, rid, run.started_at, gone)
    if run is not None:
        tags = _tags_by_hand(conn, rid)
        set_facets(conn, rid, run.started_at, facets_of_run(run if tags is None else replace(run, tags=tuple(tags))))
    return body_rows.remove_run(conn, rid)


def _tombstone(run: Run) -> Run:
    """What stays of a run in lists."""
    status = "interrupted" if run.status in {"running", "waiting"} else run.status
    return replace(run, erased=True, coverage="limited_replay", status=status)


def remove_empty_runs(conn: Connection, gone: Callable[[str, int, str], bool], *, only: str | None = None) -> int:
    """Removes runs that were begun and never wrote an event, if their owner is gone; `only` that of one id. How many."""
    sql, args = "SELECT rid, owner_host, owner_pid, owner_started FROM runs WHERE last_sequence = 0", ()
    if only is not None:
        sql, args = f"{sql} AND id = ?", (only,)
    left = [
        rid
        for rid, host, pid, started in conn.execute(sql, args)
        if pid is None or gone(host or "", pid, started or "")
    ]
    for rid in left:
        body_rows.remove_run(conn, rid)
        conn.execute("DELETE FROM runs WHERE rid = ?", (rid,))
    return len(left)


# --- the whole file ---------------------------------------------------------------------------------------------------

_CHECKS: dict[str, str] = {
    "run {}: its end is not the last event that is stored": """
        SELECT r.id FROM runs r LEFT JOIN events e ON e.key = (r.rid << 32) + r.last_sequence
        WHERE r.last_sequence > 0 AND (e.hash IS NULL OR e.hash <> r.head)""",
    "run {}: events are missing, or there are too many": """
        SELECT r.id FROM runs r WHERE r.last_sequence <>
        (SELECT count(*) FROM events e WHERE e.key BETWEEN r.rid << 32 AND (r.rid << 32) + 4294967295)""",
    "run {}: it has events and is in no list; `agentloupe rebuild` mends that": """
        SELECT id FROM runs WHERE last_sequence > 0 AND row IS NULL""",
    "events of a run that is not there (row {})": """
        SELECT DISTINCT e.key >> 32 FROM events e WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.rid = e.key >> 32)""",
    "steps of a run that is not there (row {})": """
        SELECT DISTINCT s.key >> 32 FROM steps s WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.rid = s.key >> 32)""",
    "run {}: a body that it needs is not there": """
        SELECT DISTINCT r.id FROM run_bodies m JOIN runs r ON r.rid = m.rid
        WHERE NOT EXISTS (SELECT 1 FROM bodies b WHERE b.bid = m.bid)""",
    "message {}: the event that it tells of is not there": """
        SELECT o.number FROM outbox o WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.key = o.event)""",
    "bodies of a run that is not there (row {})": """
        SELECT DISTINCT m.rid FROM run_bodies m WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.rid = m.rid)""",
}


def check(db: Database) -> list[str]:
    """The database's own check, then that everything that is referred to is there."""
    from agentloupe.store.faults import as_ours

    faults = [f"{path.name}: does not fit the run that it is of, and was set aside" for path in aside(db.path)]
    with db.reading() as conn:
        try:
            faults += [row[0] for row in conn.execute(f"PRAGMA integrity_check({_FAULTS})") if row[0] != "ok"]
            for text, sql in _CHECKS.items():
                faults += [text.format(row[0]) for row in conn.execute(f"{sql} LIMIT {_FAULTS}")]
        except sqlite3.DatabaseError as error:
            ours = as_ours(error, db.path)
            if not isinstance(ours, Corrupt):
                raise ours from error
            faults.append(ours.message)
    return faults


def size(db: Database, url: str) -> Size:
    """Counts and bytes of a store."""
    with db.reading() as conn:
        runs, events = conn.execute("SELECT count(*), coalesce(sum(last_sequence), 0) FROM runs").fetchone()
        bodies, stored, whole = conn.execute(
            "SELECT count(*), coalesce(sum(length(data)), 0), coalesce(sum(size), 0) FROM bodies"
        ).fetchone()
        messages = conn.execute("SELECT count(*) FROM outbox").fetchone()[0]
        orphans = conn.execute(
            f"SELECT count(*) FROM bodies WHERE {body_rows.ORPHAN}"  # noqa: S608  # ours
        ).fetchone()[0]
    return Size(
        url=url,
        runs=runs,
        events=events,
        bodies=bodies,
        bodies_stored=stored,
        bodies_whole=whole,
        file_bytes=db.file_bytes(),
        orphans=orphans,
        messages=messages,
    )
