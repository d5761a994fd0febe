"""Whether what lists and `show` are read from, the index of a store, says what the run's sealed events say.

Nothing signs or links the index: it can be made anew from the events at any time, so it proves nothing, and whoever can
write to the database can make it say something else. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from agentloupe.engine.project import project
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.words.run import Run
from agentloupe.words.step import Step

__all__ = ["index_differences"]

_KEPT_ELSEWHERE = frozenset({"events", "head", "owner", "elsewhere", "tags"})
"""Fields of a run that are no part of its index, or that people set by hand."""
_GOES_ON = frozenset({"running", "interrupted"})
"""What a run without an end is called depends on who looks at it."""


def index_differences(store: Store, recording: Recording) -> tuple[str, ...]:
    """What the index says otherwise than the events of a run, one line each; none of a run that was written to meanwhile.

    Raises:
        Damaged: the index cannot even be read.
    """
    events = recording.events
    if not events:
        return ()
    steps = store.steps(recording.run_id)
    run = store.run(recording.run_id)
    if run is not None and run.head != events[-1].hash:
        return ()
    told = project(events)
    said = {step.idx: step for step in told.steps} if not told.run.erased else {}
    return (*_of_run(run, told.run), *_of_steps({step.idx: step for step in steps}, said))


def _of_run(run: Run | None, told: Run) -> Iterator[str]:
    if run is None:
        yield "run: is in no list"
        return
    passed_over = {"status"} if {run.status, told.status} <= _GOES_ON else set[str]()
    names = [field.name for field in fields(Run) if field.name not in _KEPT_ELSEWHERE | passed_over]
    differ = [name for name in names if getattr(run, name) != getattr(told, name)]
    if differ:
        yield f"run: {', '.join(differ)} differ"


def _of_steps(steps: Mapping[int, Step], told: Mapping[int, Step]) -> Iterator[str]:
    for idx in sorted({*steps, *told}):
        one, other = steps.get(idx), told.get(idx)
        if one is None:
            yield f"step {idx}: is missing"
        elif other is None:
            yield f"step {idx}: has no events"
        elif one != other:
            names = [field.name for field in fields(Step) if getattr(one, field.name) != getattr(other, field.name)]
            yield f"step {idx}: {', '.join(names)} differ"
