"""Resume of a run that was killed near its end: its code again over the recording, then the last call for real."""

from __future__ import annotations

from agentloupe.engine.project import Projector
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.resuming import resume
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found
from bench.timing import Batch, by_turns

_SIZES = (100, 1000)
_TARGET_MS = 1000.0


def _interrupted(context: Context, steps: int, rounds: int) -> tuple[str, list[SqliteStore]]:
    """Stores, each with a run of so many steps that has all but its last two events: a tool's end and its own."""
    whole = context.store("resume")
    run = recorded(whole, model_and_tool, steps)
    recording = whole.recording(run)
    stores = [context.store("resume") for _ in range(rounds)]
    for store in stores:
        store.insert(run, recording.events[:-2], recording.get, Projector)
    return run, stores


def _resuming(run: str, stores: list[SqliteStore]) -> Batch:
    def batch() -> int:
        done = resume(run, model_and_tool, store=stores.pop())
        assert done.run is not None, "stored"
        assert done.run.status == "ok", done.run.error
        return 1

    return batch


def measure(context: Context) -> Found:
    """The whole of it: taken over, verified, driven again, ended."""
    rounds = context.few
    sizes = [context.size(size, size // 10) for size in _SIZES]
    batches: dict[str, Batch] = {}
    for steps in sizes:
        batches[str(steps)] = _resuming(*_interrupted(context, steps, rounds + 1))
        batches[str(steps)]()  # modules that only this needs are loaded
    taken = by_turns(batches, rounds)
    found = Found()
    for steps in sizes:
        one = taken[str(steps)]
        found.figures.append(
            Figure(
                row="resume",
                name=f"whole, {steps:,} steps",
                unit="ms",
                measured=one.ms,
                median=one.median * 1e3,
                target=_TARGET_MS if steps == sizes[-1] else None,
            )
        )
    first, last = taken[str(sizes[0])], taken[str(sizes[-1])]
    found.figures.append(
        Figure(
            row="resume",
            name=f"time of a step, {sizes[-1]:,} steps beside {sizes[0]:,}",
            unit="x",
            measured=last.least / first.least / (sizes[-1] / sizes[0]),
            median=last.median / first.median / (sizes[-1] / sizes[0]),
            target=1.5,
        )
    )
    return found
