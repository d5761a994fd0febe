"""The two sides of the boundary without a store, and a model on this machine, for tests of model clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import openai

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Perform, Serve
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json


@dataclass
class Kept:
    """One call as a recorder sees it."""

    call: Call
    output: Json = None
    facts: dict[str, Json] = field(default_factory=dict)
    error: BaseException | None = None


class Keeping:
    """Performs every call and keeps it."""

    def __init__(self) -> None:
        self.calls: list[Kept] = []

    def decide(self, call: Call) -> Perform:
        self.calls.append(Kept(call))
        return Perform(token=self.calls[-1])

    def finished(self, perform: Perform, value: object) -> object:
        kept = perform.token
        assert isinstance(kept, Kept)
        kept.output = json.loads(json.dumps(kept.call.encode(value)))
        kept.facts = {**kept.call.facts(kept.output), **perform.facts}
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        kept = perform.token
        assert isinstance(kept, Kept)
        kept.facts, kept.error = dict(perform.facts), error


class Serving:
    """Answers every call with the next kept one, which must have asked the same."""

    def __init__(self, kept: list[Kept]) -> None:
        self.left = list(kept)

    def decide(self, call: Call) -> Serve:
        kept = self.left.pop(0)
        assert (kept.call.kind, kept.call.name, kept.call.input) == (call.kind, call.name, call.input)
        if kept.error is not None:
            return Serve(error=kept.error)
        return Serve(call.complete(call.decode(kept.output), kept.facts))

    def finished(self, perform: Perform, value: object) -> object:
        raise AssertionError("nothing is performed here")

    def failed(self, perform: Perform, error: BaseException) -> None:
        raise AssertionError("nothing is performed here")


def recorded(use: Callable[[], Any]) -> tuple[Any, list[Kept]]:
    """What a program gets while it is recorded, and its calls."""
    keeping = Keeping()
    with ambient.inside(keeping):
        result = use()
    return result, keeping.calls


def replayed(kept: list[Kept], use: Callable[[], Any]) -> Any:
    """What it gets when those calls are answered."""
    with ambient.inside(Serving(kept)):
        return use()


class Model:
    """Answers with the replies it was given, the last one again and again; keeps what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replies: list[HttpReply] = []
        self.seen: list[HttpRequest] = []
        self.open: list[Any] = []

    def client(self, kind: type[Any] = openai.OpenAI, **options: Any) -> Any:
        """A client of this model, closed at the end of the test."""
        made = self.made(kind, **{"http_client": openai.DefaultHttpxClient(verify=False), **options})
        self.open.append(made)
        return made

    def made(self, kind: type[Any], **options: Any) -> Any:
        """A client of this model, to be closed by the test."""
        return kind(**{"api_key": "sk-test", "base_url": self.url, "max_retries": 0, **options})

    def will_say(self, *replies: HttpReply) -> None:
        """The next replies."""
        self.replies[:] = replies

    def bodies(self) -> list[Any]:
        """The requests that came, parsed."""
        return [json.loads(request.body) for request in self.seen]


@contextmanager
def serving_model(*replies: HttpReply) -> Generator[Model]:
    """A model that listens; its base URL ends in `/v1`."""
    made: list[Model] = []

    def app(request: HttpRequest) -> HttpReply:
        made[0].seen.append(request)
        left = made[0].replies
        return left.pop(0) if len(left) > 1 else left[0]

    with serve(app) as server:
        made.append(Model(f"{server.url}/v1"))
        made[0].will_say(*replies)
        yield made[0]
        for client in made[0].open:
            client.close()
