"""A loopback server that plays bytes as a stream, in any cuts, and clients whose transport is the recorded one."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import agentloupe as loupe
from agentloupe.ports.streams import pieces_of
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve


class Player:
    """Answers every request with the same parts; where `hold` is set, those after part `after` wait for it."""

    def __init__(self, parts: list[bytes], kind: str = "text/event-stream") -> None:
        self.url = ""
        self.parts = parts
        self.headers = {"content-type": kind}
        self.hold: threading.Event | None = None
        self.after = 1
        self.asked = 0

    def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked += 1
        return HttpReply(200, self._body(), self.headers)

    def _body(self) -> Iterator[bytes]:
        for n, part in enumerate(self.parts):
            if n == self.after and self.hold is not None:
                assert self.hold.wait(30)
            yield part


@contextmanager
def playing(parts: list[bytes], kind: str = "text/event-stream") -> Generator[Player]:
    """Serves a player while inside; its `url` is that of the server."""
    player = Player(parts, kind)
    with serve(player) as running:
        player.url = running.url
        try:
            yield player
        finally:
            if player.hold is not None:
                player.hold.set()


def http_client(library: str, *, asynchronous: bool) -> Any:
    """A client of `httpx` or `httpx2` with the recorded transport."""
    module = importlib.import_module(library)
    if asynchronous:
        return module.AsyncClient(transport=loupe.http_transport(module.AsyncHTTPTransport(verify=False)))
    return module.Client(transport=loupe.http_transport(module.HTTPTransport(verify=False)))


def model_step(run_id: str) -> Any:
    """The one model step of a run."""
    (step,) = [s for s in loupe.open_store().steps(run_id) if s.kind == "llm"]
    return step


def answer_of(run_id: str) -> Any:
    """The whole answer that is stored of the one model step."""
    return loupe.open_store().recording(run_id).body(model_step(run_id).output_digest)


def stored_bytes(run_id: str) -> bytes:
    """The bytes of a run's stream, as they are stored."""
    recording = loupe.open_store().recording(run_id)
    batches: list[Any] = [recording.body(e.bodies["pieces"]) for e in recording.events if "pieces" in e.bodies]
    return b"".join(data for batch in batches for _, data in pieces_of(batch))
