"""Any HTTP API of a model, recorded and replayed as bytes through httpx and httpx2, sync and async."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.providers.http import http_transport
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import UsageError

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 4}
ANSWER = b'{ "model": "m-1", "id" : 1.0,\n "usage": {"prompt_tokens": 3, "completion_tokens": 1}, "choices": [] }'


class Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self.reply = HttpReply(200, ANSWER, {"content-type": "application/json", "X-Request-Id": "req_1"})
        self.seen: list[HttpRequest] = []


@pytest.fixture
def server() -> Iterator[Server]:
    made: list[Server] = []

    def app(request: HttpRequest) -> HttpReply:
        made[0].seen.append(request)
        return made[0].reply

    with serve(app) as running:
        made.append(Server(running.url))
        yield made[0]


def _seen(response: Any) -> list[Any]:
    about = [response.status_code, response.reason_phrase, response.http_version, response.content.hex()]
    return [type(response).__module__, *about, [[n.decode(), v.decode()] for n, v in response.headers.raw]]


def _ask(library: str, asynchronous: bool, url: str, **wanted: Any) -> Callable[[], Any]:
    """An agent that makes one request and returns everything it saw of the answer."""
    module = importlib.import_module(library)

    def worker() -> Any:
        inner = module.HTTPTransport(verify=False)
        with module.Client(transport=http_transport(inner)) as client:
            return _seen(client.request(**{"method": "POST", "url": url, "json": BODY, **wanted}))

    async def later() -> Any:
        inner = module.AsyncHTTPTransport(verify=False)
        async with module.AsyncClient(transport=http_transport(inner)) as client:
            return _seen(await client.request(**{"method": "POST", "url": url, "json": BODY, **wanted}))

    return later if asynchronous else worker


def _bare(agent: Callable[[], Any]) -> Any:
    made = agent()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def _steps(run_id: str) -> list[Any]:
    return [step for step in loupe.open_store().steps(run_id) if step.kind != "agent"]


REPLIES: dict[str, HttpReply] = {
    "json": HttpReply(200, ANSWER, {"content-type": "application/json", "X-Request-Id": "req_1"}),
    "gzip": HttpReply(200, gzip.compress(ANSWER), {"content-type": "application/json", "Content-Encoding": "gzip"}),
    "bytes": HttpReply(200, b"\xff\x00\xfe", {"content-type": "application/octet-stream"}),
    "error": json_reply({"error": {"message": "no"}}, 429, {"retry-after": "1"}),
    "empty": HttpReply(204, b"", {}),
}


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("reply", REPLIES)
def test_the_same_bytes_come_back(server: Server, library: str, asynchronous: bool, reply: str) -> None:
    pytest.importorskip(library)
    server.reply = REPLIES[reply]
    agent = _ask(library, asynchronous, f"{server.url}/v1/chat/completions")
    bare = _bare(agent)
    done = loupe.record(agent)
    assert done.result[:5] == bare[:5]
    asked = len(server.seen)
    report = replay(done.run_id, agent)
    assert report.passed, report
    assert len(server.seen) == asked


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_program_may_ask_how_long_it_took(server: Server, library: str) -> None:
    module = pytest.importorskip(library)
    took: list[list[Any]] = []

    def worker() -> None:
        with module.Client(transport=http_transport()) as client:
            took.append([client.post(f"{server.url}/v1/chat/completions", json=BODY).elapsed])
        with loupe.wrap(openai.OpenAI(base_url=f"{server.url}/v1", api_key="k")) as client:
            took[-1].append(client.chat.completions.with_raw_response.create(**BODY).elapsed)

        async def later() -> None:
            async with module.AsyncClient(transport=http_transport()) as client:
                took[-1].append((await client.post(f"{server.url}/v1/chat/completions", json=BODY)).elapsed)

        asyncio.run(later())

    done = loupe.record(worker)
    report = replay(done.run_id, worker)
    assert report.passed, report
    recorded, replayed = took
    assert recorded == replayed
    assert all(how_long.total_seconds() > 0 for how_long in recorded)


@pytest.mark.usefixtures("workdir")
def test_a_model_call_is_a_model_step(server: Server) -> None:
    done = loupe.record(_ask("httpx", False, f"{server.url}/v1/chat/completions"))
    (step,) = _steps(done.run_id)
    assert (step.kind, step.name) == ("llm", "chat m")
    assert (step.input_tokens, step.output_tokens) == (3, 1)
    assert step.attrs["request_id"] == "req_1"
    assert [t["status"] for t in step.attrs["tries"]] == [200]
    recording = loupe.open_store().recording(done.run_id)
    assert recording.body(step.input_digest) == BODY


@pytest.mark.usefixtures("workdir")
def test_another_request_is_another_step(server: Server) -> None:
    agent = _ask("httpx", False, f"{server.url}/v1/files/abc-1?x=1", method="GET", json=None)
    done = loupe.record(agent)
    (step,) = _steps(done.run_id)
    assert (step.kind, step.name) == ("other", "GET /v1/files")
    assert replay(done.run_id, agent).passed
    other = _ask("httpx", False, f"{server.url}/v1/files/abc-2?x=1", method="GET", json=None)
    assert not replay(done.run_id, other).passed


@pytest.mark.usefixtures("workdir")
def test_a_connection_that_fails_fails_again(server: Server) -> None:
    httpx = pytest.importorskip("httpx")

    def worker() -> str:
        with httpx.Client(transport=http_transport(httpx.HTTPTransport(verify=False))) as client:
            try:
                client.post("http://127.0.0.1:1/v1/chat/completions", json=BODY)
            except httpx.ConnectError as error:
                return f"{error} {error.request.url}"
        return "fine"

    done = loupe.record(worker)
    assert done.result != "fine"
    assert replay(done.run_id, worker).passed


@pytest.mark.usefixtures("workdir")
def test_below_a_wrapped_client_there_is_one_call(server: Server) -> None:
    httpx = pytest.importorskip("httpx")

    def worker() -> str:
        http = httpx.Client(transport=http_transport(httpx.HTTPTransport(verify=False)))
        with loupe.wrap(openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http)) as client:
            return client.chat.completions.create(model="m", messages=BODY["messages"]).model

    done = loupe.record(worker)
    assert [step.name for step in _steps(done.run_id)] == ["chat m"]
    assert replay(done.run_id, worker).passed


@pytest.mark.usefixtures("workdir")
def test_under_a_client_of_any_kind_a_replay_sends_nothing(server: Server) -> None:
    httpx = pytest.importorskip("httpx")

    def worker() -> str:
        http = httpx.Client(transport=http_transport(httpx.HTTPTransport(verify=False)))
        with openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http) as client:
            return client.chat.completions.create(model="m", messages=BODY["messages"]).model

    done = loupe.record(worker)
    assert done.result == "m-1"
    asked = len(server.seen)
    assert replay(done.run_id, worker).passed
    assert len(server.seen) == asked


def test_outside_a_run_nothing_happens(server: Server) -> None:
    assert bytes.fromhex(_ask("httpx", False, f"{server.url}/x")()[4]) == ANSWER
    assert json.loads(server.seen[0].body) == BODY


def test_requests_of_another_library_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        http_transport().handle_request(object())


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_query_belongs_to_the_request_of_a_model_but_not_its_key(library: str, server: Server) -> None:
    url = f"{server.url}/v1/chat/completions?api-version="
    agent = _ask(library, False, f"{url}3&key=LOUPE-CANARY-1")
    run_id = loupe.record(agent).run_id
    (step,) = _steps(run_id)
    body = loupe.open_store().recording(run_id).body(step.input_digest)
    assert body == {**BODY, "extra_query": {"api-version": "3"}}
    assert loupe.replay(run_id, _ask(library, False, f"{url}3&key=other")).passed
    other = loupe.replay(run_id, _ask(library, False, f"{url}4&key=LOUPE-CANARY-1")).divergence
    assert other is not None
    assert [change.path for change in other.changes] == [("extra_query", "api-version")]
    fork = loupe.fork(run_id, agent, from_step=1, extra={"extra_query": {"api-version": "5"}})
    assert fork.candidates[0].status == "ok"
    assert server.seen[-1].query == "key=LOUPE-CANARY-1&api-version=5"
    assert json.loads(server.seen[-1].body) == BODY
    loupe.fork(run_id, agent, from_step=1, temperature=0.5)
    assert server.seen[-1].query == "api-version=3&key=LOUPE-CANARY-1"
