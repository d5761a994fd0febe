"""Real bytes: what real providers streamed goes through the recorder, byte by byte, and comes back as it was."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
from collections.abc import Callable, Generator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.tape import read_tape
from agentloupe.ports import ambient
from agentloupe.ports.streams import pieces_of
from agentloupe.providers.assembling import assembled, is_done, objects_in
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from tests.real_streams import RealStream, in_odd_cuts, real_streams
from tests.stream_support import http_client

STREAMS = {stream.name: stream for stream in real_streams()}
OF_MODELS = [stream for stream in STREAMS.values() if stream.api != "other"]
pytestmark = pytest.mark.skipif(not STREAMS, reason="the shared data is not beside this checkout")
HTTP = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"


@contextlib.contextmanager
def _providers() -> Generator[str]:
    """A server that plays the stream that a request names in its path or its model."""

    def app(request: HttpRequest) -> HttpReply:
        told = json.loads(request.body or b"{}").get("model")
        stream = STREAMS[told or request.path.rpartition("/")[2]]
        return HttpReply(200, iter(in_odd_cuts(stream.data)), {"content-type": "text/event-stream"})

    with serve(app) as running:
        yield running.url


def _replayed(run_id: str, agent: Callable[[], Any]) -> Any:
    """What the agent gets in a replay; tools that nobody ran (the bytes ask for some) do not matter here."""
    replayer = Replayer(read_tape(loupe.open_store().recording(run_id)))

    async def inside(made: Any) -> Any:
        with ambient.inside(replayer):
            return await made

    if inspect.iscoroutinefunction(agent):
        result = asyncio.run(inside(agent()))
    else:
        with ambient.inside(replayer):
            result = agent()
    replayer.end("ok", {"result": result})
    assert replayer.report().verdict == "pass", replayer.report().text()
    return result


def _bare(agent: Callable[[], Any]) -> Any:
    made = agent()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_bytes_are_passed_on_stored_and_played_as_they_are(library: str, asynchronous: bool) -> None:
    pytest.importorskip(library)

    def worker() -> list[str]:
        with http_client(library, asynchronous=False) as client:
            return [_read(client, name) for name in STREAMS]

    def _read(client: Any, name: str) -> str:
        with client.stream("GET", f"{url}/{name}") as response:
            return b"".join(response.iter_raw()).hex()

    async def later() -> list[str]:
        async with http_client(library, asynchronous=True) as client:
            return [await _aread(client, name) for name in STREAMS]

    async def _aread(client: Any, name: str) -> str:
        async with client.stream("GET", f"{url}/{name}") as response:
            return b"".join([part async for part in response.aiter_raw()]).hex()

    agent = later if asynchronous else worker
    with _providers() as url:
        done = loupe.record(agent)
    whole = [stream.data.hex() for stream in STREAMS.values()]
    assert done.result == whole
    assert _replayed(done.run_id, agent) == whole
    recording = loupe.open_store().recording(done.run_id)
    stored: dict[str, bytes] = {}
    for event in recording.events:
        if event.type == "call.streamed":
            pieces = pieces_of(recording.body(event.bodies["pieces"]))
            stored[str(event.call_id)] = stored.get(str(event.call_id), b"") + b"".join(data for _, data in pieces)
    assert [data.hex() for data in stored.values()] == whole


# --- through the SDKs -------------------------------------------------------------------------------------------------


def _client(api: str, url: str, *, asynchronous: bool) -> Any:
    """A client of the provider's SDK over the recorded transport."""
    http: Any = http_client(HTTP, asynchronous=asynchronous)
    if api == "messages":
        anthropic: Any = importlib.import_module("anthropic")
        kind = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
        return kind(api_key="k", base_url=url, max_retries=0, http_client=http)
    sdk: Any = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    return sdk(api_key="k", base_url=f"{url}/v1", max_retries=0, http_client=http)


def _ask(client: Any, api: str, model: str) -> Any:
    said: list[Any] = [{"role": "user", "content": "hi"}]
    if api == "messages":
        return client.messages.create(model=model, messages=said, max_tokens=9, stream=True)
    if api == "responses":
        return client.responses.create(model=model, input="hi", stream=True)
    return client.chat.completions.create(model=model, messages=said, stream=True)


def _seen(event: Any) -> list[Any]:
    return [type(event).__qualname__, event.model_dump(mode="json", exclude_unset=True, warnings=False)]


def _failure(error: Exception) -> list[Any]:
    return [type(error).__qualname__, str(error)]


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_the_sdks_see_the_same_with_without_and_again(api: str, asynchronous: bool) -> None:
    if api == "messages":
        pytest.importorskip("anthropic")
    names = [stream.name for stream in OF_MODELS if stream.api == api]
    assert names

    def worker() -> list[Any]:
        with _client(api, url, asynchronous=False) as client:
            return [_all(client, name) for name in names]

    def _all(client: Any, name: str) -> list[Any]:
        got: list[Any] = []
        try:
            with _ask(client, api, name) as stream:
                got.extend(_seen(event) for event in stream)
        except Exception as error:
            got.append(_failure(error))
        return got

    async def later() -> list[Any]:
        async with _client(api, url, asynchronous=True) as client:
            return [await _aall(client, name) for name in names]

    async def _aall(client: Any, name: str) -> list[Any]:
        got: list[Any] = []
        try:
            async with await _ask(client, api, name) as stream:
                got.extend([_seen(event) async for event in stream])
        except Exception as error:
            got.append(_failure(error))
        return got

    agent = later if asynchronous else worker
    with _providers() as url:
        bare = _bare(agent)
        done = loupe.record(agent)
    assert done.result == bare
    assert all(bare)
    assert _replayed(done.run_id, agent) == bare


# --- put together -----------------------------------------------------------------------------------------------------


def _of(*apis: str) -> Any:
    streams = [stream for stream in OF_MODELS if stream.api in apis]
    return pytest.mark.parametrize("stream", streams, ids=[stream.name for stream in streams])


@_of("chat")
def test_a_completion_is_what_the_sdk_puts_together(stream: RealStream) -> None:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    for found in objects_in(stream.data):
        chunk: Any = {"id": "", "created": 0, "model": "", "object": "chat.completion.chunk", **found}
        state.handle_chunk(_built(chunk))
    wanted = state.current_completion_snapshot.model_dump(mode="json", warnings=False)
    ours: Any = assembled(stream.data)
    assert len(ours["choices"]) == len(wanted["choices"])
    for mine, theirs in zip(ours["choices"], wanted["choices"], strict=True):
        assert (mine["message"].get("content") or "") == (theirs["message"]["content"] or "")
        assert mine["finish_reason"] == theirs["finish_reason"]
        assert _called(mine["message"]) == _called(theirs["message"])
        for more in ("reasoning_content", "refusal"):
            assert (mine["message"].get(more) or "") == (theirs["message"].get(more) or "")


def _built(chunk: Any) -> Any:
    from openai._models import construct_type
    from openai.types.chat import ChatCompletionChunk

    return construct_type(value=chunk, type_=ChatCompletionChunk)


def _called(message: Any) -> list[Any]:
    calls = message.get("tool_calls") or []
    return [[call["id"], call["function"]["name"], call["function"]["arguments"]] for call in calls]


@_of("messages")
def test_a_message_is_what_the_sdk_puts_together(stream: RealStream) -> None:
    pytest.importorskip("anthropic")
    from anthropic._models import construct_type
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import RawMessageStreamEvent

    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for found in objects_in(stream.data):
        if found.get("type") == "ping" or (found.get("type") == "message_start" and snapshot is not None):
            continue
        event: Any = construct_type(value=found, type_=RawMessageStreamEvent)
        snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
    wanted = snapshot.model_dump(mode="json", warnings=False, exclude_none=True)
    ours: Any = assembled(stream.data)
    assert (ours["id"], ours["stop_reason"]) == (wanted["id"], wanted["stop_reason"])
    assert len(ours["content"]) == len(wanted["content"])
    if stream.data.count(b'"type":"message_stop"') > 1:
        return  # two answers in one file: the SDK puts the second one's texts into the first one's blocks
    for mine, theirs in zip(ours["content"], wanted["content"], strict=True):
        assert mine.get("input") == theirs.get("input") or mine["type"] == "mcp_tool_use", "unknown to the SDK"
        for name in ("type", "text", "thinking", "signature", "name", "id", "tool_use_id"):
            assert (mine.get(name) or "") == (theirs.get(name) or ""), name
    assert ours["usage"]["output_tokens"] == wanted["usage"]["output_tokens"]


@_of("responses")
def test_a_response_without_its_last_event_is_what_that_event_says(stream: RealStream) -> None:
    events = list(objects_in(stream.data))
    finals = [e["response"] for e in events if e.get("type") in ("response.completed", "response.incomplete")]
    if len(finals) != 1:  # an error, or two answers in one file
        assert assembled(stream.data)
        return
    final: Any = finals[-1]
    assert _texts(assembled(stream.data)) == _texts(final) or not final["output"]
    before = [e for e in events if e.get("response") is not final]
    ours: Any = assembled(b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in before))
    if final["output"]:
        assert _texts(ours) == _texts(final)


def _texts(response: Any) -> list[Any]:
    told: list[Any] = []
    for item in response["output"]:
        parts = [*(item.get("content") or []), *(item.get("summary") or [])]
        told.append([item["type"], item.get("arguments"), *(p.get("text") or p.get("refusal") for p in parts)])
    return told


@given(stream=st.sampled_from(OF_MODELS or [None]), part=st.floats(0, 1))
def test_a_stream_that_is_cut_anywhere_is_put_together(stream: Any, part: float) -> None:
    data = stream.data[: int(len(stream.data) * part)]
    whole: Any = assembled(data)
    assert whole is None or isinstance(whole, dict)
    json.dumps(whole)
    if is_done(data):
        assert whole is not None


@_of("chat", "responses", "messages")
def test_a_whole_stream_is_done(stream: RealStream) -> None:
    cut = stream.data[: len(stream.data) // 3]
    assert not is_done(cut)
    if stream.name != "parallel-tool-call-wrapper.1.chunks.txt":
        assert is_done(stream.data)
