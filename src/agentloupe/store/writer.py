"""The writer of one run: buffers what may wait, then numbers, chains, folds and writes in one transaction."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

from agentloupe.ports.pack import Body
from agentloupe.ports.protocols import Durability, Fold
from agentloupe.store import bodies as body_rows
from agentloupe.store import envelopes
from agentloupe.store.bodies import Prepared
from agentloupe.store.database import Connection, Database
from agentloupe.store.flusher import Flusher
from agentloupe.store.projection import Projection, RunRow
from agentloupe.store.schema import event_key
from agentloupe.store.sealing import Sealed, seal_drafts
from agentloupe.words.errors import LoupeError, OwnerAlive, StoreError
from agentloupe.words.event import Draft, Head
from agentloupe.words.run import Owner

__all__ = ["SqliteWriter", "put_events"]

GROUP_EVENTS = 1024
GROUP_BYTES = 4_000_000
"""Bounds of what waits in memory; whoever reaches one writes, and waits for it."""
KEPT_BYTES = 64_000_000
"""Bytes of bodies that are kept while the store cannot be written; beyond, the run loses some."""
_KNOWN = 200_000
"""Digests that are remembered as stored; beyond, the database is asked again."""


class SqliteWriter:
    """Implements `ports.RunWriter`.

    Args:
        database: where to.
        rid: row of the run.
        run_id, owner: as in the port.
        head: the end of the chain so far.
        fold: the fold of what was written so far.
        fold_anew: reads the run's events again and folds them; asked when an append failed half way.
        flusher: writes what is grouped when nobody else does.
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
    ) -> None:
        self.run_id = run_id
        self.owner = owner
        self._db = database
        self._rid = rid
        self._head = head
        self._fold: Fold | None = fold
        self._fold_anew = fold_anew
        self._flusher = flusher
        self._projection = Projection(rid)
        self._status = "running"
        self._drafts: list[Draft] = []
        self._bodies: list[Prepared] = []
        self._bytes = 0
        self._linked: set[str] = set()
        self._reminders: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

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
        if not drafts and not bodies:
            if durability != "grouped":
                self.flush()
            return
        prepared = body_rows.prepare(bodies, self._linked) if bodies else []
        size = 0
        for body in prepared:
            size += len(body.data)
        with self._lock:
            if self._closed:
                raise StoreError(f"run {self.run_id} was given up by this writer", reason="closed")
            if durability == "grouped" and self._may_wait(len(drafts), size):
                self._drafts += drafts
                self._bodies += prepared
                self._bytes += size
                self._flusher.wake(self)
                return
            try:
                self._write([*self._drafts, *drafts], [*self._bodies, *prepared], full=durability == "full")
            except LoupeError:
                self._keep(prepared, size)
                raise

    def _keep(self, prepared: Sequence[Prepared], size: int) -> None:
        """Bodies of a refused append wait for the next one: whoever packed them will refer to them without giving them again."""
        if self._bytes + size <= KEPT_BYTES:
            self._bodies += prepared
            self._bytes += size

    def _may_wait(self, events: int, size: int) -> bool:
        return len(self._drafts) + events < GROUP_EVENTS and self._bytes + size < GROUP_BYTES

    def remind(self, collect: Callable[[], None]) -> None:
        """See `ports.RunWriter.remind`."""
        self._reminders.append(collect)
        self._flusher.wake(self)

    def flush(self) -> None:
        """See `ports.RunWriter.flush`."""
        self._check_process()
        while self._reminders:  # without our lock: who is reminded holds its own, and appends
            self._reminders.popleft()()
        with self._lock:
            if self._drafts and not self._closed:
                self._write(self._drafts, self._bodies, full=False)

    def close(self) -> None:
        """See `ports.RunWriter.close`. In a fork of the owner's process it does nothing."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._closed:
                return
            if self._drafts:
                self._write(self._drafts, self._bodies, full=False)
            if self._status in {"running", "waiting"}:
                self._give_up()
            self._closed = True
            self._reminders.clear()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise StoreError(
                f"run {self.run_id} belongs to the process that forked this one",
                hint="start a run of its own in the child",
                reason="forked",
            )

    # --- the transaction ----------------------------------------------------------------------------------------------

    def _write(self, drafts: Sequence[Draft], bodies: Sequence[Prepared], *, full: bool) -> None:
        """Writes everything or nothing; on success nothing waits any more."""
        fold = self._fold or self._fold_anew()
        self._fold = None  # made anew from the stored events, if anything below fails
        sealed = seal_drafts(self.run_id, self._head, drafts)
        for event in sealed.events:
            fold.add(event)
        delta = fold.take()
        row = self._projection.row(delta.run)
        with self._db.transaction(full=full) as conn:
            self._move_head(conn, sealed.head, row)
            linked = self._put_bodies(conn, drafts, bodies)
            put_events(conn, self._rid, sealed)
            change = self._projection.write(conn, delta)
        self._projection.keep(change, delta.run)
        self._fold, self._head, self._status = fold, sealed.head, delta.run.status
        if len(self._linked) > _KNOWN:
            self._linked = set()
        self._linked |= linked
        self._drafts, self._bodies, self._bytes = [], [], 0

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
                self._head.sequence,
                bytes.fromhex(self._head.hash),
            ),
        )
        if moved.rowcount != 1:
            raise OwnerAlive(f"run {self.run_id} was taken over by another owner; nothing was written")
        if row.started_at is not None:
            conn.execute("UPDATE runs SET started_at = ? WHERE rid = ?", (row.started_at, self._rid))

    def _put_bodies(self, conn: Connection, drafts: Sequence[Draft], bodies: Sequence[Prepared]) -> set[str]:
        digests = {digest for draft in drafts for digest in draft.digests()} - self._linked
        return body_rows.put(conn, self._rid, bodies, digests, self._linked) if bodies or digests else digests

    def _give_up(self) -> None:
        with self._db.transaction() as conn:
            conn.execute("UPDATE runs SET owner_pid = NULL WHERE rid = ? AND epoch = ?", (self._rid, self.owner.epoch))


def put_events(conn: Connection, rid: int, sealed: Sealed) -> None:
    """Writes sealed events of a run."""
    conn.executemany(
        "INSERT INTO events(key, hash, envelope) VALUES (?, ?, ?)",
        [
            (event_key(rid, event.sequence), bytes.fromhex(event.hash), envelopes.pack(envelope))
            for event, envelope in zip(sealed.events, sealed.envelopes, strict=True)
        ],
    )
