"""T14: a fork's parent exports byte-equal before and after; a fork never executes a tool that was not allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.overrides import Overrides
from agentloupe.engine.policy import Allow
from agentloupe.engine.project import load_steps
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork, fork_run
from agentloupe.verbs.instrument import agent, tool
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ForkRefused
from tests.fork_support import TOOLS, Script, exported, import_runs, weather_run
from tests.support import SHARED

EFFECTS = ("pure", "read", "write")

# ---------------------------------------------------------------- canaries

sang: list[str] = []
"""Every tool that was really executed, by anything in this process."""


@pytest.fixture(autouse=True)
def quiet() -> None:
    sang.clear()


def canary(name: str, effect: Any = None) -> Callable[..., Any]:
    def sing(**_: Any) -> str:
        sang.append(name)
        return "sung"

    return sing if effect is None else tool(effect=effect, name=name)(sing)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    found: Store = MemoryStore() if request.param == "memory" else open_url(str(tmp_path / "runs.db"))
    yield found
    found.close()


# ---------------------------------------------------------------- the parent


def test_the_parent_exports_byte_equal_before_and_after(store: Store):
    weather_run(store)
    before = exported(store, "weather-1")
    row = store.run("weather-1")
    for step, overrides, live in (
        (0, Overrides(system_prompt="X"), None),
        (3, None, TOOLS["calculate"]),
        (5, Overrides(temperature=1, tool_results={4: {"result": 7}}), None),
    ):
        model = Script([("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "1"})], "x")
        child = fork_run(store, "weather-1", step, overrides, model, [live] if live else None)
        fork_run(store, child.id, child.step_count - 1, None, Script("y"))
    with pytest.raises(ForkRefused):
        fork_run(store, "weather-1", 1, None, Script())
    assert exported(store, "weather-1") == before
    assert store.run("weather-1") == row


def test_a_fork_keeps_what_it_shares_when_its_parent_is_deleted(store: Store):
    weather_run(store)
    child = fork_run(store, "weather-1", 3, None, Script(("calculate", {"expression": "17.7 - 11.9"}), "x"))
    whole = [(s.input, s.output, s.error) for s in load_steps(store.recording(child.id))]
    store.erase("weather-1", [])
    store.gc()
    assert [(s.input, s.output, s.error) for s in load_steps(store.recording(child.id))] == whole


# ---------------------------------------------------------------- every tool of every sample


def sample(store: Store, name: str) -> list[str]:
    """The runs of a sample."""
    if name == "weather":
        return [weather_run(store)]
    if name == "support":
        calls = [("find_order", {"id": "o1"}), ("refund", {"order": "o1", "amount": 5}), ("send_mail", {"to": "a@b.c"})]
        tools = {tool_name: (lambda **_: "ok") for tool_name, _ in calls}
        run_loop(Script(*calls, "done"), tools, model="m", question="refund o1", store=store, run_id="support-1")
        return ["support-1"]
    files = {
        "tau_bench": SHARED / "data" / "tau_bench" / "gpt-4o-airline.give.json",
        "case_12": SHARED / "cases" / "12-fork-siblings" / "trace.json",
    }
    return import_runs(store, files[name])


@cache
def kept(name: str) -> tuple[MemoryStore, list[str]]:
    """A store with the runs of a sample; forks are added to it, the runs stay as they are."""
    store = MemoryStore()
    return store, sample(store, name)


def tools_of(name: str) -> list[str]:
    if name in ("tau_bench", "case_12") and not SHARED.is_dir():
        return []
    store, runs = kept(name)
    return sorted({s.name for run in runs for s in store.steps(run) if s.kind == "tool"})


SAMPLES = ("weather", "support", "tau_bench", "case_12")
EVERY_TOOL = [(name, tool_name) for name in SAMPLES for tool_name in tools_of(name)]


def test_the_samples_hold_tools():
    assert {name for name, _ in EVERY_TOOL} >= {"weather", "support"}


def test_the_shared_samples_hold_tools(shared: Path):
    """Skipped, visibly, where they are absent: then their tools are not among those that are tried either."""
    assert shared == SHARED
    assert {name for name, _ in EVERY_TOOL} == set(SAMPLES)
    assert len(EVERY_TOOL) > 12


def model_that_calls_everything(tools: list[str], recorded: dict[str, Any]) -> Script:
    """Asks for every tool: as it was recorded, and in a way that nobody recorded."""
    calls = [(name, recorded.get(name, {})) for name in tools] + [(name, {"never": "seen"}) for name in tools]
    return Script(calls, [(name, '{"mal') for name in tools], "done")


@pytest.mark.parametrize(("name", "allowed"), EVERY_TOOL)
def test_none_but_the_allowed_tool_ever_runs(name: str, allowed: str):
    """Every function is at hand; exactly the one that is allowed sings, each time it is asked for in an honest way."""
    store, runs = kept(name)
    for run_id in runs[:1]:
        steps = load_steps(store.recording(run_id))
        recorded = {s.name: s.input for s in steps if s.kind == "tool"}
        every = sorted({tool_name for _, tool_name in EVERY_TOOL})
        start = next(s.idx for s in steps if s.kind == "llm")
        for live in ({}, {allowed: Allow("a canary", read=True)}):
            sang.clear()
            model = model_that_calls_everything(every, recorded)
            more: dict[str, Any] = {
                "store": store,
                "from_step": start,
                "provider": from_llm_call(model),
                "functions": {n: canary(n, "pure") for n in every},
                "live": live,
            }
            stated = {s.name: s.effect for s in steps if s.kind == "tool"}
            done = fork(run_id, **more)
            assert stated
            assert sang == ([allowed, allowed] if live else [])
            counts = done.candidates[0].counts
            assert (counts.live, counts.cassette + counts.miss) == (len(sang), 2 * len(every) - len(sang))


@pytest.mark.parametrize(("name", "tool_name"), EVERY_TOOL)
def test_a_tool_that_is_declared_write_is_never_run(name: str, tool_name: str):
    store, runs = kept(name)
    run_id = runs[0]
    start = next(s.idx for s in store.steps(run_id) if s.kind == "llm")
    with pytest.raises(ForkRefused) as refused:
        fork_run(store, run_id, start, None, Script((tool_name, {}), "x"), {tool_name: canary(tool_name, "write")})
    assert refused.value.reason == "live_write"
    assert sang == []


# ---------------------------------------------------------------- own code: every effect under every policy

numbers = count()


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("policy", ["cassette", "live", "live read", "stub", "sandbox", "human"])
@pytest.mark.parametrize("step", [1, 3])
def test_own_code_runs_a_tool_only_where_all_three_hold(effect: Any, policy: str, step: int):
    store = MemoryStore()
    bird = canary("bird", effect)
    script: list[Any] = ["a", "b"]

    @agent(name=f"cage{next(numbers)}")
    def cage() -> str:
        _ask(script)
        heard: list[str] = []
        for x in (1, 2):
            try:
                heard.append(bird(x=x))
            except Exception as error:
                heard.append(str(error))
        _ask(script)
        return json.dumps(heard)

    with ambient.opening_with(RecordOpener(store)):
        cage()
    assert sang == ["bird", "bird"]
    sang.clear()
    run_id = store.runs()[0].id
    idx = [s.idx for s in store.steps(run_id) if s.kind == "llm"][0 if step == 1 else 1]
    more: dict[str, Any] = {
        "cassette": {},
        "live": {"live": {"bird": "a canary"}},
        "live read": {"live": {"bird": Allow("a canary", read=True)}},
        "stub": {"tools": {"bird": "stub"}},
        "sandbox": {"tools": {"bird": "sandbox:tests.fork_support:sandbox"}},
        "human": {"tools": {"bird": "human"}, "ask": lambda _: "said"},
    }[policy]
    may = (effect == "pure" and policy.startswith("live")) or (effect == "read" and policy == "live read")
    if policy.startswith("live") and not may:
        with pytest.raises(ForkRefused) as refused:
            fork(run_id, cage, from_step=idx, store=store, **more)
        assert refused.value.reason == ("live_write" if effect == "write" else "live_read")
        assert sang == []
        return
    fork(run_id, cage, from_step=idx, store=store, **more)
    expected = ["bird", "bird"] if may and step == 1 else []
    assert sang == expected


def _ask(script: list[Any]) -> None:
    from agentloupe.engine.loop import Loop

    Loop(from_llm_call(Script(*script))).run({"model": "m", "messages": [{"role": "user", "content": "q"}]})
