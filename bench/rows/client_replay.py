"""Replay through the OpenAI client: the SDK's method, the transport, and vcrpy with the same client."""

from __future__ import annotations

from agentloupe.providers.http import http_transport
from agentloupe.store.sqlite import SqliteStore
from bench import clients
from bench.agents import recorded
from bench.clients import Talk
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.rows.replay import replaying, tape_of
from bench.timing import Batch, Sample, by_turns


def measure(context: Context) -> Found:
    """All of them by turns, with small requests and with growing ones."""
    found = Found()
    store = context.store("clients")
    with clients.server() as url:
        for talk in (clients.short(context.size(100, 4)), clients.growing(context.size(40, 4))):
            taken = by_turns(_batches(context, store, url, talk), context.few)
            _tell(found, talk, taken)
    return found


def _batches(context: Context, store: SqliteStore, url: str, talk: Talk) -> dict[str, Batch]:
    calls = len(talk.requests)
    wrapped, carried = clients.wrapped(url), clients.bare(url, http_transport())
    floor, peer = clients.bare(url, clients.canned()), clients.bare(url)
    cassette = context.path("cassette")
    clients.vcr_recording(cassette, peer, talk, clients.URL)

    def by_method() -> int:
        return talk.by(wrapped)

    def by_transport() -> int:
        return talk.by(carried)

    method, transport = recorded(store, by_method), recorded(store, by_transport)
    return {
        "method": replaying(tape_of(store.recording(method)), by_method, calls, calls),
        "transport": replaying(tape_of(store.recording(transport)), by_transport, calls, calls),
        "floor": lambda: talk.by(floor),
        "vcrpy": lambda: clients.vcr_replaying(cassette, peer, talk, clients.URL),
        "vcrpy+body": lambda: clients.vcr_replaying(cassette, peer, talk, clients.BODY),
    }


def _tell(found: Found, talk: Talk, taken: dict[str, Sample]) -> None:
    small = not found.figures
    peers = (
        Peer("vcrpy (method, uri)", taken["vcrpy"].rate),
        Peer("vcrpy (method, uri, body)", taken["vcrpy+body"].rate),
        Peer("bare SDK, answered at once", taken["floor"].rate),
        Peer("our transport under the SDK", taken["transport"].rate),
    )
    found.figures += [
        Figure(
            row="client_replay",
            name=f"calls a second, SDK method, {talk.name}",
            unit="1/s",
            measured=taken["method"].rate,
            median=1 / taken["method"].median,
            better="more",
            target=5000 if small else None,
            peers=peers,
            note="digests of every request and answer checked; opening the tape or cassette: ours apart, vcrpy's inside",
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
