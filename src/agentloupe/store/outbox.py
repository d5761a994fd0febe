"""The outbox of a store: in its SQLite file, and in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

from agentloupe.ports.ids import now, now_and
from agentloupe.ports.outbox import LEASE_SECONDS, Message, message_of, published
from agentloupe.ports.schedule import plain
from agentloupe.store import envelopes
from agentloupe.store.bulk import insert
from agentloupe.store.database import Connection, Database
from agentloupe.store.owners import alive, this_process
from agentloupe.store.schema import event_key
from agentloupe.words.canonical import Json, dumps, loads
from agentloupe.words.errors import Corrupt, OwnerAlive
from agentloupe.words.event import Event, from_envelope
from agentloupe.words.run import Owner
from agentloupe.words.seal import read_sealed

__all__ = ["MemoryOutbox", "SqliteOutbox", "put_messages"]

_TYPES, _LEASE = "outbox", "outbox_lease"
_FIELDS: Final = ("host", "pid", "started", "token", "until")


class SqliteOutbox:
    """Implements `ports.Outbox`. A message is the key of its event, so that nothing is stored twice.

    Args:
        database: the file.
        settle: puts into the database what was committed and is not there yet.
    """

    def __init__(self, database: Database, settle: Callable[[], None]) -> None:
        self._db = database
        self._settle = settle

    def types(self) -> frozenset[str]:
        """See `Outbox.types`."""
        with self._db.reading() as conn:
            return _types(conn)

    def publish(self, types: Collection[str]) -> None:
        """See `Outbox.publish`. What waits already stays."""
        if frozenset(types) != self.types():
            self._settle()  # what was committed before was not to be told, or was
            with self._db.transaction() as conn:
                _write(conn, _TYPES, list[Json](dict.fromkeys(types)) or None)

    def lease(self, owner: Owner, token: str) -> None:
        """See `Outbox.lease`."""
        with self._db.transaction() as conn:
            _take(_read(conn, _LEASE), token)
            _write(conn, _LEASE, _lease_of(owner, token))

    def release(self, token: str) -> None:
        """See `Outbox.release`."""
        with self._db.transaction() as conn:
            if _token_of(_read(conn, _LEASE)) == token:
                _write(conn, _LEASE, None)

    def waiting(self, limit: int) -> list[Message]:
        """See `Outbox.waiting`. Raises `Corrupt` where an event of a message cannot be read."""
        self._settle()
        with self._db.reading() as conn:
            rows = conn.execute(
                "SELECT o.number, e.envelope, e.hash FROM outbox o JOIN events e ON e.key = o.event"
                " ORDER BY o.number LIMIT ?",
                (limit,),
            ).fetchall()
        return [message_of(_event(envelope, sealed), number) for number, envelope, sealed in rows]

    def delivered(self, token: str, last: int) -> None:
        """See `Outbox.delivered`."""
        with self._db.transaction() as conn:
            held = _read(conn, _LEASE)
            if held is None or _token_of(held) != token:
                raise _taken(held)
            conn.execute("DELETE FROM outbox WHERE number <= ?", (last,))
            _write(conn, _LEASE, {**held, "until": now_and(LEASE_SECONDS)})

    def count(self) -> int:
        """See `Outbox.count`."""
        with self._db.reading() as conn:
            return conn.execute("SELECT count(*) FROM outbox").fetchone()[0]


def put_messages(conn: Connection, rid: int, events: Iterable[Event]) -> None:
    """Notes which of a run's new events are to be told, in the transaction that writes them."""
    types = _types(conn)
    if types:
        told = [(event_key(rid, event.sequence),) for event in published(events, types)]
        insert(conn, "outbox(event)", told)


def _types(conn: Connection) -> frozenset[str]:
    found = _read(conn, _TYPES)
    return frozenset(map(str, cast("list[object]", found))) if isinstance(found, list) else frozenset()


def _read(conn: Connection, name: str) -> Any:
    row = conn.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else loads(row[0])


def _write(conn: Connection, name: str, value: Json) -> None:
    if value is None:
        conn.execute("DELETE FROM meta WHERE name = ?", (name,))
        return
    conn.execute(
        "INSERT INTO meta(name, value) VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        (name, dumps(value)),
    )


def _event(stored: bytes, sealed: bytes) -> Event:
    try:
        said, _ = read_sealed(envelopes.unpack(stored))
    except ValueError as wrong:
        raise Corrupt("an event of a message cannot be read", reason="event") from wrong
    return from_envelope(cast("dict[str, Any]", said), "", sealed.hex())


# --- the lease --------------------------------------------------------------------------------------------------------


def _lease_of(owner: Owner, token: str) -> dict[str, Json]:
    return dict(zip(_FIELDS, (owner.host, owner.pid, owner.started, token, now_and(LEASE_SECONDS)), strict=True))


def _token_of(held: Any) -> object:
    return cast("dict[str, object]", held).get("token") if isinstance(held, dict) else None


def _take(held: Any, token: str) -> None:
    """Raises `OwnerAlive` where somebody else holds the lease."""
    if held is None or _token_of(held) == token:
        return
    owner = Owner(held["host"], held["pid"], held["started"])
    here = owner.host == this_process().host
    if alive(owner) and (here or held["until"] > now()):
        raise _taken(held)


def _taken(held: Any) -> OwnerAlive:
    who = f"process {held['pid']} on host {held['host']!r}" if isinstance(held, dict) else "another publisher"
    return OwnerAlive(
        f"the outbox is being published by {who}",
        hint="one publisher at a time: wait for it, or end it",
        reason="publishing",
    )


# --- in memory --------------------------------------------------------------------------------------------------------


class MemoryOutbox:
    """Implements `ports.Outbox`. `put` is called with the lock of the store held."""

    def __init__(self) -> None:
        self._types: frozenset[str] = frozenset()
        self._messages: list[Message] = []
        self._lease: dict[str, Json] | None = None
        self._number = 0
        self._lock = plain.RLock()

    def put(self, events: Iterable[Event]) -> None:
        """Takes the new events of a run."""
        with self._lock:
            for event in published(events, self._types) if self._types else ():
                self._number += 1
                self._messages.append(message_of(event, self._number))

    def types(self) -> frozenset[str]:
        """See `Outbox.types`."""
        return self._types

    def publish(self, types: Collection[str]) -> None:
        """See `Outbox.publish`."""
        self._types = frozenset(types)

    def lease(self, owner: Owner, token: str) -> None:
        """See `Outbox.lease`."""
        with self._lock:
            _take(self._lease, token)
            self._lease = _lease_of(owner, token)

    def release(self, token: str) -> None:
        """See `Outbox.release`."""
        with self._lock:
            if _token_of(self._lease) == token:
                self._lease = None

    def waiting(self, limit: int) -> list[Message]:
        """See `Outbox.waiting`."""
        with self._lock:
            return self._messages[:limit]

    def delivered(self, token: str, last: int) -> None:
        """See `Outbox.delivered`."""
        with self._lock:
            if _token_of(self._lease) != token:
                raise _taken(self._lease)
            self._messages = [message for message in self._messages if message.number > last]

    def count(self) -> int:
        """See `Outbox.count`."""
        return len(self._messages)
