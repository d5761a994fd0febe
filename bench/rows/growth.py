"""How the cost of a call grows with the run, from 100 to 100,000 calls: recording, replay, fork, comparison and opening.

Everything is as it is by default: calls are committed to a spool and settled beside the program, and every run keeps to a
schedule. Once more with 50 tasks at a time, where the schedule has something to do.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from agentloupe.engine.compare import Comparison
from agentloupe.engine.costs import PriceTable
from agentloupe.engine.overrides import Overrides
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.forking import fork
from agentloupe.verbs.instrument import tool
from agentloupe.words.canonical import Json
from bench.agents import MODEL, answer, ask, recorded, text
from bench.context import Context
from bench.figures import Curve, Figure, Found
from bench.rows.replay import replaying, tape_of
from bench.timing import Batch, Sample, sample

_SAID, _ANSWER = text(200, 1), answer(100, 1)  # making them anew must not cost more in a long run than in a short one
_SIZES = (100, 1000, 10_000, 100_000)
_LARGE = 10_000
_TASKS = 50
_TARGET = 1.5


def _asks(calls: int) -> int:
    """Model calls with a small request of the same size each, so that only the run grows."""
    for i in range(calls):
        messages: list[Json] = [{"role": "user", "content": f"{i} {_SAID}"}]
        ask({"model": MODEL, "messages": messages}, _ANSWER | {"id": f"chatcmpl-{i}"})
    return calls


@tool(effect="read")
async def _fetch(row: int) -> dict[str, object]:
    await asyncio.sleep(0)
    return {"row": row, "text": "some twenty characters"}


async def _fetches(calls: int) -> int:
    """Calls of a tool, 50 tasks at a time."""

    async def work(first: int) -> None:
        for row in range(first, calls, _TASKS):
            await _fetch(row)

    await asyncio.gather(*(work(first) for first in range(_TASKS)))
    return calls


def measure(context: Context) -> Found:
    """Every operation at every size; those with large runs once."""
    sizes = _SIZES if context.scale >= 1 else _SIZES[:3] if context.scale >= 0.1 else (20, 60)
    taken: dict[str, list[Sample]] = {}
    store = context.store("growth")
    table = PriceTable.load()
    for size in sizes:
        context.say(f"{size:,} calls")
        rounds = 1 if size >= _LARGE else context.few
        for name, one in _at(store, size, table, rounds):
            taken.setdefault(name, []).append(one)
    found = Found()
    for name, samples in taken.items():
        found.curves.append(Curve("growth", name, "us a call", sizes, [one.us for one in samples]))
        found.figures.append(
            Figure(
                row="growth",
                name=f"{name}: a call of {sizes[-1]:,} beside one of {sizes[1]:,}, over n log n",
                unit="x",
                measured=_over_n_log_n(sizes[1], samples[1].least, sizes[-1], samples[-1].least),
                target=_TARGET,
                note="1 is exactly n log n from there on; less is flatter",
            )
        )
    return found


def _at(store: SqliteStore, size: int, table: PriceTable, rounds: int) -> Sequence[tuple[str, Sample]]:
    """Every operation with runs of one size."""
    runs: list[str] = []
    forks: list[str] = []

    def recording(agent: Callable[[int], Any]) -> Batch:
        def batch() -> int:
            runs.append(recorded(store, agent, size))
            return size

        return batch

    def opening() -> int:
        tape_of(store.recording(run))
        return size

    def headers() -> int:
        store.steps(run)
        return size

    def forking() -> int:
        done = fork(
            run, _asks, from_step=last, store=store, overrides=Overrides(system_prompt="Answer in one sentence.")
        )
        assert done.candidates[0].status == "ok", done.candidates[0].error
        forks.append(done.candidates[0].id)
        return size

    def comparing() -> int:
        assert isinstance(compare(run, forks[-1], store=store, prices=table), Comparison)
        return size

    found = [("recording", sample(recording(_asks), rounds))]
    run = runs[-1]
    last = store.steps(run)[-1].idx
    tape = tape_of(store.recording(run))
    found += [
        ("replay", sample(replaying(tape, _asks, size), rounds)),
        ("opening", sample(opening, rounds)),
        ("headers", sample(headers, rounds)),
        ("fork at the last call", sample(forking, rounds)),
        ("comparing", sample(comparing, rounds)),
        (f"recording, {_TASKS} tasks", sample(recording(_fetches), rounds)),
    ]
    tape = tape_of(store.recording(runs[-1]))
    return [*found, (f"replay, {_TASKS} tasks", sample(replaying(tape, _fetches, size), rounds))]


def _over_n_log_n(small: int, at_small: float, large: int, at_large: float) -> float:
    """How many times worse than n log n the whole grew: calls cost `log n` each at most."""
    return (at_large / at_small) / (math.log(large) / math.log(small))
