"""Differences that a fix is meant to make: a replay passes only if exactly those appear, at those places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.expectations import read_expected
from agentloupe.words.errors import UsageError
from tests.tapes import Program, Step, ask, sequence_of, use

STEPS = (
    ask("hello"),
    use("notification.send", "n-1", to="ops"),
    use("lookup", {"n": 1}, id=4),
    ask("bye"),
)
FIXED = (STEPS[0], *STEPS[2:])
QUIET: Any = [{"kind": "unconsumed", "name": "notification.send"}]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def program(request: pytest.FixtureRequest) -> Program:
    return Program(STEPS, asynchronous=request.param, result=lambda got: "done")


def test_a_call_that_a_fix_leaves_out_in_the_middle(program: Program, tmp_path: Path) -> None:
    recording = program.recorded()
    file = tmp_path / "expected.json"
    file.write_text(json.dumps(QUIET), "utf-8")
    fixed = program.changed(FIXED)
    report = fixed.replayed(recording, expect=file)
    assert report.verdict == "pass", report.text()
    assert report.calls == 3
    assert [d.sequence for d in report.differences] == [sequence_of(recording, "tool.allowed")]
    assert report.consumed == report.events - 3
    assert "as expected: unconsumed at sequence 4" in report.text()
    assert fixed.replayed(recording).exit_code == 1, "without the list it is a divergence"


def test_at_the_end_too(program: Program) -> None:
    recording = program.recorded()
    expect: Any = [{"kind": "unconsumed", "name": "chat m"}]
    assert program.changed(STEPS[:3]).replayed(recording, expect=expect).verdict == "pass"


def test_what_does_not_appear_fails(program: Program) -> None:
    report = program.replayed(program.recorded(), expect=QUIET)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind) == (1, "not_as_expected")
    assert "unconsumed notification.send" in report.text()


def test_what_appears_beside_it_fails(program: Program) -> None:
    report = program.changed([*FIXED[:-1], ask("farewell")]).replayed(program.recorded(), expect=QUIET)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind) == (1, "input_changed")


def test_what_appears_twice_fails_unless_it_is_said(program: Program) -> None:
    program = program.changed([*STEPS[:2], *STEPS[1:]])
    recording = program.recorded()
    fixed = program.changed(FIXED)
    assert fixed.replayed(recording, expect=QUIET).exit_code == 1
    assert fixed.replayed(recording, expect=[{**QUIET[0], "times": 2}]).verdict == "pass"
    assert fixed.replayed(recording, expect=[*QUIET, *QUIET]).verdict == "pass"


def test_another_sequence_is_another_place(program: Program) -> None:
    recording = program.recorded()
    at = sequence_of(recording, "tool.allowed")
    fixed = program.changed(FIXED)
    assert fixed.replayed(recording, expect=[{**QUIET[0], "sequence": at}]).verdict == "pass"
    assert fixed.replayed(recording, expect=[{**QUIET[0], "sequence": at + 4}]).exit_code == 1


def test_an_input_changed_at_a_named_place_is_answered_as_recorded(program: Program) -> None:
    recording = program.recorded()
    mended = program.changed([*STEPS[:2], use("lookup", None, id=5), STEPS[3]], result=lambda got: "done")
    where: Any = {"kind": "input_changed", "name": "lookup", "place": "id"}
    report = mended.replayed(recording, expect=[where])
    assert report.verdict == "pass", report.text()
    assert report.calls == 4
    assert mended.replayed(recording, expect=[{**where, "place": "name"}]).exit_code == 1
    other = program.changed([*STEPS[:2], use("lookup", None, id=5, more=1), STEPS[3]])
    assert other.replayed(recording, expect=[where]).exit_code == 1, "a change beside the place"


def test_a_renamed_tool_and_swapped_calls_are_answered_as_recorded(program: Program) -> None:
    recording = program.recorded()
    renamed = program.changed([*STEPS[:2], use("find", None, id=4), STEPS[3]])
    assert renamed.replayed(recording, expect=[{"kind": "name_changed", "name": "lookup"}]).verdict == "pass"
    swapped = program.changed([STEPS[0], STEPS[2], STEPS[1], STEPS[3]])
    report = swapped.replayed(recording, expect=[{"kind": "order", "name": "notification.send"}])
    assert report.verdict == "pass", report.text()


def test_a_changed_result_and_state(program: Program) -> None:
    program = program.changed([*STEPS, Step("state", "phase", 1, 1)])
    recording = program.recorded()
    other = program.changed([*STEPS, Step("state", "phase", 2, 2)], result=lambda got: "DONE")
    expect: Any = [
        {"kind": "result_changed", "name": "phase", "times": 2},
        {"kind": "result_changed", "name": "program"},
    ]
    report = other.replayed_own(recording, expect=expect)
    assert report.verdict == "pass", report.text()
    assert other.replayed_own(recording, expect=expect[:1]).exit_code == 1


def test_an_extra_call_ends_it_there_since_nothing_can_answer(program: Program) -> None:
    recording = program.recorded()
    more = program.changed([*STEPS, ask("one more?")])
    report = more.replayed(recording, expect=[{"kind": "extra", "name": "chat m"}])
    assert report.verdict == "pass", report.text()
    assert any("no recorded answer" in note for note in report.notes)
    assert more.replayed(recording, expect=[{"kind": "extra"}, *QUIET]).exit_code == 1


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "[1]",
        '[{"kind": "leak"}]',
        '[{"kind": "unconsumed", "nmae": "x"}]',
        '[{"kind": "order", "sequence": "4"}]',
        '[{"kind": "order", "place": 7}]',
        '[{"kind": "order", "place": "["}]',
        '[{"kind": "order", "times": 0}]',
        '[{"kind": "order", "times": true}]',
    ],
)
def test_a_list_that_is_not_understood_is_refused_with_its_place(content: str, tmp_path: Path) -> None:
    file = tmp_path / "expected.json"
    file.write_text(content, "utf-8")
    with pytest.raises(UsageError) as wrong:
        read_expected(file)
    assert wrong.value.exit_code == 64


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        read_expected(tmp_path / "nowhere.json")
