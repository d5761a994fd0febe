"""Forgeries of a store's file and of `.loupe` files: what somebody may do who can write to them, and knows their form.

Edits of events are made in two depths: `in place` (only that is changed), and `re-linked` (numbers, chain and whatever says
where the run ends are made anew: whole again in itself). Nobody can make the anchors anew.
"""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloupe.store import envelopes
from agentloupe.words.canonical import Json, canonical, digest_bytes
from agentloupe.words.seal import GENESIS, link

TRIGGERS = ("events_are_never_changed", "events_are_never_removed", "events_are_never_replaced")
IN_PLACE, RE_LINKED = "in place", "re-linked"


@dataclass
class Row:
    """An event as it is stored: its number, what was sealed, its hash."""

    number: int
    envelope: dict[str, Any]
    hash: str


Edit = Callable[[list[Row]], object]


@dataclass(frozen=True)
class Forgery:
    """What was touched, what was done to it, where, and how deep it was mended."""

    what: str
    done: str
    depth: str
    where: str
    make: Callable[[Path], object] = field(repr=False)


# --- edits of the events of one run -----------------------------------------------------------------------------------


def edits(rows: list[Row]) -> Iterator[tuple[str, str, Edit]]:
    """What was done, where, and how; the first event, the last, and one of each type between."""
    seen = {row.envelope["type"]: n for n, row in reversed(list(enumerate(rows)))}
    for n in sorted({0, len(rows) - 1, *seen.values()}):
        where = f"{n + 1} {rows[n].envelope['type']}"
        yield "dropped", where, lambda rows, n=n: rows.pop(n)
        yield "duplicated", where, lambda rows, n=n: rows.insert(n, copy.deepcopy(rows[n]))
        if n + 1 < len(rows):
            yield "swapped with the next", where, lambda rows, n=n: _swap(rows, n)
            yield "tail cut behind it", where, lambda rows, n=n: rows.__delitem__(slice(n + 1, None))
        for name, value in rows[n].envelope.items():
            if name not in ("run_id", "sequence"):
                yield "a field changed", where, lambda rows, n=n, m=name, v=value: _put(rows[n], m, _other(v))
        if n:
            yield (
                "a digest of another event put in",
                where,
                lambda rows, n=n: _put(rows[n], "input_digest", _digest(rows)),
            )
    yield "all of them dropped", "", lambda rows: rows.clear()
    yield "one more added behind the end", "", lambda rows: rows.append(copy.deepcopy(rows[-1]))
    yield "another run under its id", "", lambda rows: _put(rows[0], "recorded_at", "2999-01-01T00:00:00.000000Z")


def _swap(rows: list[Row], n: int) -> None:
    one, other = rows[n], rows[n + 1]
    one.number, other.number = other.number, one.number
    rows[n], rows[n + 1] = other, one


def _put(row: Row, name: str, value: Any) -> None:
    row.envelope[name] = value


def _digest(rows: list[Row]) -> str:
    return next(row.envelope["input_digest"] for row in rows if "input_digest" in row.envelope)


def _other(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"
    return {**value, "more": "1"}


def relink(rows: list[Row]) -> None:
    """Numbers and chain made anew."""
    before = GENESIS
    for number, row in enumerate(rows, 1):
        row.number = number
        row.envelope["sequence"] = number
        row.hash = before = link(before, row.envelope)


# --- a store's file ---------------------------------------------------------------------------------------------------


class Raw:
    """The file behind the store's back."""

    def __init__(self, path: Path) -> None:
        self.conn = sqlite3.connect(path, isolation_level=None)
        self.conn.execute("PRAGMA synchronous = OFF")
        self.conn.execute("BEGIN")
        for name in TRIGGERS:
            self.conn.execute(f"DROP TRIGGER IF EXISTS {name}")

    def done(self) -> None:
        self.conn.execute("COMMIT")
        self.conn.close()

    def rid(self, run_id: str) -> int:
        return self.conn.execute("SELECT rid FROM runs WHERE id = ?", (run_id,)).fetchone()[0]

    def rows(self, run_id: str) -> list[Row]:
        start = self.rid(run_id) << 32
        found = self.conn.execute(
            "SELECT key, envelope, hash FROM events WHERE key >> 32 = ? ORDER BY key", (start >> 32,)
        )
        return [Row(key - start, json.loads(envelopes.unpack(text)), h.hex()) for key, text, h in found]

    def put(self, run_id: str, rows: list[Row], *, end: bool) -> None:
        """Writes the events of a run anew; with `end` also where it ends."""
        rid = self.rid(run_id)
        self.conn.execute("DELETE FROM events WHERE key >> 32 = ?", (rid,))
        for n, row in enumerate(rows):
            # Two of one number cannot stand in the file: the later one gets the next free place.
            taken = {one.number for one in rows[:n]}
            number = row.number if row.number not in taken else max(one.number for one in rows) + 1
            self.conn.execute(
                "INSERT OR REPLACE INTO events VALUES (?, ?, ?)",
                (rid << 32 | number, bytes.fromhex(row.hash), envelopes.pack_all([canonical(row.envelope)])[0]),
            )
        if end:
            last = rows[-1] if rows else Row(0, {}, GENESIS)
            self.conn.execute(
                "UPDATE runs SET last_sequence = ?, head = ? WHERE rid = ?",
                (last.number, bytes.fromhex(last.hash), rid),
            )


def store_forgeries(db: Path) -> Iterator[Forgery]:
    """Forgeries of a file that holds the runs `run-1`, `run-2`, `deleted` and `late`, all but the last of them anchored."""
    for run_id, what in (("run-1", "event"), ("late", "event of a run that nobody signed yet")):
        raw = Raw(db)
        rows = raw.rows(run_id)
        raw.conn.close()  # without a commit
        for done, where, edit in edits(rows):
            for depth in (IN_PLACE, RE_LINKED):
                yield Forgery(what, done, depth, where, lambda path, r=run_id, e=edit, d=depth: _edited(path, r, e, d))
    for what, done, depth, make in _OF_FILES:
        yield Forgery(what, done, depth, "", lambda path, make=make: _made(path, make))


def _edited(path: Path, run_id: str, edit: Edit, depth: str) -> None:
    raw = Raw(path)
    rows = raw.rows(run_id)
    edit(rows)
    if depth == RE_LINKED:
        relink(rows)
    raw.put(run_id, rows, end=depth == RE_LINKED)
    raw.done()


def _made(path: Path, make: Callable[[Raw], object]) -> None:
    raw = Raw(path)
    make(raw)
    raw.done()


def _sql(*statements: str) -> Callable[[Raw], object]:
    return lambda raw: [raw.conn.execute(one) for one in statements]


_OF_RUN = "(SELECT rid FROM runs WHERE id = 'run-1')"
_TABLES = ("events", "steps", "facets", "run_bodies", "body_runs", "runs", "bodies")


def _gone(raw: Raw) -> None:
    rid = raw.rid("run-1")
    for table in ("events", "steps"):
        raw.conn.execute(f"DELETE FROM {table} WHERE key >> 32 = ?", (rid,))
    for table in ("facets", "run_bodies", "runs"):
        raw.conn.execute(f"DELETE FROM {table} WHERE rid = ?", (rid,))


def _under(raw: Raw, names: dict[str, str], *, relinked: bool) -> None:
    """Gives runs other ids; `relinked`: also in their events."""
    rows = {old: raw.rows(old) for old in names}
    rids = {old: raw.rid(old) for old in names}
    for old in names:
        raw.conn.execute("UPDATE runs SET id = ? WHERE rid = ?", (f"{old} for now", rids[old]))
    for old, new in names.items():
        raw.conn.execute("UPDATE runs SET id = ? WHERE rid = ?", (new, rids[old]))
        if relinked:
            for row in rows[old]:
                row.envelope["run_id"] = new
            relink(rows[old])
            raw.put(new, rows[old], end=True)


def _body(raw: Raw, *, digest: bool) -> None:
    """Another value in the place of the first body."""
    (bid,) = raw.conn.execute(f"SELECT min(bid) FROM bodies WHERE rid = {_OF_RUN}").fetchone()
    data = b'{"args":["forged"],"kwargs":{}}'
    raw.conn.execute("UPDATE bodies SET form = 0, size = ?, data = ? WHERE bid = ?", (len(data), data, bid))
    if digest:
        raw.conn.execute("UPDATE bodies SET digest = ? WHERE bid = ?", (bytes.fromhex(digest_bytes(data)), bid))


def _body_and_event(raw: Raw) -> None:
    """Another value, under its own digest, in an event that names it, in a chain that was made anew."""
    _body(raw, digest=True)
    rows = raw.rows("run-1")
    rows[0].envelope["input_digest"] = digest_bytes(b'{"args":["forged"],"kwargs":{}}')
    relink(rows)
    raw.put("run-1", rows, end=True)


def _erased_again(raw: Raw) -> None:
    """A deletion that is taken back."""
    rows = raw.rows("deleted")[:-1]
    raw.put("deleted", rows, end=True)
    raw.conn.execute("UPDATE runs SET erased = 0 WHERE id = 'deleted'")


_OF_FILES: list[tuple[str, str, str, Callable[[Raw], object]]] = [
    ("run", "taken away, with all that belongs to it", RE_LINKED, _gone),
    ("run", "its row taken away", IN_PLACE, _sql("DELETE FROM runs WHERE id = 'run-1'")),
    ("run", "its row hidden from lists", IN_PLACE, _sql("UPDATE runs SET row = NULL WHERE id = 'run-1'")),
    ("run", "under another id", IN_PLACE, lambda raw: _under(raw, {"run-1": "other"}, relinked=False)),
    ("run", "under another id", RE_LINKED, lambda raw: _under(raw, {"run-1": "other"}, relinked=True)),
    (
        "run",
        "swapped with another",
        IN_PLACE,
        lambda raw: _under(raw, {"run-1": "run-2", "run-2": "run-1"}, relinked=False),
    ),
    (
        "run",
        "swapped with another",
        RE_LINKED,
        lambda raw: _under(raw, {"run-1": "run-2", "run-2": "run-1"}, relinked=True),
    ),
    ("run", "another in its place", RE_LINKED, lambda raw: (_gone(raw), _under(raw, {"late": "run-1"}, relinked=True))),
    ("run", "its deletion taken back", RE_LINKED, _erased_again),
    (
        "end",
        "its number changed",
        IN_PLACE,
        _sql("UPDATE runs SET last_sequence = last_sequence - 1 WHERE id = 'run-1'"),
    ),
    ("end", "its hash changed", IN_PLACE, _sql("UPDATE runs SET head = zeroblob(32) WHERE id = 'run-1'")),
    ("end", "no hash any more", IN_PLACE, _sql("UPDATE runs SET head = 'x' WHERE id = 'run-1'")),
    ("body", "replaced under its digest", IN_PLACE, lambda raw: _body(raw, digest=False)),
    ("body", "replaced, with its own digest", IN_PLACE, lambda raw: _body(raw, digest=True)),
    ("body", "replaced, with its own digest, in its event, too", RE_LINKED, _body_and_event),
    ("body", "taken away", IN_PLACE, _sql(f"DELETE FROM bodies WHERE rid = {_OF_RUN}")),
    ("store", "emptied", RE_LINKED, _sql(*(f"DELETE FROM {table}" for table in _TABLES))),
    ("store", "under the id of another", IN_PLACE, _sql("UPDATE meta SET value = 'another' WHERE name = 'store_id'")),
    ("store", "without an id", IN_PLACE, _sql("DELETE FROM meta WHERE name = 'store_id'")),
]


# --- a .loupe file ----------------------------------------------------------------------------------------------------


def loupe_forgeries(text: bytes) -> Iterator[tuple[str, str, str, str, bytes]]:
    """What was touched, what was done, the depth, where, and the text of the forged file."""
    head, *lines, _ = text.splitlines(keepends=True)
    rows = [Row(0, one["event"], one["hash"]) for line in lines if "event" in (one := json.loads(line))]
    bodies = [line for line in lines if line.startswith(b'{"body"')]
    for done, where, edit in edits(rows):
        made = copy.deepcopy(rows)
        edit(made)
        for depth in (IN_PLACE, RE_LINKED):
            if depth == RE_LINKED:
                relink(made)
            yield "event", done, depth, where, _file(head, made, bodies)
    for n in range(len(bodies)):
        others = [*bodies[:n], *bodies[n + 1 :]]
        forged = b'{"body":"%s","value":"forged"}\n' % digest_bytes(b'"forged"').encode()
        yield "body", "dropped", IN_PLACE, str(n), _file(head, rows, others)
        yield "body", "doubled", IN_PLACE, str(n), _file(head, rows, [*bodies, bodies[n]])
        yield "body", "replaced, with its own digest", IN_PLACE, str(n), _file(head, rows, [*others, forged])
    for n in (1, len(text) // 2, len(text) - 2):
        yield "file", "a byte changed", IN_PLACE, str(n), text[:n] + bytes([text[n] ^ 1]) + text[n + 1 :]
        yield "file", "cut", IN_PLACE, str(n), text[:n]
    yield "file", "something added behind its end", IN_PLACE, "", text + text
    yield "file", "of another run", RE_LINKED, "", _file(head.replace(b"run-1", b"run-2"), rows, bodies)


def _file(head: bytes, rows: list[Row], bodies: list[bytes]) -> bytes:
    """A file with these lines, that says of itself what it holds."""
    before, out = GENESIS, head
    for row in rows:
        line = b'{"event":%s,"prev_hash":"%s","hash":"%s"}\n'
        out += line % (canonical(row.envelope), before.encode(), row.hash.encode())
        before = row.hash
    out += b"".join(bodies)
    end: dict[str, Json] = {
        "events": len(rows),
        "bodies": len(bodies),
        "missing": 0,
        "head": before,
        "sha256": digest_bytes(out),
    }
    return out + canonical({"end": end}) + b"\n"


# --- an anchor file ---------------------------------------------------------------------------------------------------


def anchor_forgeries(lines: list[bytes], resign: Callable[[dict[str, Any]], bytes]) -> Iterator[tuple[str, str, bytes]]:
    """What was done, where, and the forged anchor file; `resign` signs a line with the key of the forger."""

    def joined(made: list[bytes]) -> bytes:
        return b"".join(line + b"\n" for line in made)

    for n, line in enumerate(lines):
        where, said = f"line {n + 1}", json.loads(line)

        def put(changed: dict[str, Any], n: int = n) -> bytes:
            return joined([*lines[:n], canonical(changed), *lines[n + 1 :]])

        yield "a line dropped", where, joined([*lines[:n], *lines[n + 1 :]])
        yield "a line doubled", where, joined([*lines[: n + 1], *lines[n:]])
        if n + 1 < len(lines):
            yield "two lines swapped", where, joined([*lines[:n], lines[n + 1], line, *lines[n + 2 :]])
        for name, value in said["checkpoint"].items():
            yield (
                "a member changed",
                f"{where} {name}",
                put({**said, "checkpoint": {**said["checkpoint"], name: _other(value)}}),
            )
            less = {k: v for k, v in said["checkpoint"].items() if k != name}
            yield "a member taken away", f"{where} {name}", put({**said, "checkpoint": less})
        for name in said:
            yield "a part taken away", f"{where} {name}", put({k: v for k, v in said.items() if k != name})
        yield "a part added", where, put({**said, "note": "x"})
        yield "another signature", where, put({**said, "signature": _other(said["signature"])})
        yield "no signature", where, put({**said, "signature": ""})
        yield "signed by another key", where, joined([*lines[:n], resign(said), *lines[n + 1 :]])
        for m, leaf in enumerate(said["leaves"]):
            others = [*said["leaves"][:m], *said["leaves"][m + 1 :]]
            yield "a leaf dropped", f"{where} {m}", put({**said, "leaves": others})
            yield (
                "a leaf changed",
                f"{where} {m}",
                put({**said, "leaves": [*others, [leaf[0], leaf[1], _other(leaf[2])]]}),
            )
        yield "a leaf added", where, put({**said, "leaves": [*said["leaves"], ["more", 1, "0" * 64]]})
        yield "torn within", where, joined([*lines[:n], line[: len(line) // 2], *lines[n + 1 :]])
    yield "all signed by another key", "", joined([resign(json.loads(line)) for line in lines])
    yield "emptied", "", b""
