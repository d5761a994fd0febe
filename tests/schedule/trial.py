"""Records a program some times, replays each recording many times, and counts what went wrong."""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import agentloupe as loupe
from agentloupe.engine.report import ReplayReport
from agentloupe.ports import ambient, codecs
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.sessions import RecordOpener
from tests.schedule.world import World, living_in

__all__ = ["Made", "Trial", "made", "marks_of", "replayed", "tried"]

Program = Callable[[], Any]


@dataclass(frozen=True)
class Made:
    """One recording, and what the program itself saw while it was made."""

    recording: Recording
    trace: Any
    agent: Callable[..., Any]
    box: list[Any]


@dataclass
class Trial:
    """What came of one shape.

    Attributes:
        recordings, replays: how many were made.
        wrong: replays with another verdict than `pass`, or with another trace.
        leaks: how often a replay reached the outside.
        traces: different traces among the recordings.
        marks: by what they are, in the recordings. guessed: replays whose order was not proven.
        said: what the first few wrong replays said.
    """

    name: str
    recordings: int = 0
    replays: int = 0
    wrong: int = 0
    leaks: int = 0
    traces: set[str] = field(default_factory=set)
    marks: dict[str, int] = field(default_factory=dict)
    guessed: int = 0
    record_seconds: float = 0.0
    replay_seconds: float = 0.0
    said: list[str] = field(default_factory=list)


def _as_agent(program: Program, name: str, box: list[Any], outside: bool) -> Callable[..., Any]:
    """The program as an agent that shows its trace; `outside`: an async one is an async agent, else it runs its own loop."""
    if inspect.iscoroutinefunction(program):
        if outside:

            async def asynchronous() -> Any:
                box.append(copy.deepcopy(await program()))
                return box[-1]

            return loupe.agent(name=name)(asynchronous)

        def own_loop() -> Any:
            box.append(asyncio.run(_copied(program())))
            return box[-1]

        return loupe.agent(name=name)(own_loop)

    def synchronous() -> Any:
        box.append(copy.deepcopy(program()))
        return box[-1]

    return loupe.agent(name=name)(synchronous)


async def _copied(trace: Any) -> Any:
    """What was seen up to the end: what a loop cancels when it is closed comes behind."""
    return copy.deepcopy(await trace)


def made(program: Program, seed: int, *, name: str = "shape", outside: bool | None = None) -> Made:
    """One recording. An async program is recorded as an async agent (every other seed), or with a loop of its own."""
    box: list[Any] = []
    agent = _as_agent(program, name, box, seed % 2 == 1 if outside is None else outside)
    store = MemoryStore()
    opener = RecordOpener(store)
    with living_in(World(seed)), ambient.opening_with(opener):
        result = agent()
        if inspect.isawaitable(result):
            asyncio.run(_whole(result))
    recording = store.recording(opener.sessions[-1].run_id)
    return Made(recording, box.pop(), agent, box)


async def _whole(awaitable: Any) -> Any:
    return await awaitable


def replayed(one: Made) -> tuple[ReplayReport, Any, int]:
    """One replay: its report, the trace (`None` when the program did not come to its end), and the leaks."""
    one.box.clear()
    with living_in(World(0, closed=True)) as world:
        report = loupe.replay(one.recording, one.agent)
    return report, one.box.pop() if one.box else None, world.leaks


def marks_of(recording: Recording) -> dict[str, int]:
    """How often a recording says that its order is not proven, by what it says."""
    found: dict[str, int] = {}
    for event in recording.events:
        mark = event.attrs.get("mark") if event.type == "schedule.marked" else None
        if isinstance(mark, str):
            found[mark] = found.get(mark, 0) + 1
    return found


def tried(name: str, program: Program, *, recordings: int, replays: int, first_seed: int = 0) -> Trial:
    """Makes `recordings` of the program and `replays` of each of them."""
    trial = Trial(name)
    for seed in range(first_seed, first_seed + recordings):
        began = time.perf_counter()
        one = made(program, seed, name=name)
        trial.record_seconds += time.perf_counter() - began
        trial.recordings += 1
        trial.traces.add(repr(one.trace))
        for mark, count in marks_of(one.recording).items():
            trial.marks[mark] = trial.marks.get(mark, 0) + count
        for _ in range(replays):
            _replay_once(trial, one)
    return trial


def _replay_once(trial: Trial, one: Made) -> None:
    began = time.perf_counter()
    report, trace, leaks = replayed(one)
    trial.replay_seconds += time.perf_counter() - began
    trial.replays += 1
    trial.leaks += leaks
    trial.guessed += bool(report.unproven)
    if not report.passed or codecs.encode(trace) != codecs.encode(one.trace) or leaks:
        trial.wrong += 1
        if len(trial.said) < 3:
            trial.said.append(f"{report.text()}\nrecorded: {one.trace!r}\nreplayed: {trace!r}")
