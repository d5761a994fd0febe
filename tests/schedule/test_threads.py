"""Threads at the edges of a run: older and younger than it, shared with others, broken, forked, interrupted."""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import contextlib
import contextvars
import inspect
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.locks import HandedLock
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.sessions import RecordOpener
from tests.schedule.trial import made, marks_of, replayed
from tests.schedule.world import World, ask, fetch, fetch_async, living_in


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL, "agentloupe")
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "1")


@pytest.fixture
def old_pool() -> Iterator[futures.ThreadPoolExecutor]:
    with futures.ThreadPoolExecutor(2) as pool:
        pool.submit(len, "").result()
        yield pool


def passes(program: Callable[[], Any], *, seed: int = 1, strict: bool = True) -> Any:
    one = made(program, seed)
    for _ in range(3):
        report, trace, leaks = replayed(one)
        assert (report.passed, leaks) == (True, 0), report.text()
        assert trace == one.trace
        assert not (strict and report.unproven), report.text()
    return one


def in_threads(jobs: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


# --- whose line it is ---------------------------------------------------------------------------------------------------


def _submitted(pool: futures.ThreadPoolExecutor, who: int) -> None:
    pool.submit(fetch, who=who)  # this line


def _threaded(pool: futures.ThreadPoolExecutor, who: int) -> None:
    thread = threading.Thread(target=fetch, kwargs={"who": who})
    thread.start()  # this line
    thread.join()


def _tasked(pool: futures.ThreadPoolExecutor, who: int) -> None:
    async def main() -> None:
        await asyncio.gather(fetch_async(who=who), fetch_async())  # this line

    asyncio.run(main())


def _to_thread(pool: futures.ThreadPoolExecutor, who: int) -> None:
    async def main() -> None:
        await asyncio.to_thread(fetch, who=who)  # this line

    asyncio.run(main())


@pytest.mark.parametrize("way", [_submitted, _threaded, _tasked, _to_thread])
def test_a_call_that_was_handed_away_is_of_the_line_that_handed_it(way: Callable[..., None]) -> None:
    who = [1]

    def program() -> Any:
        with futures.ThreadPoolExecutor(1) as pool:
            way(pool, who[0])
        return None

    one = made(program, 1)
    who[0] = 2
    report, _, _ = replayed(one)
    assert report.divergence is not None
    source, first = inspect.getsourcelines(way)
    line = first + next(n for n, text in enumerate(source) if "this line" in text)
    assert str(report.divergence.caller) == f"{__file__}:{line}", report.text()


# --- limits -------------------------------------------------------------------------------------------------------------


class _Slow(queue.Queue[Any]):
    """Takes its time between the look at the clock and the wait."""

    busy = 0.0

    def _qsize(self) -> int:
        until = time.perf_counter() + self.busy
        while time.perf_counter() < until:
            pass
        return super()._qsize()


@pytest.mark.parametrize("late", ["when recorded", "when replayed"])
def test_a_limit_that_is_over_before_the_wait_expires_in_its_turn_also_in_a_program_of_one_thread(late: str) -> None:
    def program() -> Any:
        told, seen = _Slow(), list[Any]()
        for _ in range(3):
            with contextlib.suppress(queue.Empty):
                seen.append(told.get(timeout=0.02))
            seen.append(fetch(seen=len(seen)))
        return seen

    _Slow.busy = 0.04 if late == "when recorded" else 0.0
    one = made(program, 1)
    _Slow.busy = 0.04 if late == "when replayed" else 0.0
    report, trace, leaks = replayed(one)
    assert (report.passed, leaks, trace) == (True, 0, one.trace), report.text()
    assert not report.unproven, report.text()


def test_the_recorders_own_waits_end_by_the_real_clock_in_a_thread_of_a_run() -> None:
    def program() -> Any:
        threading.Thread(target=fetch).start()  # from here on threads pass a baton
        own = plain.Condition()
        with own:
            return own.wait_for(lambda: False, timeout=0.02), fetch()

    assert made(program, 1).trace[0] is False


# --- older than the run -------------------------------------------------------------------------------------------------


def test_a_pool_that_is_older_than_the_run_is_foreseen_when_it_rests(old_pool: futures.ThreadPoolExecutor) -> None:
    def program() -> Any:
        jobs = [old_pool.submit(fetch, who=who) for who in range(5)]
        return [job.result() for job in futures.as_completed(jobs)]

    passes(program)
    passes(program, seed=2)


def test_a_loop_that_is_older_than_the_run_takes_its_coroutines() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:

        def program() -> Any:
            seen: list[Any] = []

            async def one(who: int) -> None:
                seen.append((who, await fetch_async(who=who)))
                seen.append((who, await fetch_async(again=who)))

            waiting = [asyncio.run_coroutine_threadsafe(one(who), loop) for who in range(4)]
            seen.append(ask(seen))
            for future in futures.as_completed(waiting):
                future.result()
            return seen, ask(seen)

        passes(program)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_others_in_a_pool_cost_the_proof_and_nothing_else(old_pool: futures.ThreadPoolExecutor) -> None:
    go = threading.Event()
    old_pool.submit(len, "").result()

    def program() -> Any:
        first = old_pool.submit(fetch, who=0).result()
        return first, [job.result() for job in [old_pool.submit(fetch, who=who) for who in range(1, 4)]]

    made(program, 1)  # the pool is known from here on
    waiting = old_pool.submit(go.wait)
    try:
        one = made(program, 2)
        assert marks_of(one.recording).get("guess", 0) >= 1
        assert len(one.trace[1]) == 3
    finally:
        go.set()
        waiting.result()


def test_two_runs_share_a_pool_at_the_same_time(old_pool: futures.ThreadPoolExecutor) -> None:
    recorded: dict[int, Any] = {}

    def one_run(who: int) -> None:
        def program() -> Any:
            return [job.result() for job in [old_pool.submit(fetch, who=who, part=part) for part in range(6)]]

        opener = RecordOpener(store := MemoryStore())
        with ambient.opening_with(opener):
            result = loupe.agent(name="one")(program)()
        recorded[who] = (result, store.recording(opener.sessions[-1].run_id))

    with living_in(World(3)):
        in_threads([lambda who=who: one_run(who) for who in range(3)])
    for who in range(3):
        result, recording = recorded[who]
        asked = [event for event in recording.events if event.type == "tool.finished"]
        assert len(result) == len(asked) == 6, "each run has its own calls, and only these"
        assert recording.events[-1].attrs["coverage"] == "full"


# --- younger than the run -----------------------------------------------------------------------------------------------


def test_a_thread_that_outlives_its_run_goes_on_outside_of_it() -> None:
    over, ended = threading.Event(), threading.Event()
    late: list[Any] = []

    def program() -> Any:
        def work() -> None:
            over.wait()
            late.append(fetch(late=True))
            ended.set()

        threading.Thread(target=work, daemon=True).start()
        return fetch()

    with living_in(World(1)):
        opener = RecordOpener(store := MemoryStore())
        with ambient.opening_with(opener):
            loupe.agent(name="x")(program)()
        over.set()
        assert ended.wait(10)
    assert len(late) == 1
    recording = store.recording(opener.sessions[-1].run_id)
    assert sum(event.type == "tool.finished" for event in recording.events) == 1


def test_what_is_left_waiting_in_a_replay_does_not_stay() -> None:
    def program() -> Any:
        def work() -> None:
            fetch(slow=True)
            threading.Event().wait(0.01)
            fetch(never="come to")

        thread = threading.Thread(target=work, name="left over")
        thread.start()
        return fetch()

    with living_in(World(5)):  # the thread may ask after its run has ended
        one = made(program, 5)
        for _ in range(3):
            replayed(one)
        left = [thread for thread in threading.enumerate() if thread.name == "left over"]
        for thread in left:
            thread.join(10)
            assert not thread.is_alive(), "a process must be able to end"


def test_a_pools_worker_does_not_stay_with_a_run() -> None:
    with futures.ThreadPoolExecutor(1) as pool, living_in(World(1)):
        for _ in range(2):
            opener = RecordOpener(store := MemoryStore())
            with ambient.opening_with(opener):
                loupe.agent(name="x")(lambda: pool.submit(fetch).result())()
            recording = store.recording(opener.sessions[-1].run_id)
            assert sum(event.type == "tool.finished" for event in recording.events) == 1
            assert pool.submit(ambient.current).result() is None


# --- what breaks --------------------------------------------------------------------------------------------------------


def test_a_broken_pool_breaks_as_without_a_recorder() -> None:
    def fail() -> None:
        raise ValueError

    def program() -> Any:
        logging.getLogger("concurrent.futures").setLevel(logging.CRITICAL + 1)
        with futures.ThreadPoolExecutor(1, initializer=fail) as pool:
            try:
                return pool.submit(fetch).result(5)
            except futures.BrokenExecutor:
                return "broken"

    assert passes(program, strict=False).trace == "broken"


def test_errors_in_threads_and_work_items_come_out_as_without_a_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda hook: raised.append(type(hook.exc_value).__name__))

    def program() -> Any:
        def bad() -> None:
            fetch()
            raise KeyError("x")

        thread = threading.Thread(target=bad)
        thread.start()
        thread.join()
        with futures.ThreadPoolExecutor(1) as pool:
            return thread.is_alive(), repr(pool.submit(bad).exception())

    assert passes(program).trace == (False, "KeyError('x')")
    assert raised == ["KeyError"] * 4


def test_a_recording_never_stops_a_program_that_waits_for_what_nobody_sees() -> None:
    """A pipe between two threads: the recorder cannot see it, so it lets others go on."""

    def program() -> Any:
        reading, writing = os.pipe()

        def work() -> None:
            answer = fetch()
            os.write(writing, str(answer).encode())

        thread = threading.Thread(target=work)
        thread.start()
        got = os.read(reading, 10).decode()
        thread.join()
        os.close(reading)
        os.close(writing)
        return got

    one = made(program, 1)
    assert marks_of(one.recording).get("guess", 0) >= 1
    report, trace, _ = replayed(one)
    assert report.passed
    assert trace == one.trace
    assert report.unproven


# --- without a baton ----------------------------------------------------------------------------------------------------


def test_without_a_baton_threads_run_freely_and_a_pass_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> Any:
        with futures.ThreadPoolExecutor(3) as pool:
            return sorted(pool.map(lambda who: (who, fetch(who=who)), range(6)))

    monkeypatch.setenv("LOUPE_SCHEDULE", "no_baton")
    one = made(program, 1)
    report, trace, leaks = replayed(one)
    assert report.passed, report.text()
    assert (trace, leaks) == (one.trace, 0)
    assert "threads run freely" in report.unproven[0]


# --- processes ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_no_part_of_the_run_and_the_recording_says_so() -> None:
    def program() -> Any:
        def beside() -> None:
            fetch(beside=True)

        thread = threading.Thread(target=beside)
        thread.start()
        child = os.fork()
        if child == 0:
            try:
                fetch(in_the="child")
                os._exit(7 if ambient.current() is not None or fetch() >= 0 else 8)
            except BaseException:
                os._exit(9)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        thread.join()
        return code, fetch()

    one = made(program, 1)
    assert one.trace[0] == 7
    attrs = one.recording.events[-1].attrs
    assert attrs["coverage"] == "control_flow"
    assert "child process" in str(attrs["coverage_notes"])
    calls = [event for event in one.recording.events if event.type == "tool.finished"]
    assert len(calls) == 2, "the child's calls are not in it"


# --- names ---------------------------------------------------------------------------------------------------------------


def test_locks_of_a_run_look_and_behave_like_locks() -> None:
    seen: list[Any] = []

    def program() -> None:
        lock, again = threading.Lock(), threading.RLock()
        seen.append((type(lock) is HandedLock, lock.locked(), lock.acquire(False), lock.acquire(False), lock.locked()))
        seen.append(lock.acquire(timeout=0.01))
        lock.release()
        condition = threading.Condition(again)
        with again, again, condition:
            seen.append(condition.wait(0.001))
        with pytest.raises(RuntimeError):
            lock.release()
        with pytest.raises(RuntimeError):
            again.release()

    made(program, 1)
    assert seen == [(True, False, True, False, True), False, False]
    assert type(threading.Lock()) is not HandedLock, "outside of runs nothing changes"


def test_sleeping_in_a_replay_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> Any:
        def nap() -> None:
            time.sleep(0.15)
            fetch()

        in_threads([nap, nap])
        time.sleep(0.1)
        return fetch()

    one = made(program, 1)
    really, slept = plain.sleep, [0.0]
    monkeypatch.setattr(plain, "sleep", lambda seconds: (slept.append(seconds), really(seconds))[1])
    report, _, _ = replayed(one)
    assert report.passed, report.text()
    assert max(slept) < 0.1, "what looks after the program may sleep, the program does not"


class _SlowDisk(MemoryStore):
    """A store that takes its time where a write has to be on the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0

    def _append(self, run_id: str, owner: Any, drafts: Any, bodies: Any) -> None:
        if any(draft.type == "tool.requested" for draft in drafts):
            self.waited += 1
            plain.sleep(0.2)
        super()._append(run_id, owner, drafts, bodies)


def test_a_thread_that_waits_for_the_recorder_s_disk_is_not_taken_for_stuck() -> None:
    @loupe.tool(effect="write")
    def pay(amount: int) -> int:
        return amount

    def turns() -> None:
        for _ in range(20):
            time.sleep(0.001)

    @loupe.agent(name="payer")
    def payer() -> int:
        threads = [threading.Thread(target=job) for job in (lambda: pay(3), turns, turns)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return pay(4)

    store = _SlowDisk()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        payer()
    assert store.waited == 2
    recording = store.recording(opener.sessions[0].run_id)
    assert marks_of(recording) == {}
    assert loupe.replay(recording, payer, strict_order=True).passed


def test_nothing_stands_before_the_beginning_of_a_run() -> None:
    """What the schedule says while a run begins is kept for it, and comes after its start."""

    class Marking(RecordOpener):
        def _started(self, opening: Any, settings: Any, recorder: Any, task_id: Any) -> Any:
            recorder.schedule.mark("guess", {"why": "early"})
            return super()._started(opening, settings, recorder, task_id)

    @loupe.agent(name="early")
    def early() -> str:
        return "done"

    store = MemoryStore()
    opener = Marking(store)
    with ambient.opening_with(opener):
        early()
    events = store.recording(opener.sessions[0].run_id).events
    assert events[0].type == "run.started"


def test_a_worker_that_a_callback_without_context_ends_is_of_the_run() -> None:
    """As anyio does: threads for blocking code are ended by a callback of the main task, in an empty context."""
    jobs: queue.Queue[Any]

    def work() -> None:
        while (job := jobs.get()) is not None:
            loop, waiting, who = job
            loop.call_soon_threadsafe(waiting.set_result, fetch(n=who))

    async def main() -> list[int]:
        nonlocal jobs
        jobs = queue.Queue()
        threading.Thread(target=work).start()
        loop = asyncio.get_running_loop()
        task: Any = asyncio.current_task()

        def never(_: object) -> None:
            jobs.put(None)

        def end(_: object) -> None:
            jobs.put(None)

        task.add_done_callback(never, context=contextvars.Context())
        task.add_done_callback(end, context=contextvars.Context())
        assert task.remove_done_callback(never) == 1
        answers: list[int] = []
        for who in range(3):
            waiting = loop.create_future()
            jobs.put((loop, waiting, who))
            answers.append(await waiting)
        return answers

    def program() -> Any:
        answers = asyncio.run(main())
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and getattr(thread, "_target", None) is work:
                thread.join(5)
        return [answers, jobs.qsize()]

    one = passes(program)
    assert marks_of(one.recording) == {}


def test_a_thread_that_others_were_let_past_may_compute_as_long_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited where nobody could see it (an import that another thread is in, a lock older than the run); then it works."""
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "0.3")
    old = plain.allocate_lock()

    def program() -> Any:
        old.acquire()

        def waits_and_works() -> int:
            with old:
                began = time.thread_time()
                while time.thread_time() - began < 0.6:
                    pass
            return ask("worked")

        with futures.ThreadPoolExecutor(2) as pool:
            working = pool.submit(waits_and_works)
            pool.submit(old.release)
            return working.result()

    one = made(program, 1)
    report, trace, leaks = replayed(one)
    assert (report.passed, leaks, trace) == (True, 0, one.trace), report.text()
    assert report.unproven, "what was not seen is said"


def test_a_thread_that_others_were_let_past_and_that_waits_for_its_turn_is_no_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looks after its replay now and then, which is no work of its own: a replay that stands still is stopped."""
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "0.3")
    old, never = plain.allocate_lock(), plain.allocate_lock()
    recorded: list[bool] = [True]

    def program() -> Any:
        old.acquire()

        def waits_and_asks() -> int:
            with old:
                return ask("worked")

        def lets_go() -> None:
            old.release()
            if not recorded:
                never.acquire()  # in the replay this thread keeps what it has, and nobody sees why
                never.acquire(timeout=2)

        with futures.ThreadPoolExecutor(2) as pool:
            working = pool.submit(waits_and_asks)
            pool.submit(lets_go)
            answer = working.result()
            return [answer, ask("more")] if recorded else threading.Event().wait()

    one = made(program, 1)
    recorded.clear()
    report, _, leaks = replayed(one)
    assert (report.passed, leaks) == (False, 0), report.text()
    assert report.reason == "missing", report.text()
