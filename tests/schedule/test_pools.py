"""Work items of pools when threads are slow: whoever is late, where and by how much, the order is exact or says that it is not."""

from __future__ import annotations

import concurrent.futures as futures
import logging
import time
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports.schedule import plain, pools, watch
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.schedule.parts import Item, Strand
from agentloupe.ports.surroundings import here
from tests.schedule.trial import Made, made, marks_of, replayed
from tests.schedule.world import ask, fetch

A_WHILE = 20.0


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL, "agentloupe")
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "2")


def schedule_here() -> Schedule:
    there = here()
    assert there is not None
    assert there.schedule is not None
    return there.schedule


def reasons(one: Made) -> set[str]:
    """Why the order of a recording is not proven."""
    return {str(event.attrs.get("why")) for event in one.recording.events if event.type == "schedule.marked"}


class Gateway:
    """Opened once; who waits for it does so where no hook sees it, for `A_WHILE` at most."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def open(self) -> None:
        if self._lock.locked():
            self._lock.release()

    def wait(self) -> None:
        assert self._lock.acquire(True, A_WHILE)
        self._lock.release()


class Interrupted(dict[str, Item]):
    """Inputs of a schedule. The thread that brings the first one loses the processor there, until others have done what they can."""

    def __init__(self, schedule: Schedule, meanwhile: Callable[[], None]) -> None:
        super().__init__(schedule.items)
        self.schedule, self.meanwhile, self.first = schedule, meanwhile, True

    def __setitem__(self, id: str, item: Item) -> None:
        super().__setitem__(id, item)
        if self.first and item.loop is None:
            self.first = False
            if self._others_may():
                self.meanwhile()

    def _others_may(self) -> bool:
        """Whether another thread could hand something over now."""
        may, over = [False], Gateway()

        def other() -> None:
            if self.schedule.lock.acquire(False):
                self.schedule.lock.release()
                may[0] = True
            over.open()

        start_new_thread(other, ())
        over.wait()
        return may[0]


def test_an_item_whose_answer_is_here_is_not_handed_it_before_it_waits_for_it() -> None:
    """Else two go on at once: the one that was woken, and the one that comes next when that one parks after all."""
    gates = {"a": Gateway(), "b": Gateway()}
    has_baton: list[bool] = []

    @loupe.tool(effect="read")
    def answer(name: str) -> str:
        gates[name].wait()
        return name

    def node(name: str) -> str:
        found = answer(name)
        schedule = schedule_here()
        has_baton.append(schedule.holder is schedule.strand())
        gates["b"].open()
        return found

    def program() -> Any:
        schedule = schedule_here()
        if schedule.live:
            schedule.items = Interrupted(schedule, lambda: second_comes(schedule))
        with futures.ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(node, name) for name in "ab"]
            gates["a"].open()
            done = [job.result() for job in futures.as_completed(jobs)]
            return [done, ask(done)]

    def second_comes(schedule: Schedule) -> None:
        gates["b"].open()
        while schedule.holder is None:  # it parks behind the first, which is woken by that
            plain.sleep(0)

    one = made(program, 1)
    assert has_baton == [True, True]
    assert marks_of(one.recording) == {}
    for _ in range(3):
        report, trace, leaks = replayed(one)
        assert (report.passed, report.unproven, trace, leaks) == (True, (), one.trace, 0), report.text()


def test_a_strand_that_goes_on_without_the_baton_costs_the_proof() -> None:
    """Whatever woke it: that it is not its turn is seen, and said."""
    begun = Gateway()

    @loupe.tool(effect="read")
    def answer() -> int:
        begun.wait()
        return 1

    def woken_by_nobody() -> int:
        schedule = schedule_here()
        strand = schedule.strand()
        assert strand is not None
        if schedule.live:
            strand.turn.release()
        return answer()

    def has_the_baton() -> int:
        schedule, limit = schedule_here(), time.monotonic() + A_WHILE
        begun.open()
        while schedule.live and not schedule.marks and time.monotonic() < limit:
            plain.sleep(0)
        return 2

    def program() -> Any:
        with futures.ThreadPoolExecutor(2) as pool:
            return [job.result() for job in (pool.submit(woken_by_nobody), pool.submit(has_the_baton))]

    one = made(program, 1)
    assert "a thread went on before its turn" in reasons(one)
    report, trace, _ = replayed(one)
    assert (report.passed, trace) == (True, one.trace), report.text()
    assert report.unproven


def late_worker(monkeypatch: pytest.MonkeyPatch, until: Gateway) -> None:
    """The worker of the first item loses the processor before it has it in hand."""
    plain_call, late = pools._Job.__call__, [True]

    def call(job: pools._Job) -> Any:
        if late and late.pop():
            until.wait()
        return plain_call(job)

    monkeypatch.setattr(pools._Job, "__call__", call)


@pytest.mark.parametrize("size", [1, 3])
def test_a_worker_that_is_too_late_costs_the_proof_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    begin = Gateway()
    monkeypatch.setattr(pools, "_LOOK_SECONDS", 0.001)
    late_worker(monkeypatch, begin)

    def program() -> Any:
        with futures.ThreadPoolExecutor(size) as pool:
            first = pool.submit(fetch, name="a")
            others = [pool.submit(fetch, name=name) for name in "bcd"] if size == 1 else []
            begin.open()
            return [job.result() for job in (first, *others)]

    one = made(program, 1)
    assert reasons(one) == {"a worker did not take what it was free for"}
    assert marks_of(one.recording) == {"guess": 1}, "no worker is free while the late one is on its way"
    report, trace, leaks = replayed(one)
    assert (report.passed, trace, leaks) == (True, one.trace, 0), report.text()
    assert report.unproven


def test_a_worker_that_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Gateway()
    real = pools._Job.expect

    def expect(job: pools._Job) -> None:
        real(job)
        looked.open()

    monkeypatch.setattr(pools._Job, "expect", expect)
    late_worker(monkeypatch, looked)

    def program() -> Any:
        with futures.ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(fetch, name=name) for name in "abcd"]
            done = [job.result() for job in futures.as_completed(jobs)]
            return [done, ask(done)]

    one = made(program, 1)
    assert marks_of(one.recording) == {}
    for _ in range(3):
        report, trace, leaks = replayed(one)
        assert (report.passed, report.unproven, trace, leaks) == (True, (), one.trace, 0), report.text()


def test_an_item_that_a_worker_takes_unforeseen_costs_the_proof() -> None:
    """A pool that its user has made smaller has more workers than it says."""
    taken = Gateway()

    @loupe.tool(effect="read")
    def answer(name: str) -> str:
        if name == "d":
            taken.open()
        if name == "c":
            taken.wait()
        return name

    def program() -> Any:
        with futures.ThreadPoolExecutor(2) as pool:
            found = [job.result() for job in [pool.submit(answer, name) for name in "ab"]]
            pool._max_workers = 1
            return found + [job.result() for job in [pool.submit(answer, name) for name in "cd"]]

    one = made(program, 1)
    assert reasons(one) == {"a worker took what it was not thought to be free for"}
    report, trace, leaks = replayed(one)
    assert (report.passed, trace, leaks) == (True, one.trace, 0), report.text()
    assert report.unproven


def test_the_time_without_a_processor_is_no_time_in_which_a_strand_turns_round(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, strand = Schedule(), Strand(Lane("0"))
    schedule.runq.append(Strand(Lane("0/t1")))
    schedule.holder, schedule.since = strand, 100.0
    now, starved = [100.0], [5.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(watch, "_asleep", lambda _: (None, False, starved[0]))
    eyes = watch._Eyes()
    assert not eyes._stuck(schedule, strand)
    now[0], starved[0] = 103.0, 7.5
    assert not eyes._stuck(schedule, strand), "it had the processor for half a second"
    now[0] = 103.6
    assert eyes._stuck(schedule, strand)


@pytest.mark.parametrize("late", [False, True])
def test_those_who_wait_for_a_cancelled_item_hear_of_it_when_a_worker_is_free_for_it(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Not when the worker's thread comes by, which is chance."""
    looked = Gateway()

    def program() -> Any:
        with futures.ThreadPoolExecutor(1) as pool:
            jobs = [pool.submit(fetch, name=name) for name in "ab"]
            jobs[1].cancel()
            jobs[0].result()
            done = futures.wait(jobs, timeout=0).done
            looked.open()
            heard = [jobs.index(job) for job in futures.as_completed(jobs)]
            return [len(done), sorted(heard), ask(len(done))]

    real = futures.Future[Any].set_running_or_notify_cancel

    def comes_late(future: futures.Future[Any]) -> bool:
        if future.cancelled() and schedule_of_worker() is None:
            looked.wait()
        return real(future)

    if late:
        monkeypatch.setattr(futures.Future, "set_running_or_notify_cancel", comes_late)
    one = made(program, 1)
    assert one.trace[0] == 2
    assert marks_of(one.recording) == {}
    report, trace, leaks = replayed(one)
    assert (report.passed, report.unproven, trace, leaks) == (True, (), one.trace, 0), report.text()


def schedule_of_worker() -> Schedule | None:
    there = here()
    return there.schedule if there is not None else None


def test_a_call_that_is_stopped_beside_others_costs_the_proof() -> None:
    @loupe.tool(effect="read")
    def leave() -> None:
        raise SystemExit(3)

    def node() -> Any:
        try:
            leave()
        except SystemExit as left:
            return left.code

    def program() -> Any:
        with futures.ThreadPoolExecutor(2) as pool:
            return [job.result() for job in [pool.submit(node) for _ in range(2)]]

    one = made(program, 1)
    assert one.trace == [3, 3]
    assert reasons(one) == {"a thread went on before its turn"}
    report, trace, _ = replayed(one)
    assert (report.passed, trace) == (True, one.trace), report.text()
    assert report.unproven
