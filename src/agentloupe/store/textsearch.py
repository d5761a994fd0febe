"""Runs by a text: those whose id begins with it, and those whose name holds it.

Names are looked through as the table of counts holds them, each once, so that a million runs with a few names cost
nothing. What is found is put in order at once where it is little. Where it is much, a list is walked, newest first: along
the rarest thing that is asked for besides, along each of the names, or along all runs, and each run is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from agentloupe.store.counting import how_many
from agentloupe.store.database import Connection
from agentloupe.store.queries import NEWEST, Facet, FacetKey, Sql, conditions, newest, storable, wanted_facets
from agentloupe.words.run import RunFilter

__all__ = ["Found", "all_found", "count_found", "found_by_text", "select_found", "text_test"]

_FEW = 20_000
"""Runs that are put in order all at once."""
_MANY_NAMES = 400
"""Names that are walked along one by one; SQLite takes no more than 500 selects as one."""
_ROWS = 20_000
"""Rows that are fetched, over all names, for one page."""


class Found(NamedTuple):
    """What a text finds: names, how many runs have them, and how many ids begin with it (as far as it matters)."""

    text: str
    names: Sequence[str]
    named: int
    by_id: int

    @property
    def few(self) -> bool:
        """Whether all that is found can be put in order at once."""
        return self.named + self.by_id <= _FEW


def found_by_text(conn: Connection, wanted: RunFilter) -> Found:
    """What the text of a filter finds."""
    text = storable(wanted.text or "")
    rows = conn.execute(
        "SELECT value, runs FROM facet_counts WHERE kind = ? AND instr(lower(value), lower(?)) > 0",
        (int(Facet.NAME), text),
    ).fetchall()
    by_id = conn.execute(
        "SELECT count(*) FROM (SELECT 1 FROM runs WHERE id >= ? AND id < ? LIMIT ?)", (*_ids(text), _FEW + 1)
    ).fetchone()[0]
    return Found(text, [name for name, _ in rows], sum(runs for _, runs in rows), by_id)


def _ids(text: str) -> tuple[str, str]:
    return text, text + "\U0010ffff"


def _with_name(found: Found) -> Sql:
    sql = "SELECT started_at, rid FROM facets WHERE kind = ? AND value IN (SELECT value FROM json_each(?))"
    return sql, [int(Facet.NAME), orjson.dumps(found.names).decode()]


def _with_id(found: Found) -> Sql:
    return "SELECT started_at, rid FROM runs WHERE id >= ? AND id < ? AND row IS NOT NULL", [*_ids(found.text)]


def text_test(found: Found, at: str) -> Sql:
    """A test of one run `at`: by its id, then by each of the names."""
    by_id = f"EXISTS (SELECT 1 FROM runs p WHERE p.rid = {at}.rid AND p.id >= ? AND p.id < ?)"  # noqa: S608  # our own text
    same = f"g.started_at = {at}.started_at AND g.rid = {at}.rid"
    named = "SELECT 1 FROM json_each(?) j CROSS JOIN facets g ON g.kind = ? AND g.value = j.value"
    by_name = f"EXISTS ({named} AND {same})"
    return f"({by_id} OR {by_name})", [*_ids(found.text), orjson.dumps(found.names).decode(), int(Facet.NAME)]


def _tests(wanted: RunFilter, facets: Sequence[FacetKey] | None = None) -> Sql:
    """Tests of everything else that is asked for, without a look at the run itself: what has facets has a row."""
    where, args = conditions(wanted, "f", facets)
    return " AND ".join(["1", *where]), args


# --- pages ------------------------------------------------------------------------------------------------------------


def select_found(conn: Connection, what: str, wanted: RunFilter, *, paged: bool) -> Sql:
    """SQL and its arguments that select `what` (columns of runs `r`) of the runs that `wanted.text` finds, newest first."""
    found = found_by_text(conn, wanted)
    return newest(what, _walk(conn, wanted, found) if paged else all_found(wanted, found), wanted, paged=paged)


def _walk(conn: Connection, wanted: RunFilter, found: Found) -> Sql:
    """The cheapest way to the newest ones."""
    if found.few or len(found.names) > _MANY_NAMES:
        return all_found(wanted, found)
    counted = how_many(conn, wanted_facets(wanted))
    if counted:
        return _along(min(counted, key=counted.__getitem__), wanted, found)
    if wanted.limit is not None and found.by_id <= _FEW and len(found.names) * (wanted.offset + wanted.limit) <= _ROWS:
        return _by_names(wanted, found)
    test, args = text_test(found, "f")
    tests, more = _tests(wanted)
    return f"SELECT f.started_at, f.rid FROM runs f WHERE f.row IS NOT NULL AND {test} AND {tests}", [*args, *more]  # noqa: S608  # our own text


def all_found(wanted: RunFilter, found: Found) -> Sql:
    """All that the text finds and the filter wants, in no order: `started_at` and `rid` of each."""
    named, args = _with_name(found)
    by_id, ids = _with_id(found)
    tests, more = _tests(wanted)
    sql = f"SELECT f.started_at, f.rid FROM ({named} UNION {by_id}) f WHERE {tests}"  # noqa: S608  # our own text
    return sql, [*args, *ids, *more]


def _along(rarest: FacetKey, wanted: RunFilter, found: Found) -> Sql:
    test, args = text_test(found, "f")
    tests, more = _tests(wanted, [facet for facet in wanted_facets(wanted) if facet != rarest])
    sql = f"SELECT f.started_at, f.rid FROM facets f WHERE f.kind = ? AND f.value = ? AND {tests} AND {test}"  # noqa: S608  # our own text
    return sql, [int(rarest[0]), rarest[1], *more, *args]


def _by_names(wanted: RunFilter, found: Found) -> Sql:
    """Of each name, and of the ids, as many as the page could need."""
    tests, more = _tests(wanted)
    most = wanted.offset + (wanted.limit or 0)
    by_id, args = _with_id(found)
    parts = [f"SELECT f.started_at, f.rid FROM ({by_id}) f WHERE {tests}"]  # noqa: S608  # our own text
    args += more
    one = f"SELECT f.started_at, f.rid FROM facets f WHERE f.kind = ? AND f.value = ? AND {tests} {NEWEST} LIMIT ?"  # noqa: S608  # ours
    for name in found.names:
        parts.append(f"SELECT * FROM ({one})")  # noqa: S608  # our own text
        args += [int(Facet.NAME), name, *more, most]
    return f"SELECT f.started_at, f.rid FROM ({' UNION '.join(parts)}) f", args  # noqa: S608  # our own text


# --- how many ---------------------------------------------------------------------------------------------------------


def count_found(conn: Connection, wanted: RunFilter, most: int | None) -> int:
    """How many runs the text finds; counting stops at `most`, where there is one."""
    found = found_by_text(conn, wanted)
    counted = how_many(conn, wanted_facets(wanted))
    rarest = min(counted, key=counted.__getitem__, default=None)
    if rarest is not None and counted[rarest] * max(len(found.names), 1) < found.named + found.by_id:
        sql, args = _along(rarest, wanted, found)
    else:
        sql, args = _one_by_one(wanted, found)
    limited = f"SELECT count(*) FROM ({sql} LIMIT ?)"  # noqa: S608  # our own text
    return conn.execute(limited, (*args, -1 if most is None else most)).fetchone()[0]


def _one_by_one(wanted: RunFilter, found: Found) -> Sql:
    """Each run once, in no order, so that counting can stop anywhere."""
    named, args = _with_name(found)
    by_id, ids = _with_id(found)
    tests, more = _tests(wanted)
    apart = "NOT EXISTS (SELECT 1 FROM runs p WHERE p.rid = f.rid AND p.id >= ? AND p.id < ?)"
    sql = (
        f"SELECT f.rid FROM ({named}) f WHERE {apart} AND {tests} UNION ALL SELECT f.rid FROM ({by_id}) f WHERE {tests}"  # noqa: S608  # ours
    )
    return sql, [*args, *ids, *more, *ids, *more]
