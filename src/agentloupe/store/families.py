"""Runs by family: a run with the forks of it and of those, the first run first (see `schema` for who belongs to whom).

Where little is wanted it is looked up and put in order. Else the index of families is walked, and each run is tested.
"""

from __future__ import annotations

from agentloupe.store.counting import how_many
from agentloupe.store.database import Connection
from agentloupe.store.queries import Sql, conditions, page_of, wanted_facets
from agentloupe.store.textsearch import Found, all_found, found_by_text, text_test
from agentloupe.words.run import RunFilter

__all__ = ["select_by_family"]

_FEW = 20_000
"""Runs that are put in order all at once."""
_ORDER = "r.family_at DESC, r.family DESC, r.rid <> r.family, r.started_at, r.rid"


def select_by_family(conn: Connection, what: str, wanted: RunFilter, *, paged: bool) -> Sql:
    """SQL and its arguments that select `what` (columns of runs `r`), family by family."""
    found = found_by_text(conn, wanted) if wanted.text is not None else None
    few = _few(conn, wanted, found)
    source, args = ("runs r", []) if few is None else (f"({few[0]}) f CROSS JOIN runs r ON r.rid = f.rid", few[1])
    where, more = conditions(wanted, "r", of_runs=True)
    where, args = ["r.started_at IS NOT NULL", *where], [*args, *more]
    if found is not None and few is None:
        test, more = text_test(found, "r")
        where, args = [*where, test], [*args, *more]
    rows = f"SELECT r.rid FROM {source} WHERE {' AND '.join(where)} ORDER BY {_ORDER}"  # noqa: S608  # our own text, values are bound
    if paged:
        rows, args = page_of((rows, args), wanted)
    return f"SELECT {what} FROM ({rows}) n JOIN runs r ON r.rid = n.rid WHERE r.row IS NOT NULL ORDER BY {_ORDER}", args  # noqa: S608  # our own text


def _few(conn: Connection, wanted: RunFilter, found: Found | None) -> Sql | None:
    """Runs among which all that are wanted are, if these are few."""
    if found is not None and found.few:
        return all_found(wanted, found)
    facets = wanted_facets(wanted)
    counted = how_many(conn, facets)
    rarest = min(facets, key=lambda facet: counted.get(facet, 0), default=None)
    if rarest is not None and counted.get(rarest, 0) <= _FEW:
        return "SELECT started_at, rid FROM facets WHERE kind = ? AND value = ?", [int(rarest[0]), rarest[1]]
    if wanted.since is None and wanted.until is None:
        return None
    within = "SELECT started_at, rid FROM runs WHERE started_at >= ? AND started_at < ?"
    args: list[object] = [wanted.since or "", wanted.until or "\U0010ffff"]
    some = f"SELECT count(*) FROM ({within} LIMIT ?)"  # noqa: S608  # our own text
    return (within, args) if conn.execute(some, (*args, _FEW + 1)).fetchone()[0] <= _FEW else None
