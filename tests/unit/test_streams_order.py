"""Streams among concurrent code: their beginnings and ends have turns; a fork serves one that was open at its step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

import agentloupe as loupe
from agentloupe.engine.tape import read_tape
from agentloupe.ports import ambient
from agentloupe.ports.streams import END_OF_STREAM, Stream, Streamed, aopen_stream
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.call import Call
from tests.schedule.shapes_streams import STREAM_LOOPS, STREAM_THREADS
from tests.schedule.trial import tried


@pytest.mark.parametrize("shape", [*STREAM_LOOPS, *STREAM_THREADS], ids=lambda shape: shape.__name__)
def test_streams_of_tasks_and_threads_come_in_their_order(shape: Callable[[], Any]) -> None:
    trial = tried(shape.__name__, shape, recordings=3, replays=2, first_seed=11)
    assert (trial.wrong, trial.leaks, trial.guessed) == (0, 0, 0), trial.said
    assert not trial.marks


def _call(about: str, streamed: bool) -> Call:
    request: Any = {"model": "m", "messages": [{"role": "user", "content": about}], "stream": streamed}
    return Call(
        kind="llm",
        name="chat m",
        input=request,
        encode=lambda value: value.data.decode() if isinstance(value, Streamed) else cast("str", value),
        decode=lambda answer: answer,
        streamed=streamed,
    )


def _agent(say: str) -> Any:
    """One task reads a stream that goes on while, and until, the other asks."""

    @loupe.agent(name="both")
    async def both() -> list[Any]:
        seen: list[Any] = []
        begun, asked = asyncio.Event(), asyncio.Event()

        async def source() -> AsyncIterator[bytes]:
            yield b"one,"
            await asked.wait()
            yield b"two"

        async def opens() -> str:
            return "raw"

        async def read() -> None:
            reply = await aopen_stream(_call("stream", True), opens, lambda _: {"status": 200})
            stream = cast("Stream", reply.stream)
            async for piece in stream.abytes(None if reply.raw is None else source()):
                seen.append(piece.decode())
                begun.set()
            seen.append("end")

        async def answers() -> str:
            asked.set()
            return say

        task = asyncio.create_task(read())
        await begun.wait()
        seen.append(await ambient.acall(_call("ask", False), answers))
        await task
        return [seen[-1], sorted(seen)]

    return both


@pytest.mark.usefixtures("workdir")
def test_a_fork_gives_what_came_of_a_stream_that_was_open_at_its_step() -> None:
    parent = loupe.record(_agent("old"))
    assert parent.result == ["end", ["end", "old", "one,", "two"]]
    store = loupe.open_store()
    streams = [step for step in store.steps(parent.run_id) if "stream" in step.attrs]
    (asked,) = [step for step in store.steps(parent.run_id) if step.kind == "llm" and "stream" not in step.attrs]
    assert streams[0].last_seq > asked.first_seq
    tape = read_tape(store.recording(parent.run_id))
    assert f"{streams[0].call_id}{END_OF_STREAM}" in [turn.id for turn in tape.turns()]
    forked = fork(parent.run_id, _agent("new"), from_step=asked.idx)
    (new,) = forked.candidates
    assert new.status == "ok"
    report = replay(new.id, _agent("never"))
    assert report.passed, report.text()
    (said,) = [s for s in store.steps(new.id) if s.kind == "llm" and "stream" not in s.attrs]
    assert store.recording(new.id).body(said.output_digest) == "new"


@pytest.mark.usefixtures("workdir")
def test_a_stream_whose_end_waits_is_lost_when_its_task_is_cancelled() -> None:
    @loupe.agent(name="cancels")
    async def cancels() -> list[str]:
        seen: list[str] = []
        there = asyncio.Event()

        async def source() -> AsyncIterator[bytes]:
            yield b"one"
            there.set()
            await asyncio.Event().wait()

        async def read() -> None:
            reply = await aopen_stream(_call("stream", True), _nothing, lambda _: {"status": 200})
            stream = cast("Stream", reply.stream)
            try:
                async for piece in stream.abytes(None if reply.raw is None else source()):
                    seen.append(piece.decode())
            finally:
                seen.append("unwound")

        task = asyncio.create_task(read())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [*seen, str(task.cancelled())]

    done = loupe.record(cancels)
    assert done.result == ["one", "unwound", "True"]
    (step,) = [s for s in loupe.open_store().steps(done.run_id) if s.kind == "llm"]
    assert (step.status, step.attrs["stream"]) == ("cancelled", "cancelled")
    for _ in range(3):
        report = replay(done.run_id, cancels)
        assert report.passed, report.text()


async def _nothing() -> str:
    return "raw"
