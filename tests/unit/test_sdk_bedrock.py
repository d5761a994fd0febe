"""Anthropic's client for Bedrock, which signs its requests and streams in frames of its own: recorded, and played again."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.replaying import replay
from tests.stream_support import model_step

pytest.importorskip("botocore", reason="needs botocore, which signs requests to Bedrock (make test-sdk)")

SDK: Any = anthropic
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


def frame(event: Any) -> bytes:
    """An event as Bedrock frames it: lengths, headers, the event in base 64, two checksums."""
    named = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in named.items()
    )
    body = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode()}).encode()
    lengths = struct.pack(">II", len(headers) + len(body) + 16, len(headers))
    whole = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + body
    return whole + struct.pack(">I", zlib.crc32(whole))


@pytest.fixture
def seen() -> list[HttpRequest]:
    return []


@pytest.fixture
def url(workdir: Any, seen: list[HttpRequest]) -> Iterator[str]:
    def answer(request: HttpRequest) -> HttpReply:
        seen.append(request)
        if request.path.endswith("/invoke-with-response-stream"):
            return HttpReply(200, map(frame, EVENTS), {"content-type": "application/vnd.amazon.eventstream"})
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
    assert model_step(done.run_id).status == "ok"
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert len(seen) == 1


def test_neither_the_keys_nor_the_signature_are_kept(url: str, seen: list[HttpRequest]) -> None:
    run_id = loupe.record(agent_of(url, stream=False, asynchronous=False)).run_id
    recording = loupe.open_store().recording(run_id)
    kept = b"".join(body for event in recording.events for body in recording.get(event.digests()).values())
    signature = seen[0].headers["authorization"].rpartition("Signature=")[2]
    assert len(signature) == 64
    for secret in (SECRET_KEY, "bedrock-canary-access-key", signature):
        assert secret.encode() not in kept
