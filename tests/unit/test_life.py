"""The life of a tool call: one table, and whoever reads it reads the same."""

from __future__ import annotations

import runpy
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloupe.engine.ledger.checks import GUARDS, Found
from agentloupe.engine.project import project
from agentloupe.engine.tape import read_tape
from agentloupe.ports.recording import Recording
from agentloupe.words.effects import HOWS, INTERRUPTED, LIFE, NOT_DONE, OUTCOMES, next_stage
from agentloupe.words.errors import Corrupt
from agentloupe.words.event import KIND_OF_TYPE, Draft
from agentloupe.words.ledger import line_of
from tests.ledger.support import in_memory, told
from tests.made import START, sealed
from tests.support import ROOT

OTHER = runpy.run_path(str(ROOT / "tools" / "verify_ledger.py"))
(LIFECYCLE,) = (guard for guard in GUARDS if guard.name == "lifecycle")
OPENED = ["tool.allowed"], ["tool.allowed", "tool.requested", "tool.started"], ["tool.allowed", "tool.started"]


def run_of(types: list[str], effect: str, outcomes: list[str], source: str | None) -> Recording:
    drafts = [Draft(type="run.started", event_id="e0", recorded_at=START, name="a")]
    for number, kind in enumerate(types, 1):
        said: dict[str, Any] = {"type": kind, "event_id": f"e{number}", "recorded_at": START}
        if kind == "attempt.started":
            drafts.append(Draft(**said, attrs={"attempt": number}))
            continue
        attrs: dict[str, Any] = {"effect": effect}
        if kind == "tool.confirmed":
            attrs |= {"outcome": outcomes[number % len(outcomes)], "how": "person"}
        ended = kind in ("tool.finished", "tool.failed")
        more: dict[str, Any] = {"output_digest": "1" * 64, "source": source} if ended else {}
        drafts.append(Draft(**said, call_id="0.0", name="pay", attrs=attrs, **more))
    return sealed("r", drafts, {})


def tape_takes(recording: Recording) -> bool:
    try:
        read_tape(recording)
    except Corrupt:
        return False
    return True


def ledger_takes(lines: list[dict[str, Any]]) -> bool:
    found = Found(in_memory(told()), 1, None)
    found.lines = lines
    return LIFECYCLE.check(found) is None


def other_takes(lines: list[dict[str, Any]]) -> bool:
    try:
        OTHER["lifecycle"](lines)
    except OTHER["Fault"]:
        return False
    return True


@settings(max_examples=400)
@example(
    ["tool.allowed", "tool.requested"], ["tool.unknown", "tool.confirmed", "tool.denied"], "write", [NOT_DONE] * 2, None
)
@given(
    st.sampled_from(OPENED),
    st.lists(st.sampled_from([*LIFE, "attempt.started"]), max_size=6),
    st.sampled_from(["write", "read"]),
    st.lists(st.sampled_from(OUTCOMES), min_size=2, max_size=2),
    st.sampled_from([None, "cassette"]),
)
def test_tape_view_and_both_readers_of_a_ledger_agree(
    opened: list[str], more: list[str], effect: str, outcomes: list[str], source: str | None
) -> None:
    recording = run_of([*opened, *more], effect, outcomes, source)
    lines = [line_of(event) for event in recording.events]
    taken = tape_takes(recording)
    assert ledger_takes(lines) is other_takes(lines) is taken
    if not taken:
        return
    (call,) = read_tape(recording).calls
    trace = project(recording.events)
    shown = NOT_DONE if call.stage == NOT_DONE else call.status  # what was not done may have been denied since
    assert trace.steps[0].status == shown
    assert trace.run.open_effects == call.unseen


def test_the_table_says_what_the_other_reader_says() -> None:
    named = {one.replace(".", "_"): tuple(s and s.replace(".", "_") for s in after) for one, after in LIFE.items()}
    assert {kind: after for kind, after in OTHER["AFTER"].items() if kind.startswith("tool_")} == named
    assert set(LIFE) == {one for one, kind in KIND_OF_TYPE.items() if kind == "tool"}


def test_a_write_never_begins_blindly() -> None:
    """Not without an intent, not twice on one, not before somebody found out that it was not done."""
    stages = {None, *LIFE, INTERRUPTED, NOT_DONE}
    may = {stage for stage in stages if next_stage(stage, "tool.started", writes=True)}
    assert may == {"tool.requested"}
    asks = {stage for stage in stages if next_stage(stage, "tool.requested", writes=True)}
    assert asks == {"tool.allowed", NOT_DONE}
    assert next_stage("tool.unknown", "tool.confirmed", writes=True, outcome=NOT_DONE) == NOT_DONE
    assert HOWS == ("lookup", "person")
