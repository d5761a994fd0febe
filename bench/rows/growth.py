"""How the cost of a call grows with the run: recording, replaying and opening, from 100 to 100,000 calls."""

from __future__ import annotations

import math

from agentloupe.words.canonical import Json
from bench.agents import MODEL, answer, ask, recorded, text
from bench.context import Context
from bench.figures import Curve, Figure, Found
from bench.rows.replay import replaying, tape_of
from bench.timing import Sample, sample

_SAID, _ANSWER = text(200, 1), answer(100, 1)  # making them anew must not cost more in a long run than in a short one
SIZES = (100, 1000, 10_000, 100_000)
_TARGET = 1.5


def _asks(calls: int) -> int:
    """Model calls with a small request of the same size each, so that only the run grows."""
    for i in range(calls):
        messages: list[Json] = [{"role": "user", "content": f"{i} {_SAID}"}]
        ask({"model": MODEL, "messages": messages}, _ANSWER | {"id": f"chatcmpl-{i}"})
    return calls


def measure(context: Context) -> Found:
    """Every operation at every size; the largest only once or twice."""
    sizes = SIZES if context.scale >= 1 else SIZES[:3] if context.scale >= 0.1 else (20, 60)
    taken: dict[str, list[Sample]] = {"recording": [], "opening": [], "replay": [], "headers": []}
    store = context.store("growth")
    for size in sizes:
        context.say(f"{size:,} calls")
        rounds = 1 if size >= 100_000 else 2 if size >= 10_000 else context.rounds
        runs: list[str] = []

        def recording(size: int = size, runs: list[str] = runs) -> int:
            runs.append(recorded(store, _asks, size))
            return size

        taken["recording"].append(sample(recording, rounds))
        run = runs[-1]

        def opening(size: int = size, run: str = run) -> int:
            tape_of(store.recording(run))
            return size

        def headers(size: int = size, run: str = run) -> int:
            store.steps(run)
            return size

        taken["opening"].append(sample(opening, rounds))
        taken["headers"].append(sample(headers, rounds))
        taken["replay"].append(sample(replaying(tape_of(store.recording(run)), _asks, size), rounds))
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


def _over_n_log_n(small: int, at_small: float, large: int, at_large: float) -> float:
    """How many times worse than n log n the whole grew: calls cost `log n` each at most."""
    return (at_large / at_small) / (math.log(large) / math.log(small))
