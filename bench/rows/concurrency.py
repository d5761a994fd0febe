"""50 calls in flight at 20 ms a call, in one loop and in threads: what the gate adds, what recording adds, and the replay.

The whole of a run holds its beginning and its end, when nothing is in flight. So there is a longer one beside it: what the
calls take that it has more is the price while others are in flight.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Perform
from agentloupe.ports.schedule.core import Mode, Schedule
from agentloupe.verbs.instrument import tool
from agentloupe.words.call import Call
from bench.agents import ran, recorded
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.rows.replay import replaying, tape_of
from bench.timing import Batch, Sample, by_turns

_IN_FLIGHT = 50
_CALL_S = 0.02
_TARGET = 1.05
_LONGER = 2
"""The longer run has so many times the calls."""

Agent = Callable[[int], Any]


@tool(effect="read")
async def _fetch(row: int) -> dict[str, object]:
    await asyncio.sleep(_CALL_S)
    return {"row": row, "text": "some twenty characters"}


@tool(effect="read")
def _look_up(row: int) -> dict[str, object]:
    time.sleep(_CALL_S)
    return {"row": row, "text": "some twenty characters"}


async def gathered(each: int) -> int:
    """One loop: `each` calls one after another in every task."""

    async def work(worker: int) -> None:
        for i in range(each):
            await _fetch(worker * each + i)

    await asyncio.gather(*(work(worker) for worker in range(_IN_FLIGHT)))
    return _IN_FLIGHT * each


def pooled(each: int) -> int:
    """The same in threads of a pool."""

    def work(worker: int) -> None:
        for i in range(each):
            _look_up(worker * each + i)

    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        list(pool.map(work, range(_IN_FLIGHT)))
    return _IN_FLIGHT * each


# --- the gate without a recorder --------------------------------------------------------------------------------------


class _Turn(ambient.HasPlace):
    __slots__ = ()

    def __init__(self, place: ambient.Place) -> None:
        self.place = place


class _LetsPass:
    """A boundary that stores nothing: calls only wait for their turns."""

    def __init__(self) -> None:
        self.schedule = Schedule()

    def decide(self, call: Call) -> Perform:
        """Nothing is asked of it."""
        return Perform(token=_Turn(ambient.place()))

    def finished(self, perform: Perform, value: object) -> object:
        """As it is."""
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Nothing is kept of it."""


def _gated(agent: Agent, each: int) -> int:
    boundary = _LetsPass()

    async def inside_the_loop() -> int:
        with ambient.inside(boundary):
            return await agent(each)

    if inspect.iscoroutinefunction(agent):
        count = asyncio.run(inside_the_loop())
    else:
        with ambient.inside(boundary):
            count = agent(each)
    boundary.schedule.close()
    return count


# --- the row ----------------------------------------------------------------------------------------------------------


def measure(context: Context) -> Found:
    """Each by the wall clock, by turns; then the replays, which wait for nothing."""
    found = Found()
    each = context.size(20, 2)
    for agent, where in ((gathered, "in one loop"), (pooled, "in threads")):
        waits = ["bare", "gated", "exact", "off", "bare, longer", "exact, longer"]
        taken = by_turns(_batches(context, agent, each), context.turns(5), waits=waits)
        _tell(found, where, _IN_FLIGHT * each, taken)
    return found


def _batches(context: Context, agent: Agent, each: int) -> dict[str, Batch]:
    store = context.store("flight")

    def recording(schedule: Mode, each: int = each) -> Batch:
        def batch() -> int:
            recorded(store, agent, each, schedule=schedule)
            return _IN_FLIGHT * each

        return batch

    tape = tape_of(store.recording(recorded(store, agent, each)))
    return {
        "bare": lambda: ran(agent(each)),
        "gated": lambda: _gated(agent, each),
        "off": recording("off"),
        "exact": recording("exact"),
        "bare, longer": lambda: ran(agent(_LONGER * each)),
        "exact, longer": recording("exact", _LONGER * each),
        "replay": replaying(tape, agent, _IN_FLIGHT * each, least=1),
    }


def _more(taken: Mapping[str, Sample], subject: str, which: Literal["least", "median"]) -> float:
    """What the longer run of a subject takes more; in units of a call of the shorter one."""
    short, longer = taken[subject], taken[f"{subject}, longer"]
    return _LONGER * getattr(longer, which) - getattr(short, which)


def _tell(found: Found, where: str, calls: int, taken: dict[str, Sample]) -> None:
    bare, gated, off, exact = (taken[name] for name in ("bare", "gated", "off", "exact"))
    room = _CALL_S / _IN_FLIGHT * 1e6
    for name, one, other, note in (
        ("gate alone", gated, bare, "beside bare; calls wait for their turn, nothing is stored"),
        ("recording with the gate", exact, off, "beside recording without the gate"),
        ("recording", exact, bare, f"beside bare; each call takes its processor time out of {room:.0f} us"),
    ):
        found.figures.append(
            Figure(
                row="concurrency",
                name=f"{name}, {where}: time of {calls:,} calls",
                unit="x",
                measured=one.least / other.least,
                median=one.median / other.median,
                target=_TARGET,
                note=note,
            )
        )
    found.figures.append(
        Figure(
            row="concurrency",
            name=f"recording, {where}: time of {(_LONGER - 1) * calls:,} calls more, while others are in flight",
            unit="x",
            measured=_more(taken, "exact", "least") / _more(taken, "bare", "least"),
            median=_more(taken, "exact", "median") / _more(taken, "bare", "median"),
            target=_TARGET,
            note="beside bare; what a longer run takes more than the one above, so without beginning and end",
        )
    )
    for name, one, other in (("the gate", gated, bare), ("recording", exact, bare)):
        found.figures.append(
            Figure(
                row="concurrency",
                name=f"processor time a call that {name} adds, {where}",
                unit="us",
                measured=(one.cpu - other.cpu) * 1e6,
                peers=(Peer("the call itself, bare", bare.cpu * 1e6),),
            )
        )
    replay = taken["replay"]
    found.figures.append(
        Figure(
            row="concurrency",
            name=f"calls a second in a replay, {where}",
            unit="1/s",
            measured=replay.rate,
            median=1 / replay.median,
            better="more",
            note="in the recorded order, waiting for nothing",
        )
    )
