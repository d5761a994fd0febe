"""How many runs a filter selects, without reading them: facets are counted as they come and go (see `schema`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentloupe.store.database import Connection
from agentloupe.store.queries import LISTED, UNCOUNTED, Facet, FacetKey, select_rows, wanted_facets
from agentloupe.words.run import RunFilter

__all__ = ["count_runs", "facet_values", "how_many"]

_VALUES = 50_000
"""Values of one facet that are looked at to find the most frequent ones."""


def how_many(conn: Connection, facets: Iterable[FacetKey]) -> dict[FacetKey, int]:
    """How many runs have each facet; those that are not counted are taken for rare."""
    found: dict[FacetKey, int] = {}
    for kind, value in facets:
        if kind in UNCOUNTED:
            continue
        row = conn.execute("SELECT runs FROM facet_counts WHERE kind = ? AND value = ?", (int(kind), value)).fetchone()
        found[kind, value] = 0 if row is None else row[0]
    return found


def count_runs(conn: Connection, wanted: RunFilter, most: int | None) -> int:
    """How many runs are wanted; counting stops at `most`, where there is one."""
    facets = wanted_facets(wanted)
    bounded = any(value is not None for value in (wanted.since, wanted.until, wanted.id_prefix))
    if not bounded and not facets:
        return conn.execute(
            "SELECT coalesce(sum(runs), 0) FROM facet_counts WHERE kind = ?", (int(Facet.STATUS),)
        ).fetchone()[0]
    counts = how_many(conn, facets)
    if not bounded and len(facets) == 1 and facets[0] in counts:
        return counts[facets[0]]
    sql, args = select_rows(wanted, counts)
    return conn.execute(f"SELECT count(*) FROM ({sql} LIMIT ?)", (*args, -1 if most is None else most)).fetchone()[0]  # noqa: S608  # our own text, values are bound


def facet_values(conn: Connection, name: str, limit: int) -> Sequence[tuple[str, int]]:
    """The most frequent values of a facet and how many runs have each. Raises `KeyError` for a name that is none."""
    kind = int(LISTED[name])
    return conn.execute(
        "SELECT value, runs FROM (SELECT value, runs FROM facet_counts WHERE kind = ? LIMIT ?)"
        " ORDER BY runs DESC, value LIMIT ?",
        (kind, _VALUES, limit),
    ).fetchall()
