"""Real exchanges through the real SDKs: what a program gets bare, recorded and replayed is equal, field by field.

A server on this machine plays what providers sent, streams in odd cuts; the clients send what was sent then.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import anthropic
import openai
import pytest

import agentloupe as loupe
from agentloupe.ports.streams import pieces_of
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.replaying import replay
from tests.cassettes import Exchange, cassettes, exchanges_of
from tests.real_streams import in_odd_cuts
from tests.support import SHARED

DATA = SHARED / "data"
FILES = cassettes(DATA)
SSE = sorted(DATA.glob("sse_vercel/*.chunks.txt"))
FAILURES = (openai.APIError, anthropic.APIError, ValueError)  # one of the streams holds lines that are no JSON
SYNC_AND_ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


# --- the server -------------------------------------------------------------------------------------------------------


class Player:
    """Plays exchanges in order, again and again; keeps what it was asked."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self.url = ""
        self.exchanges = exchanges
        self.asked: list[Any] = []

    def __call__(self, request: HttpRequest) -> HttpReply:
        one = self.exchanges[len(self.asked) % len(self.exchanges)]
        self.asked.append(json.loads(request.body))
        streamed = "event-stream" in one.headers.get("content-type", "")
        return HttpReply(one.status, in_odd_cuts(one.body) if streamed else one.body, one.headers)


@pytest.fixture
def play(workdir: Path) -> Iterator[Callable[[list[Exchange]], Player]]:
    player = Player([])
    with serve(player) as server:

        def start(exchanges: list[Exchange]) -> Player:
            player.exchanges = exchanges
            player.url = server.url
            return player

        yield start


# --- the program ------------------------------------------------------------------------------------------------------


def told(value: Any) -> Any:
    """Everything of an object of an SDK, with its types, as JSON."""
    if hasattr(value, "model_fields_set"):
        inside = {name: told(inner) for name, inner in {**vars(value), **(value.model_extra or {})}.items()}
        ids = [getattr(value, name, None) for name in ("_request_id", "_workspace_id")]
        return {"type": type(value).__qualname__, "set": sorted(value.model_fields_set), "has": inside, "ids": ids}
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    if isinstance(value, dict):
        return {name: told(inner) for name, inner in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else repr(type(value))


def failed(error: Any) -> Any:
    """Everything of an error of an SDK."""
    response = getattr(error, "response", None)
    about = [
        type(error).__qualname__,
        str(error),
        told(getattr(error, "body", None)),
        getattr(error, "request_id", None),
    ]
    return [*about, None if response is None else [response.status_code, response.text]]


def _method(client: Any, one: Exchange) -> Any:
    if one.path.endswith("/chat/completions"):
        return client.chat.completions.create
    if one.path.endswith("/messages"):
        return client.beta.messages.create if one.betas else client.messages.create
    return client.responses.compact if one.path.endswith("/compact") else client.responses.create


def _ask(client: Any, one: Exchange) -> Any:
    """Sends the request that was sent: what the SDK has no name for goes by `extra_body`."""
    method = _method(client, one)
    known = inspect.signature(method).parameters
    named = {name: value for name, value in one.asked.items() if name in known}
    rest = {name: value for name, value in one.asked.items() if name not in known}
    headers = {"extra_headers": {"anthropic-beta": one.betas}} if one.betas else {}
    return method(**named, **headers, timeout=20, extra_body=rest or None)


def _tools(exchanges: list[Exchange]) -> set[str]:
    """Names of all tools that models may ask for here."""
    text = json.dumps([one.asked for one in exchanges]) + "".join(
        one.content.decode("utf-8", "replace") for one in exchanges
    )
    names = [part.split('"')[1] for part in text.replace('": "', '":"').split('"name":')[1:] if part.startswith('"')]
    return {name for name in names if name.isprintable() and name}


def agent_of(player: Player, asynchronous: bool, *, bare: bool = False) -> Any:
    """A program that sends all requests and returns all that it saw."""
    for name in () if bare else _tools(player.exchanges):
        loupe.tool(effect="pure", name=name)(_nothing)

    def worker() -> Any:
        seen: list[Any] = _look(player, bare)
        for one in player.exchanges:
            with _client(player, one, "", bare) as client:
                try:
                    answer = _ask(client, one)
                    seen.append(_each(answer) if one.asked.get("stream") else told(answer))
                except FAILURES as error:
                    seen.append(failed(error))
        return seen

    async def later() -> Any:
        seen: list[Any] = _look(player, bare)
        for one in player.exchanges:
            async with _client(player, one, "Async", bare) as client:
                try:
                    answer = await _ask(client, one)
                    seen.append(await _aeach(answer) if one.asked.get("stream") else told(answer))
                except FAILURES as error:
                    seen.append(failed(error))
        return seen

    return later if asynchronous else worker


def _nothing() -> None:
    """Stands for the tools of those programs."""


def _look(player: Player, bare: bool) -> list[Any]:
    if not bare:
        for name in sorted(_tools(player.exchanges)):
            loupe.tool(effect="pure", name=name)(_nothing)()
    return []


def _each(stream: Any) -> list[Any]:
    seen: list[Any] = []
    try:
        seen.extend(told(item) for item in stream)
    except FAILURES as error:
        seen.append(failed(error))
    return seen


async def _aeach(stream: Any) -> list[Any]:
    seen: list[Any] = []
    try:
        async for item in stream:
            seen.append(told(item))
    except FAILURES as error:
        seen.append(failed(error))
    return seen


def _client(player: Player, one: Exchange, kind: str, bare: bool) -> Any:
    module: Any = anthropic if one.path.endswith("/messages") else openai
    name = f"{kind}Anthropic" if module is anthropic else f"{kind}OpenAI"
    base = player.url if module is anthropic else f"{player.url}/v1"
    http = getattr(module, f"Default{kind}HttpxClient")(verify=False)
    made = getattr(module, name)(api_key="k", base_url=base, max_retries=0, http_client=http)
    return made if bare else loupe.wrap(made)


# --- the tests --------------------------------------------------------------------------------------------------------


def _compare(player: Player, asynchronous: bool) -> None:
    bare_agent = agent_of(player, asynchronous, bare=True)
    bare = asyncio.run(bare_agent()) if asynchronous else bare_agent()
    count = len(player.exchanges)
    agent = agent_of(player, asynchronous)
    done = loupe.record(agent)
    assert done.result == bare
    assert player.asked[count:] == player.asked[:count] == [one.asked for one in player.exchanges]
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert len(player.asked) == 2 * count
    _check_stored(done.run_id, player.exchanges)


def _check_stored(run_id: str, exchanges: list[Exchange]) -> None:
    """The requests as they were sent, the pieces as they came, the tokens as they were told."""
    recording = loupe.open_store().recording(run_id)
    asked = [event for event in recording.events if event.type == "model.requested"]
    assert [recording.body(cast("str", event.input_digest)) for event in asked] == [one.asked for one in exchanges]
    for event, one in zip(asked, exchanges, strict=True):
        mine = [e for e in recording.events if e.call_id == event.call_id]
        batches = [recording.body(e.bodies["pieces"]) for e in mine if e.type == "model.streamed"]
        ended = mine[-1].attrs
        if batches and ended["stream"] == "complete" and not ended.get("closed"):
            assert b"".join(data for batch in batches for _, data in pieces_of(batch)) == one.content
        if one.status == 200 and ended.get("stream", "complete") == "complete" and b'"output_tokens"' in one.content:
            assert isinstance(ended["output_tokens"], int)


@SYNC_AND_ASYNC
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_real_exchanges(play: Callable[[list[Exchange]], Player], path: Path, asynchronous: bool) -> None:
    _compare(play(exchanges_of(path)), asynchronous)


@SYNC_AND_ASYNC
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
@pytest.mark.parametrize("path", SSE, ids=lambda p: p.name)
def test_real_streams(play: Callable[[list[Exchange]], Player], path: Path, asynchronous: bool) -> None:
    lines = [line for line in path.read_text("utf-8").split("\n") if line]
    one = _stream_of(lines)
    if one is None:
        pytest.skip("a stream of another provider's form")
    _compare(play([one]), asynchronous)


def _stream_of(lines: list[str]) -> Exchange | None:
    first = lines[0]  # of one stream it is no JSON
    kind = first.removeprefix('{"type":"').partition('"')[0]
    asked: dict[str, Any] = {"model": "m", "stream": True}
    ask: list[Any] = [{"role": "user", "content": "hi"}]
    if kind == "message_start":
        path, more = "/v1/messages", {"messages": ask, "max_tokens": 9}
    elif kind.startswith("response."):
        path, more = "/v1/responses", {"input": ask}
    elif '"choices":' in first:
        path, more = "/v1/chat/completions", {"messages": ask}
    else:
        return None
    body = "".join(_event(line) for line in lines) + ("data: [DONE]\n\n" if '"choices":' in first else "")
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return Exchange("", path, {**asked, **more}, None, 200, headers, body.encode())


def _event(line: str) -> str:
    try:
        kind = json.loads(line).get("type")
    except ValueError:
        kind = None
    return f"event: {kind}\ndata: {line}\n\n" if kind else f"data: {line}\n\n"


def test_there_are_exchanges(shared: Path) -> None:
    assert len(FILES) > 30
    assert len(SSE) > 15
