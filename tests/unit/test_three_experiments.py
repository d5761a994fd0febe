"""The three experiments on the weather run, with exactly the figures that the contract names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentloupe.engine.overrides import Overrides
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork_run
from tests.fork_support import PLAIN, SYSTEM, TOOLS, Script, shape, weather_run

BOTH = [("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "(17.7 - 11.9) * 9 / 5"})]


@pytest.fixture
def store() -> MemoryStore:
    found = MemoryStore()
    weather_run(found, tags=["demo"])
    return found


def contents(store: MemoryStore, run_id: str) -> list[Any]:
    last = load_steps(store.recording(run_id))[-1]
    assert isinstance(last.input, dict)
    return [m["content"] for m in last.input["messages"] if isinstance(m, dict) and m["role"] == "tool"]  # type: ignore[union-attr]


def test_step_3_unchanged(store: MemoryStore):
    model = Script(BOTH, "5.8 C; I could not compute Fahrenheit.")
    run = fork_run(store, "weather-1", 3, None, model)
    assert (run.step_count, run.counts.cassette, run.counts.miss, run.counts.live) == (7, 1, 1, 0)
    assert run.status == "ok"
    assert run.label == "hypothetical"
    assert run.hypothetical_from == 5
    assert run.tags == ("demo", "fork", "cassette:1", "live:0", "miss:1")
    assert run.parent_run_id == "weather-1"
    assert run.forked_from_step == 3
    assert run.id.startswith("weather-1-fork-")
    assert len(run.id) == len("weather-1-fork-") + 6
    assert "3" in run.name
    assert shape(store, run.id) == [
        (0, "llm", "chat small-1", "recorded"),
        (1, "tool", "get_weather", "recorded"),
        (2, "tool", "get_weather", "recorded"),
        (3, "llm", "chat small-1", "live"),
        (4, "tool", "calculate", "cassette"),
        (5, "tool", "calculate", "miss"),
        (6, "llm", "chat small-1", "live"),
    ]
    told = contents(store, run.id)
    assert json.loads(told[2]) == {"expression": "17.7 - 11.9", "result": 5.8}
    error = json.loads(told[3])
    assert error.keys() == {"error"}
    for part in ("cassette miss", "calculate", "(17.7 - 11.9) * 9 / 5"):
        assert part in error["error"]
    missed = store.steps(run.id)[5]
    assert missed.status == "error"
    assert missed.attrs["nearest_step"] == 4


def test_step_0_with_another_prompt(store: MemoryStore):
    model = Script(
        [("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})],
        BOTH,
        ("calculate", {"expression": "5.8 * 1.8"}),
        "5.8 C, which is 10.44 F.",
    )
    run = fork_run(store, "weather-1", 0, Overrides(system_prompt=f"{SYSTEM} Answer in one sentence."), model)
    assert (run.step_count, run.counts.cassette, run.counts.miss) == (9, 3, 2)
    assert run.forked_from_step == 0
    assert [override["path"] for override in run.overrides] == ["messages[0].content"]
    assert [asked["messages"][0]["content"] for asked in model.asked] == [f"{SYSTEM} Answer in one sentence."] * 4
    assert [s.source for s in store.steps(run.id) if s.kind == "tool"] == [
        "cassette",
        "cassette",
        "cassette",
        "miss",
        "miss",
    ]


def test_step_3_with_the_live_calculator(store: MemoryStore):
    run = fork_run(store, "weather-1", 3, None, Script(BOTH, "5.8 C, 10.44 F."), {"calculate": TOOLS["calculate"]})
    assert (run.step_count, run.counts.live, run.counts.miss, run.counts.cassette) == (7, 2, 0, 0)
    assert run.label == "faithful"
    assert json.loads(contents(store, run.id)[3])["result"] == pytest.approx(10.44)


def test_tools_whose_effect_nobody_stated_count_as_writes_and_may_still_be_handed_in(store: MemoryStore):
    weather_run(store, "plain-1", PLAIN)
    replayed = fork_run(store, "plain-1", 3, None, Script(BOTH[:1], "5.8 C"))
    assert (replayed.counts.cassette, replayed.label, replayed.hypothetical_from) == (1, "hypothetical", 4)
    live = fork_run(store, "plain-1", 3, None, Script(BOTH, "5.8 C"), [PLAIN["calculate"]])
    assert (live.counts.live, live.label) == (2, "faithful")


def test_the_parent_is_as_it_was(store: MemoryStore):
    before = store.recording("weather-1")
    fork_run(store, "weather-1", 3, Overrides(temperature=0.9), Script(BOTH, "x"))
    assert store.recording("weather-1").events == before.events


def test_every_kept_step_is_the_same_as_in_the_parent(store: MemoryStore):
    run = fork_run(store, "weather-1", 3, None, Script("at once"))
    kept = load_steps(store.recording(run.id))[:3]
    for mine, theirs in zip(kept, load_steps(store.recording("weather-1")), strict=False):
        assert (mine.input, mine.output, mine.name, mine.input_key) == (
            theirs.input,
            theirs.output,
            theirs.name,
            theirs.input_key,
        )


def test_only_the_new_part_is_newly_spent(store: MemoryStore):
    run = fork_run(store, "weather-1", 3, None, Script("at once"))
    assert (run.total_input_tokens, run.total_output_tokens) == (20, 10)
    assert (run.new_input_tokens, run.new_output_tokens) == (10, 5)
