"""Shared case 07, fork half: the same call, different answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork, fork_run
from agentloupe.verbs.instrument import agent, tool
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.sessions import RecordOpener
from tests.fork_support import Script


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = shared_case("07")
    return json.loads((folder / "cassette.json").read_text()), json.loads((folder / "expected.json").read_text())


def recorded(cassette: dict[str, Any]) -> MemoryStore:
    """A run of the loop that made the calls one by one."""
    left = list(cassette["calls"])

    def exec_tool(name: str, args: dict[str, Any]) -> tuple[Any, str | None]:
        found = left.pop(0)
        assert (name, args) == (cassette["tool"], found["args"])
        return found.get("out"), found.get("error")

    store = MemoryStore()
    script = Script(*[(cassette["tool"], call["args"]) for call in cassette["calls"]], "done")
    run_loop(script, exec_tool=exec_tool, model="m", question="q", store=store, run_id="r")
    return store


def answers(store: MemoryStore, run_id: str) -> list[Any]:
    steps = [s for s in load_steps(store.recording(run_id)) if s.kind == "tool" and s.source != "recorded"]
    return [s.output if s.error is None else s.error.partition(": ")[2] for s in steps]


def wanted(cassette: dict[str, Any]) -> list[Any]:
    return [call.get("out", call.get("error")) for call in cassette["calls"]]


def test_four_calls_in_a_fork(case: Any):
    cassette, expected = case
    store = recorded(cassette)
    asks = [(cassette["tool"], call["args"]) for call in cassette["calls"]]
    run = fork_run(store, "r", 0, None, Script(*asks, asks[-1], "done"))
    assert answers(store, run.id) == [*wanted(cassette), expected["fork"]["call_4"]]
    repeats = [s.attrs.get("reused", False) for s in store.steps(run.id) if s.kind == "tool"]
    assert repeats == [False, False, False, True]
    counts = run.counts
    assert {"cassette": counts.cassette, "repeat": counts.reused, "miss": counts.miss, "live": counts.live} == expected[
        "fork"
    ]["counts"]
    assert run.status == "ok"
    assert (run.label, run.hypothetical_from is not None) == ("hypothetical", True)


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_calls_of_the_kept_part_are_used_up(case: Any, kept: int):
    cassette, _ = case
    store = recorded(cassette)
    ask = (cassette["tool"], cassette["calls"][0]["args"])
    run = fork_run(store, "r", 2 * kept, None, Script(ask, "done"))
    assert answers(store, run.id) == [(wanted(cassette) + wanted(cassette)[-1:])[kept]]
    assert run.counts.reused == (1 if kept == 3 else 0)


def test_another_job_first_takes_nothing_away(case: Any):
    cassette, expected = case
    store = recorded(cassette)
    asks = [(cassette["tool"], {"job": 8}), (cassette["tool"], {"job": 7})]
    run = fork_run(store, "r", 0, None, Script(asks, "done"))
    assert [s.source for s in store.steps(run.id) if s.kind == "tool"] == [
        expected["fork_that_first_calls_other_job"]["job 8"],
        "cassette",
    ]
    assert answers(store, run.id)[1] == expected["fork_that_first_calls_other_job"]["then job 7"]


def test_two_callers_on_two_threads_share_no_answer(case: Any):
    cassette, _ = case
    left = list(cassette["calls"])

    @tool(effect="read", name=cassette["tool"])
    def job_status(job: int) -> Any:
        found = left.pop(0)
        if "error" in found:
            raise RuntimeError(found["error"])
        return found["out"]

    @agent(name="poller")
    def poller() -> list[Any]:
        from agentloupe.engine.loop import Loop

        Loop(from_llm_call(Script("go"))).run({"model": "m", "messages": []})
        got: list[Any] = []

        def poll(times: int) -> None:
            for _ in range(times):
                try:
                    got.append(job_status(job=7))
                except RuntimeError as error:
                    got.append(str(error))

        if left:
            poll(3)
        else:
            in_threads(lambda: poll(2), 2)
        return got

    store = MemoryStore()
    from agentloupe.ports import ambient

    with ambient.opening_with(RecordOpener(store)):
        assert poller() == wanted(cassette)
    done = fork(store.runs()[0].id, poller, from_step=1, store=store)
    run = done.candidates[0]
    assert sorted(map(str, answers(store, run.id))) == sorted(map(str, [*wanted(cassette), wanted(cassette)[-1]]))
    assert (run.counts.cassette, run.counts.reused) == (4, 1)


def in_threads(work: Callable[[], None], count: int) -> None:
    """Runs the work in threads that see the current run."""
    import contextvars

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(work,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "calls",
    [
        [{"args": {"job": 7}, "error": "HTTP 500"}],
        [{"args": {}, "out": None}, {"args": {}, "out": False}, {"args": {}, "out": ""}],
        [{"args": {"a": [1, {"b": 2}]}, "out": i} for i in range(6)],
    ],
)
def test_other_tapes_of_the_kind(calls: list[dict[str, Any]]):
    cassette = {"tool": "t", "calls": calls}
    store = recorded(cassette)
    run = fork_run(store, "r", 0, None, Script(*[("t", call["args"]) for call in calls], ("t", calls[-1]["args"]), "x"))
    assert answers(store, run.id) == [*wanted(cassette), wanted(cassette)[-1]]
    assert (run.counts.cassette, run.counts.reused, run.counts.miss) == (len(calls) + 1, 1, 0)
