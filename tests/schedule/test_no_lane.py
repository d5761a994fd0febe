"""Threads that Loupe cannot tell apart: their calls are found by what they are, and the pass says what is not proven."""

from __future__ import annotations

import contextvars
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.tape import read_tape
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener

ANSWERS: dict[str, list[str]] = {}
ORDER: list[int] = []


@loupe.tool(effect="read")
def look(key: str) -> str:
    return ANSWERS[key].pop(0)


def in_bare_threads(*keys: str) -> dict[int, str]:
    """Calls `look` in threads that no hook sees begin, one after the other as `ORDER` says."""
    found: dict[int, str] = {}
    over = [allocate_lock() for _ in keys]

    def work(at: int) -> None:
        try:
            found[at] = look(keys[at])
        except BaseException as stop:
            found[at] = type(stop).__name__
        finally:
            over[at].release()

    for at in ORDER:
        over[at].acquire()
        context = contextvars.copy_context()
        start_new_thread(lambda at=at, context=context: context.run(work, at), ())
        over[at].acquire()
    return found


def recorded(agent: Callable[[], Any], order: list[int]) -> tuple[Recording, Any]:
    store = MemoryStore()
    opener = RecordOpener(store)
    ORDER[:] = order
    with ambient.opening_with(opener):
        result = agent()
    return store.recording(opener.sessions[0].run_id), result


@loupe.agent
def different() -> list[tuple[int, str]]:
    return sorted(in_bare_threads("a", "b", "c", "d").items())


@loupe.agent
def identical() -> list[str]:
    return sorted(in_bare_threads("a", "a", "a", "a").values())


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_calls_without_a_place_are_found_by_name_and_arguments(order: list[int]) -> None:
    ANSWERS.update({key: [key.upper()] for key in "abcd"})
    recording, live = recorded(different, [0, 1, 2, 3])
    assert len(read_tape(recording).placeless) == 4
    ORDER[:] = order
    report = replay(recording, different)
    assert report.passed, report.text()
    assert live == [(0, "A"), (1, "B"), (2, "C"), (3, "D")]
    assert any(reason.startswith("no_lane") for reason in report.unproven)
    assert not any(reason.startswith("ambiguous") for reason in report.unproven)
    assert not replay(recording, different, strict_order=True).passed


def test_equal_calls_with_equal_results_pass_and_with_different_ones_are_ambiguous() -> None:
    for answers, ambiguous in ((["x"] * 4, False), (["w", "x", "y", "z"], True)):
        ANSWERS["a"] = list(answers)
        recording, _ = recorded(identical, [0, 1, 2, 3])
        ORDER[:] = [3, 2, 1, 0]
        report = replay(recording, identical)
        assert report.passed, report.text()
        assert any(reason.startswith("ambiguous") for reason in report.unproven) is ambiguous, report.unproven


def test_another_argument_and_one_call_too_many_are_still_told() -> None:
    ANSWERS.update({key: [key.upper()] for key in "abcd"})
    recording, _ = recorded(different, [0, 1, 2, 3])

    @loupe.agent(name="different")
    def other() -> list[tuple[int, str]]:
        return sorted(in_bare_threads("a", "b", "x", "d").items())

    ORDER[:] = [3, 2, 1, 0]
    found = replay(recording, other).divergence
    assert found is not None
    assert found.kind == "input_changed"
    ORDER[:] = [0, 1, 2, 3]

    @loupe.agent(name="different")
    def more() -> list[tuple[int, str]]:
        found = sorted(in_bare_threads("a", "b", "c", "d").items())
        look("a")
        return found

    divergence = replay(recording, more).divergence
    assert divergence is not None
    assert divergence.kind == "extra"


def test_the_code_around_them_keeps_its_order() -> None:
    @loupe.agent
    def around() -> str:
        first, second = ("z", "a") if SWAPPED.is_set() else ("a", "z")
        look(first)
        in_bare_threads("a", "b")
        return look(second)

    SWAPPED.clear()
    ANSWERS.update({"a": ["1", "2"], "b": ["3"], "z": ["4"]})
    recording, _ = recorded(around, [0, 1])
    ORDER[:] = [1, 0]
    assert replay(recording, around).passed
    SWAPPED.set()
    divergence = replay(recording, around).divergence
    SWAPPED.clear()
    assert divergence is not None
    assert (divergence.kind, divergence.step) == ("order", 1)


SWAPPED = threading.Event()
