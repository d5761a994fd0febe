"""A page of the list of 1,000,000 runs, as the store gives it: newest first, and by what lists filter by.

The runs are copies of one that was recorded: their rows in the list, without events, since recording as many takes hours.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing

from agentloupe.store.queries import Facet
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.run import Run, RunFilter
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found

_RUNS = 1_000_000
_PAGE = 50
_TARGET_MS = 100.0

_COPY_RUNS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO runs(id, last_sequence, head, epoch, status, started_at, row)
SELECT printf('copy-%08d', i), last_sequence, head, epoch, CASE i % 10 WHEN 0 THEN 'error' ELSE 'ok' END,
       strftime('%Y-%m-%dT%H:%M:%fZ', 1700000000 + i, 'unixepoch'), row
FROM n JOIN runs ON runs.id = :run
"""
_COPY_FACETS = "INSERT INTO facets SELECT :kind, {value}, started_at, rid FROM runs WHERE id GLOB 'copy-*'"
_COPY_OPEN = "INSERT INTO facets SELECT :kind, '', started_at, rid FROM runs WHERE id GLOB 'copy-*' AND rid % 1000 = 0"
_COPY_FORKS = (
    # Of ten runs nine are forks, half of the first one, half of the one before.
    """INSERT INTO facets SELECT :kind, printf('copy-%08d', CASE rid % 2 WHEN 0 THEN rid - rid % 10 ELSE rid - 1 END),
       started_at, rid FROM runs WHERE id GLOB 'copy-*' AND rid % 10 AND rid >= 10"""
)
_COPY_ROOTS = """
INSERT INTO facets SELECT :root, '', started_at, rid FROM runs
WHERE id GLOB 'copy-*' AND rid NOT IN (SELECT rid FROM facets WHERE kind = :kind)
"""
_VALUES = {
    Facet.STATUS: "status",
    Facet.AGENT: "'agent-' || (rid / 10 % 20)",
    Facet.TAG: "'tag-' || (rid % 211)",
    Facet.TOOL: "'look_up'",
    Facet.NAME: "CASE rid % 100 WHEN 0 THEN 'one-off ' || (rid / 100) ELSE 'name ' || (rid % 97) END",
}
_LISTS = {
    "newest first": RunFilter(limit=_PAGE),
    "of one status": RunFilter(limit=_PAGE, status="error"),
    "of one agent and status": RunFilter(limit=_PAGE, status="error", agent="agent-10"),
    "of one agent and a status that it never had": RunFilter(limit=_PAGE, status="cancelled", agent="agent-10"),
    "of one tag and tool": RunFilter(limit=_PAGE, tag="tag-7", tool="look_up"),
    "of one agent, within an hour": RunFilter(
        limit=_PAGE, agent="agent-10", since="2023-11-14T23:00:00.000Z", until="2023-11-15T00:00:00.000Z"
    ),
    "with a text in many names": RunFilter(limit=_PAGE, text="one-off 7"),
    "with a text in one name of many runs": RunFilter(limit=_PAGE, text="name 42"),
    "with a text in names, of one tag": RunFilter(limit=_PAGE, text="name 4", tag="tag-7"),
    "with a text that no name has": RunFilter(limit=_PAGE, text="nothing"),
    "with an open effect, which one in 1,000 has": RunFilter(limit=_PAGE, open_effects=True),
    "of one status, after 10,000 others": RunFilter(limit=_PAGE, status="ok", offset=10_000),
    "no forks": RunFilter(limit=_PAGE, roots=True),
    "by family": RunFilter(limit=_PAGE, order="family"),
    "by family, after 10,000 others": RunFilter(limit=_PAGE, order="family", offset=10_000),
    "by family, of one status": RunFilter(limit=_PAGE, order="family", status="error"),
    "by family, of one agent and tag": RunFilter(limit=_PAGE, order="family", agent="agent-10", tag="tag-7"),
    "by family, no forks": RunFilter(limit=_PAGE, order="family", roots=True),
    "by family, with a text in one name of many runs": RunFilter(limit=_PAGE, order="family", text="name 42"),
}


def filled(store: SqliteStore, count: int) -> SqliteStore:
    """Puts so many copies of a run into a store, as lists see them."""
    run = recorded(store, model_and_tool, 20)
    assert store.run(run) is not None
    with closing(sqlite3.connect(store.path)) as conn:
        conn.execute(_COPY_RUNS, {"count": count, "run": run})
        for kind, value in _VALUES.items():
            conn.execute(_COPY_FACETS.format(value=value), {"kind": int(kind)})
        conn.execute(_COPY_OPEN, {"kind": int(Facet.OPEN)})
        conn.execute(_COPY_FORKS, {"kind": int(Facet.PARENT)})
        conn.execute(_COPY_ROOTS, {"kind": int(Facet.PARENT), "root": int(Facet.ROOT)})
        conn.commit()
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return store


def measure(context: Context) -> Found:
    """Of each list the page that 19 of 20 are no slower than, then how many there are."""
    count = context.size(_RUNS, 2000)
    context.say(f"making {count:,} rows")
    store = filled(context.store("listing"), count)
    found = Found()
    for name, wanted in _LISTS.items():
        times: list[float] = []
        page: list[Run] = []
        for _ in range(context.turns(40)):
            began = time.process_time()
            page = store.runs(wanted)
            times.append(time.process_time() - began)
        assert len(page) == (0 if wanted.status == "cancelled" or wanted.text == "nothing" else _PAGE) or count < _RUNS
        times.sort()
        found.figures.append(
            Figure(
                row="listing",
                name=f"{_PAGE} of {count:,} runs, {name}",
                unit="ms",
                measured=times[int(len(times) * 0.95)] * 1e3,
                median=times[len(times) // 2] * 1e3,
                target=_TARGET_MS,
            )
        )
    began = time.process_time()
    total = store.count(RunFilter(status="ok"))
    counted = (time.process_time() - began) * 1e3
    found.figures.append(
        Figure(row="listing", name=f"counting those of one status: {total:,}", unit="ms", measured=counted)
    )
    return found
