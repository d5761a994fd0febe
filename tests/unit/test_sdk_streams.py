"""Streams of the two SDKs: what the program gets bare, recorded and replayed is the same, piece by piece (T5, case 01)."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay

ASKED: list[Any] = [{"role": "user", "content": "hi"}]
SSE = {"content-type": "text/event-stream", "x-request-id": "req_5", "request-id": "req_5"}


def sse(event: dict[str, Any], *, named: bool = False) -> bytes:
    name = f"event: {event['type']}\n" if named else ""
    return f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def chat(delta: dict[str, Any], **more: Any) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    choices = [{"index": 0, "delta": delta, "finish_reason": more.pop("finish_reason", None)}]
    return sse({**chunk, "choices": choices, **more})


USAGE = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
CHAT = [
    chat({"role": "assistant", "content": ""}),
    chat({"content": "Tür"}),
    chat({"content": " auf 🚪"}),
    chat({}, finish_reason="stop"),
    sse({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [], "usage": USAGE}),
    b"data: [DONE]\n\n",
]
MESSAGE: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
STARTED = {**MESSAGE, "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 2, "output_tokens": 1}}
MESSAGES = [
    sse(event, named=True)
    for event in (
        {"type": "message_start", "message": STARTED},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Tür"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " auf 🚪"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "thinking_delta", "thinking": "so …"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "signature_delta", "signature": "c2ln"}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    )
]
WHOLE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m-1",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
SAID = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed"}
TEXT = {"type": "output_text", "text": "Tür auf 🚪", "annotations": []}
_AT = {"item_id": "m_1", "output_index": 0, "content_index": 0}
RESPONSES = [
    sse({**event, "sequence_number": n}, named=True)
    for n, event in enumerate(
        (
            {"type": "response.created", "response": {**WHOLE, "status": "in_progress", "output": []}},
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**SAID, "status": "in_progress", "content": []},
            },
            {"type": "response.content_part.added", **_AT, "part": {**TEXT, "text": ""}},
            {"type": "response.output_text.delta", **_AT, "delta": "Tür", "logprobs": []},
            {"type": "response.output_text.delta", **_AT, "delta": " auf 🚪", "logprobs": []},
            {"type": "response.output_text.done", **_AT, "text": TEXT["text"], "logprobs": []},
            {"type": "response.content_part.done", **_AT, "part": TEXT},
            {"type": "response.output_item.done", "output_index": 0, "item": {**SAID, "content": [TEXT]}},
            {
                "type": "response.completed",
                "response": {
                    **WHOLE,
                    "status": "completed",
                    "output": [{**SAID, "content": [TEXT]}],
                    "usage": {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5},
                },
            },
        )
    )
]


class Server:
    """Answers with parts, each a write of its own; where `hold` is set, all after the first wait for it."""

    def __init__(self, parts: list[bytes]) -> None:
        self.url = ""
        self.parts = parts
        self.before: list[HttpReply] = []
        self.asked: list[Any] = []
        self.hold: threading.Event | None = None
        self.breaks = False

    def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked.append(json.loads(request.body) if request.body else None)
        return self.before.pop(0) if self.before else HttpReply(200, self._body(), SSE)

    def _body(self) -> Iterator[bytes]:
        for n, part in enumerate(self.parts):
            if n == 1 and self.hold is not None:
                assert self.hold.wait(10)
            yield part
        if self.breaks:
            raise ConnectionAbortedError("the server went away")


@pytest.fixture
def server(workdir: object) -> Iterator[Server]:
    made = Server(CHAT)
    with serve(made) as running:
        made.url = running.url
        yield made


# --- what a program sees ----------------------------------------------------------------------------------------------


def told(value: Any) -> Any:
    """Everything of an object of an SDK, with its types, as JSON."""
    if hasattr(value, "model_fields_set"):
        inside = {name: told(inner) for name, inner in {**vars(value), **(value.model_extra or {})}.items()}
        return {"type": type(value).__qualname__, "set": sorted(value.model_fields_set), "has": inside}
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    if isinstance(value, dict):
        return {name: told(inner) for name, inner in value.items()}
    return value if isinstance(value, str | int | float | bool) or value is None else repr(type(value))


Way = Callable[[Any], Any]
"""What a program does with a sync client."""
AsyncWay = Callable[[Any], Any]


def _each(stream: Any, stop: int | None = None) -> list[Any]:
    seen: list[Any] = []
    for item in stream:
        seen.append(told(item))
        if len(seen) == stop:
            break
    return seen


async def _aeach(stream: AsyncIterator[Any], stop: int | None = None) -> list[Any]:
    seen: list[Any] = []
    async for item in stream:
        seen.append(told(item))
        if len(seen) == stop:
            break
    return seen


def _plain(make: Way, stop: int | None = None) -> tuple[Way, AsyncWay]:
    """Reads `create(stream=True)`."""

    def now(client: Any) -> Any:
        with make(client) as stream:
            return [stream.response.status_code, stream.response.headers["request-id"], *_each(stream, stop)]

    async def later(client: Any) -> Any:
        async with await make(client) as stream:
            return [stream.response.status_code, stream.response.headers["request-id"], *await _aeach(stream, stop)]

    return now, later


def _helper(make: Way, final: str, stop: int | None = None) -> tuple[Way, AsyncWay]:
    """Reads a helper stream, and what it has put together at the end."""

    def now(client: Any) -> Any:
        with make(client) as stream:
            seen = _each(stream, stop)
            return [*seen, told(getattr(stream, final)()) if stop is None else None]

    async def later(client: Any) -> Any:
        async with make(client) as stream:
            seen = await _aeach(stream, stop)
            return [*seen, told(await getattr(stream, final)()) if stop is None else None]

    return now, later


def _unread(make: Way, how: str) -> tuple[Way, AsyncWay]:
    """Reads `with_streaming_response`."""

    def now(client: Any) -> Any:
        with make(client) as answer:
            read = getattr(answer, how)
            about = [answer.status_code, answer.headers["request-id"], answer.retries_taken]
            return [*about, *_shown(read())]

    async def later(client: Any) -> Any:
        async with make(client) as answer:
            about = [answer.status_code, answer.headers["request-id"], answer.retries_taken]
            read = getattr(answer, how)()
            if hasattr(read, "__aiter__"):
                return [*about, *[_line(part) async for part in read]]
            read = await read
            return [*about, *([told(c) async for c in read] if hasattr(read, "__aiter__") else _shown(read))]

    return now, later


def _shown(read: Any) -> list[Any]:
    if isinstance(read, bytes | str):
        return [_line(read)]
    return [told(part) if hasattr(part, "model_fields_set") else _line(part) for part in read]


def _line(part: Any) -> Any:
    return part.decode("latin-1") if isinstance(part, bytes) else part


def _create(client: Any) -> Any:
    return client.chat.completions.create(model="m", messages=ASKED, stream=True)


def _messages(client: Any) -> Any:
    return client.messages.create(model="m", max_tokens=9, messages=ASKED, stream=True)


CHAT_STREAMED: Way = lambda c: c.chat.completions.with_streaming_response.create(model="m", messages=ASKED, stream=True)  # noqa: E731
SAID_STREAMED: Way = lambda c: c.messages.with_streaming_response.create(  # noqa: E731
    model="m", max_tokens=9, messages=ASKED, stream=True
)
WAYS: dict[str, tuple[str, list[bytes], tuple[Way, AsyncWay]]] = {
    "chat": ("openai", CHAT, _plain(_create)),
    "chat, left early": ("openai", CHAT, _plain(_create, 2)),
    "chat helper": (
        "openai",
        CHAT,
        _helper(lambda c: c.chat.completions.stream(model="m", messages=ASKED), "get_final_completion"),
    ),
    "chat helper, left early": (
        "openai",
        CHAT,
        _helper(lambda c: c.chat.completions.stream(model="m", messages=ASKED), "", 3),
    ),
    "chat unread, lines": ("openai", CHAT, _unread(CHAT_STREAMED, "iter_lines")),
    "chat unread, bytes": ("openai", CHAT, _unread(CHAT_STREAMED, "iter_bytes")),
    "chat unread, whole": ("openai", CHAT, _unread(CHAT_STREAMED, "read")),
    "chat unread, parsed": ("openai", CHAT, _unread(CHAT_STREAMED, "parse")),
    "responses": ("openai", RESPONSES, _plain(lambda c: c.responses.create(model="m", input="hi", stream=True))),
    "responses, left early": (
        "openai",
        RESPONSES,
        _plain(lambda c: c.responses.create(model="m", input="hi", stream=True), 1),
    ),
    "responses helper": (
        "openai",
        RESPONSES,
        _helper(lambda c: c.responses.stream(model="m", input="hi"), "get_final_response"),
    ),
    "messages": ("anthropic", MESSAGES, _plain(_messages)),
    "messages, left early": ("anthropic", MESSAGES, _plain(_messages, 4)),
    "messages helper": (
        "anthropic",
        MESSAGES,
        _helper(lambda c: c.messages.stream(model="m", max_tokens=9, messages=ASKED), "get_final_message"),
    ),
    "messages beta helper": (
        "anthropic",
        MESSAGES,
        _helper(lambda c: c.beta.messages.stream(model="m", max_tokens=9, messages=ASKED), "get_final_message"),
    ),
    "messages helper, left early": (
        "anthropic",
        MESSAGES,
        _helper(lambda c: c.messages.stream(model="m", max_tokens=9, messages=ASKED), "", 2),
    ),
    "messages unread, lines": ("anthropic", MESSAGES, _unread(SAID_STREAMED, "iter_lines")),
    "messages unread, parsed": ("anthropic", MESSAGES, _unread(SAID_STREAMED, "parse")),
}


# --- an agent ---------------------------------------------------------------------------------------------------------


def client_of(server: Server, sdk: str, kind: str = "", *, bare: bool = False, **options: Any) -> Any:
    module: Any = {"openai": openai, "anthropic": anthropic}[sdk]
    http = getattr(module, f"Default{kind}HttpxClient")(verify=False)
    made = getattr(module, f"{kind}{'OpenAI' if sdk == 'openai' else 'Anthropic'}")(
        **{"api_key": "k", "base_url": server.url, "max_retries": 0, "http_client": http, **options}
    )
    return made if bare else loupe.wrap(made)


def agent_of(server: Server, sdk: str, ways: tuple[Way, AsyncWay], asynchronous: bool, **options: Any) -> Any:
    def worker() -> Any:
        with client_of(server, sdk, **options) as client:
            return ways[0](client)

    async def later() -> Any:
        async with client_of(server, sdk, "Async", **options) as client:
            return await ways[1](client)

    return later if asynchronous else worker


def _run(agent: Any) -> Any:
    made = agent()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def _step(run_id: str) -> Any:
    (step,) = [s for s in loupe.open_store().steps(run_id) if s.kind != "agent"]
    return step


def _answer(run_id: str) -> Any:
    return loupe.open_store().recording(run_id).body(_step(run_id).output_digest)


SYNC_AND_ASYNC = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@SYNC_AND_ASYNC
@pytest.mark.parametrize("name", WAYS)
def test_a_stream_gives_the_same_bare_recorded_and_replayed(server: Server, name: str, asynchronous: bool) -> None:
    sdk, server.parts, ways = WAYS[name]
    bare = _run(agent_of(server, sdk, ways, asynchronous, bare=True))
    agent = agent_of(server, sdk, ways, asynchronous)
    done = loupe.record(agent)
    assert done.result == bare
    step = _step(done.run_id)
    left = "left early" in name
    assert (step.kind, step.name, step.status) == ("llm", "chat m", "cancelled" if left else "ok")
    assert step.attrs["stream"] == ("left_early" if left else "complete")
    assert step.attrs["request_id"] == "req_5"
    asked = len(server.asked)
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert len(server.asked) == asked
    recording = loupe.open_store().recording(done.run_id)
    assert recording.body(step.input_digest) == server.asked[0]


@pytest.mark.parametrize("name", ["chat", "responses", "messages"])
def test_the_step_holds_the_whole_answer_in_the_form_of_its_api(server: Server, name: str) -> None:
    sdk, server.parts, ways = WAYS[name]
    done = loupe.record(agent_of(server, sdk, ways, asynchronous=False))
    answer, step = _answer(done.run_id), _step(done.run_id)
    assert step.output_tokens == 3
    if name == "chat":
        assert answer["choices"][0]["message"]["content"] == "Tür auf 🚪"
        assert step.attrs["finish_reason"] == "stop"
    elif name == "messages":
        assert [block["type"] for block in answer["content"]] == ["text", "thinking"]
        assert answer["content"][1]["signature"] == "c2ln"
        assert (answer["stop_reason"], step.attrs["finish_reason"]) == ("end_turn", "end_turn")
    else:
        assert answer["output"][0]["content"][0]["text"] == "Tür auf 🚪"
        assert step.attrs["finish_reason"] == "completed"


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_the_first_chunk_arrives_while_the_rest_is_not_there_yet(server: Server, sdk: str, asynchronous: bool) -> None:
    server.parts = CHAT if sdk == "openai" else MESSAGES
    server.hold = threading.Event()
    make = _create if sdk == "openai" else _messages

    def now(client: Any) -> int:
        count = 0
        for _ in make(client):
            count += 1
            held.set()
        return count

    async def later(client: Any) -> int:
        count = 0
        async for _ in await make(client):
            count += 1
            held.set()
        return count

    held = server.hold
    done = loupe.record(agent_of(server, sdk, (now, later), asynchronous))
    assert done.result > 3
    assert replay(done.run_id, agent_of(server, sdk, (now, later), asynchronous)).passed


# --- streams that do not end well -------------------------------------------------------------------------------------


def _until_it_fails(make: Way, error: type[Exception]) -> tuple[Way, AsyncWay]:
    def about(failed: Any, seen: int) -> list[Any]:
        return [
            seen,
            type(failed).__qualname__,
            str(failed),
            type(failed.__cause__).__name__,
            getattr(failed, "body", None),
        ]

    def now(client: Any) -> Any:
        seen = 0
        try:
            for _ in make(client):
                seen += 1
        except error as failed:
            return about(failed, seen)
        return seen

    async def later(client: Any) -> Any:
        seen = 0
        try:
            async for _ in await make(client):
                seen += 1
        except error as failed:
            return about(failed, seen)
        return seen

    return now, later


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_an_error_event_is_the_error_of_the_sdk(server: Server, sdk: str, asynchronous: bool) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    server.parts = [*(CHAT if sdk == "openai" else MESSAGES)[:3], sse(error, named=sdk == "anthropic")]
    make, kind = (_create, openai.APIError) if sdk == "openai" else (_messages, anthropic.APIError)
    ways = _until_it_fails(make, kind)
    bare = _run(agent_of(server, sdk, ways, asynchronous, bare=True))
    agent = agent_of(server, sdk, ways, asynchronous)
    done = loupe.record(agent)
    assert done.result == bare
    assert "busy" in bare[2]
    assert replay(done.run_id, agent).passed


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_connection_that_breaks_breaks_again(server: Server, sdk: str, asynchronous: bool) -> None:
    server.parts = (CHAT if sdk == "openai" else MESSAGES)[:3]
    server.breaks = True
    ways = _until_it_fails(_create if sdk == "openai" else _messages, Exception)
    agent = agent_of(server, sdk, ways, asynchronous)
    done = loupe.record(agent)
    assert done.result[0] >= 2
    assert _step(done.run_id).attrs["stream"] == "broken"
    report = replay(done.run_id, agent)
    assert report.passed, report.text()


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_client_that_tries_again_before_the_stream_opens(server: Server, sdk: str, asynchronous: bool) -> None:
    server.parts = CHAT if sdk == "openai" else MESSAGES
    server.before = [json_reply({"error": {"message": "no"}}, 503, {"retry-after-ms": "1"})]
    ways = _unread(CHAT_STREAMED if sdk == "openai" else SAID_STREAMED, "iter_lines")
    agent = agent_of(server, sdk, ways, asynchronous, max_retries=1)
    done = loupe.record(agent)
    assert done.result[2] == 1
    assert [t["status"] for t in _step(done.run_id).attrs["tries"]] == [503, 200]
    asked = len(server.asked)
    assert replay(done.run_id, agent).passed
    assert len(server.asked) == asked


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_stream_that_is_refused_is_the_error_of_the_sdk(server: Server, sdk: str, asynchronous: bool) -> None:
    server.before = [json_reply({"error": {"message": "no"}}, 429)] * 2
    error = openai.RateLimitError if sdk == "openai" else anthropic.RateLimitError
    ways = _until_it_fails(_create if sdk == "openai" else _messages, error)
    agent = agent_of(server, sdk, ways, asynchronous)
    done = loupe.record(agent)
    assert done.result[:2] == [0, "RateLimitError"]
    assert _step(done.run_id).status == "error"
    assert replay(done.run_id, agent).passed


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_task_that_is_cancelled_while_it_reads(server: Server, sdk: str) -> None:
    server.parts = CHAT if sdk == "openai" else MESSAGES
    server.hold = threading.Event()
    make = _create if sdk == "openai" else _messages

    async def worker() -> list[Any]:
        got: list[Any] = []
        came = asyncio.Event()

        async def read(client: Any) -> None:
            async for chunk in await make(client):
                got.append(told(chunk))
                came.set()

        async with client_of(server, sdk, "Async") as client:
            task = asyncio.create_task(read(client))
            await came.wait()
            task.cancel()
            return [*got, type((await asyncio.gather(task, return_exceptions=True))[0]).__name__]

    done = loupe.record(worker)
    server.hold.set()
    assert done.result[-1] == "CancelledError"
    assert _step(done.run_id).attrs["stream"] == "cancelled"
    report = replay(done.run_id, worker)
    assert report.passed, report.text()


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_stream_that_is_dropped_is_one_step(server: Server, sdk: str) -> None:
    server.parts = CHAT if sdk == "openai" else MESSAGES
    make = _create if sdk == "openai" else _messages

    def worker() -> list[Any]:
        with client_of(server, sdk) as client:
            stream = make(client)
            got = [told(next(stream)), told(next(stream))]
            del stream
            gc.collect()
            return got

    done = loupe.record(worker)
    assert _step(done.run_id).attrs["stream"] == "left_early"
    assert replay(done.run_id, worker).passed


def test_reading_past_the_place_where_the_recording_was_left_is_extra(server: Server) -> None:
    early, whole = _plain(_create, 2), _plain(_create)
    done = loupe.record(agent_of(server, "openai", early, asynchronous=False))
    report = replay(done.run_id, agent_of(server, "openai", whole, asynchronous=False))
    assert report.verdict == "diverged"
    assert report.divergence is not None
    assert report.divergence.kind == "extra"


# --- forks ------------------------------------------------------------------------------------------------------------


@SYNC_AND_ASYNC
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_fork_streams_what_the_program_streams(server: Server, sdk: str, asynchronous: bool) -> None:
    server.parts = CHAT if sdk == "openai" else MESSAGES
    make = _create if sdk == "openai" else _messages

    def now(client: Any) -> list[Any]:
        return [_each(make(client)), _each(make(client), 2)]

    async def later(client: Any) -> list[Any]:
        return [await _aeach(await make(client)), await _aeach(await make(client), 2)]

    agent = loupe.agent(name="streaming")(agent_of(server, sdk, (now, later), asynchronous))
    run_id = loupe.record(agent).run_id
    before = len(server.asked)
    forked = fork(run_id, agent, from_step=2, control=False, model="other-1").candidates[0]
    assert forked.status == "ok"
    assert [body["model"] for body in server.asked[before:]] == ["other-1"]
    assert server.asked[-1]["stream"] is True
    report = replay(forked.id, agent)
    assert report.passed, report.text()


def test_streams_without_a_server_fail_alike(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as quiet:
        port = quiet.getsockname()[1]
    server.url = f"http://127.0.0.1:{port}"
    agent = agent_of(server, "openai", _until_it_fails(_create, openai.APIConnectionError), asynchronous=False)
    done = loupe.record(agent)
    assert done.result[1] == "APIConnectionError"
    assert replay(done.run_id, agent).passed
