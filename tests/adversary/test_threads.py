"""Threads belong to their run; what a run starts as a run of its own, or outside of any, happens in no fork and no replay."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from _thread import allocate_lock
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ForkRefused, ReplayRefused
from agentloupe.words.run import Run

PAID: list[int] = []
ROAD: list[Callable[[], object]] = []


@loupe.tool(effect="write")
def pay(amount: int) -> str:
    PAID.append(amount)
    return f"paid {amount}"


@loupe.tool(effect="read")
def rates(amount: int) -> int:
    """A tool that is served whole: what its own threads do is not asked for again."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(double, amount).result()


@loupe.tool(effect="pure")
def double(amount: int) -> int:
    return 2 * amount


@loupe.agent(name="clerk")
def clerk(amount: int) -> str:
    return pay(amount)


def ask(text: str) -> object:
    request: dict[str, Json] = {"model": "m", "messages": [{"role": "user", "content": text}]}
    answer: dict[str, Any] = {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}
    call = Call(
        kind="llm",
        name="chat m",
        input=request,
        encode=lambda value: value,  # type: ignore[arg-type,return-value]
        decode=lambda value: value,
        resend=lambda _: answer,
    )
    return ambient.call(call, lambda: answer)


def in_a_thread() -> None:
    thread = threading.Thread(target=pay, args=(1,))
    thread.start()
    thread.join()


def in_a_pool() -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda amount: pool_pay(amount), [1]))


def pool_pay(amount: int) -> None:
    with suppress(BaseException):  # what programs do
        pay(amount)


OLD_POOL = ThreadPoolExecutor(1)


def in_a_pool_that_was_there() -> None:
    OLD_POOL.submit(pool_pay, 1).result()


def an_agent_in_a_thread() -> None:
    thread = threading.Thread(target=clerk, args=(1,))
    thread.start()
    thread.join()


def an_agent_recorded_apart() -> None:
    with suppress(BaseException):
        loupe.record(clerk, 1)


def a_thread_of_a_thread() -> None:
    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()


THREADS = [in_a_thread, in_a_pool, in_a_pool_that_was_there, an_agent_in_a_thread, a_thread_of_a_thread]


@loupe.agent(name="worker")
def worker() -> str:
    ask("first")
    for road in ROAD:
        road()
    ask("second")
    return "done"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    PAID.clear()
    ROAD.clear()
    OLD_POOL.submit(len, "").result()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)


def recorded(store: MemoryStore) -> Run:
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        worker()
    run = store.run(opener.sessions[0].run_id)
    assert run is not None
    return run


@pytest.mark.parametrize("road", THREADS)
def test_threads_are_lanes_of_the_run(road: Callable[[], object]) -> None:
    store = MemoryStore()
    ROAD.append(road)
    run = recorded(store)
    assert PAID == [1], "the program runs as it would without a recorder"
    assert run.coverage == "full"
    report = replay(store.recording(run.id), worker, strict_order=True)
    assert report.passed, report.text()
    starts: tuple[Any, ...] = (1, "start")
    for start in starts:
        fork(run.id, worker, from_step=start, store=store)
    assert PAID == [1], "answered from the recording"


def test_a_recording_says_what_was_recorded_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LOUPE_DB", str(tmp_path / "loupe.db"))
    store = MemoryStore()
    ROAD.append(an_agent_recorded_apart)
    run = recorded(store)
    assert PAID == [1], "the program runs as it would without a recorder"
    assert run.coverage == "control_flow"
    with pytest.raises(ReplayRefused, match="ran outside the run's context"):
        replay(store.recording(run.id), worker)
    starts: tuple[Any, ...] = (1, "start")
    for start in starts:
        with pytest.raises(ForkRefused, match="ran outside the run's context"):
            fork(run.id, worker, from_step=start, store=store)
    assert PAID == [1]


@pytest.mark.parametrize("road", THREADS)
@pytest.mark.parametrize("start", [1, "start"])
def test_a_fork_misses_what_its_code_has_new_in_a_thread(road: Callable[[], object], start: Any) -> None:
    store = MemoryStore()
    run = recorded(store)
    ROAD.append(road)
    (forked,) = fork(run.id, worker, from_step=start, store=store).candidates
    assert forked.counts.miss == 1
    assert PAID == []


@pytest.mark.parametrize("start", [1, "start"])
def test_a_fork_lets_no_run_of_its_own_start(start: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("LOUPE_DB", str(tmp_path / "loupe.db"))
    store = MemoryStore()
    run = recorded(store)
    ROAD.append(an_agent_recorded_apart)
    with pytest.raises(ForkRefused):
        fork(run.id, worker, from_step=start, store=store)
    assert PAID == []


@pytest.mark.parametrize("road", [*THREADS, an_agent_recorded_apart])
def test_a_replay_lets_nothing_happen_in_a_thread_and_says_so(road: Callable[[], object]) -> None:
    store = MemoryStore()
    run = recorded(store)
    ROAD.append(road)
    report = replay(store.recording(run.id), worker)
    found = "leak" if road is an_agent_recorded_apart else "extra"
    assert (report.verdict, report.reason) == ("diverged", found), report.text()
    assert PAID == []


def test_a_fork_lets_nothing_happen_in_an_empty_context() -> None:
    store = MemoryStore()
    run = recorded(store)
    ROAD.append(lambda: contextvars.Context().run(pay, 1))
    with pytest.raises(ForkRefused, match="tool pay"):
        fork(run.id, worker, from_step=1, store=store)
    assert PAID == []


def test_threads_inside_of_a_recorded_tool_are_the_tools_own_matter() -> None:
    store = MemoryStore()
    ROAD.append(lambda: rates(3))
    run = recorded(store)
    assert run.coverage == "full"
    assert replay(store.recording(run.id), worker).passed


def test_a_pools_worker_does_not_stay_with_the_run_that_needed_it_first() -> None:
    store = MemoryStore()
    ROAD.append(lambda: OLD_POOL.submit(len, "abc").result())
    run = recorded(store)
    assert run.coverage == "full"
    assert OLD_POOL.submit(pay, 4).result() == "paid 4"


async def _later() -> str:
    return pay(1)


def test_what_a_plain_function_returns_to_be_awaited_runs_in_no_fork_for_real() -> None:
    @loupe.agent(name="late")
    def late() -> Any:
        ask("first")
        return _later()

    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        coroutine = late()
    coroutine.close()
    with pytest.raises(ForkRefused):
        fork(opener.sessions[0].run_id, late, from_step="start", store=store)
    assert PAID == []


# ---------------------------------------------------------------- what a stopped replay leaves behind


def asks_in_a_thread() -> None:
    thread = threading.Thread(target=ask, args=("third",))
    thread.start()
    thread.join()


def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What threads tell the user's terminal, as it comes."""
    lines: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: lines.append(type(told.exc_value).__name__))
    return lines


def join_all(before: set[threading.Thread]) -> None:
    for left in set(threading.enumerate()) - before:
        left.join(10)
        assert not left.is_alive()


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("road", [in_a_thread, an_agent_in_a_thread, a_thread_of_a_thread])
def test_a_thread_that_dies_of_the_end_of_a_replay_says_nothing_in_process(
    road: Callable[[], object], debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    run = recorded(store)
    ROAD.append(road)
    lines, before = told(monkeypatch), set(threading.enumerate())
    if debug:
        monkeypatch.setenv("LOUPE_DEBUG", "1")
    assert not replay(store.recording(run.id), worker).passed
    join_all(before)
    assert set(lines) == ({"ReplayMismatch"} if debug else set())


def test_a_thread_of_a_recording_that_is_over_is_refused_by_a_later_replay_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, over = allocate_lock(), allocate_lock()
    go.acquire()
    over.acquire()

    def outlives() -> None:
        with go:
            try:
                pay(1)
            finally:
                over.release()

    def lets_it_go_on() -> None:
        go.release()
        over.acquire()

    store = MemoryStore()
    lines, before = told(monkeypatch), set(threading.enumerate())
    ROAD.append(lambda: threading.Thread(target=outlives).start())
    recorded(store)
    ROAD.clear()
    honest = recorded(store)
    ROAD.append(lets_it_go_on)
    report = replay(store.recording(honest.id), worker)
    join_all(before)
    assert report.reason == "leak"
    assert (PAID, lines) == ([], [])


@pytest.mark.parametrize("debug", [True, False])
def test_a_thread_that_dies_of_the_limit_of_a_fork_says_nothing_in_process(
    debug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    run = recorded(store)
    ROAD.append(asks_in_a_thread)
    lines, before = told(monkeypatch), set(threading.enumerate())
    if debug:
        monkeypatch.setenv("LOUPE_DEBUG", "1")
    (forked,) = fork(run.id, worker, from_step="start", store=store, max_steps=1).candidates
    join_all(before)
    assert (forked.status, store.steps(forked.id)[-1].name) == ("error", "max_steps")
    assert set(lines) == ({"LimitReached"} if debug else set())


SIZES = [1, 2, 3]


@loupe.agent(name="pooled")
async def pooled() -> list[int]:
    loop = asyncio.get_running_loop()
    waiting = [loop.run_in_executor(None, rates, size) for size in SIZES]
    return [await one for one in asyncio.as_completed(waiting)]


def test_a_stopped_replay_leaves_nothing_for_the_loop_to_complain_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(pooled())
    monkeypatch.setitem(globals(), "SIZES", [1, 2, 30])
    report = replay(store.recording(opener.sessions[0].run_id), pooled)
    assert report.divergence is not None
    assert report.divergence.kind == "input_changed"
    gc.collect()
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []
