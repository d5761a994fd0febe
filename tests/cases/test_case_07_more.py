"""Case 07, more of the kind: equal calls with different answers, of every kind of call, strict and in a fork."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.cassette import Cassette
from agentloupe.engine.project import load_steps
from agentloupe.ports import ambient
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from tests.cases.rec import Rec
from tests.tapes import Program, Step, ask, record_in, use


def looked(answers: list[Any], times: int, kind: str, real: list[str]) -> list[Any]:
    """Makes the same call again and again; the world answers in turn. What came, errors as text."""
    left = iter(answers)

    def world(*_: object, **__: object) -> Any:
        answer = next(left)
        real.append(kind)
        if isinstance(answer, Exception):
            raise answer
        return answer

    tool = loupe.tool(effect="write" if kind == "write" else "read", name="f")(lambda job: world())
    model = Rec().llm("m", lambda body: {"role": "assistant", "content": world()})
    one: dict[str, Callable[[], Any]] = {
        "read": lambda: tool(job=7),
        "write": lambda: tool(job=7),
        "llm": lambda: model({"model": "m", "messages": [{"role": "user", "content": "same"}]})["content"],
        "retrieval": lambda: loupe.retrieve("docs", "same", world),
        "clock": lambda: ambient.call(Step("clock", "now").call(), world),
    }
    got: list[Any] = []
    for _ in range(times):
        try:
            got.append(one[kind]())
        except OSError as error:
            got.append(str(error))
    return got


KINDS = ("read", "write", "llm", "retrieval", "clock")
ANSWERS: list[Any] = ["bad json", OSError("HTTP 429: retry later"), '{"ok":1}', '{"ok":1}', None]
CAME = ["bad json", "HTTP 429: retry later", '{"ok":1}', '{"ok":1}', None]


@pytest.mark.parametrize("kind", KINDS)
def test_strict_hands_them_out_in_order_each_once_and_then_stops(kind: str) -> None:
    real: list[str] = []
    answers = ANSWERS[:1] + ANSWERS[2:] if kind == "clock" else ANSWERS
    came = CAME[:1] + CAME[2:] if kind == "clock" else CAME
    recording = record_in(MemoryStore(), lambda: looked(answers, len(answers), kind, real))
    assert len(real) == len(answers)
    got: list[Any] = []
    for _ in range(3):
        assert replay(recording, lambda: got.append(looked([], len(came), kind, real)) or got[-1]).passed
    assert got == [came] * 3
    fewer = replay(recording, lambda: looked([], len(came) - 1, kind, real))
    more = replay(recording, lambda: looked([], len(came) + 1, kind, real))
    assert [report.divergence.kind if report.divergence else None for report in (fewer, more)] == [
        "unconsumed",
        "extra",
    ]
    assert more.calls == len(came)
    assert len(real) == len(answers), "nothing was executed"


def test_in_a_replay_the_third_answer_is_not_the_first_even_when_two_are_equal() -> None:
    """A, B, A: what a memo by key would get wrong."""
    steps = [use("f", "A", job=7), use("f", "B", job=7), use("f", "A", job=7), ask("q", "bad json"), ask("q", "good")]
    for asynchronous in (False, True):
        program = Program(steps, asynchronous=asynchronous)
        recording = program.recorded()
        assert program.replayed(recording).verdict == "pass", "the results are compared at the end"


@pytest.mark.parametrize("kind", ["read", "write", "retrieval"])
def test_a_fork_of_own_code_hands_them_out_in_order_and_repeats_the_last(kind: str) -> None:
    real: list[str] = []
    heard: list[Any] = []

    @loupe.agent(name="poller")
    def poller(times: int = 4) -> None:
        Rec().llm("m", lambda body: {"role": "assistant", "content": "go"})({"model": "m", "messages": []})
        heard.append(looked(ANSWERS[:4], wanted[0], kind, real))

    wanted = [4]
    store = MemoryStore()
    recording = record_in(store, poller)
    at = next(step.idx for step in store.steps(recording.run_id) if step.kind == "llm")
    made = len(real)
    wanted[0] = 6
    run = fork(recording.run_id, poller, from_step=at, store=store).candidates[0]
    assert heard[1] == [*CAME[:4], CAME[3], CAME[3]]
    assert len(real) == made
    played = [step for step in load_steps(store.recording(run.id)) if step.kind in ("tool", "retrieval")]
    assert [step.source for step in played] == ["cassette"] * 6
    assert [step.attrs.get("reused", False) for step in played] == [False, False, False, False, True, True]
    assert (run.label, run.hypothetical_from) == ("hypothetical", played[0 if kind == "write" else 4].idx)
    if kind != "retrieval":  # the counts are those of tools
        assert (run.counts.cassette, run.counts.reused, run.counts.miss, run.counts.live) == (6, 2, 0, 0)


def test_another_call_between_takes_nothing_away(shared_case: Callable[[str], Path]) -> None:
    """The case's tape, asked for in every order of two jobs: each job has a queue of its own."""
    cassette = json.loads((shared_case("07") / "cassette.json").read_text("utf-8"))
    seven = [call.get("out", call.get("error")) for call in cassette["calls"]]

    def tape(store: MemoryStore) -> str:
        left = {7: list(seven), 9: ["n1", "n2"]}

        @loupe.tool(effect="read", name=cassette["tool"])
        def job_status(job: int) -> Any:
            answer = left[job].pop(0)
            if isinstance(answer, str) and answer.startswith("HTTP"):
                raise OSError(answer)
            return answer

        def program() -> None:
            for job in (7, 9, 7, 9, 7):
                try:
                    job_status(job=job)
                except OSError:
                    continue

        return record_in(store, program).run_id

    store = MemoryStore()
    run_id = tape(store)
    for order in ((9, 9, 7, 7, 7), (7, 7, 7, 9, 9), (8, 7, 8, 9, 7, 9, 7), (7, 9, 7, 9, 7, 7, 9)):
        player = Cassette.from_steps(load_steps(store.recording(run_id)))
        queues = {7: [*seven, seven[-1]], 9: ["n1", "n2", "n2"]}
        for job in order:
            hit, output, error = player.play(cassette["tool"], {"job": job})
            if job == 8:
                assert not hit
                continue
            wanted = queues[job].pop(0)
            assert hit
            assert (error or "").endswith(wanted) if isinstance(wanted, str) and error else output == wanted


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12), st.booleans())
def test_any_tape_of_equal_calls_replays_in_its_order(calls: list[tuple[int, int]], asynchronous: bool) -> None:
    steps = [use("f", OSError("no") if answer == 3 else answer, job=job) for job, answer in calls]
    program = Program(steps, asynchronous=asynchronous)
    recording = program.recorded()
    assert program.replayed(recording).verdict == "pass"
    if steps:
        again = program.changed([*steps, steps[-1]], result=lambda got: got[:-1])
        found = again.replayed(recording).divergence
        assert found is not None
        assert found.kind == "extra"


def test_many_callers_at_once_get_each_answer_once() -> None:
    """Tasks of one loop that all ask the same: what a fork hands out is each answer once, then the last again."""
    heard: list[Any] = []
    left = list(range(8))

    @loupe.tool(effect="read", name="take")
    async def take() -> int:
        await asyncio.sleep(0)
        return left.pop(0)

    many = [8]

    @loupe.agent(name="crowd")
    async def crowd() -> None:
        Rec().llm("m", lambda body: {"role": "assistant", "content": "go"})({"model": "m", "messages": []})
        heard.append(sorted(await asyncio.gather(*(take() for _ in range(many[0])))))

    store = MemoryStore()
    recording = record_in(store, crowd)
    at = next(step.idx for step in store.steps(recording.run_id) if step.kind == "llm")
    many[0] = 10
    run = fork(recording.run_id, crowd, from_step=at, store=store).candidates[0]
    assert heard[0] == list(range(8))
    last = heard[1]
    assert len(set(last)) == 8
    assert (run.counts.cassette, run.counts.reused) == (10, 2)
