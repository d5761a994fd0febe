"""What recording adds to reads of clock, chance and ids, which are committed in groups."""

from __future__ import annotations

from agentloupe.ports import ambient
from agentloupe.verbs.reads import now, random, uuid4
from bench.agents import opened
from bench.context import Context
from bench.figures import Figure, Found
from bench.timing import by_turns

_BURST = 1000
_READS = (now, random, uuid4)


def _read(count: int) -> int:
    for i in range(count):
        _READS[i % 3]()
    return count


def measure(context: Context) -> Found:
    """Bursts, and reads without a pause until everything is written."""
    sustained = context.size(20_000, 2000)
    session = opened(context.store("reads"))
    writer = session.recorder._book.writer  # to know that nothing waits any more

    def burst() -> int:
        with ambient.inside(session.boundary):
            return _read(_BURST)

    def settle() -> int:
        writer.flush()
        return 1

    def on_and_on() -> int:
        with ambient.inside(session.boundary):
            count = _read(sustained)
        writer.flush()
        return count

    taken = by_turns(
        {"bare": lambda: _read(_BURST), "settle": settle, "burst": burst, "settled": settle, "sustained": on_and_on},
        context.rounds,
        alone=["burst"],
    )
    session.finished(None)
    bare = taken["bare"]
    found = Found()
    for name, target, what, note in (
        (
            "burst",
            30.0,
            f"bursts of {_BURST:,}",
            "in the program's own thread; their events are made and written by a thread beside it",
        ),
        ("sustained", 100.0, f"{sustained:,} without a pause, all written", "clock, random and uuid by turns"),
    ):
        added = taken[name]
        found.figures.append(
            Figure(
                row="reads",
                name=f"added per read, {what}",
                unit="us",
                measured=added.us - bare.us,
                median=(added.median - bare.median) * 1e6,
                target=target,
                note=note,
            )
        )
    return found
