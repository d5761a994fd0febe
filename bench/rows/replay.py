"""Replay with the engine alone: calls with plain values, served from the tape with their digests checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentloupe.engine.tape import Tape
from agentloupe.ports.recording import Recording
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed
from bench.agents import plain_calls, recorded, tool_calls
from bench.context import Context
from bench.figures import Figure, Found, Peer, beside
from bench.peers.temporal import EVENTS_A_CALL
from bench.timing import Batch, Sample, Subject, by_turns

SIZES = (100, 1000, 10_000)
_AS_PEERS = 1000
_ACTIVITIES = 300
_TARGET = 30_000
_FLAT = 1.5


def tape_of(recording: Recording) -> Tape:
    """The tape of a recording that is whole."""
    tape = open_tape(recording)
    assert isinstance(tape, Tape), "what was just recorded is whole"
    return tape


def replaying(tape: Tape, agent: Callable[..., object], calls: int, least: int = 1000) -> Batch:
    """Replays a tape of so many calls; a short one several times, so that a batch is no shorter than others."""
    again = max(1, least // calls)
    started = as_agent(agent)

    def batch() -> int:
        for _ in range(again):
            report = run_replayed(tape, started, Wishes())
            assert report.passed, report.text()
        return again * calls

    return batch


def _peers(context: Context) -> dict[str, Subject]:
    calls = context.size(_ACTIVITIES, 20)
    return {
        "sandbox": context.aside("bench.peers.temporal:replaying", calls, True),
        "no sandbox": context.aside("bench.peers.temporal:replaying", calls, False),
    }


def _beside(taken: Mapping[str, Sample]) -> list[Peer]:
    found: list[Peer] = []
    for key, how in (("sandbox", ""), ("no sandbox", ", without its sandbox")):
        found += [
            beside(f"Temporal's Replayer{how}, activities a second", taken, key, lambda one: one.rate),
            beside(f"Temporal's Replayer{how}, events a second", taken, key, lambda one: one.rate * EVENTS_A_CALL),
        ]
    return found


def measure(context: Context) -> Found:
    """Calls a second at three sizes, and how flat that is."""
    found = Found()
    store = context.store("replay")
    sizes = SIZES if context.scale >= 1 else SIZES[:2]
    batches = _peers(context)
    for size in sizes:
        run = recorded(store, plain_calls, size)
        batches[f"plain {size}"] = replaying(tape_of(store.recording(run)), plain_calls, size, context.size(1000, 100))
    run = recorded(store, tool_calls, sizes[-1])
    tools = store.recording(run)
    batches["tool"] = replaying(tape_of(tools), tool_calls, sizes[-1])

    def opening() -> int:
        tape_of(store.recording(run))
        return len(tools.events)

    taken = by_turns({**batches, "opening": opening}, context.rounds)
    found.figures += [
        _plain(size, taken[f"plain {size}"], _beside(taken) if size == _AS_PEERS else ()) for size in sizes
    ]
    first, last = taken[f"plain {sizes[0]}"], taken[f"plain {sizes[-1]}"]
    found.figures.append(
        Figure(
            row="replay",
            name=f"time of a call, {sizes[-1]:,} calls beside {sizes[0]:,}",
            unit="x",
            measured=last.least / first.least,
            median=last.median / first.median,
            target=_FLAT,
        )
    )
    for key, name, note in (
        ("tool", f"calls a second, decorated tool, {sizes[-1]:,} calls", "with binding and encoding of the arguments"),
        ("opening", "events a second while opening: read, verified, put together", ""),
    ):
        one = taken[key]
        found.figures.append(
            Figure(
                row="replay",
                name=name,
                unit="1/s",
                measured=one.rate,
                median=1 / one.median,
                better="more",
                note=note,
            )
        )
    return found


def _plain(size: int, one: Sample, peers: Sequence[Peer]) -> Figure:
    beside_peers = "each with its digest checked; Temporal compares no arguments, has six events for an activity, and was given 300 of them: more are slower"
    return Figure(
        row="replay",
        name=f"calls a second, plain values, {size:,} calls",
        unit="1/s",
        measured=one.rate,
        median=1 / one.median,
        better="more",
        target=_TARGET,
        peers=peers,
        note=beside_peers if peers else "",
    )
