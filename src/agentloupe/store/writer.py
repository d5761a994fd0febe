"""The writer of one run: what may wait waits in memory, what is committed goes to the run's spool, both are settled later.

Settling folds what is sealed and puts it into the database, many appends in one transaction. It goes on beside the program:
whoever appends meanwhile writes to the spool and does not wait. Frames that are settled are passed over by whoever reads
the file, so it is emptied when nothing new stands in it.

Two locks, always taken in this order: whoever settles holds `_settling`; `_lock` guards what waits, and is held for moments.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from agentloupe.ports.faultpoints import reach
from agentloupe.ports.pack import Body
from agentloupe.ports.protocols import Durability, Fold
from agentloupe.ports.schedule import plain
from agentloupe.store import bodies as body_rows
from agentloupe.store import envelopes
from agentloupe.store.bodies import Prepared
from agentloupe.store.bulk import insert
from agentloupe.store.database import Connection, Database
from agentloupe.store.flusher import Flusher
from agentloupe.store.outbox import put_messages
from agentloupe.store.projection import Projection, RunRow
from agentloupe.store.schema import event_key
from agentloupe.store.sealing import Sealed, after, seal_drafts, together
from agentloupe.store.spool import Spool
from agentloupe.words.errors import LoupeError, OwnerAlive, StoreError
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.run import Owner, Run

__all__ = ["SqliteWriter", "put_events", "settle_all", "spools"]

GROUP_EVENTS = 1024
GROUP_BYTES = 4_000_000
"""Bounds of what is not settled; whoever reaches one settles, and waits for it."""
KEPT_BYTES = 64_000_000
"""Bytes of bodies that are kept while the store cannot be written; beyond, the run loses some."""
SPOOLED_BYTES = 256_000
"""An append with more bytes of bodies is settled at once, so that they are written only once."""
SPOOL_BYTES = 8_000_000
"""Bytes of the spool above which it is emptied, though a program that never rests has to wait for that."""
_KNOWN = 200_000
"""Digests that are remembered as stored; beyond, the database is asked again."""
_LAST = frozenset({"run.finished", "run.erased"})


class SqliteWriter:
    """Implements `ports.RunWriter`.

    Args:
        database: where to.
        rid: row of the run.
        run_id, owner: as in the port.
        head: the end of the chain so far.
        fold: the fold of what was written so far.
        fold_anew: reads the run's settled events again and folds them; asked when a settlement failed half way.
        stored: the run's row as an earlier writer has left it, if there was one.
        flusher: settles what waits when nobody else does.
    """

    def __init__(
        self,
        database: Database,
        rid: int,
        run_id: str,
        owner: Owner,
        *,
        head: Head,
        fold: Fold,
        fold_anew: Callable[[], Fold],
        flusher: Flusher,
        stored: Run | None = None,
    ) -> None:
        self.run_id = run_id
        self.owner = owner
        self._db = database
        self._rid = rid
        self._head = self._settled = head
        self._fold: Fold | None = fold
        self._fold_anew = fold_anew
        self._flusher = flusher
        self._projection = Projection(rid)
        if stored is not None:
            self._projection.adopt(stored)
        self._status = "running"
        self._spool = Spool(database.path, rid)
        self._drafts: list[Draft] = []  # in memory only; bodies also of appends that were refused
        self._bodies: list[Body] = []
        self._spooled: list[Sealed] = []  # committed
        self._spooled_bodies: list[Body] = []
        self._waiting, self._bytes = 0, 0  # events and bytes of both
        self._full = False
        self._linked: set[str] = set()
        self._reminders: deque[Callable[[], None]] = deque()
        self._settling = plain.allocate_lock()
        self._lock = plain.allocate_lock()
        self._pid = os.getpid()
        self._closed = False
        self._lost: OwnerAlive | None = None
        _live.add(self)

    @property
    def closed(self) -> bool:
        """Whether the run was given up."""
        return self._closed

    @property
    def head(self) -> Head:
        """Number and hash of the last event that was written."""
        return self._head

    def append(self, drafts: Sequence[Draft], bodies: Sequence[Body] = (), durability: Durability = "commit") -> None:
        """See `ports.RunWriter.append`."""
        self._check_process()
        with self._lock:
            done = self._append(drafts, bodies, durability)
        if not done:
            with self._settling, self._lock:
                self._append(drafts, bodies, durability, settles=True)
        if self._waiting or self._bytes:
            self._flusher.wake(self)

    def offer(self, drafts: Sequence[Draft], bodies: Sequence[Body] = ()) -> bool:
        """See `ports.RunWriter.offer`."""
        self._check_process()
        if not self._lock.acquire(blocking=False):
            return False
        try:
            done = self._append(drafts, bodies, "grouped")
        finally:
            self._lock.release()
        if done:
            self._flusher.wake(self)
        return done

    def _append(
        self, drafts: Sequence[Draft], bodies: Sequence[Body], durability: Durability, *, settles: bool = False
    ) -> bool:
        """`False`: nothing was done, since this has to be settled at once; only whoever `settles` may do that."""
        if self._closed or self._lost is not None:
            self._check_owner()
        if not drafts and not bodies and not self._drafts:
            return True
        linked = self._linked
        new = [body for body in bodies if body.digest not in linked] if bodies else bodies
        size = 0
        for body in new:
            size += len(body.data)
        waits = self._waiting + len(drafts) < GROUP_EVENTS and self._bytes + size < GROUP_BYTES
        if durability == "grouped" and waits:
            self._drafts += drafts
            self._bodies += new
            self._waiting += len(drafts)
            self._bytes += size
            return True
        last = bool(drafts) and drafts[-1].type in _LAST
        at_once = last or not waits or size > SPOOLED_BYTES or self._spool.gone
        if at_once and not settles:
            return False
        try:
            self._commit(drafts, new, size, at_once=at_once, full=durability == "full")
        except LoupeError:
            # Whoever packed these bodies will refer to them without giving them again.
            if self._bytes + size <= KEPT_BYTES:
                self._bodies += new
                self._bytes += size
            raise
        if at_once and not last:
            self._spool.renew()
        return True

    def remind(self, collect: Callable[[], None]) -> None:
        """See `ports.RunWriter.remind`."""
        self._reminders.append(collect)
        self._flusher.wake(self)

    def flush(self) -> None:
        """See `ports.RunWriter.flush`."""
        self._remind()
        self.settle()

    def _remind(self) -> None:
        while self._reminders:  # without our lock: who is reminded holds its own, and appends
            self._reminders.popleft()()

    def settle(self) -> None:
        """Puts everything into the database that waits. Raises like `append`."""
        self._check_process()
        with self._settling:
            with self._lock:
                if self._closed:
                    return
                if not self._all_spooled():
                    self._settle()
                    return
                parts, bodies, full = self._spooled[:], self._spooled_bodies[:], self._full
                self._full = False
            if parts:
                self._settle_beside(parts, bodies, full=full)

    def close(self) -> None:
        """See `ports.RunWriter.close`. In a fork of the owner's process it does nothing."""
        if self._pid != os.getpid():
            return
        self._remind()
        with self._settling, self._lock:
            if self._closed:
                return
            self._settle()
            if self._status in {"running", "waiting"}:
                self._give_up()
            self._spool.close()
            self._closed = True
            self._reminders.clear()

    def belongs_to(self, database: Path) -> Path | None:
        """The file of what this process has committed and not settled, if the run lies in that database."""
        mine = not self._closed and self._pid == os.getpid() and self._db.path == database
        return self._spool.path if mine else None

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"run {self.run_id} belongs to the process that forked this one",
                hint="start a run of its own in the child",
                reason="forked",
            )

    def _check_owner(self) -> None:
        if self._closed:
            raise StoreError(f"run {self.run_id} was given up by this writer", reason="closed")
        if self._lost is not None:
            raise OwnerAlive(self._lost.message) from self._lost

    # --- committing ---------------------------------------------------------------------------------------------------

    def _commit(self, drafts: Sequence[Draft], bodies: Sequence[Body], size: int, *, at_once: bool, full: bool) -> None:
        """Lets these drafts and those in memory survive the process. On an error none of them is written."""
        if full or not self._spooled:  # within 50 ms they are settled, which looks too
            self._db.same_file()
        sealed = seal_drafts(self.run_id, self._head, [*self._drafts, *drafts] if self._drafts else drafts)
        new = [*self._bodies, *bodies]
        if at_once:
            self._put([*self._spooled, sealed], [*self._spooled_bodies, *new], full=full or self._full)
            return
        self._spool.append(sealed, new, sync=full)
        self._spooled.append(sealed)
        self._spooled_bodies += new
        self._full = self._full or full
        self._head = sealed.head
        self._drafts, self._bodies = [], []
        self._waiting += len(drafts)
        self._bytes += size

    def _all_spooled(self) -> bool:
        """Whether all that waits is in the spool; what waits in memory goes there now, unless it is much."""
        if self._drafts and sum(len(body.data) for body in self._bodies) <= SPOOLED_BYTES and not self._spool.gone:
            with suppress(LoupeError):  # the database may still take it
                self._commit((), (), 0, at_once=False, full=False)
        return not (self._drafts or self._bodies)

    # --- settling -----------------------------------------------------------------------------------------------------

    def _settle_beside(self, parts: Sequence[Sealed], bodies: Sequence[Body], *, full: bool) -> None:
        """Settles the first parts of what is spooled, while others append."""
        try:
            self._write(parts, bodies, full=full)
        except OwnerAlive:  # or somebody settled what was appended since, too
            with self._lock:
                self._full = self._full or full
                self._settle()
            return
        except BaseException:
            with self._lock:
                self._full = self._full or full
            raise
        with self._lock:
            self._spooled = self._spooled[len(parts) :]
            self._spooled_bodies = self._spooled_bodies[len(bodies) :]
            self._waiting -= sum(len(part.events) for part in parts)
            self._bytes -= sum(len(body.data) for body in bodies)
            if not self._spooled:
                self._spool.renew()
            elif self._spool.length > SPOOL_BYTES:
                self._settle()

    def _settle(self) -> None:
        if self._drafts:
            self._db.same_file()
            sealed = seal_drafts(self.run_id, self._head, self._drafts)
            self._put([*self._spooled, sealed], [*self._spooled_bodies, *self._bodies], full=self._full)
        elif self._spooled:
            self._put(self._spooled, [*self._spooled_bodies, *self._bodies], full=self._full)
        else:
            return
        self._spool.renew()

    def _put(self, parts: Sequence[Sealed], bodies: Sequence[Body], *, full: bool) -> None:
        """Writes all there is; on success nothing waits any more."""
        try:
            self._head = self._write(parts, bodies, full=full)
        except OwnerAlive as lost:
            self._lost = lost
            raise
        self._drafts, self._bodies, self._spooled, self._spooled_bodies = [], [], [], []
        self._waiting, self._bytes, self._full = 0, 0, False

    def _write(self, parts: Sequence[Sealed], bodies: Sequence[Body], *, full: bool) -> Head:
        """The transaction: everything or nothing. Returns the end of what is settled.

        What survives a loss of power in the spool must do so in the database before the spool is emptied.
        """
        sealed = together(parts)
        fold = self._fold or self._fold_anew()
        self._fold = None  # made anew from the settled events, if anything below fails
        for event in sealed.events:
            fold.add(event)
        delta = fold.take()
        row = self._projection.row(delta.run)
        prepared = body_rows.prepare(bodies, self._linked)
        with self._db.transaction(full=full) as conn:
            done = self._settled_by_others(conn, sealed)
            self._move_head(conn, sealed.head, row)
            reach("settle.after_head")
            linked = self._put_bodies(conn, sealed.events, prepared)
            reach("settle.after_bodies")
            new = after(sealed, done)
            put_events(conn, self._rid, new)
            put_messages(conn, self._rid, new.events)
            reach("settle.after_events")
            change = self._projection.write(conn, delta)
            reach("settle.before_commit")
        reach("settle.after_commit")
        self._projection.keep(change, delta.run)
        self._fold, self._status = fold, delta.run.status
        self._settled = sealed.head
        if len(self._linked) > _KNOWN:
            self._linked = set()
        self._linked |= linked
        return sealed.head

    def _settled_by_others(self, conn: Connection, sealed: Sealed) -> Head:
        """Where the database's events of this run end: further on than we left them, if somebody took us for dead.

        Whoever looks from a place where our process cannot be seen settles our spool; what is there then is ours.
        """
        sql = "SELECT last_sequence, head FROM runs WHERE rid = ? AND epoch = ?"
        found = conn.execute(sql, (self._rid, self.owner.epoch)).fetchone()
        if found is not None and found[0] != self._settled.sequence:
            ours = {event.sequence: event.hash for event in sealed.events}
            if ours.get(found[0]) == found[1].hex():
                self._settled = Head(found[0], found[1].hex())
        return self._settled

    def _move_head(self, conn: Connection, head: Head, row: RunRow) -> None:
        """Moves the run on, if it is still ours and still where we left it."""
        moved = conn.execute(
            "UPDATE runs SET last_sequence = ?, head = ?, row = ?, status = ?"
            " WHERE rid = ? AND epoch = ? AND last_sequence = ? AND head = ?",
            (
                head.sequence,
                bytes.fromhex(head.hash),
                row.row,
                row.status,
                self._rid,
                self.owner.epoch,
                self._settled.sequence,
                bytes.fromhex(self._settled.hash),
            ),
        )
        if moved.rowcount != 1:
            raise OwnerAlive(f"run {self.run_id} was taken over by another owner; nothing was written")
        if row.started_at is not None:
            conn.execute("UPDATE runs SET started_at = ? WHERE rid = ?", (row.started_at, self._rid))

    def _put_bodies(self, conn: Connection, events: Sequence[Event], bodies: Sequence[Prepared]) -> set[str]:
        digests = {digest for event in events for digest in event.digests()} - self._linked
        return body_rows.put(conn, self._rid, bodies, digests, self._linked) if bodies or digests else digests

    def _give_up(self) -> None:
        with self._db.transaction() as conn:
            conn.execute("UPDATE runs SET owner_pid = NULL WHERE rid = ? AND epoch = ?", (self._rid, self.owner.epoch))


def put_events(conn: Connection, rid: int, sealed: Sealed) -> None:
    """Writes sealed events of a run."""
    insert(
        conn,
        "events(key, hash, envelope)",
        [
            (event_key(rid, event.sequence), bytes.fromhex(event.hash), envelope)
            for event, envelope in zip(sealed.events, envelopes.pack_all(sealed.envelopes), strict=True)
        ],
    )


class _Live:
    """The writers of this process."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[SqliteWriter] = weakref.WeakSet()
        self._lock = plain.allocate_lock()

    def add(self, writer: SqliteWriter) -> None:
        with self._lock:
            self._all.add(writer)

    def of(self, database: Path) -> list[tuple[SqliteWriter, Path]]:
        """Those of a database, each with its spool."""
        with self._lock:
            writers = list(self._all)
        return [(writer, spool) for writer in writers if (spool := writer.belongs_to(database)) is not None]

    def forked(self) -> None:
        """In a forked child: no writer is this process's, and whoever held the lock is not here."""
        self.__init__()


_live = _Live()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_live.forked)


def settle_all(database: Path) -> None:
    """Settles what this process has to write to a database, so that it can be read there; what cannot be waits on."""
    for writer, _ in _live.of(database):
        with suppress(LoupeError):
            writer.flush()


def spools(database: Path) -> frozenset[Path]:
    """The spools of the runs of a database that go on in this process."""
    return frozenset(spool for _, spool in _live.of(database))
