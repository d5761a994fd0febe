"""What a page needs first of a 10,000-step run: its row and the headers of its steps, no bodies."""

from __future__ import annotations

from agentloupe.engine.project import project
from agentloupe.store import open_url
from bench.context import Context
from bench.figures import Figure, Found
from bench.rows.request import long_run
from bench.timing import by_turns


def measure(context: Context) -> Found:
    """From an open store, from a file that is opened first, and by projecting the events anew."""
    store, run = long_run(context)

    def headers() -> int:
        assert store.run(run) is not None
        store.steps(run)
        return 1

    def cold() -> int:
        other = open_url(store.url, read_only=True)
        other.run(run)
        other.steps(run)
        other.close()
        return 1

    def page() -> int:
        store.run(run)
        store.steps(run, limit=200)
        return 1

    def anew() -> int:
        project(store.recording(run).events, run)
        return 1

    count = len(store.steps(run))
    taken = by_turns({"headers": headers, "cold": cold, "page": page, "anew": anew}, context.rounds)
    found = Found()
    for name, what, target in (
        ("headers", f"row and all {count:,} headers", 150.0),
        ("cold", "the same, opening the file first", 150.0),
        ("page", "row and the first 200 headers", None),
        ("anew", "all events read and projected anew", None),
    ):
        one = taken[name]
        figure = Figure(row="headers", name=what, unit="ms", measured=one.ms, median=one.median * 1e3, target=target)
        found.figures.append(figure)
    return found
