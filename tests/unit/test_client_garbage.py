"""What a recorded call of a client holds is let go with the call, and not when garbage is collected some day."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.providers.http import http_transport
from agentloupe.providers.loopback import HttpReply, error_reply, json_reply
from tests.answers import ANSWER
from tests.sdk_support import Model, serving_model

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
CHUNK = b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}\n\n'


def refused(status: int = 400) -> HttpReply:
    return error_reply(status, "no", headers={"retry-after-ms": "1"})


def streamed(body: bytes | Iterable[bytes]) -> HttpReply:
    return HttpReply(200, body, {"content-type": "text/event-stream"})


def breaks() -> Iterator[bytes]:
    yield CHUNK
    raise ConnectionResetError


def whole(client: Any) -> Any:
    return client.chat.completions.create(**ASKED)


def patient(client: Any) -> Any:
    return client.with_options(max_retries=1).chat.completions.create(**ASKED)


def raw(client: Any) -> Any:
    return client.chat.completions.with_raw_response.create(**ASKED)


def stream(client: Any) -> Any:
    return client.chat.completions.create(**ASKED, stream=True)


USES: dict[str, tuple[Callable[[], list[HttpReply]], Callable[[Any], Any]]] = {
    "whole": (lambda: [json_reply(ANSWER)], whole),
    "any request": (lambda: [json_reply(ANSWER)], raw),
    "stream": (lambda: [streamed(CHUNK + b"data: [DONE]\n\n")], stream),
    "tried again": (lambda: [refused(500), json_reply(ANSWER)], patient),
    "refused": (lambda: [refused()], whole),
    "any request refused": (lambda: [refused()], raw),
    "stream refused": (lambda: [refused()], stream),
    "stream broken": (lambda: [streamed(breaks())], stream),
}


@pytest.fixture
def model(workdir: object) -> Iterator[Model]:
    with serving_model(json_reply(ANSWER)) as made:
        yield made


@pytest.fixture
def nothing_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["wrapped", "transport"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.usefixtures("nothing_collected")
def test_no_response_outlives_its_call(model: Model, use: str, way: str) -> None:
    replies, ask = USES[use]
    model.will_say(*replies())
    came: list[weakref.ref[Any]] = []

    @loupe.agent
    def program() -> str:
        with _client(model, way, came) as client:
            try:
                given = ask(client)
                for _ in given if ask is stream else ():
                    pass
            except Exception as error:
                return type(error).__name__
        return "answered"

    assert (program() == "answered") is not any(word in use for word in ("refused", "broken"))
    assert came
    assert not [ref() for ref in came if ref() is not None]


@pytest.mark.parametrize("use", USES)
@pytest.mark.usefixtures("nothing_collected")
def test_no_response_outlives_its_call_in_a_task(model: Model, use: str) -> None:
    replies, ask = USES[use]
    model.will_say(*replies())
    came: list[weakref.ref[Any]] = []

    async def arrived(response: Any) -> None:
        came.append(weakref.ref(response))

    @loupe.agent
    async def program() -> str:
        http = openai.DefaultAsyncHttpxClient(verify=False, event_hooks={"response": [arrived]})
        async with loupe.wrap(model.made(openai.AsyncOpenAI, http_client=http)) as client:
            try:
                given = await ask(client)
                if ask is stream:
                    async for _ in given:
                        pass
            except Exception as error:
                return type(error).__name__
        return "answered"

    assert (asyncio.run(program()) == "answered") is not any(word in use for word in ("refused", "broken"))
    assert came
    assert not [ref() for ref in came if ref() is not None]


def _client(model: Model, way: str, came: list[weakref.ref[Any]]) -> Any:
    def arrived(response: Any) -> None:
        came.append(weakref.ref(response))

    transport: Any = http_transport() if way == "transport" else None
    http = openai.DefaultHttpxClient(verify=False, transport=transport, event_hooks={"response": [arrived]})
    made = model.made(openai.OpenAI, http_client=http)
    return loupe.wrap(made) if way == "wrapped" else made
