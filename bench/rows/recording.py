"""What recording adds to a model call: alone, and through the OpenAI client beside vcrpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Durability, RunWriter
from agentloupe.verbs.sessions import RecordSession
from agentloupe.words.event import Head
from bench import clients
from bench.agents import answer, ask, conversations, opened
from bench.clients import Talk
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.rows.machine import syncing
from bench.timing import Batch, Sample, by_turns

_TARGET_MS = 0.20
_BATCH = 40
_WITH_FSYNC = 20


class _Full:
    """A writer that makes every commit survive a loss of power."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer

        self.run_id = writer.run_id
        self.owner = writer.owner
        self.remind = writer.remind
        self.flush = writer.flush
        self.close = writer.close

    @property
    def head(self) -> Head:
        return self._writer.head

    def append(self, drafts: Any, bodies: Any = (), durability: Durability = "commit") -> None:
        self._writer.append(drafts, bodies, "full" if durability == "commit" else durability)


def _asked(count: int, series: Iterator[int]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Requests with their answers, never the same twice."""
    seed = 1000 * next(series)
    return [(request, answer(512, seed + i)) for i, request in enumerate(conversations(count, seed=seed))]


def _engine(session: RecordSession, count: int) -> Batch:
    """Model calls that take no time themselves, so what they take is what recording adds."""
    series = iter(range(10**9))

    def batch() -> int:
        asked = _asked(count, series)
        with ambient.inside(session.boundary):
            for request, response in asked:
                ask(request, response)
        session.recorder._book.check()  # what was committed is put into the database, which is part of the price
        return count

    return batch


def _making(count: int) -> Batch:
    """What making the requests takes, which is not recording."""
    series = iter(range(10**9))

    def batch() -> int:
        for request, response in _asked(count, series):
            ask(request, response)
        return count

    return batch


def measure(context: Context) -> Found:
    """Engine alone, then through the client."""
    found = Found()
    _alone(context, found)
    _through_the_client(context, found)
    return found


def _alone(context: Context, found: Found) -> None:
    committed, full = opened(context.store("committed")), opened(context.store("full"))
    book = full.recorder._book  # the one place where durability can be raised for a measurement
    book.writer = _Full(book.writer)
    count = context.size(_BATCH, 4)
    taken = by_turns(
        {
            "committed": _engine(committed, count),
            "full": _engine(full, _WITH_FSYNC),
            "floor": _making(count),
            "full floor": _making(_WITH_FSYNC),
            "fsync": syncing(context, _WITH_FSYNC),
        },
        context.turns(10),
        waits=["full", "full floor", "fsync"],
    )
    sync = taken["fsync"]
    for session in (committed, full):
        session.finished(None)
    floor, waited = taken["floor"], taken["full floor"]
    added = taken["committed"].ms - floor.ms
    found.figures.append(
        Figure(
            row="recording",
            name="added per call, engine alone, committed",
            unit="ms",
            measured=added,
            median=(taken["committed"].median - floor.median) * 1e3,
            target=_TARGET_MS,
            note="1 KB of new text in a conversation of up to 20 KB; survives SIGKILL",
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
            note="target: one fsync + 0.2 ms; survives loss of power; medians, since the disk is shared too",
        )
    )


def _through_the_client(context: Context, found: Found) -> None:
    session = opened(context.store("client"))
    count = context.size(_BATCH, 4)
    with clients.server() as url:
        for kind in (clients.short, clients.growing):
            bare, ours, theirs = clients.bare(url), clients.wrapped(url), clients.bare(url)
            series = iter(range(1000, 10**9, 1000))

            def recorded(kind: Callable[..., Talk] = kind, ours: Any = ours, series: Iterator[int] = series) -> int:
                talk = kind(count, next(series))
                with ambient.inside(session.boundary):
                    asked = talk.by(ours)
                session.recorder._book.check()
                return asked

            batches: dict[str, Batch] = {
                "bare": lambda kind=kind, bare=bare, series=series: kind(count, next(series)).by(bare),
                "loupe": recorded,
            }
            for name, match in (("vcrpy", clients.URL), ("vcrpy+body", clients.BODY)):
                batches[name] = lambda kind=kind, theirs=theirs, series=series, match=match: clients.vcr_recording(
                    context.path("cassette"), theirs, kind(count, next(series)), match
                )
            _told(found, kind(1).name, by_turns(batches, context.rounds))
    session.finished(None)


def _told(found: Found, name: str, taken: dict[str, Sample]) -> None:
    base = taken["bare"]
    found.figures.append(
        Figure(
            row="recording",
            name=f"added per call, through the OpenAI client, {name}, committed",
            unit="ms",
            measured=taken["loupe"].ms - base.ms,
            median=(taken["loupe"].median - base.median) * 1e3,
            target=_TARGET_MS,
            peers=(
                Peer("vcrpy (method, uri)", taken["vcrpy"].ms - base.ms),
                Peer("vcrpy (method, uri, body)", taken["vcrpy+body"].ms - base.ms),
                Peer("the call itself, bare SDK on loopback", base.ms),
            ),
            note="vcrpy writes its file once, at the end: nothing is kept of a process that is killed",
        )
    )
