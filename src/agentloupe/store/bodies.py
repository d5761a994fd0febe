"""Bodies in SQLite: stored once by digest, compressed when that is smaller, kept as long as a run needs them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import zstandard

from agentloupe.canonical import digest_bytes
from agentloupe.errors import Corrupt
from agentloupe.pack import Body, needs
from agentloupe.store.database import Connection

__all__ = ["Prepared", "link", "prepare", "put", "read", "remove_orphans"]

_RAW, _ZSTD = 0, 1
_LEVEL = 3
_SMALL = 96
"""Bytes below which zstd hardly ever wins: its frame alone takes a dozen."""
_AT_ONCE = 500
_LARGEST = 1 << 30
"""Bytes that one body may have when it is unpacked."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A body as it will be stored. `data` may be compressed; `size` is the size before."""

    digest: str
    form: int
    size: int
    data: bytes
    refs: tuple[str, ...]


class _Local(threading.local):
    """Compressors are not shared between threads."""

    def __init__(self) -> None:
        self.compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        self.decompress = zstandard.ZstdDecompressor().decompress


_local = _Local()


def prepare(bodies: Iterable[Body], known: frozenset[str] | set[str]) -> list[Prepared]:
    """Compresses what is not known to be stored already. Slow for large bodies: called outside locks and transactions."""
    return [_prepared(body) for body in bodies if body.digest not in known]


def _prepared(body: Body) -> Prepared:
    data, form = body.data, _RAW
    if len(data) > _SMALL:
        packed = _local.compress(data)
        if len(packed) < len(data):
            data, form = packed, _ZSTD
    return Prepared(body.digest, form, len(body.data), data, body.refs)


def put(conn: Connection, bodies: Sequence[Prepared]) -> None:
    """Stores bodies; those that are there already stay as they are."""
    conn.executemany(
        "INSERT INTO bodies(digest, form, size, data) VALUES (?, ?, ?, ?) ON CONFLICT(digest) DO NOTHING",
        [(bytes.fromhex(b.digest), b.form, b.size, b.data) for b in bodies],
    )


def link(
    conn: Connection, rid: int, digests: Collection[str], known: set[str], refs: Mapping[str, Sequence[str]]
) -> set[str]:
    """Notes that a run needs these bodies, and whatever they need. Returns the digests that are linked now.

    What the run is known to need already is not looked at again, so the work grows with what is new. `refs` saves
    reading bodies that are at hand. Bodies that are not there (deleted ones, of a copied prefix) are passed over.
    """
    at_hand = [d for d in digests if d in refs and d not in known]
    conn.executemany(_LINK, [(rid, bytes.fromhex(d)) for d in at_hand])
    linked = set(at_hand)
    todo = [d for d in digests if d not in refs]
    todo.extend(ref for d in at_hand for ref in refs[d])
    while todo:
        digest = todo.pop()
        if digest in linked or digest in known:
            continue
        linked.add(digest)
        if conn.execute(_LINK, (rid, _key(digest))).rowcount:
            todo.extend(_needs(conn, digest))
    return linked


_LINK = "INSERT INTO run_bodies(rid, bid) SELECT ?, bid FROM bodies WHERE digest = ? ON CONFLICT DO NOTHING"


def _key(digest: str) -> bytes:
    """A digest as it is stored; empty, which no body has, for what is no digest (a damaged event can name anything)."""
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return b""


def _needs(conn: Connection, digest: str) -> tuple[str, ...]:
    sql = "SELECT form, data FROM bodies WHERE digest = ?"
    form, data = conn.execute(sql, (bytes.fromhex(digest),)).fetchone()
    return needs(_plain(digest, form, data, ""))


def read(conn: Connection, digests: Sequence[str], where: str) -> dict[str, bytes]:
    """Bodies by digest, checked; what is not there is left out.

    Raises:
        Corrupt: stored bytes do not fit their digest; names `where` and the body.
    """
    found: dict[str, bytes] = {}
    wanted = iter(dict.fromkeys(digests))
    while some := list(islice(wanted, _AT_ONCE)):
        marks = ",".join("?" * len(some))
        sql = f"SELECT digest, form, data FROM bodies WHERE digest IN ({marks})"  # noqa: S608  # question marks only
        for digest, form, data in conn.execute(sql, [_key(d) for d in some]):
            name = digest.hex()
            found[name] = checked(name, _plain(name, form, data, where), where)
    return found


def checked(digest: str, data: bytes, where: str) -> bytes:
    """The bytes, if they fit their digest."""
    if digest_bytes(data) != digest:
        raise _corrupt(digest, where)
    return data


def _plain(digest: str, form: object, data: object, where: str) -> bytes:
    if not isinstance(data, bytes):
        raise _corrupt(digest, where)
    if form == _RAW:
        return data
    try:
        if form == _ZSTD and 0 <= zstandard.frame_content_size(data) <= _LARGEST:
            return _local.decompress(data)
    except zstandard.ZstdError as error:
        raise _corrupt(digest, where) from error
    raise _corrupt(digest, where)


def _corrupt(digest: str, where: str) -> Corrupt:
    place = f"{where}: " if where else ""
    return Corrupt(
        f"{place}body {digest[:12]} is damaged", hint="`agentloupe verify` names everything that is", reason="body"
    )


def remove_orphans(conn: Connection, among: Mapping[int, int] | None = None) -> tuple[int, int]:
    """Removes bodies that no run needs, of all or of these; returns how many, and their stored bytes."""
    if among is None:
        rows = conn.execute(
            "SELECT bid, length(data) FROM bodies b WHERE NOT EXISTS (SELECT 1 FROM run_bodies r WHERE r.bid = b.bid)"
        ).fetchall()
        among = dict(rows)
    conn.executemany("DELETE FROM bodies WHERE bid = ?", [(bid,) for bid in among])
    return len(among), sum(among.values())
