"""Streams: time to the first chunk with and without recording, beside other recorders, and what each chunk costs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from agentloupe.ports import ambient
from bench import clients
from bench.agents import MODEL, opened
from bench.context import Context
from bench.figures import Figure, Found, Peer, beside
from bench.peers import cassettes, tapes
from bench.timing import Batch, Subject, by_turns

_CHUNKS = 100
_SLOW = 20
_PEERS = {
    "vcrpy": ", which reads to the end first",
    "cassetter": ", which reads to the end first",
    "agent-rewind": ", which keeps the chunks when the stream ends",
    "rewind-agent": ", which does the same",
}
_INTERVAL_MS = 5


def measure(context: Context) -> Found:
    """The first chunk of a stream that comes slowly, then a stream that comes at once."""
    found = Found()
    session = opened(context.store("streams"))
    with clients.server() as url:
        bare, ours, theirs = clients.bare(url), clients.wrapped(url), clients.bare(url)

        def recorded(batch: Batch) -> int:
            with ambient.inside(session.boundary):
                count = batch()
            session.recorder._book.check()  # what was committed goes into the database now, not beside what comes next
            return count

        _first_chunk(context, found, url, bare, ours, theirs, recorded)
        _each_chunk(context, found, bare, ours, recorded)
    session.finished(None)
    return found


def _request(chunks: int, interval_ms: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hello"}]
    return {"model": MODEL, "messages": messages, "stream": True, "max_tokens": chunks, "seed": interval_ms}


def _stream(client: Any, chunks: int, interval_ms: int) -> Any:
    return client.chat.completions.create(**_request(chunks, interval_ms))


def _first_chunk(
    context: Context,
    found: Found,
    url: str,
    bare: Any,
    ours: Any,
    theirs: Any,
    recorded: Callable[[Batch], int],
) -> None:
    waited: defaultdict[str, list[float]] = defaultdict(list)

    def by_peer(name: str) -> Batch | None:
        recorder = cassettes.found(name)
        return None if recorder is None else lambda: recorder.record(context.path("cassette"), once(theirs, name))

    def once(client: Any, name: str) -> Batch:
        def batch() -> int:
            began = time.perf_counter()
            stream = _stream(client, _SLOW, _INTERVAL_MS)
            next(iter(stream))
            waited[name].append((time.perf_counter() - began) * 1e3)
            for _ in stream:
                pass
            return 1

        return batch

    subjects: dict[str, Subject] = {
        "bare": once(bare, "bare"),
        "loupe": lambda: recorded(once(ours, "loupe")),
        **{name: by_peer(name) for name in _PEERS},
        **context.parts(
            (tapes.BARE, tapes.STREAMED),
            "bench.peers.tapes:streams",
            url,
            str(context.path("tapes")),
            _request(_SLOW, _INTERVAL_MS),
            peer=tapes.PEER,
        ),
    }
    taken = by_turns(subjects, context.turns(5))
    least = {name: min(times) for name, times in waited.items()}
    middle = {name: sorted(times)[len(times) // 2] for name, times in waited.items()}
    found.figures.append(
        Figure(
            row="streams",
            name="added to the time to the first chunk",
            unit="ms",
            measured=least["loupe"] - least["bare"],
            median=middle["loupe"] - middle["bare"],
            target=float(_INTERVAL_MS),
            peers=(
                Peer("the first chunk itself, bare SDK", least["bare"]),
                *(
                    beside(f"added by {name}{how}", least, name, lambda ms: ms - least["bare"])
                    for name, how in _PEERS.items()
                ),
                beside(
                    "added by tracefork, which reads to the end first",
                    taken,
                    tapes.STREAMED,
                    lambda one: one.ms - taken[tapes.BARE].ms,
                ),
            ),
            paces=False,
            note=f"{_SLOW} chunks, one every {_INTERVAL_MS} ms; target: one interval; by the wall clock",
        )
    )


def _each_chunk(context: Context, found: Found, bare: Any, ours: Any, recorded: Callable[[Batch], int]) -> None:
    def whole(client: Any) -> Batch:
        def batch() -> int:
            return sum(1 for _ in _stream(client, _CHUNKS, 0))

        return batch

    taken = by_turns({"bare": whole(bare), "loupe": lambda: recorded(whole(ours))}, context.rounds)
    base, with_us = taken["bare"], taken["loupe"]
    found.figures.append(
        Figure(
            row="streams",
            name="added per chunk, stream stored whole",
            unit="us",
            measured=with_us.us - base.us,
            median=(with_us.median - base.median) * 1e6,
            peers=(Peer("a chunk itself, bare SDK on loopback", base.us),),
            note=f"{_CHUNKS} chunks at once; secrets looked for in the joined text, pieces stored, answer put together",
        )
    )
