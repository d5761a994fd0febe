"""The store in one SQLite file (WAL). Safe to use from several threads and processes; see `database` and `writer`."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from agentloupe.ports.faultpoints import reach
from agentloupe.ports.ids import new_event_id
from agentloupe.ports.protocols import Fold, NewFold, RunWriter, Size
from agentloupe.ports.recording import GetBodies, Recording, Texts
from agentloupe.store import bodies as body_rows
from agentloupe.store import upkeep
from agentloupe.store.counting import count_runs, facet_values, how_many
from agentloupe.store.database import Connection, Database
from agentloupe.store.evidence import chain_holds
from agentloupe.store.families import select_by_family
from agentloupe.store.flusher import Flusher
from agentloupe.store.jobs import SqliteJobs
from agentloupe.store.outbox import SqliteOutbox
from agentloupe.store.owners import alive, check_gone, gone
from agentloupe.store.projection import set_tags
from agentloupe.store.queries import newest, select_rows, wanted_facets
from agentloupe.store.reading import read_events, read_range
from agentloupe.store.recovery import recover
from agentloupe.store.rows import run_from, step_from
from agentloupe.store.schema import event_key, keys_of_run
from agentloupe.store.sealing import together
from agentloupe.store.spool import left, read, remove
from agentloupe.store.textsearch import count_found, select_found
from agentloupe.store.writer import SqliteWriter, settle_all
from agentloupe.words.errors import Corrupt, LoupeError, OwnerAlive, RunNotFound, StoreError, StoreFull
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.jsontext import loads
from agentloupe.words.run import Owner, Run, RunFilter
from agentloupe.words.seal import GENESIS
from agentloupe.words.step import Step

__all__ = ["SqliteStore"]

_log = logging.getLogger("agentloupe")
_COLUMNS = (
    "r.rid, r.id, r.row, r.status, r.last_sequence, r.head, r.owner_host, r.owner_pid, r.owner_started, r.epoch,"
    " r.tags_by_hand"
)


_HASH_BYTES = 32
_DAMAGED_ROW = "restore a copy, or export what can still be read"


class SqliteStore:
    """Implements `ports.Store`.

    Args:
        path: the file.
        create: make it (and its folder) when it is not there.
        read_only: never write; a file that cannot be written is opened so by itself, and writing raises `StoreReadOnly`.
        new_fold: makes the view of what a killed process left in its spool; until it is known (here, or by `start`) the
            view of such a run ends where it was settled last. Its recording is always whole.

    Raises:
        StoreError: no file (reason `missing`), or a file of something else (`not_a_store`), or it cannot be opened.
        VersionUnknown: made by a newer version.
        Corrupt, StoreBusy, StoreFull, StoreReadOnly: as they say. All name the path.
    """

    def __init__(
        self, path: str | Path, *, create: bool = True, read_only: bool = False, new_fold: NewFold | None = None
    ) -> None:
        self.path = Path(path).absolute()
        self.url = f"sqlite:///{self.path}"
        self._db = Database(self.path, create=create, read_only=read_only)
        self._flusher = Flusher()
        self._writers: list[SqliteWriter] = []
        self._new_fold = new_fold
        self._said_full = False

    @property
    def jobs(self) -> SqliteJobs:
        """The jobs in the same file."""
        return SqliteJobs(self._db)

    @property
    def outbox(self) -> SqliteOutbox:
        """The outbox in the same file."""
        return SqliteOutbox(self._db, self._settle)

    def _settle(self) -> None:
        """Puts into the database what was committed and is not there: by this process, or by one that is gone.

        What a process that lives has committed appears by itself, within a moment.
        """
        settle_all(self.path)
        if self._new_fold is not None and self._db.mode == "rw":
            try:
                recover(self._db, self._new_fold, gone)
            except StoreFull as full:
                if not self._said_full:
                    self._said_full = True
                    _log.warning("the end of runs that were killed is not shown, nor their open effects: %s", full)
            except LoupeError:
                pass  # it stays where it is

    # --- writing ------------------------------------------------------------------------------------------------------

    def start(self, run_id: str, new_fold: NewFold, *, owner: Owner, share: str | None = None) -> RunWriter:
        """See `ports.Store.start`. Bodies of `share` are referred to one by one, as the new run's events name them."""
        self._new_fold = new_fold
        if share is not None:
            self._settle()
        row = (run_id, 0, bytes.fromhex(GENESIS), owner.host, owner.pid, owner.started, owner.epoch)
        with self._db.transaction() as conn:
            if share is not None:
                _rid_of(conn, share)
            try:
                rid = _begin(conn, row)
            except sqlite3.IntegrityError as error:
                if not upkeep.remove_empty_runs(conn, _gone_elsewhere, only=run_id):
                    raise _exists(run_id) from error
                rid = _begin(conn, row)
        reach("start.after_row")
        return self._writer(rid, run_id, owner, Head(0, GENESIS), new_fold)

    def take_over(
        self, run_id: str, new_fold: NewFold, *, owner: Owner, force: bool = False, ended: bool = False
    ) -> RunWriter:
        """See `ports.Store.take_over`. What the owner before has committed and not settled is settled first."""
        self._new_fold = new_fold
        self._settle()
        with self._db.reading() as conn:
            _free(conn, run_id, force=force, ended=ended)
        recover(self._db, new_fold, lambda host, pid, started: force or gone(host, pid, started), only=run_id)
        with self._db.transaction() as conn:
            row = _free(conn, run_id, force=force, ended=ended)
            mine = replace(owner, epoch=row["epoch"] + 1)
            conn.execute(
                "UPDATE runs SET owner_host = ?, owner_pid = ?, owner_started = ?, epoch = ? WHERE rid = ?",
                (mine.host, mine.pid, mine.started, mine.epoch, row["rid"]),
            )
        self._forget_spools(row["rid"])
        stored = None if row["row"] is None else run_from(row["row"])
        head = Head(row["last_sequence"], row["head"].hex())
        return self._writer(row["rid"], run_id, mine, head, new_fold, stored)

    def _forget_spools(self, rid: int) -> None:
        """Tells a former owner of a run, if there is one after all, that it is not his any more."""
        for of, path in left(self.path):
            if of == rid:
                remove(path)

    def _writer(
        self, rid: int, run_id: str, owner: Owner, head: Head, new_fold: NewFold, stored: Run | None = None
    ) -> SqliteWriter:
        fold_anew = partial(self._folded, run_id, new_fold)
        writer = SqliteWriter(
            self._db,
            rid,
            run_id,
            owner,
            head=head,
            fold=fold_anew() if head.sequence else new_fold(run_id),
            fold_anew=fold_anew,
            flusher=self._flusher,
            stored=stored,
        )
        self._writers = [w for w in self._writers if not w.closed] + [writer]
        return writer

    def _folded(self, run_id: str, new_fold: NewFold) -> Fold:
        """The fold of all settled events, with nothing to take."""
        fold = new_fold(run_id)
        with self._db.reading() as conn:
            events, _ = read_events(conn, _rid_of(conn, run_id), run_id)
        for event in events:
            fold.add(event)
        if events:
            fold.take()
        return fold

    def insert(
        self, run_id: str, events: Sequence[Event], get: GetBodies, new_fold: NewFold, *, elsewhere: bool = False
    ) -> None:
        """See `ports.Store.insert`. Raises `Corrupt` when the events are not one whole chain."""
        upkeep.insert(self._db, run_id, events, get, new_fold, elsewhere=elsewhere)

    def tags(self, run_id: str, tags: Sequence[str]) -> None:
        """See `ports.Store.tags`."""
        self._settle()
        with self._db.transaction() as conn:
            row = _row_of(conn, run_id)
            run = None if row["row"] is None else _run(row)
            before = () if run is None else run.tags
            set_tags(conn, row["rid"], "" if run is None else run.started_at, tags, before)

    def rebuild(self, run_id: str, new_fold: NewFold) -> list[str]:
        """See `ports.Store.rebuild`."""
        self._new_fold = new_fold
        self._settle()
        with self._db.transaction() as conn:
            rid = _rid_of(conn, run_id)
            return upkeep.rebuild(conn, rid, run_id, read_events(conn, rid, run_id)[0], new_fold)

    def erase(self, run_id: str, drafts: Sequence[Draft]) -> int:
        """See `ports.Store.erase`. The freed space is overwritten; the log is emptied."""
        self._settle()
        if self._db.mode == "rw":
            recover(self._db, self._new_fold, gone, only=run_id)
        with self._db.erasing() as conn:
            row = _row_of(conn, run_id)
            owner = _owner(row)
            if row["status"] in {"running", "waiting"} and owner is not None and alive(owner):
                raise OwnerAlive(f"run {run_id} is still running (process {owner.pid})", hint="end it first")
            erased = upkeep.erase(conn, row["rid"], run_id, Head(row["last_sequence"], row["head"].hex()), drafts)
        self._forget_spools(row["rid"])
        return erased

    def gc(self) -> tuple[int, int]:
        """See `ports.Store.gc`."""
        with self._db.erasing() as conn:
            upkeep.remove_empty_runs(conn, _gone_elsewhere)
            removed = body_rows.remove_orphans(conn)
        self._db.shrink()
        return removed

    # --- reading ------------------------------------------------------------------------------------------------------

    def recording(self, run_id: str) -> Recording:
        """See `ports.Store.recording`."""
        self._settle()
        with self._db.reading() as conn:
            row = _row_of(conn, run_id)
            events, texts = read_events(conn, row["rid"], run_id)
        head = Head(row["last_sequence"], row["head"].hex())
        spooled = [frame for rid, path in left(self.path) if rid == row["rid"] for frame in read(path, head).frames]
        if spooled:
            new = together([frame.sealed for frame in spooled])
            events, head = (*events, *new.events), new.head
            texts = None if texts is None else Texts(events, (*texts.sealed, *new.envelopes))
        held = {body.digest: body.data for frame in spooled for body in frame.bodies}
        return Recording(run_id, events, partial(self._bodies, f"run {run_id}", held), run_id, head, texts)

    def holds(self, run_id: str) -> bool:
        """See `ports.Store.holds`."""
        self._settle()
        with self._db.reading() as conn:
            row = _row_of(conn, run_id)
            return chain_holds(conn, row["rid"], run_id, Head(row["last_sequence"], row["head"].hex()))

    def identity(self) -> str:
        """See `ports.Store.identity`."""
        known = "SELECT value FROM meta WHERE name = 'store_id'"
        with self._db.reading() as conn:
            found = conn.execute(known).fetchone()
        if found is None:
            with self._db.transaction(full=True) as conn:
                conn.execute("INSERT INTO meta VALUES ('store_id', ?) ON CONFLICT DO NOTHING", (new_event_id(),))
                found = conn.execute(known).fetchone()
        return str(found[0])

    def heads(self) -> dict[str, Head]:
        """See `ports.Store.heads`. What a living process has committed and not settled yet is not among them."""
        self._settle()
        with self._db.reading() as conn:
            rows = conn.execute("SELECT id, last_sequence, head FROM runs WHERE last_sequence > 0").fetchall()
        for run_id, number, head in rows:
            if not isinstance(run_id, str) or not isinstance(number, int) or not isinstance(head, bytes):
                raise Corrupt(f"run {run_id}: its row is damaged", hint=_DAMAGED_ROW, reason="row")
        return {run_id: Head(number, head.hex()) for run_id, number, head in rows}

    def get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """See `ports.Store.get`."""
        self._settle()
        return self._bodies(f"store {self.path}", {}, digests)

    def _bodies(self, where: str, held: Mapping[str, bytes], digests: Sequence[str]) -> Mapping[str, bytes]:
        """Bodies from the database, and from what was `held` in a spool when the recording was read."""
        with self._db.reading() as conn:
            found = body_rows.read(conn, [d for d in digests if d not in held] if held else digests, where)
        return {**found, **{d: held[d] for d in digests if d in held}} if held else found

    def run(self, run_id: str) -> Run | None:
        """See `ports.Store.run`."""
        self._settle()
        with self._db.reading() as conn:
            found = _rows(conn, f"SELECT {_COLUMNS} FROM runs r WHERE r.id = ? AND r.row IS NOT NULL", [run_id])  # noqa: S608  # our columns
        return _run(found[0]) if found else None

    def runs(self, wanted: RunFilter | None = None) -> list[Run]:
        """See `ports.Store.runs`."""
        self._settle()
        wanted = wanted or RunFilter()
        by_hand = wanted.status in {"running", "interrupted"}
        facets = wanted_facets(wanted)
        with self._db.reading() as conn:
            if wanted.order == "family":
                sql, args = select_by_family(conn, _COLUMNS, wanted, paged=not by_hand)
            elif wanted.text is not None:
                sql, args = select_found(conn, _COLUMNS, wanted, paged=not by_hand)
            else:
                rarest = how_many(conn, facets) if len(facets) > 1 else None
                sql, args = newest(_COLUMNS, select_rows(wanted, rarest), wanted, paged=not by_hand)
            found = [_run(row) for row in _rows(conn, sql, args)]
        if not by_hand:
            return found
        last = None if wanted.limit is None else wanted.offset + wanted.limit
        return [run for run in found if run.status == wanted.status][wanted.offset : last]

    def count(self, wanted: RunFilter | None = None, *, most: int | None = None) -> int:
        """See `ports.Store.count`."""
        self._settle()
        wanted = wanted or RunFilter()
        if wanted.status in {"running", "interrupted"}:
            with self._db.reading() as conn:
                found = select_found(conn, _COLUMNS, wanted, paged=False) if wanted.text is not None else None
                sql, args = found or newest(_COLUMNS, select_rows(wanted), wanted, paged=False)
                return sum(_run(row).status == wanted.status for row in _rows(conn, sql, args))
        with self._db.reading() as conn:
            return (count_runs if wanted.text is None else count_found)(conn, wanted, most)

    def facets(self, name: str, limit: int = 50) -> list[tuple[str, int]]:
        """See `ports.Store.facets`."""
        self._settle()
        with self._db.reading() as conn:
            return [(value, runs) for value, runs in facet_values(conn, name, limit)]

    def steps(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[Step]:
        """See `ports.Store.steps`. Raises `RunNotFound`."""
        self._settle()
        with self._db.reading() as conn:
            rid = _rid_of(conn, run_id)
            rows = conn.execute(
                "SELECT row FROM steps WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
                (event_key(rid, first), keys_of_run(rid)[1], -1 if limit is None else limit),
            ).fetchall()
        return _understood(run_id, lambda: [step_from(run_id, row[0]) for row in rows])

    def events(self, run_id: str, *, first: int = 1, limit: int | None = None) -> list[Event]:
        """See `ports.Store.events`. What a living process has committed and not settled yet is not among them."""
        self._settle()
        with self._db.reading() as conn:
            return read_range(conn, _rid_of(conn, run_id), run_id, max(first, 1), limit)

    def check(self) -> list[str]:
        """See `ports.Store.check`."""
        self._settle()
        return upkeep.check(self._db)

    def size(self) -> Size:
        """See `ports.Store.size`."""
        self._settle()
        return upkeep.size(self._db, self.url)

    def close(self) -> None:
        """See `ports.Store.close`. Runs that are still going on are given up, each of them, whatever becomes of another."""
        self._flusher.stop()
        failed: list[LoupeError] = []
        try:
            while self._writers:
                try:
                    self._writers.pop().close()
                except LoupeError as wrong:
                    failed.append(wrong)
        finally:
            self._db.close()
        if failed:
            raise failed[0]


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
    raise Corrupt(f"run {row['id']}: its row is damaged", hint=_DAMAGED_ROW)


def _row_of(conn: Connection, run_id: str) -> dict[str, Any]:
    found = _rows(conn, f"SELECT {_COLUMNS} FROM runs r WHERE r.id = ?", [run_id])  # noqa: S608  # our columns
    if not found:
        raise RunNotFound(f"no run {run_id}", hint="`agentloupe list` shows what there is")
    return found[0]


def _free(conn: Connection, run_id: str, *, force: bool, ended: bool) -> dict[str, Any]:
    """The row of a run that may be taken over; see `ports.Store.take_over` for what it raises else."""
    row = _row_of(conn, run_id)
    if conn.execute("SELECT erased FROM runs WHERE rid = ?", (row["rid"],)).fetchone()[0]:
        raise StoreError(f"the bodies of run {run_id} were deleted", reason="erased")
    if row["status"] not in {"running", "waiting"}:
        if ended:
            return row
        raise StoreError(f"run {run_id} has ended ({row['status']})", reason="ended")
    check_gone(run_id, _owner(row), force=force)
    return row


def _rid_of(conn: Connection, run_id: str) -> int:
    return _row_of(conn, run_id)["rid"]


def _begin(conn: Connection, row: Sequence[object]) -> int:
    """Writes the row of a new run; raises `sqlite3.IntegrityError` where its id is taken."""
    sql = (
        "INSERT INTO runs(id, last_sequence, head, owner_host, owner_pid, owner_started, epoch)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
    )
    rid = conn.execute(sql, cast("tuple[Any, ...]", row)).lastrowid
    assert rid is not None
    return rid


def _gone_elsewhere(host: str, pid: int, started: str) -> bool:
    return not alive(Owner(host, pid, started))


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
    columns["elsewhere"] = row["owner_host"] == upkeep.ELSEWHERE and row["status"] in {"running", "waiting"}
    by_hand = row["tags_by_hand"]
    return _understood(
        row["id"],
        lambda: run_from(row["row"], **columns, **({} if by_hand is None else {"tags": loads(by_hand)})),
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
