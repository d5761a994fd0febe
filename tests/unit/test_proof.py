"""A pass says whether it proves the order of what happened at once; with strict order a doubtful one counts as failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.proof import unproven
from agentloupe.engine.report import ReplayReport, Verdict, report_from_json
from agentloupe.engine.tape import Tape, read_tape
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.verbs.isolated import replay_command
from agentloupe.words.event import Draft
from tests.made import START, Maker
from tests.tapes import edited
from tests.unit.test_replay import STEPS, Program


def _event(type: Any, **attrs: Any) -> Draft:
    return Draft(type=type, event_id=ambient.new_event_id(), recorded_at=START, lane="0", attrs=attrs)


def _tape(*extra: Draft, lanes: tuple[str, ...] = ("0",), **facts: Any) -> Tape:
    """A recording with one read in each lane, and whatever else."""
    made = Maker(**facts)
    for lane in lanes:
        made.call("clock", "now", None, "x")
        made.drafts[-1] = replace(made.drafts[-1], lane=lane, n=0, call_id=f"{lane}.0")
    made.drafts += extra
    return read_tape(made.finish())


def test_a_gated_recording_without_marks_is_proven() -> None:
    timer = _event("timer.fired", timer="0t1")
    assert unproven(_tape(timer, lanes=("0", "0/a1", "0/t2"), schedule="exact"), {}) == ()


@pytest.mark.parametrize(
    ("facts", "lanes", "timer", "doubt"),
    [
        ({}, ("0",), False, None),
        ({}, ("0", "0/a1"), False, "without a schedule"),
        ({}, ("0", "0.0~"), False, None),
        ({}, ("0",), True, "without a schedule"),
        ({"schedule": "off"}, ("0", "0/t1"), False, "without a schedule"),
        ({"schedule": "of another kind"}, ("0", "0/a1"), False, "without a schedule"),
        ({"schedule": "no_baton"}, ("0", "0/a1", "0/a1/a2"), True, None),
        ({"schedule": "no_baton"}, ("0", "0/a1/p1"), False, "threads run freely"),
        ({"schedule": "no_baton"}, ("0", "0/rt1"), False, "threads run freely"),
        ({"schedule": "no_baton"}, ("0", "0/ra1"), False, None),
    ],
)
def test_how_a_recording_was_made_may_prove_nothing(
    facts: dict[str, Any], lanes: tuple[str, ...], timer: bool, doubt: str | None
) -> None:
    extra = [_event("timer.fired", timer="0t1")] if timer else []
    found = unproven(_tape(*extra, lanes=lanes, **facts), {})
    assert len(found) == (doubt is not None)
    assert doubt is None or doubt in found[0]


def test_marks_of_both_sides_are_counted_and_explained() -> None:
    marks = [_event("schedule.marked", mark=mark) for mark in ("tight", "guess", "tight")]
    other = _event("schedule.marked", turn="0.1")
    found = unproven(_tape(*marks, other, schedule="exact"), {"guess": 1, "no_lane": 0})
    assert [line.split(":")[0] for line in found] == [
        "guess in the recording",
        "tight in the recording",
        "guess in the replay",
    ]
    assert found[1].endswith("(2 times)")


@pytest.mark.parametrize(
    ("verdict", "doubt", "strict", "code"),
    [
        ("pass", (), True, 0),
        ("pass", ("x",), False, 0),
        ("pass", ("x",), True, 1),
        ("reached", ("x",), True, 1),
        ("diverged", ("x",), False, 1),
        ("damaged", ("x",), True, 2),
        ("could_not_run", ("x",), True, 3),
    ],
)
def test_strict_order_changes_the_exit_code_of_a_pass_only(
    verdict: Verdict, doubt: tuple[str, ...], strict: bool, code: int
) -> None:
    report = ReplayReport(run_id="r", verdict=verdict, unproven=doubt, strict_order=strict)
    assert (report.exit_code, report.passed) == (code, code == 0)
    assert ("order not proven" in report.text()) == bool(doubt)
    assert report_from_json(report.as_json()).as_json() == report.as_json()
    assert report.as_json()["order_proven"] is not bool(doubt)


def _marked(recording: Recording) -> Recording:
    return edited(recording, lambda drafts: [*drafts[:-1], _event("schedule.marked", mark="guess"), drafts[-1]])


def test_a_replay_of_a_marked_recording_says_so() -> None:
    program = Program(STEPS)
    recording = program.recorded()
    assert program.replayed(recording, strict_order=True).passed
    report = program.replayed(_marked(recording))
    assert report.passed
    assert report.text().startswith("pass, order not proven: ")
    assert not program.replayed(_marked(recording), strict_order=True).passed


def test_a_child_process_is_as_strict(workdir: Path) -> None:
    Path("agent.py").write_text("import agentloupe as loupe\nwith loupe.recording('x'):\n    loupe.state('at', 1)\n")
    import agentloupe as loupe
    from agentloupe.store.memory import MemoryStore

    store = MemoryStore()
    with loupe.recording("x", store=store) as run:
        loupe.state("at", 1)
    recording = _marked(store.recording(run.run_id))
    with Path("x.loupe").open("wb") as out:
        LoupeFileExporter().write(iter([recording]), out)
    loose, strict = (replay_command("x.loupe", ["python", "agent.py"], strict_order=strict) for strict in (False, True))
    assert (loose.verdict, loose.exit_code) == ("pass", 0), loose.text()
    assert (strict.verdict, strict.exit_code, strict.unproven) == ("pass", 1, loose.unproven)
