"""What a recorded call of a client holds is let go with the call, and not when garbage is collected some day."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.providers.http import http_transport
from agentloupe.providers.loopback import HttpReply, json_reply
from tests.answers import ANSWER
from tests.sdk_support import Model, serving_model

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
STREAM = b'data: {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}\n\ndata: [DONE]\n\n'
SSE = HttpReply(200, STREAM, {"content-type": "text/event-stream"})

USES: dict[str, tuple[HttpReply, Callable[[Any], Any]]] = {
    "whole": (json_reply(ANSWER), lambda c: c.chat.completions.create(**ASKED)),
    "any request": (json_reply(ANSWER), lambda c: c.chat.completions.with_raw_response.create(**ASKED)),
    "stream": (SSE, lambda c: c.chat.completions.create(**ASKED, stream=True)),
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
    reply, ask = USES[use]
    model.will_say(reply)
    came: list[weakref.ref[Any]] = []

    @loupe.agent
    def program() -> None:
        with _client(model, way, came) as client:
            given = ask(client)
            for _ in given if use == "stream" else ():
                pass

    program()
    assert [ref() for ref in came] == [None]


@pytest.mark.parametrize("use", USES)
@pytest.mark.usefixtures("nothing_collected")
def test_no_response_outlives_its_call_in_a_task(model: Model, use: str) -> None:
    reply, ask = USES[use]
    model.will_say(json_reply(ANSWER), reply)
    came: list[weakref.ref[Any]] = []

    async def arrived(response: Any) -> None:
        came.append(weakref.ref(response))

    @loupe.agent
    async def program() -> None:
        http = openai.DefaultAsyncHttpxClient(verify=False, event_hooks={"response": [arrived]})
        async with loupe.wrap(model.made(openai.AsyncOpenAI, http_client=http)) as client:
            await client.chat.completions.create(
                **ASKED
            )  # opens the connection: the tasks that do that are kept longer
            came.clear()
            given = await ask(client)
            if use == "stream":
                async for _ in given:
                    pass

    asyncio.run(program())
    assert [ref() for ref in came] == [None]


def _client(model: Model, way: str, came: list[weakref.ref[Any]]) -> Any:
    def arrived(response: Any) -> None:
        came.append(weakref.ref(response))

    transport: Any = http_transport() if way == "transport" else None
    http = openai.DefaultHttpxClient(verify=False, transport=transport, event_hooks={"response": [arrived]})
    made = model.made(openai.OpenAI, http_client=http)
    return loupe.wrap(made) if way == "wrapped" else made
