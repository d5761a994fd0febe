"""T9: a recording that says less is never checked less: each field left out, the rest chained anew."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from agentloupe.engine.report import ReplayReport
from agentloupe.ports.recording import Recording
from agentloupe.words.call import NO_ATTRS
from agentloupe.words.errors import LoupeError
from agentloupe.words.event import Draft
from tests.tapes import Program, Step, ask, edited, use

STEPS = (
    ask("weather?"),
    use("get_weather", {"c": 11.9}, city="Beijing"),
    Step("clock", "now", None, "2026-04-01"),
    Step("env", "MISSING", None, KeyError("MISSING")),
    use("refund", ValueError("declined"), order=7),
    Step("retrieval", "docs", {"query": "late"}, [{"id": "d1"}]),
    ask("and now?"),
)
WRONG = (
    [ask("weather??"), *STEPS[1:]],
    [STEPS[0], use("get_weather", {"c": 11.9}, city="Oslo"), *STEPS[2:]],
    [*STEPS[:2], Step("clock", "utcnow", None, "2026-04-01"), *STEPS[3:]],
    [*STEPS[:4], use("refund", None, order=8), *STEPS[5:]],
    [*STEPS[:5], Step("retrieval", "docs", {"query": "later"}, []), STEPS[6]],
    [*STEPS[:6], ask("and then?")],
    STEPS[:6],
    [*STEPS, ask("more?")],
)
OPTIONAL = [f.name for f in fields(Draft) if f.name not in ("type", "event_id", "recorded_at", "schema_version")]


def _strip(recording: Recording, field: str, which: int | None = None) -> Recording:
    empty = {"attrs": NO_ATTRS, "bodies": {}, "owner_epoch": 1}.get(field)

    def edit(drafts: list[Draft]) -> list[Draft]:
        return [replace(d, **{field: empty}) if which in (None, i) else d for i, d in enumerate(drafts)]

    return edited(recording, edit)


def _judged(program: Program, recording: Recording) -> ReplayReport | str:
    try:
        return program.replayed(recording)
    except LoupeError as refused:
        return refused.reason


@pytest.mark.parametrize("field", OPTIONAL)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_stripping_a_field_never_weakens_a_check(field: str, asynchronous: bool) -> None:
    right = Program(STEPS, asynchronous=asynchronous)
    recording = right.recorded()
    stripped = _strip(recording, field)
    for steps in WRONG:
        report = _judged(right.changed(steps), stripped)
        assert isinstance(report, str) or report.exit_code != 0, f"{field}: a wrong program passed"
    changed = right.changed(STEPS, result=lambda got: "another result")
    report = _judged(changed, stripped)
    assert isinstance(report, str) or report.exit_code != 0


@pytest.mark.parametrize("field", OPTIONAL)
def test_stripping_a_field_of_one_event_never_hands_out_something_else(field: str) -> None:
    right = Program(STEPS)
    recording = right.recorded()
    for which in range(len(recording.events)):
        report = _judged(right, _strip(recording, field, which))
        if not isinstance(report, str) and report.exit_code == 0:
            # It may pass only where nothing that is judged was lost: then everything was still compared.
            assert report.levels == {"flow": True, "state": True, "content": True}
            assert report.consumed == report.events


def test_without_a_key_the_input_itself_is_compared() -> None:
    right = Program(STEPS)
    stripped = _strip(right.recorded(), "input_key")
    assert right.replayed(stripped).verdict == "pass"
    report = right.changed(WRONG[1]).replayed(stripped)
    assert report.divergence is not None
    assert report.divergence.kind == "input_changed"


def test_without_key_and_input_it_is_damaged() -> None:
    right = Program(STEPS)
    report = right.replayed(_strip(_strip(right.recorded(), "input_key"), "input_digest"))
    assert (report.verdict, report.reason) == ("damaged", "no_input")


def test_without_an_output_nothing_is_handed_out() -> None:
    right = Program(STEPS)
    report = right.replayed(_strip(right.recorded(), "output_digest"))
    assert (report.verdict, report.reason) == ("damaged", "no_output")


def test_an_error_that_lost_its_mark_is_not_handed_out_as_a_value() -> None:
    right = Program(STEPS[3:4])
    recording = right.recorded()
    report = right.replayed(_strip(recording, "attrs", 1))
    assert (report.verdict, report.reason) == ("damaged", "status")
