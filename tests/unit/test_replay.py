"""Replay of whole agents: own code, generic runs, forks, nested agents, failures, refusals, reports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.report import report_from_json
from agentloupe.engine.ruling import Reached
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import NotFound, ReplayMismatch, ReplayRefused, RunNotFound, UsageError
from agentloupe.words.event import Draft
from agentloupe.words.jsontext import dumps, loads
from tests.made import Maker
from tests.tapes import Program, Step, ask, edited, record_in, sequence_of, use

STEPS = (ask("hello"), use("get", {"n": 1}, i=1), ask("bye"))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return request.param


# --- finding and opening ----------------------------------------------------------------------------------------------


def test_by_id_beginning_last_file_and_recording(workdir: Path) -> None:
    store = open_url(workdir / "x.db")
    program = Program(STEPS)
    recording = record_in(store, loupe.agent(name="program")(program.agent))
    from agentloupe.exporters.loupe_file import LoupeFileExporter

    with (workdir / "x.loupe").open("wb") as out:
        LoupeFileExporter().write(iter([recording]), out)
    program.real.clear()
    agent = loupe.agent(name="program")(program.agent)
    ways: list[Any] = [recording.run_id, recording.run_id[:-2], "last", str(workdir / "x.loupe"), recording]
    reports = [replay(way, agent, store=store) for way in ways]
    assert {report.verdict for report in reports} == {"pass"}
    assert all(report == reports[0] for report in reports)
    assert program.real == []
    with pytest.raises(RunNotFound):
        replay("nobody", agent, store=store)
    with pytest.raises(NotFound, match="nowhere"):
        replay("nowhere.loupe", agent, store=store)
    with pytest.raises(UsageError, match="level"):
        replay("last", agent, store=store, level="most")  # type: ignore[arg-type]
    store.close()


def test_code_by_name_and_what_cannot_be_loaded(workdir: Path) -> None:
    recording = Program(STEPS).recorded()
    for name in ("nowhere:agent", "json:nothing", "json", "json:decoder.JSONDecodeError.missing", "math:pi"):
        with pytest.raises(ReplayRefused) as refused:
            replay(recording, name)
        assert refused.value.reason == "no_code"


def _finished(recording: Recording, **attrs: Any) -> Recording:
    def edit(drafts: list[Draft]) -> list[Draft]:
        return [replace(d, attrs={**d.attrs, **attrs}) if d.type == "run.finished" else d for d in drafts]

    return edited(recording, edit)


@pytest.mark.parametrize(
    ("coverage", "reason"),
    [
        ("control_flow", "control_flow"),
        ("limited_replay", "limited"),
        ("trace_only", "trace_only"),
        ("lossy", "lossy"),
        ("brand_new", "coverage"),
    ],
)
def test_a_recording_that_does_not_hold_enough_is_refused(coverage: str, reason: str) -> None:
    program = Program(STEPS)
    poor = _finished(program.recorded(), coverage=coverage, coverage_notes=["tool 'x' ran outside the boundary"])
    with pytest.raises(ReplayRefused) as refused:
        program.replayed(poor)
    assert (refused.value.reason, refused.value.exit_code) == (reason, 3)


def test_an_import_and_an_erased_run_are_refused() -> None:
    imported = Maker(engine="imported")
    imported.model([], {"role": "assistant", "content": "x"})
    with pytest.raises(ReplayRefused) as refused:
        replay(imported.finish(), lambda: None)
    assert refused.value.reason == "trace_only"

    recording = Program(STEPS).recorded()
    erased = edited(recording, lambda drafts: [*drafts, replace(drafts[-1], type="run.erased", output_digest=None)])
    with pytest.raises(ReplayRefused) as refused:
        Program(STEPS).replayed(erased)
    assert refused.value.reason == "limited"


def test_unknown_rules_of_redaction_are_a_newer_version() -> None:
    recording = Program(STEPS).recorded()

    def edit(drafts: list[Draft]) -> list[Draft]:
        return [replace(drafts[0], attrs={**drafts[0].attrs, "rules": "0" * 64}), *drafts[1:]]

    report = Program(STEPS).replayed(edited(recording, edit))
    assert (report.verdict, report.exit_code) == ("could_not_run", 3)


# --- what is replayed -------------------------------------------------------------------------------------------------


def test_secrets_are_removed_from_what_is_compared(asynchronous: bool) -> None:
    def steps(key: str) -> list[Step]:
        return [use("login", {"ok": True, "api_key": key}, user="u", api_key=key), ask(f"my key is {key}")]

    first, second = "sk-proj-" + "a1B2" * 10, "sk-proj-" + "c3D4" * 10
    recorded = Program(steps(first), asynchronous=asynchronous, result=lambda got: {"api_key": first})
    recording = recorded.recorded()
    report = Program(steps(second), asynchronous=asynchronous, result=lambda got: {"api_key": second}).replayed(
        recording
    )
    assert report.verdict == "pass", report.text()
    assert first not in str([recording.body(e.output_digest) for e in recording.events])


@pytest.mark.parametrize("secret", ["sk-proj-" + "a1B2" * 10, "hunter2"])
def test_a_secret_that_the_agent_was_given_may_be_passed_on_under_other_names(secret: str) -> None:
    @loupe.tool(effect="read", name="log in")
    def log_in(token: str, **more: str) -> str:
        return "in"

    @loupe.agent(name="visitor")
    def visitor(password: str) -> list[str]:
        return [log_in(token=password), log_in(password), log_in("me", api_key=password)]

    recording = record_in(MemoryStore(), visitor, password=secret)
    report = replay(recording, visitor)
    assert report.passed, report.text()
    assert secret not in str([recording.body(e.input_digest) for e in recording.events])


def test_errors_are_the_same_class_with_their_attributes(asynchronous: bool) -> None:
    class Odd(Exception):
        pass

    steps = [
        use("a", OSError(2, "gone", "f")),
        use("b", KeyError("k")),
        use("c", UnicodeDecodeError("utf-8", b"x", 0, 1, "no")),
    ]
    program = Program(steps, asynchronous=asynchronous)
    report = program.replayed(program.recorded())
    assert report.verdict == "pass", report.text()

    local = Program([use("d", Odd("only here"))], asynchronous=asynchronous)
    report = local.replayed(local.recorded())
    assert report.verdict in ("could_not_run", "pass")
    if report.verdict == "could_not_run":
        assert report.divergence is not None
        assert report.divergence.kind == "not_rebuildable"


def test_what_an_error_of_an_async_agent_came_of_is_the_same_in_a_replay() -> None:
    reasons: list[BaseException | None] = []

    @loupe.agent(name="fails")
    async def agent() -> str:
        try:
            raise ValueError("nothing came before")
        except ValueError as error:
            reasons.append(error.__context__)
            return repr(error.__context__)

    opener = RecordOpener(MemoryStore())
    with ambient.opening_with(opener):
        asyncio.run(agent())
    store = opener._store
    assert isinstance(store, MemoryStore)
    report = replay(store.recording(opener.sessions[0].run_id), agent)
    assert report.passed, report.text()
    assert reasons == [None, None]


def test_a_class_that_is_not_here_stops_the_replay_and_says_so() -> None:
    program = Program([use("a", ValueError("x"))])
    recording = program.recorded()
    from tests.tapes import with_value

    at = sequence_of(recording, "tool.failed")
    wire: Any = recording.body(recording.events[at - 1].output_digest)
    wire["$exception"]["class"] = "elsewhere:Gone"
    report = program.replayed(with_value(recording, at, wire))
    assert (report.verdict, report.exit_code, report.reason) == ("could_not_run", 3, "not_rebuildable")
    assert "elsewhere:Gone" in report.text()


@loupe.tool(effect="read")
def look(what: str) -> str:
    REAL.append(what)
    return f"{what}!"


@loupe.tool(effect="read")
def think(what: str) -> str:
    return look(what) + look(what + what)


@loupe.agent
def helper(what: str) -> list[str]:
    return [look(what), think(what)]


@loupe.agent
def lead(*things: str) -> list[Any]:
    return [helper(thing) for thing in things] + [look("end")]


REAL: list[str] = []
SEEN: dict[str, Any] = {}


def _lead() -> Recording:
    recording = record_in(MemoryStore(), lead, "a", "b")
    REAL.clear()
    return recording


def test_inner_calls_of_a_tool_are_not_asked_for_and_a_nested_agent_runs_again() -> None:
    recording = _lead()
    report = replay(recording, lead)
    assert report.verdict == "pass", report.text()
    assert (report.consumed, report.calls) == (report.events, 7)
    assert REAL == []


def test_a_difference_inside_a_nested_agent_is_found_in_its_lane() -> None:
    @loupe.agent(name="helper")
    def lazy(what: str) -> list[str]:
        return [look(what), f"{what}!{what}{what}!"] if what == "b" else helper.__wrapped__(what)  # type: ignore[attr-defined]

    @loupe.agent(name="lead")
    def other(*things: str) -> list[Any]:
        return [lazy(thing) for thing in things] + [look("end")]

    recording = _lead()
    report = replay(recording, other)
    found = report.divergence
    assert found is not None
    assert (found.kind, found.lane, found.n) == ("unconsumed", "0.1~", 1)
    assert found.expected is not None
    assert found.expected.name == "think"


def test_a_nested_agent_with_another_result_differs_at_level_content() -> None:
    @loupe.agent(name="helper")
    def other(what: str) -> list[str]:
        return [*helper.__wrapped__(what), "more"]  # type: ignore[attr-defined]

    @loupe.agent(name="lead")
    def whole(*things: str) -> list[Any]:
        return [other(thing)[:2] for thing in things] + [look("end")]

    recording = _lead()
    report = replay(recording, whole)
    assert report.divergence is not None
    assert (report.divergence.kind, report.divergence.sequence) == (
        "result_changed",
        sequence_of(recording, "span.finished"),
    )
    assert replay(recording, whole, level="state").verdict == "pass"


def test_an_agent_left_out_on_purpose_takes_its_inner_calls_with_it() -> None:
    @loupe.agent(name="lead")
    def fewer(*things: str) -> list[Any]:
        return [helper(thing) for thing in things[1:]] + [look("end")]

    recording = _lead()
    expect: Any = [{"kind": "unconsumed", "name": "helper"}, {"kind": "result_changed", "name": "lead"}]
    report = replay(recording, fewer, expect=expect)
    assert report.verdict == "pass", report.text()


def test_arguments_and_the_agents_name_are_compared_when_a_program_starts_it_itself() -> None:
    from agentloupe.engine.tape import Tape
    from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed

    recording = _lead()
    tape = open_tape(recording)
    assert isinstance(tape, Tape)

    def script(*_: object, **__: object) -> object:
        return lead("a", "c")

    report = run_replayed(tape, script, Wishes())
    assert report.divergence is not None
    assert (report.divergence.kind, report.divergence.sequence) == ("input_changed", 1)
    assert "args[1]: [-b-]{+c+}" in report.text()

    report = run_replayed(tape, lambda *_, **__: helper("a"), Wishes())
    assert report.divergence is not None
    assert report.divergence.kind == "name_changed"

    report = run_replayed(tape, lambda *_, **__: None, Wishes())
    assert (report.verdict, report.reason, report.exit_code) == ("could_not_run", "no_session", 3)


def test_a_second_run_of_the_same_program_is_stopped_and_does_not_count() -> None:
    from agentloupe.engine.tape import Tape
    from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed

    tape = open_tape(_lead())
    assert isinstance(tape, Tape)
    report = run_replayed(tape, lambda *_, **__: [lead("a", "b"), lead("a", "b")], Wishes())
    assert report.verdict == "pass", report.text()
    assert any("other runs" in note for note in report.notes)
    assert REAL == []


def test_changed_code_is_information() -> None:
    def version(extra: int) -> Any:
        if extra:

            @loupe.agent(name="coder")
            def coder() -> str:
                return look("x" * extra)
        else:

            @loupe.agent(name="coder")
            def coder() -> str:
                return look("x")

        return coder

    recording = record_in(MemoryStore(), version(0))
    assert replay(recording, version(0)).notes == ()
    report = replay(recording, version(1))
    assert report.verdict == "pass"
    assert any("has changed since it was recorded" in note for note in report.notes)
    REAL.clear()


def test_a_patched_mark_lets_old_recordings_pass_through_a_deliberate_change() -> None:
    def version(how: str) -> Any:
        @loupe.agent(name="changing")
        def changing() -> list[str]:
            if how == "old":
                return [look("one")]
            if how == "new, mark removed":
                return [look("one"), look("two")]
            first = [] if how == "new, mark moved" else [look("one")]
            if loupe.patched("ask twice"):
                first = first or [look("one")]
                return [*first, look("two")]
            return first or [look("one")]

        return changing

    old = record_in(MemoryStore(), version("old"))
    new = record_in(MemoryStore(), version("new"))
    REAL.clear()
    for how, recording in (("new", old), ("new, mark moved", old), ("new", new), ("new, mark moved", new)):
        report = replay(recording, version(how))
        assert report.verdict == "pass", (how, report.text())
    assert replay(new, version("new, mark removed")).verdict == "pass"
    assert replay(old, version("new, mark removed")).exit_code == 1
    assert loupe.patched("outside of runs") is True
    assert REAL == []


def test_a_block_is_replayed_by_the_program_that_opens_it(workdir: Path) -> None:
    store = open_url(workdir / "x.db")

    def program(where: Any = None) -> str:
        with loupe.recording("block", store=where) as block:
            block.result = look("x")
        return "ignored"

    program(store)
    recording = store.recording(store.runs()[0].id)
    REAL.clear()
    report = replay(recording, program)
    assert report.verdict == "pass", report.text()
    assert REAL == []
    store.close()


def test_a_generic_run_needs_no_code() -> None:
    made = Maker(engine="generic", limits={"max_steps": 12})
    messages: Any = [{"role": "user", "content": "how warm?"}]
    asked: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"city": "Oslo"}'}}],
    }
    made.model(messages, asked, model="m")
    made.call("tool", "get", {"city": "Oslo"}, {"c": 3}, effect="read")
    made.model(
        [*messages, asked, {"role": "tool", "tool_call_id": "c1", "content": '{"c":3}'}],
        {"role": "assistant", "content": "3"},
        model="m",
    )
    recording = made.finish({"role": "assistant", "content": "3"}, status="ok")
    report = replay(recording)
    assert report.verdict == "pass", report.text()
    assert report.calls == 3


def test_a_thread_that_the_recording_does_not_have_does_not_reach_the_world() -> None:
    import threading

    def threaded(results: list[Any]) -> Any:
        def work() -> None:
            try:
                results.append(look("in a thread"))
            except ReplayMismatch as stop:
                results.append(stop.kind)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return "done"

    @loupe.agent(name="threaded")
    def agent() -> Any:
        look("x")
        return threaded(SEEN["results"]) if "results" in SEEN else "done"

    SEEN.clear()
    recording = record_in(MemoryStore(), agent)
    REAL.clear()
    SEEN["results"] = []
    report = replay(recording, agent)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind, report.divergence.lane) == (1, "extra", "0/t1")
    assert (SEEN.pop("results"), REAL) == (["extra"], [])


def test_plain_reads_before_a_run_are_no_leak_and_calls_after_it_do_not_count() -> None:
    def program(where: Any = None) -> None:
        loupe.now()
        with loupe.recording("block", store=where) as block:
            block.result = look("x")
        look("after the run")

    store = MemoryStore()
    program(store)
    REAL.clear()
    report = replay(store.recording(store.runs()[0].id), program)
    assert report.verdict == "pass", report.text()
    assert any("after the run the program went on" in note for note in report.notes)
    assert REAL == []


def test_record_inside_of_a_replay_is_that_replay() -> None:
    recording = _lead()

    def script(*_: object, **__: object) -> Any:
        done = loupe.record(lead, "a", "b")
        SEEN["run_id"] = done.run_id

    from agentloupe.engine.tape import Tape
    from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed

    tape = open_tape(recording)
    assert isinstance(tape, Tape)
    report = run_replayed(tape, script, Wishes())
    assert report.verdict == "pass", report.text()
    assert (SEEN.pop("run_id"), REAL) == (recording.run_id, [])


# --- until failure ----------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(asynchronous: bool) -> Program:
    def give_up(got: list[Any]) -> Any:
        raise RuntimeError(str(got[-1]))

    return Program(
        [STEPS[0], use("pay", ConnectionError("refused"), order=7)], asynchronous=asynchronous, result=give_up
    )


def test_until_failure_serves_everything_before_and_hands_over_there(failing: Program) -> None:
    recording = failing.recorded()
    assert failing.replayed(recording).verdict == "pass", "a recorded failure replays as it was"
    reached: list[Reached] = []
    report = failing.replayed(recording, until_failure=reached.append)
    assert (report.verdict, report.exit_code, report.calls) == ("reached", 0, 2)
    assert [(r.recorded.name, type(r.error), r.call.input) for r in reached] == [("pay", ConnectionError, {"order": 7})]
    assert "reached the recorded failure at sequence 4, step 2: tool pay failed with ConnectionError" in report.text()
    assert failing.replayed(recording, until_failure=True).verdict == "reached"


def test_a_difference_before_the_failure_is_still_one(failing: Program) -> None:
    recording = failing.recorded()
    report = failing.changed([ask("hello?"), failing.steps[1]]).replayed(recording, until_failure=True)
    assert (report.verdict, report.exit_code) == ("diverged", 1)


def test_an_agent_that_raised_by_itself_is_reached_at_its_end(asynchronous: bool) -> None:
    program = Program(STEPS, asynchronous=asynchronous, result=lambda got: got[99])
    report = program.replayed(program.recorded(), until_failure=True)
    assert report.verdict == "reached"
    assert "the agent itself raised" in report.text()


def test_a_run_without_a_failure_has_nothing_to_reach() -> None:
    program = Program(STEPS)
    with pytest.raises(ReplayRefused) as refused:
        program.replayed(program.recorded(), until_failure=True)
    assert refused.value.reason == "no_failure"


def test_a_debugger_opens_in_the_frame_of_the_failed_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from io import StringIO

    from agentloupe.verbs.replaying import debug_here

    @loupe.tool(effect="read")
    def pay(order: int) -> None:
        raise ConnectionError("refused")

    @loupe.agent(name="payer")
    def payer() -> None:
        treasure = 40 + 2
        pay(treasure)

    recording = record_in(MemoryStore(), payer)
    monkeypatch.setattr("sys.stdin", StringIO("p 'treasure', treasure\nc\n"))
    report = replay(recording, payer, until_failure=debug_here)
    assert report.verdict == "reached"
    shown = capsys.readouterr()
    assert "('treasure', 42)" in shown.out
    assert "tool pay failed here with ConnectionError" in shown.err


def test_an_interrupted_run_that_ends_in_a_failure_can_be_entered(failing: Program) -> None:
    recording = failing.recorded()
    cut = replace(recording, events=recording.events[:-1], head=None)
    assert failing.replayed(cut).reason == "truncated"
    assert failing.replayed(cut, until_failure=True).verdict == "reached"


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_goes_through_json_and_back() -> None:
    program = Program(STEPS)
    recording = program.recorded()
    others: list[Any] = [STEPS, [ask("hello!"), *STEPS[1:]], STEPS[:1], [*STEPS, ask("x")]]
    for steps in others:
        report = program.changed(steps).replayed(recording)
        record = loads(dumps(report.as_json()))
        assert isinstance(record, dict)
        again = report_from_json(record)
        assert again.as_json() == report.as_json()
        assert again.text() == report.text()
        assert json.loads(json.dumps(record)) == record


def test_without_bodies_a_report_shows_the_flow_and_no_text() -> None:
    program = Program([ask("the secret plan"), *STEPS[1:]])
    recording = program.recorded()
    report = program.changed([ask("the other plan"), *STEPS[1:]]).replayed(recording)
    assert "secret" in report.text()
    for shown in (report.text(bodies=False), str(report.as_json(bodies=False))):
        assert "secret" not in shown
        assert "other plan" not in shown
        assert "messages[1].content" in shown
    assert report.divergence is not None
    assert "plan" not in report.divergence.headline()


def test_the_stop_signal_names_the_place_and_holds_no_payload() -> None:
    recording = Program(STEPS).recorded()
    stops: list[ReplayMismatch] = []

    def agent() -> None:
        try:
            ambient.call(ask("the secret plan").call(), lambda: None)
        except ReplayMismatch as stop:
            stops.append(stop)

    replay(recording, loupe.agent(name="program")(agent))
    assert (stops[0].kind, stops[0].sequence) == ("input_changed", 2)
    assert "secret" not in str(stops[0])
    assert __file__ in str(stops[0])


def test_terminal_escapes_in_payloads_are_harmless() -> None:
    program = Program([use("get", 1, text="\x1b[2J\x07")])
    recording = program.recorded()
    report = program.changed([use("get", 1, text="\x1b[31m\u202e")]).replayed(recording)
    assert "\x1b" not in report.text()
    assert "\u202e" not in report.text()


def test_levels_need_one_another() -> None:
    program = Program([*STEPS, Step("state", "s", 1, 1)], result=lambda got: 1)
    recording = program.recorded()
    other = program.changed([*STEPS, Step("state", "s", 2, 2)], result=lambda got: 2)
    wanted: list[tuple[Any, str]] = [("flow", "pass"), ("state", "diverged"), ("content", "diverged")]
    for level, verdict in wanted:
        assert other.replayed_own(recording, level=level).verdict == verdict, level


def test_nothing_is_written_by_a_replay(workdir: Path) -> None:
    store = open_url(workdir / "x.db")
    program = Program(STEPS)
    recording = record_in(store, loupe.agent(name="program")(program.agent))
    before = [(r.id, r.events, r.head) for r in store.runs()]
    agent: Callable[..., Any] = loupe.agent(name="program")(program.agent)
    for _ in range(3):
        replay(recording.run_id, agent, store=store)
    assert [(r.id, r.events, r.head) for r in store.runs()] == before
    assert store.recording(recording.run_id).events == recording.events
    store.close()


# --- forks ------------------------------------------------------------------------------------------------------------


def _model(messages: list[Any]) -> Any:
    from agentloupe.words.call import Call

    def answer(body: Any) -> Any:
        REAL.append("model")
        text = f"{body['messages'][0]['content']} {len(body['messages'])}"
        return {"choices": [{"message": {"role": "assistant", "content": text}}]}

    body: Any = {"model": "m", "messages": messages}
    call = Call(kind="llm", name="chat m", input=body, encode=lambda v: v, decode=lambda v: v, resend=answer)  # type: ignore[arg-type,return-value]
    return ambient.call(call, lambda: answer(body))["choices"][0]["message"]


@loupe.agent
def talker(question: str, rounds: int) -> str:
    history: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    for _ in range(rounds):
        history = [*history, _model(history)]
        history = [*history, {"role": "user", "content": look("x")}]
    return str(history[-2]["content"])


def test_a_fork_of_own_code_is_replayed_with_its_recorded_overrides() -> None:
    from agentloupe.verbs.forking import fork

    store = MemoryStore()
    parent = record_in(store, talker, "hi", 3)
    fork(parent.run_id, talker, from_step=3, store=store, system_prompt="Be long.")
    child = next(run for run in store.runs() if run.parent_run_id == parent.run_id)
    result: Any = store.recording(child.id).body(store.recording(child.id).events[-1].output_digest)
    assert result == {"result": "Be long. 6"}
    REAL.clear()
    report = replay(child.id, talker, store=store)
    assert report.verdict == "pass", report.text()
    assert replay(parent.run_id, talker, store=store).verdict == "pass"
    assert REAL == []


class _OfALibrary(BaseException):
    """As trio's `Cancelled`, which is no `Exception` either."""


def test_what_a_program_raises_beside_exceptions_is_judged_and_does_not_come_out() -> None:
    fails: list[bool] = []

    @loupe.agent
    def program() -> str:
        if fails:
            raise _OfALibrary
        return "done"

    done = loupe.record(program)
    fails.append(True)
    report = loupe.replay(done.run_id, program)
    assert report.verdict == "diverged"
    assert report.divergence is not None
    assert report.divergence.kind == "result_changed"


def test_a_refusal_names_the_first_unrecordable_parts_and_what_to_do() -> None:
    @loupe.agent
    def program() -> list[object]:
        return [object() for _ in range(6)]

    done = loupe.record(program)
    with pytest.raises(ReplayRefused) as refused:
        loupe.replay(done.run_id, program)
    assert str(refused.value).count("could not be recorded") == 3
    assert "and 3 more" in str(refused.value)
    assert "register_type" in (refused.value.hint or "")
