"""Case 02: two parallel tool calls whose argument pieces arrive mixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.verbs.replaying import replay
from tests.stream_support import answer_of, http_client, playing

HTTP = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"


@loupe.tool(effect="pure")
def find_ferry(**wanted: Any) -> dict[str, Any]:
    return wanted


@loupe.tool(effect="pure")
def find_hotel(**wanted: Any) -> dict[str, Any]:
    return wanted


TOOLS: dict[str, Callable[..., Any]] = {"find_ferry": find_ferry, "find_hotel": find_hotel}


def _told(message: Any) -> list[dict[str, str]]:
    calls = [(c["id"], c["function"]) for c in message["tool_calls"]]
    return [{"id": at, "name": f["name"], "arguments": f["arguments"]} for at, f in calls]


def _client(url: str, *, asynchronous: bool) -> Any:
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    http: Any = http_client(HTTP, asynchronous=asynchronous)
    return kind(api_key="k", base_url=f"{url}/v1", http_client=http)


MESSAGES: list[Any] = [{"role": "user", "content": "book"}]


class Pieces:
    """Puts the calls together as a program does, and makes them."""

    def __init__(self) -> None:
        self.calls: dict[int, dict[str, str]] = {}

    def add(self, chunk: Any) -> None:
        for part in chunk.choices[0].delta.tool_calls or []:
            call = self.calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += part.id or ""
            call["name"] += part.function.name or ""
            call["arguments"] += part.function.arguments or ""

    def done(self) -> list[dict[str, str]]:
        made = [self.calls[index] for index in sorted(self.calls)]
        for call in made:
            assert TOOLS[call["name"]](**json.loads(call["arguments"]))
        return made


def _agent(url: str, *, asynchronous: bool) -> Callable[[], Any]:
    def worker() -> list[dict[str, str]]:
        pieces = Pieces()
        with _client(url, asynchronous=False) as client:
            for chunk in client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
                pieces.add(chunk)
        return pieces.done()

    async def worker_later() -> list[dict[str, str]]:
        pieces = Pieces()
        async with _client(url, asynchronous=True) as client:
            async for chunk in await client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
                pieces.add(chunk)
        return pieces.done()

    return worker_later if asynchronous else worker


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_calls_are_put_together_by_index(shared_case: Callable[[str], Path], asynchronous: bool) -> None:
    case = shared_case("02")
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    lines = (case / "chunks.jsonl").read_bytes().splitlines()
    with playing([b"data: " + line + b"\n\n" for line in [*lines, b"[DONE]"]]) as server:
        worker = _agent(server.url, asynchronous=asynchronous)
        done = loupe.record(worker)
        report = replay(done.run_id, worker)
        assert server.asked == 1
    assert done.result == expected["tool_calls"]
    choice = answer_of(done.run_id)["choices"][0]
    assert _told(choice["message"]) == expected["tool_calls"]
    assert choice["finish_reason"] == expected["finish_reason"]
    tools = [step for step in loupe.open_store().steps(done.run_id) if step.kind == "tool"]
    assert [step.name for step in tools] == ["find_ferry", "find_hotel"]
    assert report.passed, report.text()


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_as_a_whole_message_the_calls_are_the_same(shared_case: Callable[[str], Path], asynchronous: bool) -> None:
    """The SDK's own helper puts the message together, from the wire and from the tape."""
    case = shared_case("02")
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    named = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}  # the helper leaves out others
    chunks = [named | json.loads(line) for line in (case / "chunks.jsonl").read_text("utf-8").splitlines()]
    lines = [json.dumps(chunk).encode() for chunk in chunks]
    wholes: list[Any] = []

    def told(completion: Any) -> None:
        choice = completion.choices[0].model_dump()
        for call in _told(choice["message"]):
            assert TOOLS[call["name"]](**json.loads(call["arguments"]))
        wholes.append((_told(choice["message"]), choice["finish_reason"]))

    def worker() -> None:
        with (
            _client(server.url, asynchronous=False) as client,
            client.chat.completions.stream(model="m", messages=MESSAGES) as stream,
        ):
            told(stream.get_final_completion())

    async def worker_later() -> None:
        async with (
            _client(server.url, asynchronous=True) as client,
            client.chat.completions.stream(model="m", messages=MESSAGES) as stream,
        ):
            told(await stream.get_final_completion())

    with playing([b"data: " + line + b"\n\n" for line in [*lines, b"[DONE]"]]) as server:
        whole = worker_later if asynchronous else worker
        done = loupe.record(whole)
        report = replay(done.run_id, whole)
        assert server.asked == 1
    assert report.passed, report.text()
    assert wholes == [(expected["tool_calls"], expected["finish_reason"])] * 2
    assert _told(answer_of(done.run_id)["choices"][0]["message"]) == expected["tool_calls"]
