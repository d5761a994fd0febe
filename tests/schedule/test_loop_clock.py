"""Programs that look at the loop's clock when a timer of theirs has run out, as the cancel scopes of anyio do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener

SHORT = 0.05  # to be waited for once, by the recording


@loupe.tool(effect="read")
def look(thing: str) -> str:
    return thing.upper()


@loupe.agent
async def scopes() -> tuple[bool, str]:
    with anyio.move_on_after(SHORT) as scope:
        await anyio.sleep(60)
    return scope.cancelled_caught, await anyio.to_thread.run_sync(look, "tea")


@loupe.agent
async def deadlines() -> list[bool]:
    clock, seen = asyncio.get_running_loop().time, list[bool]()
    for part in (1, 2):
        end = clock() + SHORT / part
        await asyncio.sleep(SHORT / part)
        seen.append(clock() >= end)
    return seen


@pytest.mark.parametrize("agent", [scopes, deadlines])
def test_a_timer_that_ran_out_is_over_by_the_loops_clock_too(agent: Callable[[], Any]) -> None:
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(agent())
    report = replay(store.recording(opener.sessions[0].run_id), agent, strict_order=True)
    assert report.passed, report.text()
