"""T2: every kind of difference, each at the right event, with the sync and the async driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentloupe.engine.report import ReplayReport
from agentloupe.words.errors import ReplayRefused
from agentloupe.words.event import Draft
from tests.tapes import Program, Step, ask, edited, sequence_of, tampered, use, with_body, with_value, without

STEPS = (
    ask("weather?"),
    use("get_weather", {"c": 11.9}, city="Beijing"),
    Step("clock", "now", None, "2026-04-01"),
    use("get_weather", {"c": 17.7}, city="Shanghai"),
    use("notify", "sent", to="ops"),
    ask("and now?"),
)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def program(request: pytest.FixtureRequest) -> Program:
    return Program(STEPS, asynchronous=request.param)


def _diverged(report: ReplayReport, kind: str, sequence: int) -> None:
    assert report.divergence is not None, report.text()
    assert (report.verdict, report.exit_code, report.divergence.kind) == ("diverged", 1, kind), report.text()
    assert report.divergence.sequence == sequence, report.text()
    assert f"{kind} at sequence {sequence}" in report.text()


def test_the_same_program_passes_and_consumes_everything(program: Program) -> None:
    recording = program.recorded()
    report = program.replayed(recording)
    assert (report.verdict, report.exit_code, report.calls) == ("pass", 0, 6), report.text()
    assert report.levels == {"flow": True, "state": True, "content": True}
    n = len(recording.events)
    assert (
        f"offline, {n} of {n} events, levels flow+state+content, not observed: direct reads of clock" in report.text()
    )


def test_changed_argument(program: Program) -> None:
    recording = program.recorded()
    steps = [*STEPS[:3], use("get_weather", {"c": 17.7}, city="Guangzhou"), *STEPS[4:]]
    report = program.changed(steps).replayed(recording)
    _diverged(report, "input_changed", sequence_of(recording, "tool.allowed", nth=1))
    found = report.divergence
    assert found is not None
    assert found.expected is not None
    assert found.actual is not None
    assert found.expected.digest != found.actual.digest
    assert found.step == 4, "the root is step 0"
    assert "city: [-Shanghai-]{+Guangzhou+}" in report.text()
    assert found.agreed == (sequence_of(recording, "clock.read"), "clock.read", "now")
    assert found.caller is not None
    assert found.caller.file.endswith("tapes.py")
    assert found.candidates[0].rejected == "other arguments at city"


def test_rename(program: Program) -> None:
    recording = program.recorded()
    steps = [*STEPS[:1], use("fetch_weather", {"c": 11.9}, city="Beijing"), *STEPS[2:]]
    report = program.changed(steps).replayed(recording)
    _diverged(report, "name_changed", sequence_of(recording, "tool.allowed"))
    assert "expected: tool get_weather" in report.text()
    assert "actual  : tool fetch_weather" in report.text()


def test_another_kind_of_call(program: Program) -> None:
    recording = program.recorded()
    steps = [*STEPS[:2], Step("random", "now", None, 1), *STEPS[3:]]
    _diverged(program.changed(steps).replayed(recording), "name_changed", sequence_of(recording, "clock.read"))


def test_reorder(program: Program) -> None:
    recording = program.recorded()
    steps = [STEPS[0], STEPS[3], STEPS[2], STEPS[1], *STEPS[4:]]
    report = program.changed(steps).replayed(recording)
    _diverged(report, "order", sequence_of(recording, "tool.allowed"))
    assert report.divergence is not None
    near = report.divergence.candidates[0]
    assert near.sequence == sequence_of(recording, "tool.allowed", nth=1)
    assert near.rejected == "the same call, but 2 recorded calls come before it"


def test_extra(program: Program) -> None:
    recording = program.recorded()
    report = program.changed([*STEPS, use("notify", "sent", to="ops")]).replayed(recording)
    _diverged(report, "extra", sequence_of(recording, "run.finished"))
    assert "the log is exhausted" in report.text()
    assert "already consumed" in report.text()


def test_an_inserted_call_is_named_where_it_is_made(program: Program) -> None:
    recording = program.recorded()
    report = program.changed([*STEPS[:3], use("ping", None), *STEPS[3:]]).replayed(recording)
    _diverged(report, "name_changed", sequence_of(recording, "tool.allowed", nth=1))


def test_missing_in_the_middle(program: Program) -> None:
    recording = program.recorded()
    report = program.changed([*STEPS[:3], *STEPS[4:]]).replayed(recording)
    _diverged(report, "order", sequence_of(recording, "tool.allowed", nth=1))


def test_missing_at_the_end(program: Program) -> None:
    recording = program.recorded()
    report = program.changed(STEPS[:4], result=lambda got: "the same answer").replayed(recording)
    _diverged(report, "unconsumed", sequence_of(recording, "tool.allowed", "notify"))
    assert "2 recorded calls left" in report.text()


def test_changed_result(program: Program) -> None:
    recording = program.recorded()
    report = program.changed(STEPS, result=lambda got: [*got[:-1], "no"]).replayed(recording)
    _diverged(report, "result_changed", sequence_of(recording, "run.finished"))
    assert report.levels == {"flow": True, "state": True, "content": False}
    assert program.changed(STEPS, result=lambda got: "no").replayed(recording, level="state").verdict == "pass"


def test_an_end_with_an_error_instead_of_a_result(program: Program) -> None:
    def breaks(_: object) -> object:
        raise KeyError("gone")

    recording = program.recorded()
    report = program.changed(STEPS, result=breaks).replayed(recording, level="state")
    _diverged(report, "result_changed", sequence_of(recording, "run.finished"))
    assert "status ok, now error" in report.text()
    assert program.changed(STEPS, result=breaks).replayed(recording, level="flow").levels["state"] is False


def test_changed_state(program: Program) -> None:
    program = program.changed([*STEPS, Step("state", "phase", {"n": 1}, {"n": 1})])
    recording = program.recorded()
    real = program.replayed_own(recording)
    assert real.verdict == "pass", real.text()
    report = program.changed([*STEPS, Step("state", "phase", {"n": 2}, {"n": 2})]).replayed_own(recording)
    _diverged(report, "result_changed", sequence_of(recording, "state.changed"))
    flow = program.changed([*STEPS, Step("state", "phase", {"n": 2}, {"n": 2})]).replayed_own(recording, level="flow")
    assert (flow.verdict, flow.levels["state"]) == ("pass", False)


def test_truncated(program: Program) -> None:
    recording = program.recorded()
    last = recording.events[-1].sequence
    cut = without(recording, last, last - 1)
    report = program.replayed(cut)
    assert (report.verdict, report.exit_code, report.reason) == ("damaged", 2, "truncated")
    assert report.divergence is not None
    assert report.divergence.sequence == last - 1


@pytest.mark.parametrize("type", ["run.started", "tool.allowed", "clock.read", "run.finished"])
def test_an_edited_event(program: Program, type: str) -> None:
    recording = program.recorded()
    at = sequence_of(recording, type)
    report = program.replayed(tampered(recording, at, recorded_at="2020-01-01T00:00:00.000000Z"))
    assert (report.verdict, report.exit_code, report.reason) == ("damaged", 2, "hash")
    assert report.divergence is not None
    assert (report.divergence.kind, report.divergence.sequence) == ("corrupt", at)


def test_a_deleted_event_is_a_gap(program: Program) -> None:
    recording = program.recorded()
    at = sequence_of(recording, "clock.read")
    report = program.replayed(without(recording, at))
    assert (report.verdict, report.reason) == ("damaged", "gap")
    assert report.divergence is not None
    assert report.divergence.sequence == at + 1


def test_a_deleted_event_chained_anew_is_a_divergence(program: Program) -> None:
    recording = program.recorded()
    at = sequence_of(recording, "clock.read")

    def leave_out(drafts: list[Draft]) -> list[Draft]:
        return [draft for i, draft in enumerate(drafts, 1) if i != at]

    _diverged(program.replayed(edited(recording, leave_out)), "name_changed", at)


def test_an_edited_byte_of_a_body(program: Program) -> None:
    recording = program.recorded()
    at = sequence_of(recording, "tool.finished", nth=1)
    digest = recording.events[at - 1].output_digest
    report = program.replayed(with_body(recording, digest, b'{"c":99.9}'))
    assert (report.verdict, report.exit_code, report.reason) == ("damaged", 2, "body"), report.text()
    assert report.divergence is not None
    assert (report.divergence.sequence, report.divergence.step) == (at, 4)


def test_a_recorded_answer_that_was_changed_and_chained_anew_shows_in_the_result(program: Program) -> None:
    recording = program.recorded()
    forged = with_value(recording, sequence_of(recording, "tool.finished"), {"c": -40})
    _diverged(program.replayed(forged), "result_changed", sequence_of(recording, "run.finished"))


def test_a_deleted_body_is_named(program: Program) -> None:
    recording = program.recorded()
    digest = recording.events[sequence_of(recording, "tool.finished") - 1].output_digest
    lost = replace(recording, get=lambda names: recording.get([n for n in names if n != digest]))
    report = program.replayed(lost)
    assert (report.verdict, report.reason) == ("damaged", "body_missing"), report.text()


def test_without_code_it_is_refused_with_the_command(program: Program) -> None:
    from agentloupe.verbs.replaying import replay

    with pytest.raises(ReplayRefused, match="agentloupe replay") as refused:
        replay(program.recorded())
    assert (refused.value.reason, refused.value.exit_code) == ("no_code", 3)
