"""Processes that a run starts: none of them is followed, the recording says so, and nothing hangs."""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import logging
import multiprocessing
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.words.errors import ReplayRefused
from tests.schedule.trial import Made, made, replayed
from tests.schedule.world import World, fetch, living_in

TRUE = [sys.executable, "-S", "-c", "pass"]
METHODS = [method for method in ("spawn", "forkserver", "fork") if method in multiprocessing.get_all_start_methods()]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.CRITICAL, "agentloupe")
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "1")


def in_the_child(number: int) -> tuple[int, bool, int]:
    """What a child says: its answer, whether it takes itself for a part of the run, and who it is."""
    with living_in(World(0)):
        fetch(number=number)
    return number * number, ambient.current() is not None, os.getpid()


def covered(one: Made) -> tuple[Any, bool]:
    attrs = one.recording.events[-1].attrs
    return attrs["coverage"], "child process" in str(attrs.get("coverage_notes"))


def calls_of(one: Made) -> int:
    return len([event for event in one.recording.events if event.type == "tool.finished"])


def by_pool(method: str) -> Any:
    context = multiprocessing.get_context(method)
    with futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        answers = list(pool.map(in_the_child, range(3)))
    return answers, fetch()


def by_old_pool(method: str) -> Any:
    with multiprocessing.get_context(method).Pool(2) as pool:
        answers = pool.map(in_the_child, range(3))
    return answers, fetch()


def by_process(method: str) -> Any:
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=in_the_child, args=(1,))
    process.start()
    process.join()
    return [(1, False, process.pid)], fetch(code=process.exitcode)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", [by_pool, by_old_pool, by_process])
def test_processes_of_multiprocessing_are_not_followed_and_the_recording_says_so(
    way: Callable[[str], Any], method: str
) -> None:
    before = set(threading.enumerate())
    one = made(lambda: way(method), 1)
    answers, _ = one.trace
    if method != "fork":  # a copy has a copy of where it stands, which is let go of
        assert not any(inside for _, inside, _ in answers)
    assert os.getpid() not in {process for _, _, process in answers}
    assert covered(one) == ("control_flow", True)
    assert calls_of(one) == 1, "only the program's own"
    assert set(threading.enumerate()) <= before, "nothing is left behind"


def by_popen() -> int:
    with subprocess.Popen(TRUE) as child:
        return child.wait()


def by_run() -> int:
    return subprocess.run(TRUE, check=True).returncode


def by_system() -> int:
    return os.system("true")  # pyright: ignore[reportDeprecated]  # programs use it all the same


def by_loop() -> int:
    async def main() -> int:
        child = await asyncio.create_subprocess_exec(*TRUE)
        return await child.wait()

    return asyncio.run(main())


@pytest.mark.parametrize("way", [by_popen, by_run, by_system, by_loop])
def test_programs_that_are_started_lower_the_coverage(way: Callable[[], int]) -> None:
    one = made(lambda: (way(), fetch()), 1)
    assert one.trace[0] == 0
    assert covered(one) == ("control_flow", True)


def test_a_replay_of_such_a_run_is_refused_with_the_way_out() -> None:
    one = made(lambda: (by_run(), fetch()), 1)
    with pytest.raises(ReplayRefused) as refused:
        replayed(one)
    assert refused.value.reason == "control_flow"
    assert "start processes and interpreters inside a tool" in str(refused.value.hint)


@loupe.tool(effect="read")
def starts() -> int:
    return by_run()


def test_a_program_that_a_tool_starts_is_part_of_the_tool() -> None:
    one = made(lambda: (starts(), fetch()), 1)
    assert covered(one) == ("full", False)
    report, trace, _ = replayed(one)
    assert report.passed, report.text()
    assert trace == one.trace


def test_what_the_standard_library_asks_about_the_machine_is_nobodys_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks() -> str:
        uncached: Any = platform._syscmd_ver  # type: ignore[attr-defined]  # asks `ver` by subprocess, on any system
        return str(uncached(supported_platforms=(sys.platform,)))

    one = made(lambda: (asks(), fetch()), 1)
    assert covered(one) == ("full", False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", METHODS)
def test_a_replay_starts_no_pool_and_does_not_hang(method: str) -> None:
    starting = [False]

    def program() -> Any:
        if starting[0]:
            by_pool(method)
        return fetch()

    one = made(program, 1)
    starting[0] = True
    report, _, leaks = replayed(one)
    assert (report.verdict, report.reason, leaks) == ("diverged", "leak", 0), report.text()


OF_INTERPRETERS: Any = getattr(futures, "InterpreterPoolExecutor", None)
NEW = pytest.mark.skipif(OF_INTERPRETERS is None, reason="pools of interpreters are new in Python 3.14")


@NEW
def test_a_pool_of_interpreters_is_not_followed_and_the_recording_says_so() -> None:
    def agent() -> Any:
        with OF_INTERPRETERS(2) as pool:
            answers = [one.result() for one in [pool.submit(divmod, 7, number) for number in (2, 3)]]
        return answers, fetch()

    one = made(agent, 1)
    assert one.trace[0] == [(3, 1), (2, 1)]
    attrs = one.recording.events[-1].attrs
    assert (attrs["coverage"], "other interpreter" in str(attrs.get("coverage_notes"))) == ("control_flow", True)
    with pytest.raises(ReplayRefused) as refused:
        replayed(one)
    assert "inside a tool" in str(refused.value.hint)


@NEW
def test_a_replay_starts_no_interpreter() -> None:
    news: list[bool] = []

    def agent() -> Any:
        if news:
            with OF_INTERPRETERS(1) as pool:
                pool.submit(divmod, 7, 2).result()
        return fetch()

    one = made(agent, 1)
    news.append(True)
    report, _, _ = replayed(one)
    assert (report.verdict, report.reason) == ("diverged", "leak"), report.text()
