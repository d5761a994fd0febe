"""Plain chat messages: inferred model calls, joined results, and a request that still waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.importers.building import RunBuilder, raw_of
from agentloupe.importers.conversation import add_conversation
from agentloupe.ports.ambient import now
from agentloupe.store import open_url
from agentloupe.verbs.exchange import import_file, load_trace
from agentloupe.words.errors import Corrupt


def call(id: str | None, name: str, arguments: Any = "{}") -> Any:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: Any) -> Any:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id: str, content: Any) -> Any:
    return {"role": "tool", "tool_call_id": id, "content": content}


def steps_of(messages: list[Any]) -> list[tuple[str, str, Any, Any, Any]]:
    path_free = RunBuilder("r", "messages", raw_of(b"x"), messages)
    path_free.start(agent="chat", name="r")
    add_conversation(path_free, messages)
    path_free.finish()
    made = path_free.made()
    store = open_url("memory:")
    from agentloupe.engine.project import Projector
    from agentloupe.store.owners import this_process

    writer = store.start("r", Projector, owner=this_process())
    writer.append(made.drafts, made.bodies, "full")
    writer.close()
    return [(s.kind, s.name, s.input, s.output, s.attrs.get("orphan")) for s in load_trace(store.recording("r")).steps]


USER: Any = {"role": "user", "content": "q"}


def test_parallel_calls_are_joined_by_id_in_the_order_of_the_calls() -> None:
    found = steps_of(
        [USER, asks(call("a", "f", '{"n":1}'), call("b", "f", '{"n":2}')), result("b", "two"), result("a", "one")]
    )
    assert [step[1:4] for step in found if step[0] == "tool"] == [("f", {"n": 1}, "one"), ("f", {"n": 2}, "two")]


def test_a_result_of_another_turn_is_an_orphan() -> None:
    found = steps_of([USER, asks(call("a", "f")), USER, result("a", "late"), {"role": "assistant", "content": "ok"}])
    assert [(step[0], step[4]) for step in found] == [
        ("llm", None),
        ("tool", "no_result"),
        ("other", "no_call"),
        ("llm", None),
    ]


def test_a_second_result_of_one_call_is_an_orphan() -> None:
    found = steps_of(
        [USER, asks(call("a", "f")), result("a", "one"), result("a", "two"), {"role": "assistant", "content": "x"}]
    )
    assert [(step[3], step[4]) for step in found if step[0] in ("tool", "other")] == [("one", None), ("two", "no_call")]


def test_arguments_that_are_no_json_stay_as_they_were() -> None:
    found = steps_of([USER, asks(call("a", "f", '{"n":'), call("b", "g", None)), result("a", "err")])
    assert [step[2] for step in found if step[0] == "tool"] == ['{"n":', {}]


def test_a_conversation_that_ends_with_an_answer_has_no_waiting_request() -> None:
    assert [step[0] for step in steps_of([USER, {"role": "assistant", "content": "a"}])] == ["llm"]
    assert [step[0] for step in steps_of([USER])] == ["llm"]
    assert steps_of([]) == []


odd = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.builds(lambda role, content: {"role": role, "content": content}, st.sampled_from(["user", "assistant", "tool", "x", 3]), st.none() | st.text(max_size=3)),
    st.builds(lambda i: asks(call(i, "f")), st.sampled_from(["a", "b"])),
    st.builds(result, st.sampled_from(["a", "b", "c"]), st.text(max_size=3)),
    st.just({"role": "assistant", "tool_calls": [None, 3, {"id": 1}]}),
    st.just({"role": "assistant", "tool_calls": "x", "function_call": {"name": "o", "arguments": "1"}}),
    st.just({"role": "function", "name": "o", "content": "r"}),
)  # fmt: skip


@given(st.lists(odd, max_size=10))
def test_no_message_is_lost_whatever_it_is(messages: list[Any]) -> None:
    found = steps_of(messages)
    requests = [step[2]["messages"] for step in found if step[0] == "llm"]
    answers = [step[3] for step in found if step[0] == "llm"]
    whole = requests[-1] + ([answers[-1]] if answers[-1] is not None else []) if requests else []
    assert whole == messages
    results = sum(1 for m in messages if isinstance(m, dict) and m.get("role") in ("tool", "function"))
    assert sum(1 for step in found if step[0] == "other" or (step[0] == "tool" and step[4] is None)) == results


def test_json_lines_of_bodies_are_one_run_each(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    bodies = [{"messages": [USER, {"role": "assistant", "content": str(n)}], "model": "m"} for n in range(3)]
    path.write_text("\n".join(json.dumps(body) for body in bodies) + "\nnot json\n{}\n")
    report = import_file(open_url("memory:"), path)
    assert (report.format, len(report.runs), report.total("model_calls")) == ("messages", 3, 3)
    assert [place.split(":")[0] for place in report.quarantined] == ["line 4", "line 5"]


def test_what_is_unknown_is_said(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([USER, {"role": "assistant", "content": "a"}]))
    before = now()
    store = open_url("memory:")
    report = import_file(store, path)
    fidelity = report.fidelity or ""
    assert "the model is not known: a fork must be told one" in fidelity
    assert "definitions of tools are not known" in fidelity
    assert "times are not known" in fidelity
    (run,) = store.runs()
    assert run.model is None
    assert run.started_at >= before  # when it was imported, and marked as unknown
    assert run.coverage == "trace_only"
    assert store.steps(run.id)[0].name == "chat"


def test_a_list_without_messages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text('{"messages": 3}')
    with pytest.raises(Corrupt, match="no conversation"):
        import_file(open_url("memory:"), path)
