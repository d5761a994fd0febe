"""Case 16, more of the kind: ids that come again in one message, across turns, and under an override of one result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.cassette import Cassette
from agentloupe.engine.cautions import cautions, read_history
from agentloupe.engine.loop import from_llm_call
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import import_file, load_trace
from agentloupe.verbs.forking import fork
from agentloupe.words.step import Step
from tests.cases.rec import Rec
from tests.cases.test_case_13_fork import Capture
from tests.fork_support import Script
from tests.tapes import record_in


def asks(*calls: tuple[str, str]) -> dict[str, Any]:
    """An assistant message that calls `f`: (id, k) of each call."""
    listed = [{"id": i, "type": "function", "function": {"name": "f", "arguments": f'{{"k":"{k}"}}'}} for i, k in calls]
    return {"role": "assistant", "content": None, "tool_calls": listed}


def says(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER: dict[str, Any] = {"role": "user", "content": "go"}
Pairs = list[tuple[str, str]]

# history, pairs of (argument k, result), ids of results without call, ids of calls without result
KIND: dict[str, tuple[list[Any], Pairs, list[str], list[str]]] = {
    "one message uses an id twice: in the order of its calls": (
        [USER, asks(("x", "A"), ("x", "B")), says("x", "1"), says("x", "2")],
        [("A", "1"), ("B", "2")],
        [],
        [],
    ),
    "three times, one result is missing": (
        [USER, asks(("x", "A"), ("x", "B"), ("x", "C")), says("x", "1"), says("x", "2")],
        [("A", "1"), ("B", "2")],
        [],
        ["x"],
    ),
    "rounds that number anew": (
        [USER, asks(("0", "A"), ("1", "B")), says("0", "1"), says("1", "2"), asks(("0", "C")), says("0", "3")],
        [("A", "1"), ("B", "2"), ("C", "3")],
        [],
        [],
    ),
    "results in another order than the calls": (
        [USER, asks(("0", "A"), ("1", "B")), says("1", "2"), says("0", "1")],
        [("A", "1"), ("B", "2")],
        [],
        [],
    ),
    "a result of another turn belongs to nobody": (
        [USER, asks(("x", "A")), USER, says("x", "late")],
        [],
        ["x"],
        ["x"],
    ),
    "the same id in the next turn": (
        [USER, asks(("x", "A")), says("x", "1"), USER, asks(("x", "A")), says("x", "2")],
        [("A", "1"), ("A", "2")],
        [],
        [],
    ),
    "the nearer of two open calls": (
        [USER, asks(("x", "A")), asks(("x", "B")), says("x", "2")],
        [("B", "2")],
        [],
        ["x"],
    ),
    "a second result for one call": (
        [USER, asks(("x", "A")), says("x", "1"), says("x", "again")],
        [("A", "1")],
        ["x"],
        [],
    ),
    "a history that was cut at its front": (
        [says("x", "0"), says("y", "0"), USER, asks(("x", "A")), says("x", "1")],
        [("A", "1")],
        ["x", "y"],
        [],
    ),
}  # fmt: skip


def imported(messages: list[Any], folder: Path) -> tuple[Store, str, tuple[Step, ...]]:
    path = folder / "messages.json"
    path.write_text(json.dumps(messages), "utf-8")
    store = open_url("memory:")
    run_id = import_file(store, path).runs[0].run_id
    return store, run_id, load_trace(store.recording(run_id)).steps


def answered(steps: tuple[Step, ...]) -> Pairs:
    tools = [s for s in steps if s.kind == "tool" and s.status == "ok" and isinstance(s.input, dict)]
    return [(str(s.input["k"]), str(s.output)) for s in tools]  # type: ignore[index,call-overload]


@pytest.mark.parametrize("name", KIND)
def test_an_import_and_the_cautions_of_a_fork_pair_alike(name: str, tmp_path: Path) -> None:
    messages, pairs, orphans, unanswered = KIND[name]
    history = read_history(messages)
    told = [(json.loads(str(p.raw))["k"], p.content) for p in history.pairs if p.result_at is not None]
    assert told == pairs
    assert [i for _, i in history.orphans] == orphans
    assert [p.id for p in history.unanswered] == unanswered
    _, _, steps = imported(messages, tmp_path)
    assert answered(steps) == pairs
    marked: dict[str, list[Any]] = {"no_call": [], "no_result": []}
    for step in steps:
        if "orphan" in step.attrs:
            given: Any = step.input
            marked[str(step.attrs["orphan"])].append(
                given["tool_call_id"] if step.kind == "other" else step.attrs["tool_call_id"]
            )
    assert marked == {"no_call": orphans, "no_result": unanswered}
    # every message is a step of its own or a part of one: nothing is lost
    models = sum(m["role"] == "assistant" for m in messages)
    calls = sum(len(m.get("tool_calls", [])) for m in messages)
    waits = messages[-1]["role"] != "assistant"
    assert len(steps) == models + calls + len(orphans) + waits


@pytest.mark.parametrize("name", KIND)
def test_a_cassette_of_it_hands_out_each_result_once_and_no_orphan(name: str, tmp_path: Path) -> None:
    messages, pairs, _, _ = KIND[name]
    _, _, steps = imported(messages, tmp_path)
    cassette = Cassette.from_steps(steps)
    assert [cassette.play("f", {"k": k}) for k, _ in pairs] == [(True, result, None) for _, result in pairs]
    never = {"A", "B", "C"} - {k for k, _ in pairs}
    assert not any(cassette.play("f", {"k": k}).hit for k in never)


@pytest.mark.parametrize("name", KIND)
def test_a_fork_of_its_last_step_sends_it_unchanged_and_warns_where_providers_refuse(name: str, tmp_path: Path) -> None:
    messages, _, orphans, unanswered = KIND[name]
    store, run_id, steps = imported(messages, tmp_path)
    provider = Capture()
    done = fork(run_id, from_step=len(steps) - 1, store=store, provider=provider, model="m")
    assert json.dumps(provider.bodies[0]["messages"]) == json.dumps(messages)
    assert any("without their call" in note for note in done.notes) is bool(orphans)
    assert any("without a result" in note for note in done.notes) is bool(unanswered)


def test_the_case_itself_is_forked_from_its_last_step(shared_case: Callable[[str], Path]) -> None:
    source = shared_case("16") / "messages.json"
    store = open_url("memory:")
    run_id = import_file(store, source).runs[0].run_id
    last = load_trace(store.recording(run_id)).steps[-1]
    provider = Capture()
    done = fork(run_id, from_step=last.idx, store=store, provider=provider, model="m")
    assert json.dumps(provider.bodies[0]["messages"]) == json.dumps(json.loads(source.read_text("utf-8")))
    said = "\n".join(done.notes)
    for part in ("messages[0] (gone)", "messages[6] (c9)", "lookup:0", "providers refuse such a history"):
        assert part in said


def test_the_old_pair_of_function_messages_is_read_too() -> None:
    call: dict[str, Any] = {"role": "assistant", "content": None, "function_call": {"name": "old", "arguments": "{}"}}
    result: dict[str, Any] = {"role": "function", "name": "old", "content": "7"}
    for messages, orphans, unanswered in (
        ([USER, call, result], [], []),
        ([USER, result], ["old"], []),
        ([USER, call, USER], [], ["old"]),
    ):
        history = read_history(messages)
        assert [i for _, i in history.orphans] == orphans
        assert [p.name for p in history.unanswered] == unanswered
        assert bool(cautions({}, {"messages": list(messages)}, ())) is bool(orphans or unanswered)


@pytest.mark.parametrize(("changed", "at"), [(1, 2), (2, 3), (4, 5), (6, 7)])
def test_a_changed_result_goes_into_the_message_of_its_own_call(changed: int, at: int, tmp_path: Path) -> None:
    """One id for every call, and equal arguments twice: the id alone does not say whose result it is."""
    messages = [USER, asks(("x", "A"), ("x", "B")), says("x", "1"), says("x", "2"),
                asks(("x", "A")), says("x", "3"), asks(("x", "B")), says("x", "4")]  # fmt: skip
    store, run_id, steps = imported(messages, tmp_path)
    assert [s.kind for s in steps] == ["llm", "tool", "tool", "llm", "tool", "llm", "tool", "llm"]
    model = Script("done")
    fork(run_id, from_step=7, store=store, provider=from_llm_call(model), model="m", tool_results={changed: "new"})
    told = [m.get("content") for m in model.asked[0]["messages"]]
    wanted = [m.get("content") for m in messages]
    wanted[at] = "new"
    assert told == wanted


@pytest.mark.parametrize("changed", [1, 3, 5])
def test_a_changed_result_of_equal_calls_without_ids_is_counted(changed: int) -> None:
    """A program of one's own polls three times with equal arguments: ids are not part of its tool calls."""
    left = iter(["queued", "busy", "done"])

    @loupe.tool(effect="read", name="f")
    def poll(k: str) -> str:
        return next(left)

    ask = Rec().llm("m", lambda body: asks((f"c{len(body['messages']) // 2}", "A")))

    @loupe.agent(name="poller")
    def poller() -> None:
        history: list[Any] = [USER]
        for n in range(4):
            message = ask({"model": "m", "messages": history})
            if n < 3:
                history = [*history, message, says(f"c{n}", poll(k="A"))]

    store = MemoryStore()
    run_id = record_in(store, poller).run_id
    steps = load_trace(store.recording(run_id)).steps
    tools = [s.idx for s in steps if s.kind == "tool"]
    model = Script("done")
    place = (changed - 1) // 2
    fork(
        run_id, from_step=steps[-1].idx, store=store, provider=from_llm_call(model), tool_results={tools[place]: "new"}
    )
    told = [m["content"] for m in model.asked[0]["messages"] if m["role"] == "tool"]
    wanted = ["queued", "busy", "done"]
    wanted[place] = "new"
    assert told == wanted
