"""The projection of one run in SQLite: its row, its steps' headers, and the facets that lists filter by."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agentloupe.ports.protocols import Delta
from agentloupe.store.bulk import insert
from agentloupe.store.database import Connection
from agentloupe.store.queries import Facet, FacetKey, facets_of_run, facets_of_steps, storable
from agentloupe.store.rows import run_bytes, steps_bytes
from agentloupe.store.schema import event_key, keys_of_run
from agentloupe.words.jsontext import Json, dumps
from agentloupe.words.run import VALUES_MISSING, Run, without_values

__all__ = ["Change", "Projection", "RunRow", "remove_facets", "remove_steps", "set_facets", "set_tags"]


@dataclass(frozen=True, slots=True)
class RunRow:
    """What an append puts into the run's row; `started_at` only when it is not there yet."""

    row: bytes
    status: str
    erased: bool
    started_at: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """What was written, to be kept once it is committed."""

    started_at: str
    facets: frozenset[FacetKey]


class Projection:
    """Writes deltas of one run, and only what differs from what it wrote before."""

    def __init__(self, rid: int) -> None:
        self._rid = rid
        self._started_at: str | None = None
        self._of_run: frozenset[FacetKey] = frozenset()
        self._of_steps: frozenset[FacetKey] = frozenset()
        self._seen: tuple[object, ...] | None = None
        self._facets_seen: frozenset[FacetKey] = frozenset()
        self._lacks_values = False

    def adopt(self, run: Run) -> None:
        """Takes a run up as an earlier writer has left it, so that what holds no more is removed."""
        self._lacks_values = VALUES_MISSING in run.coverage_notes
        self._started_at, self._of_run = run.started_at, self._facets(run)

    def row(self, run: Run) -> RunRow:
        """The run's row for this delta."""
        started_at = run.started_at if self._started_at is None else None
        run = self._shown(run)
        return RunRow(run_bytes(run), run.status, run.erased, started_at)

    def write(self, conn: Connection, delta: Delta) -> Change:
        """Writes the steps and facets of a delta. Nothing is kept here before `keep`."""
        if delta.steps:
            insert(
                conn,
                "steps(key, row)",
                [
                    (event_key(self._rid, step.idx), row)
                    for step, row in zip(delta.steps, steps_bytes(delta.steps), strict=True)
                ],
                "ON CONFLICT(key) DO UPDATE SET row = excluded.row",
            )
        started_at = self._started_at or delta.run.started_at
        of_run = self._facets(delta.run)
        new = (of_run | facets_of_steps(delta.steps)) - self._of_run - self._of_steps
        remove_facets(conn, self._rid, started_at, self._of_run - of_run - self._of_steps)
        self._insert(conn, started_at, new)
        return Change(started_at, frozenset(of_run | new))

    def keep(self, change: Change, run: Run) -> None:
        """Remembers a change that was committed."""
        of_run = self._facets(run)
        self._started_at = change.started_at
        self._of_steps |= change.facets - of_run
        self._of_run = of_run

    def _facets(self, run: Run) -> frozenset[FacetKey]:
        """Facets of the run's row; most rows of a run differ only in sums."""
        run = self._shown(run)
        of_whom = (run.agent, run.name, run.task_id, run.trace_id, run.parent_run_id)
        of_what = (*of_whom, run.status, run.tags, run.error, run.coverage, run.counts.miss > 0, run.open_effects > 0)
        if of_what != self._seen:
            self._seen, self._facets_seen = of_what, frozenset(facets_of_run(run))
        return self._facets_seen

    def _shown(self, run: Run) -> Run:
        return without_values(run) if self._lacks_values else run

    def _insert(self, conn: Connection, started_at: str, facets: Collection[FacetKey]) -> None:
        if not facets:
            return
        # Tags that a person has set stand; those of the events do not come back beside them.
        conn.executemany(
            "INSERT INTO facets(kind, value, started_at, rid) SELECT ?, ?, ?, ?"
            " WHERE ? OR (SELECT tags_by_hand FROM runs WHERE rid = ?) IS NULL ON CONFLICT DO NOTHING",
            [(int(kind), value, started_at, self._rid, kind != Facet.TAG, self._rid) for kind, value in facets],
        )


def remove_steps(conn: Connection, rid: int) -> None:
    """Removes the headers of a run's steps."""
    conn.execute("DELETE FROM steps WHERE key BETWEEN ? AND ?", keys_of_run(rid))


def set_facets(conn: Connection, rid: int, started_at: str, facets: Iterable[FacetKey]) -> None:
    """Adds facets of a run, whatever they are."""
    rows = [(int(kind), value, started_at, rid) for kind, value in facets]
    insert(conn, "facets(kind, value, started_at, rid)", rows, "ON CONFLICT DO NOTHING")


def remove_facets(conn: Connection, rid: int, started_at: str, facets: Iterable[FacetKey] | None) -> None:
    """Removes facets of a run; all, by looking at every row of every run, where nobody knows which it has."""
    if facets is None:
        conn.execute("DELETE FROM facets WHERE rid = ?", (rid,))
    elif rows := [(int(kind), value, started_at, rid) for kind, value in facets]:
        conn.executemany("DELETE FROM facets WHERE kind = ? AND value = ? AND started_at = ? AND rid = ?", rows)


def set_tags(conn: Connection, rid: int, started_at: str, tags: Iterable[str], before: Iterable[str]) -> None:
    """Tags set by hand, in place of those that stood there `before`."""
    unique = list(dict.fromkeys(tags))
    conn.execute("UPDATE runs SET tags_by_hand = ? WHERE rid = ?", (dumps(list[Json](unique)).decode(), rid))
    remove_facets(conn, rid, started_at, [(Facet.TAG, storable(tag)) for tag in before])
    set_facets(conn, rid, started_at, [(Facet.TAG, storable(tag)) for tag in unique])
