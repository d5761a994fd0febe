"""Properties of replay over random sequential programs: repeatable, and no edit of program or tape goes unseen."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import LoupeError
from agentloupe.words.event import Draft, Event
from tests.tapes import Program, Step, edited, with_body, with_value

NAMES = ("get", "put", "find")
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_answers = _json | st.builds(ValueError, st.text(max_size=5)) | st.builds(OSError, st.just(2), st.text(max_size=5))


@st.composite
def _steps(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["tool", "llm", "clock", "id", "random", "env", "retrieval", "other"]))
    if kind == "tool":
        return Step("tool", draw(st.sampled_from(NAMES)), {"a": draw(_json)}, draw(_answers))
    if kind == "llm":
        text = draw(st.text(max_size=8))
        request: Json = {"model": "m", "messages": [{"role": "user", "content": text}]}
        return Step("llm", "chat m", request, {"choices": [{"message": {"content": draw(st.text(max_size=8))}}]})
    if kind in ("retrieval", "other"):
        return Step(kind, draw(st.sampled_from(NAMES)), {"q": draw(_json)}, draw(_json))
    return Step(kind, draw(st.sampled_from(("now", "x"))), None, draw(st.integers() | st.text(max_size=8)))


_programs = st.builds(Program, st.lists(_steps(), min_size=1, max_size=8), st.booleans())


def _seen(program: Program, recording: Recording) -> bool:
    """Whether a replay of this recording is anything but a pass."""
    try:
        return program.replayed(recording).exit_code != 0
    except LoupeError:
        return True


@given(_programs)
def test_ten_replays_pass_with_ten_equal_reports(program: Program) -> None:
    recording = program.recorded()
    reports = [program.replayed(recording) for _ in range(10)]
    assert reports[0].verdict == "pass", reports[0].text()
    assert reports[0].consumed == len(recording.events)
    assert all(report == reports[0] for report in reports)
    assert {report.text() for report in reports} == {reports[0].text()}
    assert {dumps(report.as_json()) for report in reports} == {dumps(reports[0].as_json())}


@given(_programs, st.data())
def test_every_edit_of_the_program_is_found(program: Program, data: st.DataObject) -> None:
    recording = program.recorded()
    steps = list(program.steps)
    at = data.draw(st.integers(0, len(steps) - 1))
    what = data.draw(st.sampled_from(["drop", "again", "name", "input", "kind", "swap"]))
    if what == "drop":
        del steps[at]
    elif what == "again":
        steps.insert(at, steps[at])
    elif what == "name":
        steps[at] = replace(steps[at], name=steps[at].name + "x")
    elif what == "input":
        steps[at] = replace(steps[at], input={"another": steps[at].input})
    elif what == "kind":
        steps[at] = replace(steps[at], kind="other" if steps[at].kind != "other" else "retrieval")
    else:
        to = data.draw(st.integers(0, len(steps) - 1))
        steps[at], steps[to] = steps[to], steps[at]
    same = [(s.kind, s.name, s.call().input) for s in steps] == [
        (s.kind, s.name, s.call().input) for s in program.steps
    ]
    assume(not same)
    constant = program.changed(steps, result=lambda got: None)
    reports = [constant.replayed(recording, level="flow") for _ in range(3)]
    assert reports[0].exit_code == 1, (what, reports[0].text())
    assert all(report == reports[0] for report in reports)


_FIELDS = [f.name for f in fields(Event)]


@given(_programs, st.data())
def test_every_edit_of_the_tape_is_damage_while_the_chain_is_left_alone(program: Program, data: st.DataObject) -> None:
    recording = program.recorded()
    events = list(recording.events)
    at = data.draw(st.integers(0, len(events) - 1))
    what = data.draw(st.sampled_from(["field", "drop", "again", "swap", "cut"]))
    if what == "field":
        name = data.draw(st.sampled_from(_FIELDS))
        value: Any = getattr(events[at], name)
        other: Any = "changed"
        if name in ("attrs", "bodies"):
            other = {"changed": "1"}
        elif name in ("sequence", "schema_version", "n", "owner_epoch", "parent_seq"):
            other = (value if isinstance(value, int) else 0) + 1
        assume(other != value)
        events[at] = replace(events[at], **{name: other})
    elif what == "drop":
        del events[at]
    elif what == "again":
        events.insert(at, events[at])
    elif what == "cut":
        del events[at:]
    else:
        to = data.draw(st.integers(0, len(events) - 1))
        assume(to != at)
        events[at], events[to] = events[to], events[at]
    report = program.replayed(replace(recording, events=tuple(events)))
    assert (report.verdict, report.exit_code, report.calls) == ("damaged", 2, 0), (what, report.text())


@given(_programs, st.data())
def test_another_byte_in_a_body_that_is_handed_out_is_damage(program: Program, data: st.DataObject) -> None:
    recording = program.recorded()
    digests = sorted({e.output_digest for e in recording.events[1:-1] if e.output_digest is not None})
    digest = data.draw(st.sampled_from(digests))
    whole = bytearray(recording.get([digest])[digest])
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    report = program.replayed(with_body(recording, digest, bytes(whole)))
    assert (report.verdict, report.exit_code) == ("damaged", 2), report.text()


@given(_programs, st.data())
def test_an_edit_that_is_chained_anew_is_found_where_the_program_sees_it(program: Program, data: st.DataObject) -> None:
    recording = program.recorded()
    calls = sorted({e.call_id for e in recording.events if e.call_id is not None})
    call_id = data.draw(st.sampled_from(calls))
    what = data.draw(st.sampled_from(["forget", "answer", "key", "name", "status", "result"]))

    def change(**fields: Any) -> Recording:
        return edited(recording, lambda ds: [replace(d, **fields) if d.call_id == call_id else d for d in ds])

    if what == "forget":
        forged = edited(recording, lambda ds: [d for d in ds if d.call_id != call_id])
    elif what == "answer":
        last = max(e.sequence for e in recording.events if e.call_id == call_id)
        forged = with_value(recording, last, "an answer that nobody gave")
    elif what == "key":
        forged = change(input_key="0" * 64)
    elif what == "name":
        forged = change(name="never")
    elif what == "status":
        forged = edited(recording, _failed(call_id))
    else:
        forged = with_value(recording, recording.events[-1].sequence, {"result": ["a result that nobody had"]})
    assert _seen(program, forged), what


def _failed(call_id: str) -> Any:
    turned = {
        "model.responded": "model.failed",
        "tool.finished": "tool.failed",
        "tool.failed": "tool.finished",
        "retrieval.finished": "retrieval.failed",
        "call.finished": "call.failed",
    }

    def edit(drafts: list[Draft]) -> list[Draft]:
        found: list[Draft] = []
        for draft in drafts:
            if draft.call_id == call_id and draft.type in turned:
                draft = replace(draft, type=turned[draft.type])
            elif draft.call_id == call_id and draft.type.endswith((".read", ".drawn", ".minted")):
                draft = replace(draft, attrs={**draft.attrs, "status": "error"})
            found.append(draft)
        return found

    return edit
