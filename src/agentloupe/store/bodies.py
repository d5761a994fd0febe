"""Bodies in SQLite: stored once by digest, compressed when that is smaller, kept as long as a run needs them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import zstandard

from agentloupe.ports.pack import Body, needs
from agentloupe.store import envelopes
from agentloupe.store.bulk import insert, parts
from agentloupe.store.database import Connection
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import Corrupt

__all__ = ["ORPHAN", "Prepared", "prepare", "put", "read", "remove_orphans", "remove_run"]

_RAW, _ZSTD, _SHORT = 0, 1, 2
_LEVEL = 3
_SMALL = 256
"""Bytes below which a body stays as it is: most of them are digests, which do not shrink, and text that hardly does."""
_MIDDLE = 4096
"""Bytes up to which a body is compressed against a sample, see `envelopes`; larger ones have enough of their own."""
_AT_ONCE = 500
_LARGEST = 1 << 30
"""Bytes that one body may have when it is unpacked."""


class Prepared(NamedTuple):
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
        short = len(data) <= _MIDDLE
        packed = envelopes.pack_body(data) if short else _local.compress(data)
        if len(packed) < len(data):
            data, form = packed, _SHORT if short else _ZSTD
    return Prepared(body.digest, form, len(body.data), data, body.refs)


def put(
    conn: Connection, rid: int, bodies: Sequence[Prepared], digests: Collection[str] = (), known: Collection[str] = ()
) -> set[str]:
    """Stores bodies of a run, and notes that it needs them, all bodies of `digests`, and whatever those need.

    Bodies that are there already stay as they are; those that are not there (deleted ones, of a copied prefix) are passed
    over. What is `known` to be needed is not looked at again, so the work grows with what is new. Returns the digests that
    are noted now.
    """
    new = [b for b in bodies if b.digest not in known]
    if new:
        _put_new(conn, rid, new)
    linked = {b.digest for b in new}
    todo = [*digests, *(ref for b in new for ref in b.refs)]
    while todo:
        digest = todo.pop()
        if digest in linked or digest in known:
            continue
        linked.add(digest)
        if conn.execute(_LINK, (rid, _key(digest))).rowcount:
            conn.execute(_SHARE, (rid, _key(digest)))
            todo.extend(_needs(conn, digest))
    return linked


def _put_new(conn: Connection, rid: int, new: Sequence[Prepared]) -> None:
    last = conn.execute("SELECT max(bid) FROM bodies").fetchone()[0] or 0
    rows = [(rid, bytes.fromhex(b.digest), b.form, b.size, b.data) for b in new]
    stored = insert(conn, "bodies(rid, digest, form, size, data)", rows, "ON CONFLICT(digest) DO NOTHING")
    if stored == len(new):
        conn.execute(_OWN, (rid, last))
    else:  # some were there, of whatever run
        for part in parts([row[1] for row in rows]):
            marks = ",".join("?" * len(part))
            conn.execute(f"{_LINK_ALL} ({marks}) ON CONFLICT DO NOTHING", (rid, *part))
            conn.execute(f"{_SHARE_ALL} ({marks}) ON CONFLICT DO NOTHING", (rid, rid, *part))


_OWN = "INSERT INTO run_bodies(rid, bid) SELECT ?, bid FROM bodies WHERE bid > ?"
_LINK_ALL = "INSERT INTO run_bodies(rid, bid) SELECT ?, bid FROM bodies WHERE digest IN"
_SHARE_ALL = "INSERT INTO body_runs(bid, rid) SELECT bid, ? FROM bodies WHERE rid <> ? AND digest IN"
_LINK = "INSERT INTO run_bodies(rid, bid) SELECT ?, bid FROM bodies WHERE digest = ? ON CONFLICT DO NOTHING"
_SHARE = """INSERT INTO body_runs(bid, rid) SELECT b.bid, mine.rid FROM bodies b, (SELECT ? AS rid) mine
    WHERE b.digest = ? AND b.rid <> mine.rid
    ON CONFLICT DO NOTHING"""


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


def held(conn: Connection, digests: Sequence[str]) -> int:
    """How many of these bodies are there."""
    found = 0
    for at in range(0, len(digests), _AT_ONCE):
        some = [_key(digest) for digest in digests[at : at + _AT_ONCE]]
        marks = ", ".join("?" for _ in some)
        found += conn.execute(f"SELECT count(*) FROM bodies WHERE digest IN ({marks})", some).fetchone()[0]  # noqa: S608  # ours
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
        if form == _SHORT:
            return envelopes.unpack_body(data)
        if form == _ZSTD and 0 <= zstandard.frame_content_size(data) <= _LARGEST:
            return _local.decompress(data)
    except (zstandard.ZstdError, ValueError) as error:
        raise _corrupt(digest, where) from error
    raise _corrupt(digest, where)


def _corrupt(digest: str, where: str) -> Corrupt:
    place = f"{where}: " if where else ""
    return Corrupt(
        f"{place}body {digest[:12]} is damaged", hint="`agentloupe verify` names everything that is", reason="body"
    )


def remove_run(conn: Connection, rid: int) -> int:
    """Removes the bodies that only this run needs; the others go over to a run that needs them. Returns how many went."""
    alone = conn.execute(
        "SELECT b.bid, length(b.data) FROM run_bodies m JOIN bodies b ON b.bid = m.bid WHERE m.rid = :rid AND b.rid = :rid"
        " AND NOT EXISTS (SELECT 1 FROM body_runs o WHERE o.bid = b.bid)",
        {"rid": rid},
    ).fetchall()
    conn.execute(
        "UPDATE bodies SET rid = (SELECT min(o.rid) FROM body_runs o WHERE o.bid = bodies.bid) WHERE rid = :rid"
        " AND bid IN (SELECT m.bid FROM run_bodies m JOIN body_runs o ON o.bid = m.bid WHERE m.rid = :rid)",
        {"rid": rid},
    )
    conn.execute(
        "DELETE FROM body_runs WHERE bid IN (SELECT bid FROM run_bodies WHERE rid = :rid)"
        " AND (rid = :rid OR rid = (SELECT b.rid FROM bodies b WHERE b.bid = body_runs.bid))",
        {"rid": rid},
    )
    conn.execute("DELETE FROM run_bodies WHERE rid = ?", (rid,))
    return _removed(conn, alone)[0]


def remove_orphans(conn: Connection) -> tuple[int, int]:
    """Removes bodies that no run needs; returns how many, and their stored bytes."""
    return _removed(conn, conn.execute(f"SELECT bid, length(data) FROM bodies WHERE {ORPHAN}").fetchall())  # noqa: S608  # ours


ORPHAN = "bid NOT IN (SELECT bid FROM run_bodies)"
"""SQL: a body that no run needs."""


def _removed(conn: Connection, bodies: Sequence[tuple[int, int]]) -> tuple[int, int]:
    conn.executemany("DELETE FROM bodies WHERE bid = ?", [(bid,) for bid, _ in bodies])
    return len(bodies), sum(stored for _, stored in bodies)
