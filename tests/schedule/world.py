"""What the programs of this folder ask: tools and a model that answer late, and differently each time.

A `World` is open while a recording is made. In a replay it is closed: whatever reaches it then is a leak.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.words.call import Call

__all__ = [
    "World",
    "ask",
    "ask_async",
    "breaks",
    "breaks_async",
    "clean_up",
    "fetch",
    "fetch_async",
    "late",
    "late_async",
    "living_in",
    "put",
    "put_async",
    "reluctant",
]

_sleep, _monotonic = time.sleep, time.monotonic


class World:
    """The outside.

    Args:
        seed: of delays and answers.
        closed: nothing may reach it; whatever does is counted in `leaks`.
        scale: the longest delay, in seconds. A fifth of all answers comes at once, and two fifths on four equal steps,
            so that ties are common.
    """

    def __init__(self, seed: int, *, closed: bool = False, scale: float = 0.004) -> None:
        self.closed, self.leaks, self.scale = closed, 0, scale
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    def answer(self) -> tuple[float, int]:
        """How long the next answer takes, and the answer."""
        with self._lock:
            if self.closed:
                self.leaks += 1
            drawn = self._chance.random()
            steps = round(drawn * 4) / 4
            delay = 0.0 if drawn < 0.2 else self.scale * (steps if drawn < 0.6 else drawn)
            return delay, self._chance.randrange(1000)


_worlds: list[World] = []


@contextmanager
def living_in(world: World) -> Generator[World]:
    """Tools ask this world while inside."""
    _worlds.append(world)
    try:
        yield world
    finally:
        _worlds.remove(world)


def late() -> int:
    delay, answer = _worlds[-1].answer()
    _sleep(delay)
    return answer


async def late_async() -> int:
    """As client libraries do it: sometimes with tasks and timers of their own."""
    delay, answer = _worlds[-1].answer()
    if answer % 3 == 0:
        await asyncio.create_task(asyncio.sleep(delay))
    elif answer % 3 == 1:
        await asyncio.sleep(delay)
    else:
        await asyncio.wait_for(asyncio.sleep(delay), 5)
    return answer


@loupe.tool(effect="read")
def fetch(**what: Any) -> int:
    return late()


@loupe.tool(effect="read")
async def fetch_async(**what: Any) -> int:
    return await late_async()


@loupe.tool(effect="write")
def put(**what: Any) -> int:
    return late()


@loupe.tool(effect="write")
async def put_async(**what: Any) -> int:
    return await late_async()


@loupe.tool(effect="read")
async def reluctant(**what: Any) -> int:
    """Takes its time to be cancelled."""
    try:
        return await late_async()
    except asyncio.CancelledError:
        await asyncio.sleep(_worlds[-1].answer()[0] / 2)
        raise


@loupe.tool(effect="read")
async def clean_up(**what: Any) -> int:
    return await late_async()


@loupe.tool(effect="read")
def breaks(**what: Any) -> int:
    """Fails every third time."""
    answer = late()
    if answer % 3 == 0:
        raise ValueError(answer)
    return answer


@loupe.tool(effect="read")
async def breaks_async(**what: Any) -> int:
    answer = await late_async()
    if answer % 3 == 0:
        raise ValueError(answer)
    return answer


def _request(about: Any) -> Call:
    request: Any = {"model": "m", "messages": [{"role": "user", "content": repr(about)}]}
    return Call(
        kind="llm",
        name="chat m",
        input=request,
        encode=lambda value: {"choices": [{"message": {"role": "assistant", "content": str(value)}}]},
        decode=lambda answer: int(answer["choices"][0]["message"]["content"]),  # type: ignore[index,call-overload,arg-type]
    )


def ask(about: Any) -> int:
    """Asks the model; what it is told makes every earlier order visible in the request."""
    return ambient.call(_request(about), late)


async def ask_async(about: Any) -> int:
    return await ambient.acall(_request(about), late_async)
