"""What is committed: events made canonical, digested, chained and folded; and steps beside others that store each."""

from __future__ import annotations

import dataclasses

from agentloupe.engine.project import Projector
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Durability
from agentloupe.ports.scribe import Scribe, Started
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.sessions import RecordSession
from agentloupe.words.event import Draft
from agentloupe.words.trace import TraceContext
from bench.agents import in_full, opened, tool_calls
from bench.context import Context
from bench.figures import Figure, Found, Peer, beside
from bench.rows.machine import committing, syncing
from bench.timing import Batch, by_turns

_GROUP = 250


def _draft(n: int) -> Draft:
    return Draft(
        type="clock.read",
        event_id=ambient.new_event_id(),
        recorded_at=ambient.now(),
        call_id=f"0.{n}",
        trace_id="1" * 32,
        span_id=f"{n:016x}",
        parent_span_id="2" * 16,
        lane="0",
        n=n,
        name="now",
        input_key="3" * 64,
        output_digest=None,
    )


def appending(store: SqliteStore, durability: Durability, group: int, total: int) -> Batch:
    """Appends ready-made drafts to one run, so many at once."""
    writer = store.start(ambient.new_run_id("append"), Projector, owner=this_process())
    scribe = Scribe(TraceContext("1" * 32, "2" * 16))
    begun = scribe.started(Started(agent="append", name="append"), ambient.now())
    writer.append(begun.drafts, begun.bodies)
    numbers = iter(range(10**9))
    template = [_draft(0)] * group

    def batch() -> int:
        for _ in range(total // group):
            drafts = [dataclasses.replace(d, call_id=f"0.{(n := next(numbers))}", n=n) for d in template]
            writer.append(drafts, (), durability)
        writer.flush()  # what was committed is put into the database, which is part of the price
        return total

    return batch


def stepping(session: RecordSession, count: int) -> Batch:
    """Calls of a tool, each recorded and committed before the next: what others call a step."""

    def batch() -> int:
        with ambient.inside(session.boundary):
            return tool_calls(count)

    return batch


def measure(context: Context) -> Found:
    """Grouped events, and single effects beside what the disk allows; then steps beside others that store each."""
    found = Found()
    _events(context, found)
    _steps(context, found)
    return found


def _events(context: Context, found: Found) -> None:
    taken = by_turns(
        {
            "grouped": appending(context.store("grouped"), "commit", _GROUP, context.size(5000, _GROUP)),
            "single": appending(context.store("single"), "full", 1, context.size(100)),
            "fsync": syncing(context, 20),
            "row": committing(context, "FULL", 1, 20),
            "hundred": committing(context, "FULL", 100, 5),
        },
        context.turns(10),
        waits=["single", "fsync", "row"],
    )
    grouped, single, sync = taken["grouped"], taken["single"], taken["fsync"]
    found.figures += [
        Figure(
            row="append",
            name=f"events a second, {_GROUP} a commit",
            unit="1/s",
            measured=grouped.rate,
            median=1 / grouped.median,
            better="more",
            target=15_000,
            peers=(Peer("SQLite rows, 100 a commit, FULL", 100 * taken["hundred"].rate),),
            note="each with its step in the projection",
        ),
        Figure(
            row="append",
            name="single effects a second, as a share of the disk's fsyncs",
            unit="x",
            measured=sync.median / single.median,
            median=sync.median / single.median,
            better="more",
            target=0.5,
            peers=(Peer("SQLite commits of one row, FULL", sync.median / taken["row"].median),),
            note="one event, one commit, durable against loss of power; medians, since the disk is shared too",
        ),
    ]


def _steps(context: Context, found: Found) -> None:
    count = context.size(50, 5)
    committed, full = opened(context.store("committed")), in_full(opened(context.store("full")))
    taken = by_turns(
        {
            "committed": stepping(committed, count),
            "full": stepping(full, count),
            "dbos": context.aside("bench.peers.dbos_steps:steps", str(context.path("dbos")), count),
            "saver": context.aside("bench.peers.saver:steps", str(context.path("saver")), count),
        },
        context.rounds,
        waits=["committed", "full", "dbos", "saver"],
    )
    for session in (committed, full):
        session.finished(None)
    peers = (
        beside("DBOS, steps of a workflow, FULL", taken, "dbos", lambda one: one.rate),
        beside("LangGraph's SqliteSaver, a task's writes and a checkpoint, FULL", taken, "saver", lambda one: one.rate),
    )
    for key, what in (("full", "each survives a loss of power"), ("committed", "each survives SIGKILL")):
        one = taken[key]
        found.figures.append(
            Figure(
                row="append",
                name=f"steps a second, calls of a recorded tool, {what}",
                unit="1/s",
                measured=one.rate,
                median=1 / one.median,
                better="more",
                peers=peers if key == "full" else (),
                paces=False,
                note="by the wall clock; DBOS and the saver commit with SQLite's FULL, which is their default"
                if key == "full"
                else "",
            )
        )
