"""What recording adds to a model call: alone, and through the OpenAI client beside other recorders."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from agentloupe.ports import ambient
from agentloupe.verbs.sessions import RecordSession
from bench import clients
from bench.agents import answer, ask, conversations, in_full, opened
from bench.clients import Talk
from bench.context import Context
from bench.figures import Figure, Found, Peer, beside
from bench.peers import cassettes, tapes
from bench.rows.machine import syncing
from bench.timing import Batch, Sample, Subject, by_turns

_TARGET_MS = 0.20
_BATCH = 40
_WITH_FSYNC = 20
_PACED = 1_000
_PAUSE_S = 0.001


def _asked(count: int, series: Iterator[int]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Requests with their answers, never the same twice."""
    seed = 1000 * next(series)
    return [(request, answer(512, seed + i)) for i, request in enumerate(conversations(count, seed=seed))]


_Stock = Iterator[list[tuple[dict[str, Any], dict[str, Any]]]]
"""Requests with their answers for each batch: made before anything is timed, and asked once."""


def _stock(batches: int, count: int) -> _Stock:
    series = iter(range(10**9))
    return iter([_asked(count, series) for _ in range(batches)])


def _engine(session: RecordSession, stock: _Stock, *, settled: bool = True) -> Batch:
    """Model calls that take no time themselves, so what they take is what recording adds; with their settlement, or without."""

    def batch() -> int:
        asked = next(stock)
        with ambient.inside(session.boundary):
            for request, response in asked:
                ask(request, response)
        if settled:
            session.recorder._book.check()  # what was committed is put into the database, which is part of the price
        return len(asked)

    return batch


def _settling(session: RecordSession) -> Batch:
    """What a batch has left to be put into the database, so that it is not put to another's account."""

    def batch() -> int:
        session.recorder._book.check()
        return 1

    return batch


def _bare(stock: _Stock) -> Batch:
    """The same calls without a recording."""

    def batch() -> int:
        asked = next(stock)
        for request, response in asked:
            ask(request, response)
        return len(asked)

    return batch


def measure(context: Context) -> Found:
    """Engine alone, by itself and in a program that waits between its calls, then through the client."""
    found = Found()
    _alone(context, found)
    _paced(context, found)
    _through_the_client(context, found)
    return found


def _alone(context: Context, found: Found) -> None:
    committed, full = opened(context.store("committed")), in_full(opened(context.store("full")))
    count, turns = context.size(_BATCH, 4), context.turns(10)
    asked = _stock(2 * turns, count)  # one session asks nothing twice: what it has stored already would cost less
    taken = by_turns(
        {
            "committed": _engine(committed, asked),
            "own thread": _engine(committed, asked, settled=False),
            "settled": _settling(committed),
            "own floor": _bare(_stock(turns, count)),
            "full": _engine(full, _stock(turns, _WITH_FSYNC), settled=False),
            "full settled": _settling(full),
            "floor": _bare(_stock(turns, count)),
            "full floor": _bare(_stock(turns, _WITH_FSYNC)),
            "fsync": syncing(context, _WITH_FSYNC),
        },
        turns,
        waits=["full", "full floor", "fsync"],
        alone=["own thread", "own floor"],
    )
    sync = taken["fsync"]
    for session in (committed, full):
        session.finished(None)
    waited = taken["full floor"]
    for subject, floor, name, target, note in (
        (
            "own thread",
            "own floor",
            "added per call, engine alone, in the program's own thread, committed",
            _TARGET_MS,
            "what the call waits for; 1 KB of new text in a conversation of up to 20 KB; survives SIGKILL",
        ),
        (
            "committed",
            "floor",
            "added per call, engine alone, with its settlement",
            None,
            "the same and what puts it into the database, which another thread does beside the program; all processor time",
        ),
    ):
        found.figures.append(
            Figure(
                row="recording",
                name=name,
                unit="ms",
                measured=taken[subject].ms - taken[floor].ms,
                median=(taken[subject].median - taken[floor].median) * 1e3,
                target=target,
                note=note,
            )
        )
    found.figures.append(
        Figure(
            row="recording",
            name="added per call, engine alone, FULL",
            unit="ms",
            measured=(taken["full"].median - waited.median) * 1e3,
            median=(taken["full"].median - waited.median) * 1e3,
            target=sync.median * 1e3 + _TARGET_MS,
            peers=(Peer("fsync of this disk", sync.median * 1e3),),
            paces=False,
            note="target: one fsync + 0.2 ms; what the call waits for; survives loss of power; medians, since the disk is shared too",
        )
    )


def _paced(context: Context, found: Found) -> None:
    """Calls with a pause between them, by the wall clock: every 50 ms some of them are settled beside the program."""
    session = opened(context.store("paced"))
    took: list[float] = []
    with ambient.inside(session.boundary):
        for request, response in _asked(context.size(_PACED, 50), iter(range(10**9))):
            began = time.perf_counter()
            ask(request, response)
            took.append(time.perf_counter() - began)
            time.sleep(_PAUSE_S)
    session.finished(None)
    took.sort()
    found.figures.append(
        Figure(
            row="recording",
            name="a call in a program that waits 1 ms between calls, the slowest but one in a hundred",
            unit="ms",
            measured=took[len(took) * 99 // 100] * 1e3,
            peers=(Peer("the mean", sum(took) / len(took) * 1e3), Peer("the median", took[len(took) // 2] * 1e3)),
            note="by the wall clock: what the program waits for, settlements of earlier calls included",
        )
    )


def _through_the_client(context: Context, found: Found) -> None:
    session = opened(context.store("client"))
    count = context.size(_BATCH, 4)
    with clients.server() as url:
        for kind in (clients.short, clients.growing):
            subjects = _subjects(context, session, kind, url, count)
            _told(found, kind(1).name, by_turns(subjects, context.rounds))
    session.finished(None)


def _subjects(
    context: Context, session: RecordSession, kind: Callable[..., Talk], url: str, count: int
) -> dict[str, Subject]:
    bare, ours, theirs = clients.bare(url), clients.wrapped(url), clients.bare(url)
    series = iter(range(1000, 10**9, 1000))

    def recorded() -> int:
        talk = kind(count, next(series))
        with ambient.inside(session.boundary):
            asked = talk.by(ours)
        session.recorder._book.check()
        return asked

    def by_peer(name: str) -> Batch | None:
        recorder = cassettes.found(name)
        if recorder is None:
            return None
        return lambda: recorder.record(context.path("cassette"), lambda: kind(count, next(series)).by(theirs))

    asked, folder = context.written("requests", kind(count).requests), str(context.path("tapes"))
    return {
        "bare": lambda: kind(count, next(series)).by(bare),
        "loupe": recorded,
        **{name: by_peer(name) for name in cassettes.LABELS},
        **context.parts((tapes.BARE, *tapes.KEEPING), "bench.peers.tapes:calls", url, folder, asked, peer=tapes.PEER),
    }


def _told(found: Found, name: str, taken: dict[str, Sample]) -> None:
    base = taken["bare"]
    peers = [beside(label, taken, key, lambda one: one.ms - base.ms) for key, label in cassettes.LABELS.items()]
    peers += [
        beside(label, taken, key, lambda one: one.ms - taken[tapes.BARE].ms) for key, label in tapes.KEEPING.items()
    ]
    found.figures.append(
        Figure(
            row="recording",
            name=f"added per call, through the OpenAI client, {name}, committed",
            unit="ms",
            measured=taken["loupe"].ms - base.ms,
            median=(taken["loupe"].median - base.median) * 1e3,
            target=_TARGET_MS,
            peers=(
                *peers,
                Peer("the call itself, bare SDK on loopback", base.ms),
                beside("the call itself in the Python of tracefork", taken, tapes.BARE, lambda one: one.ms),
            ),
            note="vcrpy, cassetter and tracefork write their file once, at the end; agent-rewind writes a line a call, "
            "rewind-agent two files and two commits that wait for the disk (which is not in the processor time), and tracefork's "
            "checkpoint commits each; none takes secrets out of texts by itself, shares parts of bodies or chains what it keeps; "
            "tracefork is held against the bare SDK in its own, newer Python",
        )
    )
