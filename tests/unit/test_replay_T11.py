"""T11: exceptions come back as they were: a user's class with attributes, and the errors of the OpenAI SDK.

Each agent handles its errors and returns what it saw of them; the replay runs the same branches over the same attributes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.replaying import replay

KEY = "sk-canary-9fQ2xLr7Tz0aVbNcMeKd"
COOKIE = "session-canary-77aa"
MESSAGES: list[Any] = [{"role": "user", "content": "work"}]
ERROR: dict[str, Any] = {"error": {"message": "slow down", "type": "rate_limit", "param": "model", "code": 7}}


class PaymentDeclined(Exception):
    """As a user may write it: its own arguments, none of them in `args` order."""

    def __init__(self, *, code: str, amount: float) -> None:
        super().__init__(f"declined: {code}")
        self.code = code
        self.amount = amount


class Server:
    def __init__(self, url: str) -> None:
        self.url = f"{url}/v1"
        self.asked = 0
        self.reply = json_reply(ERROR, 429, {"x-request-id": "req_9", "retry-after": "1", "set-cookie": COOKIE})


@pytest.fixture
def server() -> Iterator[Server]:
    made: list[Server] = []

    def app(request: HttpRequest) -> HttpReply:
        made[0].asked += 1
        return made[0].reply

    with serve(app) as running:
        made.append(Server(running.url))
        yield made[0]


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def _seen(error: openai.APIError) -> dict[str, Any]:
    """Everything that an application may look at, with types."""
    known: dict[str, Any] = {
        "class": f"{type(error).__module__}.{type(error).__qualname__}",
        "text": str(error),
        "args": list(error.args),
        "message": error.message,
        "body": error.body,
        "code": [error.code, type(error.code).__name__],
        "param": error.param,
        "type": error.type,
        "request": [type(error.request).__module__, error.request.method, str(error.request.url)],
        "asked": error.request.content.decode(),
        "cause": type(error.__cause__).__name__,
    }
    if isinstance(error, openai.APIStatusError):
        answer = error.response
        known["status"] = [error.status_code, answer.status_code, answer.reason_phrase, answer.http_version]
        known["request_id"] = error.request_id
        known["retry_after"] = answer.headers["Retry-After"]
        known["response"] = [type(answer).__module__, answer.json(), answer.text, answer.is_error]
        known["same_request"] = answer.request.url == error.request.url
    return known


Make = Callable[..., Any]


def _sync(**options: Any) -> openai.OpenAI:
    return openai.OpenAI(http_client=openai.DefaultHttpxClient(verify=False), **options)


def _legacy(**options: Any) -> openai.OpenAI:
    httpx = pytest.importorskip("httpx")
    return openai.OpenAI(http_client=httpx.Client(verify=False), **options)


def _agent(make: Make, url: str, timeout: float = 60.0) -> Callable[[], dict[str, Any]]:
    def worker() -> dict[str, Any]:
        with loupe.wrap(make(api_key=KEY, base_url=url, max_retries=0, timeout=timeout)) as client:
            try:
                client.chat.completions.create(model="m", messages=MESSAGES, extra_headers={"X-Api-Key": KEY})
            except openai.RateLimitError as error:
                return {"branch": "wait", **_seen(error)}
            except openai.APITimeoutError as error:
                return {"branch": "late", **_seen(error)}
            except openai.APIConnectionError as error:
                return {"branch": "away", **_seen(error)}
            except openai.APIStatusError as error:
                return {"branch": "other", **_seen(error)}
        return {"branch": "fine"}

    return worker


def _async_agent(url: str) -> Callable[[], Any]:
    async def worker() -> dict[str, Any]:
        made = openai.AsyncOpenAI(
            api_key=KEY, base_url=url, max_retries=0, http_client=openai.DefaultAsyncHttpxClient(verify=False)
        )
        async with loupe.wrap(made) as client:
            try:
                await client.chat.completions.create(model="m", messages=MESSAGES)
            except openai.RateLimitError as error:
                return {"branch": "wait", **_seen(error)}
        return {"branch": "fine"}

    return worker


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("make", [_sync, _legacy])
def test_the_rate_limit_error_of_the_sdk(server: Server, make: Make) -> None:
    agent = _agent(make, server.url)
    bare = agent()
    done = loupe.record(agent)
    assert done.result == bare
    assert done.result["branch"] == "wait"
    asked = server.asked
    report = replay(done.run_id, agent)
    assert report.passed, report
    assert server.asked == asked


@pytest.mark.usefixtures("workdir")
def test_the_rate_limit_error_of_the_async_client(server: Server) -> None:
    agent = _async_agent(server.url)
    bare = asyncio.run(agent())
    done = loupe.record(agent)
    assert done.result == bare
    assert done.result["branch"] == "wait"
    asked = server.asked
    assert replay(done.run_id, agent).passed
    assert server.asked == asked


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500, 503])
def test_every_status_error_of_the_sdk(server: Server, status: int) -> None:
    server.reply = json_reply(ERROR, status, {"retry-after": "2"})
    agent = _agent(_sync, server.url)
    done = loupe.record(agent)
    assert done.result["branch"] == "other"
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("make", [_sync, _legacy])
def test_a_connection_that_cannot_be_made(make: Make) -> None:
    agent = _agent(make, f"http://127.0.0.1:{_closed_port()}/v1")
    done = loupe.record(agent)
    assert done.result["branch"] == "away"
    assert done.result["cause"] == "ConnectError"
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
def test_a_model_that_is_too_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as quiet:
        agent = _agent(_sync, f"http://127.0.0.1:{quiet.getsockname()[1]}/v1", timeout=0.05)
        done = loupe.record(agent)
    assert done.result["branch"] == "late"
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
def test_an_exception_of_the_user_with_attributes() -> None:
    charged: list[float] = []

    @loupe.tool(effect="write")
    def charge(amount: float) -> str:
        charged.append(amount)
        raise PaymentDeclined(code="card_expired", amount=amount)

    def worker() -> list[Any]:
        try:
            charge(12.5)
        except PaymentDeclined as error:
            return [error.code, error.amount, str(error), list(error.args)]
        return []

    done = loupe.record(worker)
    assert done.result == ["card_expired", 12.5, "declined: card_expired", ["declined: card_expired"]]
    assert replay(done.run_id, worker).passed
    assert charged == [12.5]


@pytest.mark.usefixtures("workdir")
def test_an_exception_of_the_user_with_attributes_among_tasks() -> None:
    charged: list[float] = []

    @loupe.tool(effect="write")
    async def charge(amount: float) -> str:
        charged.append(amount)
        raise PaymentDeclined(code=f"declined {amount:g}", amount=amount)

    async def worker() -> list[Any]:
        found: list[Any] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(charge(12.5))
        except* PaymentDeclined as errors:
            found += [(one.code, one.amount) for one in errors.exceptions if isinstance(one, PaymentDeclined)]
        both = await asyncio.gather(charge(1), charge(2), return_exceptions=True)
        return found + [(one.code, one.amount) for one in both if isinstance(one, PaymentDeclined)]

    done = asyncio.run(loupe.arecord(worker))
    assert done.result == [("declined 12.5", 12.5), ("declined 1", 1), ("declined 2", 2)]
    assert replay(done.run_id, worker).passed
    assert charged == [12.5, 1, 2]


def test_keys_in_the_headers_of_an_error_are_in_no_byte_on_disk(server: Server, workdir: Path) -> None:
    done = loupe.record(_agent(_sync, server.url))
    loupe.open_store().size()
    recording = loupe.open_store().recording(done.run_id)
    digests = [digest for event in recording.events for digest in event.digests()]
    bodies = loupe.open_store().get(digests)
    assert any(b"req_9" in body for body in bodies.values())  # the error's response is there ...
    for secret in (KEY.encode(), COOKIE.encode()):
        assert not any(secret in body for body in bodies.values())  # ... without what opens anything
        assert not any(secret in path.read_bytes() for path in workdir.rglob("*") if path.is_file())
