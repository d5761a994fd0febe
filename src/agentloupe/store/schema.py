"""The tables of the SQLite store, and how a file is recognised, made and refused."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["APPLICATION_ID", "SCHEMA", "TABLES", "UPGRADES", "event_key", "keys_of_run"]

APPLICATION_ID = 0x4C6F7570
"""`Loup` in ASCII: what `file(1)` and we recognise a store by."""

SCHEMA = 4
"""`user_version` of the file. Raised when a table changes; a newer one is refused."""

_RUN_BITS = 32
_LAST = (1 << _RUN_BITS) - 1

_COUNTS = (
    # How many runs have a facet: what lists say they hold, and what they can be filtered by. Tasks (4) and traces (5)
    # have about as many values as there are runs.
    """CREATE TABLE facet_counts(
        kind INTEGER NOT NULL,
        value TEXT NOT NULL,
        runs INTEGER NOT NULL,
        PRIMARY KEY(kind, value)
    ) WITHOUT ROWID""",
    """CREATE TRIGGER facets_are_counted AFTER INSERT ON facets WHEN NEW.kind NOT IN (4, 5) BEGIN
        INSERT INTO facet_counts(kind, value, runs) VALUES (NEW.kind, NEW.value, 1)
            ON CONFLICT(kind, value) DO UPDATE SET runs = runs + 1;
    END""",
    """CREATE TRIGGER facets_are_counted_off AFTER DELETE ON facets WHEN OLD.kind NOT IN (4, 5) BEGIN
        UPDATE facet_counts SET runs = runs - 1 WHERE kind = OLD.kind AND value = OLD.value;
        DELETE FROM facet_counts WHERE kind = OLD.kind AND value = OLD.value AND runs <= 0;
    END""",
    # That forks were made of a run (12) is seen when a fork names its parent (6), or, where the fork was there first,
    # when the parent gets its status (2), which every run has.
    """CREATE TRIGGER forks_mark_their_parent AFTER INSERT ON facets WHEN NEW.kind = 6 BEGIN
        INSERT INTO facets(kind, value, started_at, rid)
            SELECT 12, '', p.started_at, p.rid FROM runs p WHERE p.id = NEW.value AND p.started_at IS NOT NULL
            ON CONFLICT DO NOTHING;
    END""",
    """CREATE TRIGGER parents_find_their_forks AFTER INSERT ON facets WHEN NEW.kind = 2 BEGIN
        INSERT INTO facets(kind, value, started_at, rid)
            SELECT 12, '', NEW.started_at, NEW.rid WHERE EXISTS (
                SELECT 1 FROM runs p JOIN facets f ON f.kind = 6 AND f.value = p.id WHERE p.rid = NEW.rid)
            ON CONFLICT DO NOTHING;
    END""",
)

_FAMILIES = (
    # A family is a run with the forks of it and of those. Each of them says which run is the first (family, its rid) and
    # when that began (family_at); the index is the order in which families are shown.
    "CREATE INDEX runs_by_family ON runs(family_at DESC, family DESC, rid <> family, started_at, rid)",
    # A run that gets its first status (2) begins a family, and takes in those of forks that were there before it.
    """CREATE TRIGGER families_begin AFTER INSERT ON facets WHEN NEW.kind = 2 BEGIN
        UPDATE runs SET family = rid, family_at = NEW.started_at WHERE rid = NEW.rid AND family IS NULL;
        UPDATE runs SET (family_at, family) = (SELECT p.family_at, p.family FROM runs p WHERE p.rid = NEW.rid)
            WHERE (family_at, family) IN (
                SELECT c.family_at, c.family FROM runs p JOIN facets f ON f.kind = 6 AND f.value = p.id
                    JOIN runs c ON c.rid = f.rid WHERE p.rid = NEW.rid AND c.family = c.rid AND c.rid <> p.rid);
    END""",
    # A run that names its parent (6) goes into the family of that, with those who are in its own.
    """CREATE TRIGGER families_grow AFTER INSERT ON facets WHEN NEW.kind = 6 BEGIN
        UPDATE runs SET family = rid, family_at = NEW.started_at WHERE rid = NEW.rid AND family IS NULL;
        UPDATE runs SET (family_at, family) = (SELECT p.family_at, p.family FROM runs p WHERE p.id = NEW.value)
            WHERE (family_at, family) IN (SELECT s.family_at, s.family FROM runs s WHERE s.rid = NEW.rid AND s.family = s.rid)
                AND EXISTS (SELECT 1 FROM runs p WHERE p.id = NEW.value AND p.family IS NOT NULL);
    END""",
)

_JOBS = (
    # row: the job as JSON; the columns are what it is found by. number rises with every change of any job.
    """CREATE TABLE jobs(
        id TEXT PRIMARY KEY,
        status TEXT NOT NULL,
        needs TEXT NOT NULL,
        created_at TEXT NOT NULL,
        number INTEGER NOT NULL,
        owner BLOB,
        leased_until TEXT NOT NULL,
        row BLOB NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX jobs_newest ON jobs(created_at, id)",
    "CREATE INDEX jobs_changed ON jobs(number)",
    "CREATE INDEX jobs_by_status ON jobs(status, needs)",
    "CREATE TABLE job_answers(question TEXT PRIMARY KEY, answer BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE job_workers(id TEXT PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID",
)

_OUTBOX = (
    # What is still to be told to the outside, in the order of its commits: event is the key of an event.
    "CREATE TABLE outbox(number INTEGER PRIMARY KEY, event INTEGER NOT NULL)",
)

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
        retention TEXT,
        family INTEGER,
        family_at TEXT
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
    *_COUNTS,
    *_FAMILIES,
    *_JOBS,
    *_OUTBOX,
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


UPGRADES: Mapping[int, tuple[str, ...]] = {
    2: (
        *_JOBS,
        *_COUNTS,
        "INSERT INTO facet_counts SELECT kind, value, count(*) FROM facets WHERE kind NOT IN (4, 5) GROUP BY kind, value",
        """INSERT INTO facets SELECT DISTINCT 12, '', p.started_at, p.rid FROM facets f JOIN runs p ON p.id = f.value
            WHERE f.kind = 6 AND p.started_at IS NOT NULL ON CONFLICT DO NOTHING""",
    ),
    3: _OUTBOX,
    4: (
        "ALTER TABLE runs ADD COLUMN family INTEGER",
        "ALTER TABLE runs ADD COLUMN family_at TEXT",
        "UPDATE runs SET family = rid, family_at = started_at WHERE started_at IS NOT NULL",
        """WITH RECURSIVE
            links(child, parent) AS MATERIALIZED (
                SELECT f.rid, p.rid FROM facets f JOIN runs p ON p.id = f.value WHERE f.kind = 6 AND p.family IS NOT NULL),
            tree(rid, family, family_at) AS (
                SELECT rid, rid, started_at FROM runs WHERE family IS NOT NULL AND rid NOT IN (SELECT child FROM links)
                UNION SELECT l.child, t.family, t.family_at FROM tree t JOIN links l ON l.parent = t.rid)
            UPDATE runs SET family = tree.family, family_at = tree.family_at
                FROM tree WHERE tree.rid = runs.rid AND tree.rid <> tree.family""",
        *_FAMILIES,
        """INSERT INTO facets SELECT 15, '', started_at, rid FROM runs WHERE row IS NOT NULL AND started_at IS NOT NULL
            AND rid NOT IN (SELECT rid FROM facets WHERE kind = 6)""",
    ),
}
"""What makes a file of the version before one of this version. Runs of before are found by new facets after `rebuild`."""


def event_key(rid: int, number: int) -> int:
    """Key of an event (by sequence) or a step (by idx) of a run."""
    return rid << _RUN_BITS | number


def keys_of_run(rid: int) -> tuple[int, int]:
    """First and last key that events or steps of a run can have."""
    return rid << _RUN_BITS, rid << _RUN_BITS | _LAST
