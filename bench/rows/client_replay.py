"""Replay through the OpenAI client: the SDK's method, the transport, and other recorders with the same client."""

from __future__ import annotations

from agentloupe.providers.http import http_transport
from agentloupe.store.sqlite import SqliteStore
from bench import clients
from bench.agents import recorded
from bench.clients import Talk
from bench.context import Context
from bench.figures import Figure, Found, Peer, beside
from bench.peers import cassettes, tapes
from bench.rows.replay import replaying, tape_of
from bench.timing import Batch, Sample, Subject, by_turns


def measure(context: Context) -> Found:
    """All of them by turns, with small requests and with growing ones."""
    found = Found()
    store = context.store("clients")
    with clients.server() as url:
        for talk in (clients.short(context.size(100, 4)), clients.growing(context.size(40, 4))):
            taken = by_turns(_batches(context, store, url, talk), context.few)
            _tell(found, talk, taken)
    return found


def _batches(context: Context, store: SqliteStore, url: str, talk: Talk) -> dict[str, Subject]:
    calls = len(talk.requests)
    wrapped, carried = clients.wrapped(url), clients.bare(url, http_transport())
    floor, client = clients.bare(url, clients.canned()), clients.bare(url)

    def by_method() -> int:
        return talk.by(wrapped)

    def by_transport() -> int:
        return talk.by(carried)

    def answered_by(name: str) -> Batch | None:
        recorder, path = cassettes.found(name), context.path("cassette")
        if recorder is None:
            return None
        recorder.record(path, lambda: talk.by(client))
        return lambda: recorder.replay(path, lambda: talk.by(client))

    method, transport = recorded(store, by_method), recorded(store, by_transport)
    asked, folder = context.written("requests", talk.requests), str(context.path("tapes"))
    return {
        "method": replaying(tape_of(store.recording(method)), by_method, calls, calls),
        "transport": replaying(tape_of(store.recording(transport)), by_transport, calls, calls),
        "floor": lambda: talk.by(floor),
        **{name: answered_by(name) for name in cassettes.LABELS},
        **context.parts((tapes.CANNED, tapes.REPLAYED), "bench.peers.tapes:calls", url, folder, asked, peer=tapes.PEER),
    }


def _tell(found: Found, talk: Talk, taken: dict[str, Sample]) -> None:
    small = not found.figures
    peers = [beside(label, taken, name, lambda one: one.rate) for name, label in cassettes.LABELS.items()]
    there = beside("bare SDK in the Python of tracefork, answered at once", taken, tapes.CANNED, lambda one: one.rate)
    peers.append(beside("tracefork (body)", taken, tapes.REPLAYED, lambda one: one.rate))
    found.figures += [
        Figure(
            row="client_replay",
            name=f"calls a second, SDK method, {talk.name}",
            unit="1/s",
            measured=taken["method"].rate,
            median=1 / taken["method"].median,
            better="more",
            target=5000 if small else None,
            peers=(
                *peers,
                Peer("bare SDK, answered at once", taken["floor"].rate),
                there,
                Peer("our transport under the SDK", taken["transport"].rate),
            ),
            note="digests of every request and answer checked; agent-rewind and tracefork compare a digest of each request, "
            "rewind-agent nothing, and none of them looks at answers; opening is inside for the others, apart for us",
        ),
        Figure(
            row="client_replay",
            name=f"transport, as a share of the bare SDK's own speed, {talk.name}",
            unit="x",
            measured=taken["transport"].rate / taken["floor"].rate,
            median=taken["floor"].median / taken["transport"].median,
            better="more",
            target=0.9,
            note="the bare SDK is answered by a transport that does nothing",
        ),
    ]
