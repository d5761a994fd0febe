"""Anthropic's client for Bedrock, which signs its requests and streams in frames of its own: recorded, and played again."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

import agentloupe as loupe
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.replaying import replay
from agentloupe.words.dialects import message_in
from tests.bedrock_support import KIND, chunk, claude, events_in, failure, meant, nova
from tests.stream_support import answer_of, http_client, model_step, playing, stored_bytes

pytest.importorskip("botocore", reason="needs botocore, which signs requests to Bedrock (make test-sdk)")

SDK: Any = anthropic
CANARY = "sk-ant-api03-" + "FramesCanary42" * 4
SECRET_KEY = "bedrock-canary-secret-key"  # not in the shape of a real one
USAGE = {"input_tokens": 3, "output_tokens": 2}
MESSAGE: dict[str, Any] = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
WHOLE = {**MESSAGE, "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "usage": USAGE}
EVENTS: list[Any] = [
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None, "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": USAGE},
    {"type": "message_stop"},
]


@pytest.fixture
def seen() -> list[HttpRequest]:
    return []


@pytest.fixture
def url(workdir: Any, seen: list[HttpRequest]) -> Iterator[str]:
    def answer(request: HttpRequest) -> HttpReply:
        seen.append(request)
        if request.path.endswith("/invoke-with-response-stream"):
            return HttpReply(200, map(chunk, EVENTS), {"content-type": KIND})
        return json_reply(WHOLE)

    with serve(answer) as running:
        yield running.url


def agent_of(url: str, *, stream: bool, asynchronous: bool) -> Callable[[], Any]:
    given: Any = {
        "aws_access_key": "bedrock-canary-access-key",
        "aws_secret_key": SECRET_KEY,
        "aws_region": "us-east-1",
        "base_url": url,
        "max_retries": 0,
    }
    asked: Any = {"model": "anthropic.m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}

    def ask() -> Any:
        with loupe.wrap(SDK.AnthropicBedrock(**given)) as client:
            if stream:
                return [event.model_dump() for event in client.messages.create(**asked, stream=True)]
            return client.messages.create(**asked).model_dump()

    async def ask_later() -> Any:
        async with loupe.wrap(SDK.AsyncAnthropicBedrock(**given)) as client:
            if stream:
                return [event.model_dump() async for event in await client.messages.create(**asked, stream=True)]
            return (await client.messages.create(**asked)).model_dump()

    return ask_later if asynchronous else ask


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_whole_answer_is_a_step_with_its_usage_and_comes_back(
    url: str, seen: list[HttpRequest], asynchronous: bool
) -> None:
    agent = agent_of(url, stream=False, asynchronous=asynchronous)
    done = loupe.record(agent)
    assert (done.result["content"][0]["text"], done.result["usage"]["output_tokens"]) == ("hello", 2)
    step = model_step(done.run_id)
    assert (step.name, step.status, step.input_tokens, step.output_tokens) == ("chat anthropic.m", "ok", 3, 2)
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert [request.path for request in seen] == ["/model/anthropic.m/invoke"]
    assert seen[0].headers["authorization"].startswith("AWS4-HMAC-SHA256 ")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_stream_in_frames_comes_back_event_by_event(url: str, seen: list[HttpRequest], asynchronous: bool) -> None:
    agent = agent_of(url, stream=True, asynchronous=asynchronous)
    done = loupe.record(agent)
    assert [event["type"] for event in done.result] == [event["type"] for event in EVENTS]
    step = model_step(done.run_id)
    assert (step.name, step.status, step.input_tokens, step.output_tokens) == ("chat anthropic.m", "ok", 3, 2)
    assert answer_of(done.run_id) == WHOLE
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert len(seen) == 1


def test_the_plain_loop_goes_on_behind_a_stream_in_frames(url: str, seen: list[HttpRequest]) -> None:
    """What was streamed in frames is an Anthropic message, so another endpoint of that form can be asked in its place."""
    parent = loupe.record(agent_of(url, stream=True, asynchronous=False))
    (made,) = loupe.fork(
        parent.run_id, from_step=1, engine="generic", provider=Endpoint(f"{url}/v1"), system_prompt="Be brief."
    ).runs
    assert made.status == "ok", made.error
    assert [request.path for request in seen] == ["/model/anthropic.m/invoke-with-response-stream", "/v1/messages"]
    asked = json.loads(seen[-1].body)
    assert (asked["system"], asked["messages"]) == ("Be brief.", [{"role": "user", "content": "hi"}])
    assert message_in(answer_of(parent.run_id)) == message_in(answer_of(made.id))


def told_by(client_class: str, url: str) -> Any:
    """An agent that reads a helper stream to its end: its text, and the whole message."""
    given: Any = {"aws_access_key": "a", "aws_secret_key": "b", "aws_region": "us-east-1", "base_url": url}
    asked: Any = {"model": "anthropic.m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}

    def tell() -> list[Any]:
        with (
            loupe.wrap(SDK.AnthropicBedrock(**given, max_retries=0)) as client,
            client.messages.stream(**asked) as stream,
        ):
            return ["".join(stream.text_stream), stream.get_final_message().model_dump(mode="json")]

    async def tell_later() -> list[Any]:
        async with (
            loupe.wrap(SDK.AsyncAnthropicBedrock(**given, max_retries=0)) as client,
            client.messages.stream(**asked) as stream,
        ):
            text = "".join([part async for part in stream.text_stream])
            return [text, (await stream.get_final_message()).model_dump(mode="json")]

    return tell if client_class == "AnthropicBedrock" else tell_later


@pytest.mark.parametrize("client_class", ["AnthropicBedrock", "AsyncAnthropicBedrock"])
@pytest.mark.parametrize("size", [23, 100_000])
@pytest.mark.usefixtures("workdir")
def test_the_client_reads_frames_from_which_a_secret_was_removed(client_class: str, size: int) -> None:
    """Its own decoder checks lengths and checksums. The program is told the secret, the recording is not."""
    data = b"".join(claude(["the key is ", CANARY[:9], CANARY[9:30], CANARY[30:], ", keep it"]))
    with playing([data[at : at + size] for at in range(0, len(data), size)], KIND) as server:
        tell, told = told_by(client_class, server.url), []

        def kept(found: list[Any]) -> str:
            told.append(found)
            return found[0].replace(CANARY, "[removed:key]")

        async def later() -> str:
            return kept(await tell())

        agent = loupe.agent(name="telling")(later if "Async" in client_class else lambda: kept(tell()))
        done = loupe.record(agent)
        report = replay(done.run_id, agent)
        assert report.passed, report.text()
        assert server.asked == 1
    assert [found[0] for found in told] == [f"the key is {CANARY}, keep it", "the key is [removed:key], keep it"]
    assert [found[1]["usage"]["output_tokens"] for found in told] == [7, 7]
    said = "".join(json.dumps(meant(payload)) for _, payload in events_in(stored_bytes(done.run_id)))
    assert not any(part in said for part in (CANARY[9:30], CANARY[30:]))


@pytest.mark.parametrize("wrong", ["exception", "checksum"])
@pytest.mark.usefixtures("workdir")
def test_a_stream_that_breaks_raises_the_same_in_a_replay(wrong: str) -> None:
    frames = claude(["It ", "rains"])
    bad = failure("throttlingException", "slow down") if wrong == "exception" else frames[4][:-1] + b"\0"
    with playing([*frames[:4], bad], KIND) as server:
        tell, told = told_by("AnthropicBedrock", server.url), []

        @loupe.agent(name="telling")
        def telling() -> str:
            try:
                return tell()[0]
            except Exception as error:
                told.append(str(error))
                return type(error).__name__

        done = loupe.record(telling)
        report = replay(done.run_id, telling)
        assert report.passed, report.text()
    assert len(told) == 2
    assert told[0] == told[1]
    step = model_step(done.run_id)
    assert ("unread_bytes" in step.attrs) is (wrong == "checksum")
    answer = answer_of(done.run_id)
    assert answer["content"] == [{"type": "text", "text": "It rains"}]
    assert answer.get("error", {}).get("type") == ("throttlingException" if wrong == "exception" else None)


@pytest.mark.usefixtures("workdir")
def test_botocore_reads_the_frames_of_converse_from_which_a_secret_was_removed() -> None:
    buffer_class: Any = importlib.import_module("botocore.eventstream").EventStreamBuffer
    data = b"".join(nova(["the key is ", CANARY[:9], CANARY[9:], ", keep it"]))
    read: list[list[Any]] = []
    with playing([data[at : at + 40] for at in range(0, len(data), 40)], KIND) as server:

        @loupe.agent(name="reading")
        def reading() -> int:
            buffer, events = buffer_class(), list[Any]()
            with (
                http_client("httpx", asynchronous=False) as client,
                client.stream("POST", f"{server.url}/model/m/converse-stream", json={"messages": []}) as response,
            ):
                for piece in response.iter_raw():
                    buffer.add_data(piece)
                    events += [(one.headers, json.loads(one.payload)) for one in buffer]
            read.append(events)
            return len(events)

        report = replay(loupe.record(reading).run_id, reading)
        assert report.passed, report.text()
    assert [headers for headers, _ in read[0]] == [headers for headers, _ in read[1]]
    texts = ["".join(said["delta"].get("text", "") for _, said in one if "delta" in said) for one in read]
    assert texts == [f"the key is {CANARY}, keep it", "the key is [removed:key], keep it"]


def test_neither_the_keys_nor_the_signature_are_kept(url: str, seen: list[HttpRequest]) -> None:
    run_id = loupe.record(agent_of(url, stream=False, asynchronous=False)).run_id
    recording = loupe.open_store().recording(run_id)
    kept = b"".join(body for event in recording.events for body in recording.get(event.digests()).values())
    signature = seen[0].headers["authorization"].rpartition("Signature=")[2]
    assert len(signature) == 64
    for secret in (SECRET_KEY, "bedrock-canary-access-key", signature):
        assert secret.encode() not in kept
