"""Case 01: a stream that is read fully, left early, closed, dropped or cancelled, through the OpenAI SDK."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.verbs.replaying import replay
from tests.stream_support import Player, answer_of, http_client, model_step, playing

MESSAGES: list[Any] = [{"role": "user", "content": "when does the tide turn?"}]
HTTP = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"
BEFORE = 3


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("01")


@pytest.fixture
def expected(case: Path) -> dict[str, Any]:
    return json.loads((case / "expected.json").read_text("utf-8"))


@pytest.fixture
def server(case: Path) -> Iterator[Player]:
    """One part for each event; the stream goes on after the third only when it is let."""
    events = (case / "full.sse").read_bytes().split(b"\n\n")
    with playing([event + b"\n\n" for event in events if event.strip()]) as player:
        player.hold, player.after = threading.Event(), BEFORE
        yield player


def _client(url: str, *, asynchronous: bool) -> Any:
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    http: Any = http_client(HTTP, asynchronous=asynchronous)
    return kind(api_key="k", base_url=f"{url}/v1", max_retries=0, http_client=http)


def _sync_agent(url: str, how: str, seen: list[Any] | None = None) -> Callable[[], list[Any]]:
    def worker() -> list[Any]:
        client = _client(url, asynchronous=False)
        stream = client.chat.completions.create(model="small-chat-1", messages=MESSAGES, stream=True)
        got: list[Any] = [] if seen is None else seen
        if how == "left":
            with stream:
                for chunk in stream:
                    got.append(chunk.model_dump(exclude_unset=True))
                    if len(got) == BEFORE:
                        break
            client.close()
            return got
        for chunk in stream:
            got.append(chunk.model_dump(exclude_unset=True))
            if len(got) == BEFORE and how != "read":
                break
        if how == "closed":
            stream.close()
        if how != "dropped":
            client.close()
        del stream, client
        gc.collect()
        return got

    return worker


def _async_agent(url: str, how: str, seen: list[Any] | None = None) -> Callable[[], Any]:
    async def worker() -> list[Any]:
        client = _client(url, asynchronous=True)
        stream = await client.chat.completions.create(model="small-chat-1", messages=MESSAGES, stream=True)
        got: list[Any] = [] if seen is None else seen
        if how == "left":
            async with stream:
                async for chunk in stream:
                    got.append(chunk.model_dump(exclude_unset=True))
                    if len(got) == BEFORE:
                        break
            await client.close()
            return got
        async for chunk in stream:
            got.append(chunk.model_dump(exclude_unset=True))
            if len(got) == BEFORE and how != "read":
                break
        if how == "closed":
            await stream.close()
        if how != "dropped":
            await client.close()
        del stream, client
        gc.collect()
        await asyncio.sleep(0)
        return got

    return worker


def agent_of(url: str, how: str, asynchronous: bool, seen: list[Any] | None = None) -> Callable[[], Any]:
    """Reads a stream: all of it (`read`), or three chunks and is then `left`, `closed` or `dropped`; `seen` gets the chunks."""
    return _async_agent(url, how, seen) if asynchronous else _sync_agent(url, how, seen)


def bare(agent: Callable[[], Any]) -> Any:
    """What the agent gives when nobody records it."""
    made = agent()
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_read_to_the_end(server: Player, expected: dict[str, Any], asynchronous: bool) -> None:
    server.hold = None
    agent, wanted = agent_of(server.url, "read", asynchronous), expected["full_read"]
    wanted_chunks = bare(agent)
    done = loupe.record(agent)
    assert done.result == wanted_chunks
    assert len(wanted_chunks) == 9
    step = model_step(done.run_id)
    assert (step.status, step.input_tokens, step.output_tokens) == (
        wanted["status"],
        wanted["input_tokens"],
        wanted["output_tokens"],
    )
    assert answer_of(done.run_id)["choices"][0]["message"]["content"] == wanted["text"]
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("how", ["left", "closed", "dropped"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a dropped stream leaves its connection to the collector
def test_not_read_to_the_end(server: Player, expected: dict[str, Any], how: str, asynchronous: bool) -> None:
    agent, wanted = agent_of(server.url, how, asynchronous), expected["break_in_with_after_3_chunks"]
    done = loupe.record(agent)
    assert len(done.result) == BEFORE
    _is_as_expected(done.run_id, wanted)
    asked = server.asked
    report = replay(done.run_id, agent)
    assert report.passed, report.text()
    assert server.asked == asked


def cancelled_agent(url: str) -> Callable[[], Any]:
    """Reads three chunks in a task that is then cancelled, and hears of the cancel."""

    async def agent() -> list[Any]:
        client = _client(url, asynchronous=True)
        got: list[Any] = []
        there = asyncio.Event()

        async def read() -> None:
            stream = await client.chat.completions.create(model="small-chat-1", messages=MESSAGES, stream=True)
            async for chunk in stream:
                got.append(chunk.model_dump(exclude_unset=True))
                if len(got) == BEFORE:
                    there.set()

        task = asyncio.create_task(read())
        await there.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()
        return got

    return agent


@pytest.mark.usefixtures("workdir")
def test_a_cancelled_task(server: Player, expected: dict[str, Any]) -> None:
    agent = cancelled_agent(server.url)
    done = loupe.record(agent)
    assert len(done.result) == BEFORE
    _is_as_expected(done.run_id, expected["break_in_with_after_3_chunks"])
    assert replay(done.run_id, agent).passed


@pytest.mark.usefixtures("workdir")
def test_a_partial_recording_never_completes_itself(server: Player) -> None:
    done = loupe.record(_sync_agent(server.url, "left"))
    report = replay(done.run_id, _sync_agent(server.url, "read"))
    assert report.divergence is not None
    assert report.divergence.kind == "extra"


def _is_as_expected(run_id: str, wanted: dict[str, Any]) -> None:
    step = model_step(run_id)
    assert step.status == wanted["status"]
    assert (step.input_tokens, step.output_tokens) == (wanted["input_tokens"], wanted["output_tokens"])
    assert step.cost == wanted["cost"]
    assert step.ended_at is not None
    answer = answer_of(run_id)
    assert answer["choices"][0]["message"]["content"] == wanted["text"]
    assert answer["usage"] is None
