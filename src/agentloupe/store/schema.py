"""The tables of the SQLite store, and how a file is recognised, made and refused."""

from __future__ import annotations

__all__ = ["APPLICATION_ID", "SCHEMA", "TABLES", "event_key", "keys_of_run"]

APPLICATION_ID = 0x4C6F7570
"""`Loup` in ASCII: what `file(1)` and we recognise a store by."""

SCHEMA = 1
"""`user_version` of the file. Raised when a table changes; a newer one is refused."""

_RUN_BITS = 32
_LAST = (1 << _RUN_BITS) - 1

TABLES = (
    # key = row of the run << 32 | sequence: one b-tree, in the order in which runs are read.
    """CREATE TABLE events(
        key INTEGER PRIMARY KEY,
        hash BLOB NOT NULL,
        envelope BLOB NOT NULL
    )""",
    """CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
    """CREATE TRIGGER events_are_never_removed BEFORE DELETE ON events
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
    # INSERT OR REPLACE removes a row without asking the trigger above.
    """CREATE TRIGGER events_are_never_replaced BEFORE INSERT ON events
        WHEN EXISTS (SELECT 1 FROM events WHERE key = NEW.key)
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END""",
    # last_sequence, head and epoch are checked and moved by every append; row is the projection.
    """CREATE TABLE runs(
        rid INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        last_sequence INTEGER NOT NULL,
        head BLOB NOT NULL,
        owner_host TEXT,
        owner_pid INTEGER,
        owner_started TEXT,
        epoch INTEGER NOT NULL,
        status TEXT NOT NULL DEFAULT 'running',
        started_at TEXT,
        erased INTEGER NOT NULL DEFAULT 0,
        row BLOB,
        tags_by_hand TEXT,
        key_version INTEGER,
        retention TEXT
    )""",
    "CREATE INDEX runs_newest ON runs(started_at, rid)",
    # What lists filter by, each in the order in which lists are shown.
    """CREATE TABLE facets(
        kind INTEGER NOT NULL,
        value TEXT NOT NULL,
        started_at TEXT NOT NULL,
        rid INTEGER NOT NULL,
        PRIMARY KEY(kind, value, started_at, rid)
    ) WITHOUT ROWID""",
    # key = row of the run << 32 | idx
    "CREATE TABLE steps(key INTEGER PRIMARY KEY, row BLOB NOT NULL)",
    # form: 0 as it is, 1 zstd, 2 zstd against the sample of short bodies. digest and size are of the bytes before compression. rid: the run that has it first;
    # others stand in body_runs, so that a body of one run, the common case, costs no row there.
    """CREATE TABLE bodies(
        bid INTEGER PRIMARY KEY,
        rid INTEGER NOT NULL,
        digest BLOB NOT NULL UNIQUE,
        form INTEGER NOT NULL,
        size INTEGER NOT NULL,
        data BLOB NOT NULL,
        key_version INTEGER,
        retention TEXT
    )""",
    """CREATE TABLE run_bodies(
        rid INTEGER NOT NULL,
        bid INTEGER NOT NULL,
        PRIMARY KEY(rid, bid)
    ) WITHOUT ROWID""",
    """CREATE TABLE body_runs(
        bid INTEGER NOT NULL,
        rid INTEGER NOT NULL,
        PRIMARY KEY(bid, rid)
    ) WITHOUT ROWID""",
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)


def event_key(rid: int, number: int) -> int:
    """Key of an event (by sequence) or a step (by idx) of a run."""
    return rid << _RUN_BITS | number


def keys_of_run(rid: int) -> tuple[int, int]:
    """First and last key that events or steps of a run can have."""
    return rid << _RUN_BITS, rid << _RUN_BITS | _LAST
