"""Programs of one event loop. Each returns all that it can see of the order of things."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.schedule.world import ask_async, clean_up, fetch_async, reluctant

__all__ = ["LOOPS"]


async def gathered() -> Any:
    """gather of identical calls in two steps each; who is first decides what the model is asked."""
    seen: list[Any] = []

    async def pair(who: int) -> int:
        total = 0
        for _ in range(2):
            answer = await fetch_async()
            seen.append((who, answer))
            total += answer
        return total

    totals = await asyncio.gather(*(pair(who) for who in range(6)))
    return seen, totals, await ask_async(seen)


async def as_they_complete() -> Any:
    """as_completed over bare coroutines, which asyncio keeps in a set."""

    async def one(who: int) -> int:
        await fetch_async(who=who)
        return who

    seen: list[int] = []
    for next_one in asyncio.as_completed([one(who) for who in range(6)]):
        seen.append(await next_one)
        if len(seen) == 3:
            seen.append(await ask_async(seen))
    return seen


async def first_wins() -> Any:
    """wait(FIRST_COMPLETED); the others are looked at and cancelled, in the order of the set."""
    seen: list[Any] = []

    async def runner(who: int) -> int:
        try:
            for _ in range(2):
                await (reluctant() if who % 2 else fetch_async())
            return who
        except asyncio.CancelledError:
            seen.append(f"stopped {who}")
            raise

    runners = [asyncio.create_task(runner(who), name=str(who)) for who in range(6)]
    done, others = await asyncio.wait(runners, return_when=asyncio.FIRST_COMPLETED)
    seen.append(sorted(task.get_name() for task in done))
    seen.append(await ask_async(seen))
    seen.append([task.done() for task in runners])
    for task in others:
        task.cancel()
        seen.append(task.get_name())
    ends = await asyncio.gather(*others, return_exceptions=True)
    return seen, [str(end) for end in ends]


async def sets_in_their_order() -> Any:
    """wait(ALL_COMPLETED), then one call for each finished task as the set gives them."""

    async def one(who: int) -> tuple[int, int]:
        return who, await fetch_async()

    done, _ = await asyncio.wait([asyncio.create_task(one(who)) for who in range(6)])
    return [await fetch_async(about=task.result()) for task in done]


async def timeouts() -> Any:
    """timeout, wait_for and as_completed(timeout=) that sometimes fire; retries with pauses."""
    seen: list[Any] = []

    async def patient(who: int) -> list[Any]:
        tries: list[Any] = []
        for again in range(3):
            try:
                if who % 2:
                    async with asyncio.timeout(0.0021):
                        tries.append(await fetch_async())
                else:
                    tries.append(await asyncio.wait_for(fetch_async(), 0.0021))
            except TimeoutError:
                tries.append("late")
                await asyncio.sleep(0.001 * again)
            seen.append((who, tries[-1]))
        return tries

    got: list[Any] = []
    try:
        for next_one in asyncio.as_completed([patient(who) for who in range(5)], timeout=0.008):
            got.append(await next_one)
    except TimeoutError:
        got.append("all late")
    return list(seen), got


async def group_that_fails() -> Any:
    """A TaskGroup with a member that fails: the others are cancelled wherever they are, and clean up."""
    seen: list[Any] = []

    async def member(who: int) -> None:
        try:
            for step in range(3):
                answer = await reluctant(step=step)
                seen.append((who, step, answer))
                if answer % 5 == 0:
                    raise ValueError(who)
        except asyncio.CancelledError:
            seen.append((who, "cancelled"))
            await clean_up()
            raise

    try:
        async with asyncio.TaskGroup() as group:
            for who in range(5):
                group.create_task(member(who))
    except* ValueError as failed:
        seen.append([error.args[0] for error in failed.exceptions])
    return seen


async def queue_and_semaphore() -> Any:
    """Workers that share a semaphore fill a queue; the consumer looks at its size."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    few, seen = asyncio.Semaphore(2), list[Any]()

    async def worker(who: int) -> None:
        for _ in range(3):
            async with few:
                queue.put_nowait((who, await fetch_async()))

    workers = [asyncio.create_task(worker(who)) for who in range(4)]
    for _ in range(12):
        seen.append((await queue.get(), queue.qsize()))
        if len(seen) % 4 == 0:
            seen.append(await ask_async(seen))
    await asyncio.gather(*workers)
    return seen


async def hedged() -> Any:
    """A second try after a pause; the first answer wins, the loser is cancelled; three rounds."""

    async def hedge(who: int) -> Any:
        first = asyncio.create_task(reluctant(who=who))
        done, _ = await asyncio.wait({first}, timeout=0.0015)
        if done:
            return "fast", first.result()
        second = asyncio.create_task(fetch_async(who=who))
        done, losers = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        for task in losers:
            task.cancel()
        return "hedged", [task is first for task in done], [task.result() for task in done]

    return [await asyncio.gather(*(hedge(who) for who in range(3))) for _ in range(3)]


LOOPS = [
    gathered,
    as_they_complete,
    first_wins,
    sets_in_their_order,
    timeouts,
    group_that_fails,
    queue_and_semaphore,
    hedged,
]
