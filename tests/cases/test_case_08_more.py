"""Case 08, end to end: each pair recorded with its one side and replayed and forked with the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.cassette import Cassette
from agentloupe.engine.difference import UNICODE
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import loads
from agentloupe.words.turns import calls_in_message as asked_tools
from tests.cases.rec import Rec
from tests.fork_support import Script
from tests.support import SHARED
from tests.tapes import Program, record_in, use


def load_pairs() -> list[Any]:
    """The pairs, by their place; one that skips where the shared folder is absent."""
    path = SHARED / "cases" / "08-canonical-vectors" / "vectors.json"
    if not path.is_file():
        return [pytest.param(None, marks=pytest.mark.skip("needs ../shared (sample data beside the repository)"))]
    return [pytest.param(pair, id=pair["why"][:40]) for pair in json.loads(path.read_text("utf-8"))]


PAIRS = load_pairs()
BOTH = pytest.mark.parametrize("turned", [False, True], ids=["a then b", "b then a"])


def sides(pair: Any, turned: bool) -> tuple[str, str]:
    return (pair["b"], pair["a"]) if turned else (pair["a"], pair["b"])


@BOTH
@pytest.mark.parametrize("pair", PAIRS)
def test_strict_replay_matches_exactly_where_the_case_says_so(pair: Any, turned: bool) -> None:
    one, other = (loads(text) for text in sides(pair, turned))
    recording = Program([use("f", "x", args=one)]).recorded()
    report = Program([use("f", "x", args=other)]).replayed(recording)
    assert (report.verdict == "pass") is pair["same"], report.text()
    if pair["same"]:
        return
    found = report.divergence
    assert found is not None
    assert (found.kind, found.sequence) == ("input_changed", 2)
    assert len(found.changes) == 1
    assert found.expected is not None
    assert found.actual is not None
    assert found.expected.key != found.actual.key
    if "Unicode form" in pair["why"]:
        assert UNICODE in found.hints
        assert "\\u0301" in report.text(), "both forms are told apart on a screen"
    if "no-break" in pair["why"]:
        assert any("U+00A0 NO-BREAK SPACE" in hint for hint in found.hints)
        assert "\\u00a0" in report.text()


@BOTH
@pytest.mark.parametrize("pair", PAIRS)
def test_a_fork_hits_exactly_where_the_case_says_so_and_keeps_the_text(pair: Any, turned: bool) -> None:
    """The model asks with other words; what it asked before is in the store as it was written, to the byte."""
    asked, again = sides(pair, turned)
    store = MemoryStore()
    run_loop(Script(("f", asked), "done"), {"f": Rec().tool("f", lambda **_: "answer")}, model="m", question="q",
             store=store, run_id="r")  # fmt: skip
    recording = store.recording("r")
    response: Any = recording.body(load_steps(recording)[0].output_digest)
    assert asked_tools(response["choices"][0]["message"])[0].raw == asked
    run = fork_run(store, "r", 0, None, Script(("f", again), "done"))
    assert (run.counts.cassette, run.counts.miss) == ((1, 0) if pair["same"] else (0, 1))
    kept: Any = store.recording(run.id).body(load_steps(store.recording(run.id))[0].output_digest)
    assert asked_tools(kept["choices"][0]["message"])[0].raw == again
    steps = load_steps(recording)
    assert Cassette.from_steps(steps).play("f", again).hit is pair["same"]
    assert Cassette.from_steps(steps).play("f", loads(again)).hit is pair["same"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({1.0: "a"}, {"1.0": "a"}, None),
        ({"x": 0.0}, {"x": -0.0}, True),
        ({"x": 10**21}, {"x": 1e21}, True),
        ({"x": 10**21 + 1}, {"x": 1e21}, False),
        ({"x": 0}, {"x": False}, False),
        ({"x": ""}, {"x": None}, False),
        ({"x": []}, {"x": {}}, False),
        ({"x": "a\n"}, {"x": "a"}, False),
        ({"x": (1, 2)}, {"x": [1, 2]}, False),
        ({"x": b"ab"}, {"x": "ab"}, False),
        ({"x": {"b": 1, "a": {"y": 2, "x": 1}}}, {"x": {"a": {"x": 1, "y": 2}, "b": 1}}, True),
        ({"x": {"z", "y", "w"}}, {"x": {"w", "z", "y"}}, True),
    ],
)
def test_python_values_of_the_kind(one: Any, other: Any, same: bool | None) -> None:
    """The same question for arguments that are no JSON text: types count as JSON would make them."""

    def agent_with(value: Any) -> Callable[[], Any]:
        @loupe.tool(effect="read", name="f")
        def f(args: Any) -> str:
            return "x"

        return lambda: f(args=value)

    recording = record_in(MemoryStore(), agent_with(one))
    passed = replay(recording, agent_with(other)).verdict == "pass"
    assert replay(recording, agent_with(one)).verdict == "pass"
    if same is not None:
        assert passed is same


@pytest.mark.parametrize("count", [2, 5, 40])
def test_every_order_of_a_collection_in_a_prompt_is_a_divergence_with_its_hint(count: int) -> None:
    """What a set does from process to process, made here by hand for texts, lists and members of tools."""
    names = [f"tag{n}" for n in range(count)]
    ask = Rec().llm("m", lambda body: {"role": "assistant", "content": "ok"})
    for text in (", ".join, " ".join, lambda words: json.dumps(list(words))):
        prompts = [{"model": "m", "messages": [{"role": "user", "content": f"Tags: {text(order)}"}]}
                   for order in (names, names[::-1])]  # fmt: skip
        recording = record_in(MemoryStore(), lambda prompts=prompts: ask(prompts[0]))
        report = replay(recording, lambda prompts=prompts: ask(prompts[1]))
        assert report.divergence is not None
        assert (report.divergence.kind, report.divergence.sequence) == ("input_changed", 2)
        assert any("unordered collection" in hint for hint in report.divergence.hints), report.text()


def test_the_shared_pairs_are_all_here(shared_case: Callable[[str], Path]) -> None:
    assert len(PAIRS) == len(json.loads((shared_case("08") / "vectors.json").read_text("utf-8"))) == 16
