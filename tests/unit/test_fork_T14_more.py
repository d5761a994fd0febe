"""T14, and none in a replay: every tool of every sample run under every answer that a fork may give, and replayed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.policy import Allow
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.step import Step
from tests.cases.rec import Rec
from tests.fork_support import Script, exported, weather_run
from tests.support import SHARED
from tests.tapes import record_in

sang: list[str] = []
"""Every tool that was really executed, by anything in this process."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    sang.clear()
    yield
    sang.clear()


# ---------------------------------------------------------------- the samples

FOREIGN = {
    "tau_bench": "data/tau_bench/gpt-4o-airline.give.json",
    "case 12": "cases/12-fork-siblings/trace.json",
    "case 15": "cases/15-history-roundtrip/messages.json",
    "case 16": "cases/16-orphan-and-reused-ids/messages.json",
    "case 23": "cases/23-diff/a.json",
    "case 23 b": "cases/23-diff/b_one_step_more.json",
}


def runs_of(sample: str) -> tuple[MemoryStore, list[str]]:
    """A store with the runs of a sample."""
    store = MemoryStore()
    if sample == "weather":
        return store, [weather_run(store)]
    found = import_file(store, SHARED / FOREIGN[sample])
    return store, [run.run_id for run in found.runs]


absent = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared (sample data beside the repository)")
SAMPLES = ["weather", *(pytest.param(name, marks=absent) for name in FOREIGN)]


def tools_in(steps: tuple[Step, ...] | list[Step]) -> dict[str, list[Any]]:
    """Names of tools, and what each was called with."""
    found: dict[str, list[Any]] = {}
    for step in steps:
        if step.kind == "tool" and isinstance(step.input, dict):
            found.setdefault(step.name, []).append(step.input)
    return found


def canary(name: str, effect: Any) -> Callable[..., Any]:
    def sing(**_: Any) -> str:
        sang.append(name)
        return "sung"

    return loupe.tool(effect=effect, name=name)(sing)


# ---------------------------------------------------------------- the generic loop


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_fork_of_any_run_from_any_model_step_runs_nothing_but_what_is_allowed(sample: str) -> None:
    """Every function of the sample is at hand, declared harmless. Nothing sings; then one is allowed, and only that one."""
    store, runs = runs_of(sample)
    before = {run: exported(store, run) for run in runs}
    tried = 0
    for run_id in runs:
        steps = load_steps(store.recording(run_id))
        tools = tools_in(steps)
        functions = {name: canary(name, "pure") for name in tools}
        calls = [(name, args) for name, given in tools.items() for args in (*given[:2], {"never": "seen"})]
        models = [step.idx for step in steps if step.kind == "llm"]
        for at in dict.fromkeys((models[0], models[len(models) // 2], models[-1])):
            for allowed in [None, *sorted(tools)[:3]]:
                live = {} if allowed is None else {allowed: Allow("a canary", read=True)}
                provider = from_llm_call(Script(calls, "done"))
                more: dict[str, Any] = {"functions": functions, "live": live, "model": "m"}
                sang.clear()
                run = fork(run_id, from_step=at, store=store, provider=provider, **more).candidates[0]
                wanted = [name for name, _ in calls if name == allowed]
                assert sang == wanted, (run_id, at, allowed)
                assert run.counts.live == len(wanted)
                assert run.counts.cassette + run.counts.miss == len(calls) - len(wanted)
                tried += 1
    assert tried
    assert {run: exported(store, run) for run in runs} == before


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_replay_of_any_fork_of_it_runs_nothing(sample: str) -> None:
    """Forks by the generic loop are replayed without code, by the loop itself; the tools are still there to be run."""
    store, runs = runs_of(sample)
    for run_id in runs[:2]:
        steps = load_steps(store.recording(run_id))
        tools = tools_in(steps)
        functions = {name: canary(name, "pure") for name in tools}
        calls = [(name, args) for name, given in tools.items() for args in (given[0], {"never": "seen"})]
        at = next(step.idx for step in steps if step.kind == "llm")
        live = {name: Allow("a canary", read=True) for name in tools}
        more: dict[str, Any] = {"functions": functions, "live": live, "model": "m"}
        run = fork(run_id, from_step=at, store=store, provider=from_llm_call(Script(calls, "done")), **more).candidates[
            0
        ]
        assert sorted(set(sang)) == sorted(tools), "all of them were allowed"
        sang.clear()
        report = replay(run.id, store=store)
        assert report.verdict == "pass", report.text()
        assert sang == []


# ---------------------------------------------------------------- own code


def program_of(steps: list[Step], effect: Any) -> tuple[Callable[[], Any], list[str]]:
    """A program that makes the tool calls of a run, in their order, one model call before each; its tools are canaries."""
    calls = [(step.name, step.input) for step in steps if step.kind == "tool" and isinstance(step.input, dict)][:12]
    birds = {name: canary(name, effect) for name, _ in calls}
    ask = Rec().llm("m", lambda body: {"role": "assistant", "content": f"answer {len(body['messages'])}"})

    def program() -> list[Any]:
        heard: list[Any] = []
        for name, args in calls:
            ask({"model": "m", "messages": [{"role": "user", "content": json.dumps(heard)}]})
            try:
                heard.append(birds[name](**args))
            except Exception as error:
                heard.append(str(error))
        ask({"model": "m", "messages": [{"role": "user", "content": "the end"}]})
        return heard

    return program, [name for name, _ in calls]


@pytest.mark.parametrize("effect", ["pure", "read", "write"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_own_code_with_the_tools_of_a_sample_is_replayed_and_forked_without_running_any(
    sample: str, effect: str
) -> None:
    store, runs = runs_of(sample)
    for run_id in runs[:2]:
        program, names = program_of(list(load_steps(store.recording(run_id))), effect)
        sang.clear()
        recording = record_in(store, program)
        assert sang == names
        sang.clear()
        for _ in range(2):
            assert replay(recording, program).verdict == "pass"
        assert replay(recording, lambda program=program: [program(), program()]).exit_code == 1
        assert sang == []
        models = [step.idx for step in store.steps(recording.run_id) if step.kind == "llm"]
        for at in (models[0], models[-1]):
            run = fork(recording.run_id, program, from_step=at, store=store).candidates[0]
            assert run.counts.live == 0
            assert replay(run.id, program, store=store).verdict == "pass"
        assert sang == []


@absent
def test_the_samples_hold_many_tools() -> None:
    every: set[str] = set()
    for sample in ("weather", *FOREIGN):
        store, runs = runs_of(sample)
        every |= {step.name for run in runs for step in store.steps(run) if step.kind == "tool"}
    assert len(every) > 12, every
