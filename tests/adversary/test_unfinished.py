"""Runs that end before their calls do, runs whose ancestors are gone, stores that take long to fail."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.book import Book
from agentloupe.ports import ambient
from agentloupe.ports.scribe import Entry
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ReplayRefused, StoreBusy
from agentloupe.words.event import Draft, Head
from agentloupe.words.run import Owner
from tests.adversary.test_threads import ask


@loupe.tool(effect="read")
async def slow(k: str) -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(3600)
    return k


@loupe.agent(name="hasty")
async def hasty() -> str:
    task = asyncio.create_task(slow("a"))
    await asyncio.sleep(0)
    del task
    return "done"


def test_a_read_that_outlives_its_run_is_left_in_flight_by_a_replay() -> None:
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(hasty())
    run = store.run(opener.sessions[0].run_id)
    assert run is not None
    assert run.coverage == "full"
    assert replay(store.recording(run.id), hasty).verdict == "pass"


@loupe.tool(effect="write")
async def send(k: str) -> str:
    return await slow(k)


@loupe.agent(name="careless")
async def careless() -> str:
    task = asyncio.create_task(send("a"))
    await asyncio.sleep(0)
    del task
    return "done"


def test_a_write_that_outlives_its_run_is_a_gap_and_no_damage() -> None:
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(careless())
    run = store.run(opener.sessions[0].run_id)
    assert run is not None
    assert run.coverage == "limited_replay"
    with pytest.raises(ReplayRefused, match="tool send had not ended when the run did"):
        replay(store.recording(run.id), careless)


# ---------------------------------------------------------------- a deleted ancestor


@loupe.tool(effect="read")
def look(k: str) -> str:
    return k.upper()


LATE: list[bool] = []


@loupe.agent(name="looker")
def looker() -> str:
    ask("first")
    ask("second")
    try:
        return look("late") if LATE else "nothing"
    except Exception as error:
        return type(error).__name__


def test_a_deleted_ancestor_answers_nothing() -> None:
    store = MemoryStore()
    opener = RecordOpener(store)
    LATE[:] = [True]
    with ambient.opening_with(opener):
        looker()
    parent = opener.sessions[0].run_id
    LATE.clear()
    child = fork(parent, looker, from_step=1, store=store).candidates[0]
    LATE[:] = [True]
    found = fork(child.id, looker, from_step=2, store=store).candidates[0]
    assert (found.counts.cassette, found.counts.miss) == (1, 0)
    delete_run(store, found.id)
    delete_run(store, parent)
    store.gc()
    after = fork(child.id, looker, from_step=2, store=store).candidates[0]
    assert (after.status, after.counts.cassette, after.counts.miss) == ("ok", 0, 1)


# ---------------------------------------------------------------- a store that somebody else has locked


class _Locked:
    """A writer that waits for half a minute before it says that it cannot."""

    run_id = "locked"
    owner = Owner("", 0, "")
    head = Head(0, "")

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock
        self.asked = 0

    def append(self, drafts: object, bodies: object = (), durability: object = "commit") -> None:
        self.asked += 1
        self.clock[0] += 30_000
        raise StoreBusy("locked by another process")

    def offer(self, drafts: object, bodies: object = ()) -> bool:
        self.append(drafts, bodies)
        return True

    def remind(self, collect: object) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def test_a_locked_store_costs_an_agent_a_tenth_of_its_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(ambient, "monotonic_ms", lambda: clock[0])
    writer: Any = _Locked(clock)
    book = Book(writer, threading.RLock())
    draft = Draft(type="clock.read", event_id="e", recorded_at="2026-01-01T00:00:00.000000Z")
    for _ in range(360):  # an hour of calls
        clock[0] += 10_000
        book.append(Entry((draft,)))
    waited = writer.asked * 30_000
    assert waited <= clock[0] / 10
    assert writer.asked > 5, "it is asked again"
