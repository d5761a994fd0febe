"""Case 10, more of the kind: every program against every state of the log, on disk, and nothing is ever executed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloupe.cli import main
from agentloupe.engine.report import ReplayReport
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.exchange import export_run
from agentloupe.verbs.facade import CallBoundary
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import dumps
from agentloupe.words.errors import LoupeError, ReplayMismatch
from tests.tapes import Program, files_below, use, with_body

PROGRAMS = ("ok", "stops_early", "one_more", "changed_argument", "swapped")


class Log:
    """The case's three calls on disk: a store, and the run exported beside it."""

    def __init__(self, case: Path, folder: Path) -> None:
        events = [json.loads(line) for line in (case / "events.jsonl").read_text("utf-8").splitlines()]
        self.programs: dict[str, list[tuple[str, Any]]] = json.loads((case / "programs.json").read_text("utf-8"))
        self.folder = folder
        self.db = folder / "log.db"
        store = open_url(self.db)
        with CallBoundary("record", store) as boundary:
            for event in events:
                name = event["event_type"].removeprefix("call.")
                boundary.call(name, event["payload"]["input"], lambda event=event: event["payload"]["output"])
        self.run_id = boundary.run_id
        export_run(store, self.run_id, folder / "log.loupe")
        self.recording = store.recording(self.run_id)
        self.bodies = {d: self.recording.get([d])[d] for e in self.recording.events for d in e.digests()}
        store.close()

    def held(self) -> Recording:
        """The recording without its store."""
        return replace(self.recording, get=lambda names: {n: self.bodies[n] for n in names if n in self.bodies})

    def play(self, program: str, log: Any, run: str = "last") -> ReplayReport:
        def never() -> Any:
            raise AssertionError("a real call")

        boundary = CallBoundary("replay", log, run=run)
        got: list[Any] = []
        try:
            for name, arguments in self.programs[program]:
                got.append(boundary.call(name, arguments, never))
            boundary.assert_finished()
        except ReplayMismatch:
            pass
        assert boundary.report is not None
        assert len(got) == boundary.report.calls
        return boundary.report


@pytest.fixture
def log(shared_case: Callable[[str], Path], workdir: Path) -> Log:
    return Log(shared_case("10"), workdir)


@pytest.mark.parametrize("program", PROGRAMS)
def test_from_a_store_and_from_a_file_it_is_the_same_and_no_byte_changes(log: Log, program: str) -> None:
    before = files_below(log.folder)
    store = open_url(log.db, read_only=True)
    reports = [
        log.play(program, store, log.run_id),
        log.play(program, log.folder / "log.loupe"),
        log.play(program, log.held()),
    ]
    store.close()
    assert reports[0] == reports[1] == reports[2]
    assert (reports[0].exit_code == 0) is (program == "ok")
    after = files_below(log.folder)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_an_edited_output_is_damage_wherever_a_program_comes_to_it(log: Log, program: str, sequence: int) -> None:
    """A program that parts before it is told that it parts; none ever gets the edited answer, and none passes."""
    event = log.recording.events[sequence]  # the first of ours is run.started
    forged = with_body(log.held(), event.output_digest, dumps({"message_id": "m-2"}))
    report = log.play(program, forged)
    parts = {"changed_argument": 3, "swapped": 1}.get(program, 9)
    never_asked = program == "stops_early" and sequence == 3
    if sequence < parts and not never_asked:
        assert (report.verdict, report.exit_code) == ("damaged", 2)
        assert report.divergence is not None
        assert report.divergence.sequence == sequence + 1
        assert report.calls == sequence - 1
    else:
        assert report.exit_code in (1, 2)


def test_only_the_first_of_several_differences_is_told(log: Log) -> None:
    log.programs["all wrong"] = [
        ("ticket.read", {"id": "T-5"}),
        ("llm", {"m": "what?"}),
        ("mail.send", {}),
        ("more", {}),
    ]
    report = log.play("all wrong", log.held())
    assert report.divergence is not None
    assert (report.divergence.kind, report.divergence.sequence) == ("input_changed", 2)
    told = report.as_json()
    assert isinstance(told["divergence"], dict)
    assert [word for word in ("what?", "mail.send", "more") if f"actual  : {word}" in report.text()] == []
    assert report.text().count(" at sequence ") == 1


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"null", b"SQLite format 3\x00", b"not a log"])
@pytest.mark.parametrize("name", ["log.loupe", "log.db", "log.jsonl"])
def test_what_is_no_log_is_an_error_and_stays_as_it_is(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(LoupeError) as refused:
        CallBoundary("replay", path)
    assert refused.value.exit_code in (2, 3)
    assert path.read_bytes() == content
    assert list(files_below(tmp_path)) == [name]


def test_a_log_of_no_calls_hands_out_nothing_and_lets_nothing_through() -> None:
    quiet = Program([])
    recording = quiet.recorded()
    assert quiet.replayed(recording).verdict == "pass"
    report = quiet.changed([use("mail.send", "sent", to="ops")]).replayed(recording)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind, report.calls) == (1, "extra", 0)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_a_log_that_ends_too_soon_never_passes(log: Log, cut: int) -> None:
    whole = log.held()
    report = replay(replace(whole, events=whole.events[:cut]), lambda: None)
    assert (report.verdict, report.exit_code) == ("damaged", 2)
    assert report.calls == 0


@pytest.mark.parametrize("where", ["nowhere.loupe", "folder/nowhere.loupe", "./nowhere"])
def test_the_command_names_a_missing_log_and_makes_no_file(
    workdir: Path, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    assert main(["replay", where, "--code", "json:dumps"]) == 3
    assert "nowhere" in capsys.readouterr().err
    assert main(["replay", "last", "--db", f"{where}.db", "--code", "json:dumps"]) == 3
    assert "nowhere" in capsys.readouterr().err
    assert files_below(workdir) == {}


def test_the_command_has_a_code_of_its_own_for_damage_and_for_could_not_run(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    file = log.folder / "log.loupe"
    assert main(["replay", str(file)]) == 3  # no code was given
    capsys.readouterr()
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]):
        file.write_bytes(damaged)
        assert main(["replay", str(file), "--code", "json:dumps", "--json"]) == 2
        told = json.loads(capsys.readouterr().out)
        assert told["verdict"] == "damaged"
        assert told["reason"]
        assert file.read_bytes() == damaged


@pytest.mark.parametrize("where", [None, "nowhere.db", "sqlite:///folder/nowhere.db"])
def test_who_only_looks_for_a_run_makes_no_store(workdir: Path, where: str | None) -> None:
    def never() -> None:
        raise AssertionError("the agent was started")

    (workdir / "loupe.toml").write_text("", "utf-8")
    before = files_below(workdir)
    looks: list[Callable[[], Any]] = [lambda: replay("last", never, store=where)]
    if where is None:
        looks += [lambda: fork("last", never, from_step=0), lambda: compare("last", "last~1")]
    else:
        looks.append(lambda: CallBoundary("replay", where))
    for look in looks:
        with pytest.raises(LoupeError) as refused:
            look()
        assert refused.value.exit_code == 3
        assert (where or ".loupe/loupe.db").rpartition("/")[2] in str(refused.value)
    assert files_below(workdir) == before
