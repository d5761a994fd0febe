"""Async generators that are left, and clients that nobody closed: what tidies up has a lane of its own, and moves nobody else's."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.engine.tape import read_tape
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.lanes import Lane, Naming
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs import sessions
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from tests.cases.rec import Rec
from tests.stream_support import Player, http_client, playing
from tests.tapes import record_in

HTTP = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"
WORDS = [b'data: {"choices":[{"index":0,"delta":{"content":"%d "}}]}\n\n' % n for n in range(6)] + [b"data: [DONE]\n\n"]


@loupe.tool(effect="read")
async def fetch(name: str) -> str:
    await asyncio.sleep(0)
    return name.upper()


async def library() -> AsyncGenerator[int]:
    """A generator as a client has it."""
    while True:
        yield 1


async def tidy(name: str) -> AsyncGenerator[str]:
    """One of the program's, with a call in its `finally`."""
    try:
        while True:
            yield name
    finally:
        await fetch(f"tidied {name}")


async def leave(generator: AsyncGenerator[Any]) -> None:
    """Reads one item and drops it."""
    async for _ in generator:
        break


def program_of(left: list[int]) -> Callable[[], Any]:
    """Each run of it leaves as many generators of a library behind as the next number says."""
    counts = iter(left)

    async def program() -> list[str]:
        for _ in range(next(counts)):
            await leave(library())
        await leave(tidy("one"))
        await asyncio.sleep(0.01)
        await leave(tidy("two"))
        got = await asyncio.gather(*(asyncio.create_task(fetch(name)) for name in "abc"))
        await asyncio.sleep(0.01)
        return [*got, await fetch("end")]

    return program


@pytest.mark.parametrize("times", [[0, 3], [3, 0], [2, 5]])
def test_what_a_library_leaves_behind_moves_no_lane_of_the_program(times: list[int]) -> None:
    program = program_of(times)
    recording = record_in(MemoryStore(), program)
    report = replay(recording, program, strict_order=True)
    assert report.passed, report.text()
    assert report.calls == 6


def test_a_call_that_closes_a_generator_is_in_a_lane_that_is_named_after_it() -> None:
    recording = record_in(MemoryStore(), program_of([2]))
    made = {str(event.lane) for event in recording.events if event.type == "tool.started"}
    assert {lane for lane in made if "g-" in lane} == {"0/g-tidy-1", "0/g-tidy-2"}
    assert {lane for lane in made if "/a" in lane} == {"0/a1", "0/a2", "0/a3"}


def test_a_recording_of_an_older_program_counts_them_among_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "new_schedule", lambda _: Schedule(naming=Naming(7, closers_apart=False)))
    program = program_of([1, 1, 2])
    recording = record_in(MemoryStore(), program)
    assert not read_tape(recording).naming.closers_apart
    made = {str(event.lane) for event in recording.events if event.type == "tool.started"}
    assert made == {"0", *(f"0/a{n}" for n in range(2, 7))}, "the first closes the library's"
    assert replay(recording, program).passed
    report = replay(recording, program)
    assert report.divergence is not None, "as it was with that program"


def test_a_fork_and_its_replay_count_as_their_parent_did() -> None:
    ask = Rec().llm("m", lambda body: {"role": "assistant", "content": "x"})
    program = program_of([1, 4, 2])

    @loupe.agent(name="leaver")
    async def leaver() -> Any:
        got = await program()
        ask({"model": "m", "messages": []})
        return got

    store = MemoryStore()
    recording = record_in(store, leaver)
    (step,) = [step.idx for step in store.steps(recording.run_id) if step.kind == "llm"]
    made = fork(recording.run_id, leaver, from_step=step, store=store).candidates[0]
    assert read_tape(store.recording(made.id)).naming.closers_apart
    assert replay(made.id, leaver, store=store).passed


@pytest.mark.usefixtures("workdir")
def test_a_stream_in_a_generator_that_is_left_and_tasks_after_it() -> None:
    """The client of a real model leaves other generators behind than the one that reads from the tape."""

    async def words(client: Any, question: str) -> AsyncGenerator[str]:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": question}], "stream": True}
        async for chunk in await client.chat.completions.create(**asked):
            yield chunk.choices[0].delta.content

    async def all_of(client: Any, question: str) -> list[str]:
        return [word async for word in words(client, question)]

    def agent_of(server: Player) -> Callable[[], Any]:
        async def agent() -> list[Any]:
            http: Any = http_client(HTTP, asynchronous=True)
            async with openai.AsyncOpenAI(api_key="k", base_url=server.url, http_client=http) as client:
                got: list[Any] = []
                async for word in words(client, "left"):
                    got.append(word)
                    if len(got) == 3:
                        break
                closed = words(client, "closed")
                got.append(await anext(closed))
                await closed.aclose()
                got.append(await all_of(client, "whole"))
                got += await asyncio.gather(*(all_of(client, f"task {n}") for n in range(3)))
                return got

        return agent

    with playing(WORDS) as server:
        agent = agent_of(server)
        done = loupe.record(agent)
        asked = server.asked
        for _ in range(3):
            report = replay(done.run_id, agent)
            assert report.passed, report.text()
        assert server.asked == asked == 6


def test_lanes_of_closers_are_counted_by_name() -> None:
    lane = Lane("0/a1")
    paths = [lane.closer(name).path for name in ("words", "pieces", "words")]
    assert [*paths, lane.child("a").path] == ["0/a1/g-words-1", "0/a1/g-pieces-1", "0/a1/g-words-2", "0/a1/a1"]


# --- clients that nobody closed -------------------------------------------------------------------------------------------


class Unclosed:
    """As clients of model SDKs: what holds them holds itself, and when they are collected they close themselves in a task."""

    def __init__(self, through: Callable[[Any], Any]) -> None:
        self.itself = self
        self.through = through

    async def aclose(self) -> None:
        await asyncio.sleep(0)

    def __del__(self) -> None:
        self.through(self.aclose())


def _by_loop(coro: Any) -> Any:
    return asyncio.get_running_loop().create_task(coro)


def unclosed(left: list[int], through: Callable[[Any], Any]) -> Callable[[], Any]:
    """Each run of it leaves as many clients behind as the next number says, and they are collected in the middle of it."""
    counts = iter(left)

    async def program() -> list[str]:
        for _ in range(next(counts)):
            Unclosed(through)
        gc.collect()
        return [*await asyncio.gather(*(asyncio.create_task(fetch(name)) for name in "abc")), await fetch("end")]

    return program


@pytest.mark.parametrize("through", [_by_loop, asyncio.create_task])
@pytest.mark.parametrize("times", [[0, 2], [2, 0]])
def test_a_client_that_is_collected_moves_no_lane_of_the_program(
    times: list[int], through: Callable[[Any], Any]
) -> None:
    program = unclosed(times, through)
    recording = record_in(MemoryStore(), program)
    report = replay(recording, program, strict_order=True)
    assert report.passed, report.text()
    assert report.calls == 4


def test_recordings_of_older_programs_count_such_clients_among_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "new_schedule", lambda _: Schedule(naming=Naming(7, finalisers_apart=False)))
    program = unclosed([1, 1, 0], _by_loop)
    recording = record_in(MemoryStore(), program)
    assert not read_tape(recording).naming.finalisers_apart
    assert replay(recording, program).passed
    assert not replay(recording, program).passed
