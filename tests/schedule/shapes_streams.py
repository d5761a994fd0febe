"""Programs that read several streams at once, or hand on the pieces of one to others."""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent import futures
from typing import Any, Self, cast

import agentloupe as loupe
from agentloupe.ports.streams import Stream, Streamed, aopen_stream, open_stream
from agentloupe.words.call import Call
from tests.schedule.world import ask, ask_async, fetch_async, late, late_async, put, put_async

__all__ = ["STREAM_LOOPS", "STREAM_THREADS"]

PIECES = 4


def _call(about: Any) -> Call:
    request: Any = {"model": "m", "messages": [{"role": "user", "content": repr(about)}], "stream": True}
    return Call(
        kind="llm",
        name="chat m",
        input=request,
        encode=lambda value: {"data": cast("Streamed", value).data.decode()},
        decode=lambda answer: answer,
        streamed=True,
    )


class AsyncReader:
    """A stream as client libraries give it: to be iterated, and closed at the end of the block."""

    def __init__(self, about: Any) -> None:
        self._about = about

    async def __aenter__(self) -> Self:
        reply = await aopen_stream(_call(self._about), late_async, lambda _: {"status": 200})
        self._stream = cast("Stream", reply.stream)
        self._source = None if reply.raw is None else self._pieces()
        return self

    async def _pieces(self) -> AsyncIterator[bytes]:
        for _ in range(PIECES):
            yield b"%d," % await late_async()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._stream.abytes(self._source)

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose(None)


class Reader:
    def __init__(self, about: Any) -> None:
        self._about = about

    def __enter__(self) -> Self:
        reply = open_stream(_call(self._about), late, lambda _: {"status": 200})
        self._stream = cast("Stream", reply.stream)
        self._source = None if reply.raw is None else self._pieces()
        return self

    def _pieces(self) -> Iterator[bytes]:
        for _ in range(PIECES):
            yield b"%d," % late()

    def __iter__(self) -> Iterator[bytes]:
        return self._stream.bytes(self._source)

    def __exit__(self, *_: object) -> None:
        self._stream.close(None)


async def _read(about: Any, most: int | None = None) -> str:
    got = b""
    async with AsyncReader(about) as reader:
        count = 0
        async for piece in reader:
            got += piece
            count += 1
            if count == most:
                break
    return got.decode()


async def streams_as_completed() -> Any:
    """Whoever is read to its end first asks next, and says what it knows of the others."""
    seen: list[Any] = []

    async def one(who: int) -> None:
        text = await _read(who)
        seen.append(who)
        seen.append(await ask_async([who, text, list(seen)]))

    await asyncio.gather(*[one(who) for who in range(4)])
    return seen


async def first_stream_wins() -> Any:
    """The first whole stream wins, the others are cancelled wherever they are."""
    seen: list[Any] = []
    for round_ in range(3):
        tasks = [asyncio.create_task(_read([round_, who]), name=str(who)) for who in range(3)]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        seen.append(sorted(task.get_name() for task in done))
        for task in rest:
            task.cancel()
        ends = await asyncio.gather(*rest, return_exceptions=True)
        seen.append([type(end).__name__ for end in ends])
        seen.append(await ask_async(seen))
    return seen


async def streams_under_timeouts() -> Any:
    """Streams that are given up after a time, and tried again."""
    seen: list[Any] = []

    async def one(who: int) -> None:
        for attempt in range(3):
            try:
                async with asyncio.timeout(0.012):
                    seen.append([who, await _read([who, attempt])])
                    return
            except TimeoutError:
                seen.append([who, "late"])
                await asyncio.sleep(0.001)
        seen.append(await ask_async([who, len(seen)]))

    await asyncio.gather(*[one(who) for who in range(3)])
    return seen


async def streams_left_early() -> Any:
    """Each reads two pieces of its stream, then asks with what it knows of the others' answers."""
    answers: list[Any] = []

    async def one(who: int) -> None:
        text = await _read(who, most=2)
        answers.append(await ask_async([who, text]))
        answers.append(await ask_async([who, list(answers)]))

    await asyncio.gather(*[one(who) for who in range(3)])
    return answers


async def _of_a_library() -> AsyncGenerator[int]:
    while True:
        yield 0


async def _pieces(about: Any) -> AsyncGenerator[str]:
    async with AsyncReader(about) as reader:
        async for piece in reader:
            for _ in range(os.urandom(1)[0] % 4):  # a client leaves as many behind as it likes
                async for _ in _of_a_library():
                    break
            yield piece.decode()


async def generators_left_early() -> Any:
    """Streams in async generators that are dropped or closed; tasks that are made after that ask."""
    answers: list[Any] = []

    async def first(who: int) -> str:
        pieces = _pieces(who)
        async for text in pieces:
            if who % 2:
                await pieces.aclose()
            return text
        return "nothing"

    async def one(who: int) -> None:
        text = await first(who)
        answers.append(await asyncio.create_task(ask_async([who, text])))
        answers.extend(await asyncio.gather(*(ask_async([who, n, len(answers)]) for n in range(2))))

    await asyncio.gather(*[one(who) for who in range(3)])
    return answers


async def streams_in_a_group() -> Any:
    """A member of the group fails after its stream; the others are cancelled, in the middle of theirs or not."""
    seen: list[Any] = []

    async def one(who: int) -> None:
        try:
            text = await _read(who)
        except asyncio.CancelledError:
            seen.append([who, "cancelled"])
            raise
        seen.append([who, "whole"])
        if int(text.split(",")[0]) % 2:
            raise ValueError(who)

    try:
        async with asyncio.TaskGroup() as group:
            for who in range(4):
                group.create_task(one(who))
    except* ValueError as errors:
        seen.append([str(error) for error in errors.exceptions])
    return [*seen, await ask_async(seen)]


async def stream_with_tools() -> Any:
    """Tools are started while the stream goes on, one for each piece, and gathered at its end."""
    tasks: list[asyncio.Task[int]] = []
    seen: list[Any] = []

    async def tool(n: int) -> int:
        answer = await fetch_async(n=n)
        seen.append(n)
        return answer

    async with AsyncReader("tools") as reader:
        n = 0
        async for _ in reader:
            tasks.append(asyncio.create_task(tool(n)))
            n += 1
        read_to_the_end = len(tasks)
    answers = await asyncio.gather(*tasks)
    return [read_to_the_end, sorted(seen), answers, await ask_async(answers)]


async def streams_of_agents() -> Any:
    """Nested agents that stream, some at once."""

    @loupe.agent(name="streamer")
    async def streamer(who: int) -> str:
        return await _read([who]) + str(await ask_async(who))

    first = await asyncio.gather(*[streamer(who) for who in range(3)])
    return [first, await streamer(9)]


async def pieces_of_several_streams() -> Any:
    """What is asked depends on how the pieces of all streams came between each other."""
    seen: list[Any] = []

    async def one(who: int) -> None:
        async with AsyncReader(who) as reader:
            async for piece in reader:
                seen.append([who, piece.decode()])
                if len(seen) % 3 == 0:
                    seen.append(await ask_async([who, list(seen)]))

    await asyncio.gather(*[one(who) for who in range(3)])
    return seen


async def pieces_between_writes() -> Any:
    """Whoever reads writes now and then, while the pieces of the others come."""
    seen: list[Any] = []

    async def one(who: int) -> None:
        async with AsyncReader(who) as reader:
            async for piece in reader:
                seen.append([who, piece.decode()])
                if len(seen) % 2 == 0:
                    seen.append(await put_async(who=who, seen=list(seen)))

    await asyncio.gather(*[one(who) for who in range(3)])
    return seen


async def pieces_through_a_queue() -> Any:
    """A graph library's way: one task reads, others wait for what is new, each of them made when the last one is done."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()
    seen: list[Any] = []

    async def read() -> None:
        async with AsyncReader("queue") as reader:
            async for piece in reader:
                arrived.put_nowait(piece)

    async def wait() -> None:
        arrived.put_nowait(await arrived.get())

    working, waiting = asyncio.create_task(read()), asyncio.create_task(wait())
    while not working.done() or not arrived.empty():
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        while not arrived.empty():
            seen.append(arrived.get_nowait().decode())
        if waiting.done():
            waiting = asyncio.create_task(wait())
    seen.append(await asyncio.create_task(ask_async(seen)))
    waiting.cancel()
    return seen


def _read_here(about: Any, most: int | None = None) -> str:
    got, count = b"", 0
    with Reader(about) as reader:
        for piece in reader:
            got += piece
            count += 1
            if count == most:
                break
    return got.decode()


def streams_in_a_pool() -> Any:
    """More streams than threads; they are taken as they come to their end."""
    seen: list[Any] = []
    with futures.ThreadPoolExecutor(3) as pool:
        jobs = {pool.submit(_read_here, who): who for who in range(5)}
        for job in futures.as_completed(jobs):
            seen.append([jobs[job], job.result()])
            seen.append(ask(seen))
    return seen


def one_stream_after_another() -> Any:
    seen: list[Any] = []
    for who in range(3):
        seen.append(_read_here([who, seen], most=None if who % 2 else 2))
        seen.append(ask(seen))
    return seen


async def blocking_streams_in_threads() -> Any:
    """Sync streams behind `to_thread`, raced by the first that comes to its end."""
    seen: list[Any] = []
    tasks = [asyncio.create_task(asyncio.to_thread(_read_here, who), name=str(who)) for who in range(3)]
    while tasks:
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        seen.append(sorted(task.get_name() for task in done))
        seen.append(await ask_async(seen))
        tasks = sorted(rest, key=lambda task: task.get_name())
    return seen


def pieces_of_several_threads() -> Any:
    """What is asked depends on how the pieces of all streams came between each other."""
    seen: list[Any] = []

    def one(who: int) -> None:
        with Reader(who) as reader:
            for piece in reader:
                seen.append([who, piece.decode()])
        seen.append(ask([who, list(seen)]))

    with futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(3)))
    return seen


def pieces_between_writes_of_threads() -> Any:
    """Whoever reads writes now and then, while the pieces of the others come."""
    seen: list[Any] = []

    def one(who: int) -> None:
        with Reader(who) as reader:
            for piece in reader:
                seen.append([who, piece.decode()])
                if len(seen) % 2:
                    seen.append(put(who=who, seen=list(seen)))

    with futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(3)))
    return seen


def pieces_through_a_pool() -> Any:
    """A graph library's way: a work item reads, others wait for what is new, each submitted when the last one is done."""
    arrived: queue.Queue[bytes] = queue.Queue()
    seen: list[Any] = []

    def read() -> None:
        with Reader("queue") as reader:
            for piece in reader:
                arrived.put(piece)

    def wait() -> None:
        arrived.put(arrived.get())

    with futures.ThreadPoolExecutor(3) as pool:
        working, waiting = pool.submit(read), pool.submit(wait)
        while not working.done() or not arrived.empty():
            futures.wait({working, waiting}, return_when=futures.FIRST_COMPLETED)
            while not arrived.empty():
                seen.append(arrived.get().decode())
            if waiting.done():
                waiting = pool.submit(wait)
        seen.append(pool.submit(ask, list(seen)).result())
        arrived.put(b"end")
    return seen


STREAM_LOOPS: list[Callable[[], Any]] = [
    streams_as_completed,
    first_stream_wins,
    streams_under_timeouts,
    streams_left_early,
    generators_left_early,
    streams_in_a_group,
    stream_with_tools,
    streams_of_agents,
    pieces_of_several_streams,
    pieces_between_writes,
    pieces_through_a_queue,
]
STREAM_THREADS: list[Callable[[], Any]] = [
    one_stream_after_another,
    streams_in_a_pool,
    blocking_streams_in_threads,
    pieces_of_several_threads,
    pieces_between_writes_of_threads,
    pieces_through_a_pool,
]
