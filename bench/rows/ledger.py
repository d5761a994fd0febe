"""A ledger of a long run, replayed: all files read, every check made, the state derived, the report written."""

from __future__ import annotations

import agentloupe as loupe
from agentloupe.verbs.ledger import export_ledger, replay_folder
from bench.agents import get, recorded
from bench.context import Context
from bench.figures import Figure, Found
from bench.timing import by_turns

_EVENTS = 100_000
_TARGET_SECONDS = 3.0


@loupe.tool(effect="read")
def look(row: int) -> dict[str, object]:
    """A tool whose calls are three events and one receipt each."""
    return {"row": row, "text": "what a tool of an agent may answer, in a few words"}


def checked(rows: int) -> int:
    """An agent whose calls are of many kinds: of ten rows one has a tool, a check and a state."""
    for row in range(rows):
        get(row)
        if row % 10 == 0:
            look(row)
            loupe.check("row", True)
            loupe.state("at", row)
    return rows


def measure(context: Context) -> Found:
    """From a folder that was written before. What is measured is processor time: the folder is in memory then."""
    store = context.store("ledger")
    folder = context.path("ledger")
    exported = export_ledger(store, recorded(store, checked, context.size(_EVENTS * 10 // 15, 300)), folder)

    def replayed() -> int:
        report = replay_folder(folder)
        assert report.fields["events"] == exported.events
        return 1

    taken = by_turns({"replay": replayed}, context.few)["replay"]
    share = exported.events / _EVENTS
    found = Found()
    found.figures.append(
        Figure(
            row="ledger",
            name=f"replay of {exported.events:,} events",
            unit="ms",
            measured=taken.ms,
            median=taken.median * 1e3,
            target=_TARGET_SECONDS * 1e3 * share,
            note=f"{exported.receipts:,} receipts, each a file, and {exported.bodies or 0:,} values are read and checked too",
        )
    )
    return found
