"""The store in one SQLite file (WAL). Safe to use from several threads and processes; see `database` and `writer`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson

from agentloupe.ports.protocols import Fold, NewFold, RunWriter, Size
from agentloupe.ports.recording import GetBodies, Recording, Texts
from agentloupe.store import bodies as body_rows
from agentloupe.store import envelopes, upkeep
from agentloupe.store.database import Connection, Database
from agentloupe.store.evidence import chain_holds
from agentloupe.store.flusher import Flusher
from agentloupe.store.owners import alive
from agentloupe.store.projection import set_tags
from agentloupe.store.queries import select_runs
from agentloupe.store.rows import run_from, step_from
from agentloupe.store.schema import event_key, keys_of_run
from agentloupe.store.writer import SqliteWriter
from agentloupe.words.errors import Corrupt, OwnerAlive, RunNotFound, StoreError, VersionUnknown
from agentloupe.words.event import Draft, Event, Head, from_envelope
from agentloupe.words.run import Owner, Run, RunFilter
from agentloupe.words.seal import GENESIS, link_bytes, read_sealed
from agentloupe.words.step import Step

__all__ = ["SqliteStore"]

_COLUMNS = (
    "r.rid, r.id, r.row, r.status, r.last_sequence, r.head, r.owner_host, r.owner_pid, r.owner_started, r.epoch,"
    " r.tags_by_hand"
)


_HASH_BYTES = 32


class SqliteStore:
    """Implements `ports.Store`.

    Args:
        path: the file.
        create: make it (and its folder) when it is not there.
        read_only: never write; a file that cannot be written is opened so by itself, and writing raises `StoreReadOnly`.

    Raises:
        StoreError: no file (reason `missing`), or a file of something else (`not_a_store`), or it cannot be opened.
        VersionUnknown: made by a newer version.
        Corrupt, StoreBusy, StoreFull, StoreReadOnly: as they say. All name the path.
    """

    def __init__(self, path: str | Path, *, create: bool = True, read_only: bool = False) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._db = Database(self.path, create=create, read_only=read_only)
        self._flusher = Flusher()
        self._writers: list[SqliteWriter] = []

    # --- writing ------------------------------------------------------------------------------------------------------

    def start(self, run_id: str, new_fold: NewFold, *, owner: Owner, share: str | None = None) -> RunWriter:
        """See `ports.Store.start`. Bodies of `share` are referred to one by one, as the new run's events name them."""
        row = (run_id, 0, bytes.fromhex(GENESIS), owner.host, owner.pid, owner.started, owner.epoch)
        with self._db.transaction() as conn:
            if share is not None:
                _rid_of(conn, share)
            try:
                rid = conn.execute(
                    "INSERT INTO runs(id, last_sequence, head, owner_host, owner_pid, owner_started, epoch)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    row,
                ).lastrowid
            except sqlite3.IntegrityError as error:
                raise _exists(run_id) from error
        assert rid is not None
        writer = SqliteWriter(
            self._db,
            rid,
            run_id,
            owner,
            head=Head(0, GENESIS),
            fold=new_fold(run_id),
            fold_anew=partial(self._folded, run_id, new_fold),
            flusher=self._flusher,
        )
        self._writers = [w for w in self._writers if not w.closed] + [writer]
        return writer

    def _folded(self, run_id: str, new_fold: NewFold) -> Fold:
        """The fold of all stored events, with nothing to take."""
        fold = new_fold(run_id)
        events = self.recording(run_id).events
        for event in events:
            fold.add(event)
        if events:
            fold.take()
        return fold

    def insert(self, run_id: str, events: Sequence[Event], get: GetBodies, new_fold: NewFold) -> None:
        """See `ports.Store.insert`. Raises `Corrupt` when the events are not one whole chain."""
        upkeep.insert(self._db, run_id, events, get, new_fold)

    def tags(self, run_id: str, tags: Sequence[str]) -> None:
        """See `ports.Store.tags`."""
        with self._db.transaction() as conn:
            row = _row_of(conn, run_id)
            run = None if row["row"] is None else _run(row)
            before = () if run is None else run.tags
            set_tags(conn, row["rid"], "" if run is None else run.started_at, tags, before)

    def rebuild(self, run_id: str, new_fold: NewFold) -> list[str]:
        """See `ports.Store.rebuild`."""
        with self._db.transaction() as conn:
            rid = _rid_of(conn, run_id)
            return upkeep.rebuild(conn, rid, run_id, _events(conn, rid, run_id)[0], new_fold)

    def erase(self, run_id: str, drafts: Sequence[Draft]) -> int:
        """See `ports.Store.erase`. The freed space is overwritten; the log is emptied."""
        with self._db.erasing() as conn:
            row = _row_of(conn, run_id)
            owner = _owner(row)
            if row["status"] in {"running", "waiting"} and owner is not None and alive(owner):
                raise OwnerAlive(f"run {run_id} is still running (process {owner.pid})", hint="end it first")
            return upkeep.erase(conn, row["rid"], run_id, Head(row["last_sequence"], row["head"].hex()), drafts)

    def gc(self) -> tuple[int, int]:
        """See `ports.Store.gc`."""
        with self._db.erasing() as conn:
            upkeep.remove_empty_runs(conn, lambda host, pid, started: not alive(Owner(host, pid, started)))
            removed = body_rows.remove_orphans(conn)
        self._db.shrink()
        return removed

    # --- reading ------------------------------------------------------------------------------------------------------

    def recording(self, run_id: str) -> Recording:
        """See `ports.Store.recording`."""
        with self._db.reading() as conn:
            row = _row_of(conn, run_id)
            events, texts = _events(conn, row["rid"], run_id)
        head = Head(row["last_sequence"], row["head"].hex())
        return Recording(run_id, events, partial(self._bodies, f"run {run_id}"), run_id, head, texts)

    def holds(self, run_id: str) -> bool:
        """See `ports.Store.holds`."""
        with self._db.reading() as conn:
            row = _row_of(conn, run_id)
            return chain_holds(conn, row["rid"], run_id, Head(row["last_sequence"], row["head"].hex()))

    def get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """See `ports.Store.get`."""
        return self._bodies(f"store {self.path}", digests)

    def _bodies(self, where: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        with self._db.reading() as conn:
            return body_rows.read(conn, digests, where)

    def run(self, run_id: str) -> Run | None:
        """See `ports.Store.run`."""
        with self._db.reading() as conn:
            found = _rows(conn, f"SELECT {_COLUMNS} FROM runs r WHERE r.id = ? AND r.row IS NOT NULL", [run_id])  # noqa: S608  # our columns
        return _run(found[0]) if found else None

    def runs(self, wanted: RunFilter | None = None) -> list[Run]:
        """See `ports.Store.runs`."""
        wanted = wanted or RunFilter()
        by_hand = wanted.status in {"running", "interrupted"}
        sql, args = select_runs(_COLUMNS, wanted, paged=not by_hand)
        with self._db.reading() as conn:
            found = [_run(row) for row in _rows(conn, sql, args)]
        if not by_hand:
            return found
        last = None if wanted.limit is None else wanted.offset + wanted.limit
        return [run for run in found if run.status == wanted.status][wanted.offset : last]

    def count(self, wanted: RunFilter | None = None) -> int:
        """See `ports.Store.count`."""
        wanted = wanted or RunFilter()
        if wanted.status in {"running", "interrupted"}:
            sql, args = select_runs(_COLUMNS, wanted, paged=False)
            with self._db.reading() as conn:
                return sum(_run(row).status == wanted.status for row in _rows(conn, sql, args))
        sql, args = select_runs("count(*)", wanted)
        with self._db.reading() as conn:
            return conn.execute(sql, args).fetchone()[0]

    def steps(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[Step]:
        """See `ports.Store.steps`. Raises `RunNotFound`."""
        with self._db.reading() as conn:
            rid = _rid_of(conn, run_id)
            rows = conn.execute(
                "SELECT row FROM steps WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
                (event_key(rid, first), keys_of_run(rid)[1], -1 if limit is None else limit),
            ).fetchall()
        return _understood(run_id, lambda: [step_from(run_id, row[0]) for row in rows])

    def check(self) -> list[str]:
        """See `ports.Store.check`."""
        return upkeep.check(self._db)

    def size(self) -> Size:
        """See `ports.Store.size`."""
        return upkeep.size(self._db, self.url)

    def close(self) -> None:
        """See `ports.Store.close`. Runs that are still going on are given up."""
        self._flusher.stop()
        try:
            while self._writers:
                self._writers.pop().close()
        finally:
            self._db.close()


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(conn: Connection, sql: str, args: Iterable[object]) -> list[dict[str, Any]]:
    cursor = conn.execute(sql, tuple(cast("Iterable[Any]", args)))
    names = [column[0] for column in cursor.description]
    return [_whole(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _whole(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a run, if its columns hold what they must: SQLite itself takes anything everywhere."""
    head = row["head"]
    if (
        isinstance(head, bytes)
        and len(head) == _HASH_BYTES
        and all(isinstance(row[name], int) for name in ("rid", "last_sequence", "epoch"))
        and isinstance(row["status"], str)
    ):
        return row
    raise Corrupt(f"run {row['id']}: its row is damaged", hint="restore a copy, or export what can still be read")


def _row_of(conn: Connection, run_id: str) -> dict[str, Any]:
    found = _rows(conn, f"SELECT {_COLUMNS} FROM runs r WHERE r.id = ?", [run_id])  # noqa: S608  # our columns
    if not found:
        raise RunNotFound(f"no run {run_id}", hint="`agentloupe list` shows what there is")
    return found[0]


def _rid_of(conn: Connection, run_id: str) -> int:
    return _row_of(conn, run_id)["rid"]


def _exists(run_id: str) -> StoreError:
    return StoreError(f"run {run_id} exists already", hint="another id is needed", reason="exists")


def _owner(row: Mapping[str, Any]) -> Owner | None:
    if row["owner_pid"] is None or row["owner_host"] is None:
        return None
    return Owner(row["owner_host"], row["owner_pid"], row["owner_started"] or "", row["epoch"])


def _run(row: Mapping[str, Any]) -> Run:
    owner = _owner(row)
    columns: dict[str, Any] = {"events": row["last_sequence"], "head": row["head"].hex(), "owner": owner}
    if row["status"] == "running" and (owner is None or not alive(owner)):
        columns["status"] = "interrupted"
    by_hand = row["tags_by_hand"]
    return _understood(
        row["id"],
        lambda: run_from(row["row"], **columns, **({} if by_hand is None else {"tags": orjson.loads(by_hand)})),
    )


def _understood(run_id: str, read: Callable[[], Any]) -> Any:
    """Rows of the projection that cannot be read are damage like any other."""
    try:
        return read()
    except (ValueError, TypeError, KeyError) as error:
        raise Corrupt(
            f"run {run_id}: its stored view is damaged",
            hint="`agentloupe rebuild` makes it anew from the events",
            reason="view",
        ) from error


def _events(conn: Connection, rid: int, run_id: str) -> tuple[tuple[Event, ...], Texts | None]:
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
