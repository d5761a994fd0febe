"""Case 06, more of the kind: whatever crosses the boundary is kept as it was then, and what a replay hands out is fresh."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_steps
from agentloupe.ports import codecs
from agentloupe.ports.protocols import Store
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.step import Step
from tests.cases.rec import Rec
from tests.tapes import record_in

WAS: dict[str, Any] = {"list": [1, {"deep": ["a", "b"]}], "text": "as it was"}


def spoil(value: Any) -> None:
    """Edits a value in place, at every depth that it has."""
    value["list"][1]["deep"].clear()
    value["list"].append("LATER")
    value["text"] = "REWRITTEN"
    value["more"] = True


def fresh() -> dict[str, Any]:
    return copy.deepcopy(WAS)


def tool_argument() -> dict[str, Any]:
    """The tool itself edits what it was given."""

    @loupe.tool(effect="read")
    def f(x: dict[str, Any]) -> str:
        spoil(x)
        return "done"

    given = fresh()
    f(x=given)
    return given


def tool_result() -> dict[str, Any]:
    @loupe.tool(effect="read")
    def f() -> dict[str, Any]:
        return fresh()

    got = f()
    spoil(got)
    return got


def model_answer() -> dict[str, Any]:
    """The client hands out a message, the program edits it."""
    got = Rec().llm("m", lambda body: {"role": "assistant", "content": [fresh()]})({"model": "m", "messages": []})
    spoil(got["content"][0])
    return got["content"][0]


def model_request() -> dict[str, Any]:
    """The client edits what it sends."""

    def client(body: dict[str, Any]) -> dict[str, Any]:
        spoil(body["messages"][0])
        return {"role": "assistant", "content": "x"}

    message = {"role": "user", **fresh()}
    Rec().llm("m", client)({"model": "m", "messages": [message]})
    return message


def state() -> dict[str, Any]:
    value = fresh()
    loupe.state("phase", value)
    spoil(value)
    return value


def found_documents() -> dict[str, Any]:
    got: Any = loupe.retrieve("docs", {"words": "late"}, lambda _: [{"id": "d1", "score": 0.5, "meta": fresh()}])
    spoil(got[0]["meta"])
    return got[0]["meta"]


def search_query() -> dict[str, Any]:
    """The search edits what it is asked."""
    query = fresh()

    def search(asked: Any) -> list[Any]:
        spoil(asked)
        return []

    loupe.retrieve("docs", query, search)
    return query


def details_of_a_check() -> dict[str, Any]:
    value = fresh()
    loupe.check("fine", True, value)
    spoil(value)
    return value


KEPT = {
    tool_argument: ("tool", "input", {"x": WAS}),
    tool_result: ("tool", "output", WAS),
    model_answer: ("llm", "output", {"role": "assistant", "content": [WAS]}),
    model_request: ("llm", "input", {"model": "m", "messages": [{"role": "user", **WAS}]}),
    state: ("state", "output", WAS),
    details_of_a_check: ("check", "output", WAS),
    found_documents: (
        "retrieval",
        "output",
        {"index_version": None, "documents": [{"id": "d1", "score": 0.5, "meta": WAS}]},
    ),
    search_query: ("retrieval", "input", {"query": WAS}),
}


def kept_in(store: Store, run_id: str, kind: str) -> Step:
    (step,) = [step for step in load_steps(store.recording(run_id)) if step.kind == kind]
    return step


@pytest.mark.parametrize("program", KEPT, ids=lambda f: f.__name__)
def test_what_was_recorded_stays_as_it_was(program: Any) -> None:
    kind, side, wanted = KEPT[program]
    plain = program()
    store = MemoryStore()

    def run() -> None:
        program()

    recording = record_in(store, run)
    assert getattr(kept_in(store, recording.run_id, kind), side) == wanted
    assert plain["text"] == "REWRITTEN"


@pytest.mark.parametrize("program", KEPT, ids=lambda f: f.__name__)
def test_the_program_sees_its_own_objects_the_same_recorded_and_bare(program: Any) -> None:
    """The recorder neither edits what it is given nor hands out copies that edits do not reach."""
    seen: list[Any] = []
    record_in(MemoryStore(), lambda: seen.append(program()))
    assert seen == [program()]


def test_arguments_and_the_result_of_a_run() -> None:
    @loupe.agent(name="keeper")
    def keeper(given: dict[str, Any]) -> dict[str, Any]:
        spoil(given)
        return fresh()

    store = MemoryStore()
    given = fresh()
    with loupe.recording("around", store=store):
        pass  # a store that has been used before
    recording = record_in(store, keeper, given)
    first: Any = recording.body(recording.events[0].input_digest)
    last: Any = recording.body(recording.events[-1].output_digest)
    assert codecs.decode(first["args"][0]) == WAS
    assert last == {"result": WAS}
    assert given["text"] == "REWRITTEN", "the agent got the very object"
    for _ in range(2):  # a replay gives the agent arguments of its own, each time as they were recorded
        assert replay(recording, keeper).verdict == "pass"


def test_what_a_replay_hands_out_is_fresh_each_time() -> None:
    """Two equal calls: editing what the first one gave does not show in the second, nor in the next replay."""

    @loupe.tool(effect="read")
    def f(x: int) -> dict[str, Any]:
        return fresh()

    seen: list[Any] = []

    def program() -> None:
        for _ in range(2):
            got = f(x=1)
            seen.append(copy.deepcopy(got))
            spoil(got)

    recording = record_in(MemoryStore(), program)
    for _ in range(2):
        assert replay(recording, program).verdict == "pass"
    assert seen == [WAS] * 6


def test_what_a_fork_hands_out_is_fresh_too() -> None:
    """A recorded answer that is used again is not the object that the program has edited meanwhile."""

    @loupe.tool(effect="read")
    def f(x: int) -> dict[str, Any]:
        return fresh()

    seen: list[Any] = []
    times = [1]

    def program() -> None:
        message = {"role": "user", **fresh()}
        Rec().llm("m", lambda body: {"role": "assistant", "content": "x"})({"model": "m", "messages": [message]})
        for _ in range(times[0]):
            got = f(x=1)
            seen.append(copy.deepcopy(got))
            spoil(got)

    store = MemoryStore()
    recording = record_in(store, program)
    step = next(step.idx for step in store.steps(recording.run_id) if step.kind == "llm")
    times[0] = 3
    run = fork(recording.run_id, program, from_step=step, store=store).candidates[0]
    assert (run.counts.cassette, run.counts.reused) == (3, 2)
    assert seen == [WAS] * 4
    outputs = [s.output for s in load_steps(store.recording(run.id)) if s.kind == "tool"]
    assert outputs == [WAS] * 3
    assert load_steps(store.recording(recording.run_id)) == load_steps(recording)


def test_forty_turns_with_one_list(tmp_path: Path) -> None:
    """One list object, appended to and rewritten at random places all the while: each step holds what was sent."""
    sent: list[Any] = []

    def client(body: dict[str, Any]) -> dict[str, Any]:
        sent.append(copy.deepcopy(body["messages"]))
        if len(body["messages"]) > 5:
            body["messages"][len(sent) % 5]["content"] += "!"
        return {"role": "assistant", "content": f"seen {len(body['messages'])}"}

    ask = Rec().llm("m", client)

    def program() -> None:
        messages: list[Any] = [{"role": "system", "content": "be brief"}]
        for n in range(40):
            messages.append({"role": "user", "content": f"turn {n}"})
            messages.append(ask({"model": "m", "messages": messages}))
            if n % 7 == 6:
                del messages[1:4]
            if n % 11 == 10:
                messages[1], messages[2] = messages[2], messages[1]

    from agentloupe.store import open_url

    store = open_url(tmp_path / "x.db")
    recording = record_in(store, program)
    asked: list[Any] = [s.input for s in load_steps(recording) if s.kind == "llm"]
    assert [body["messages"] for body in asked] == sent
    assert len(sent) == 40
    store.close()
