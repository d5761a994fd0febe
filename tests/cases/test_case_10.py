"""Case 10: a strict replay never goes live and never passes by accident."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.report import ReplayReport
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.facade import CallBoundary
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import dumps
from agentloupe.words.errors import LoupeError, ReplayMismatch
from tests.tapes import files_below, sequence_of, with_body


class Case:
    """The three recorded calls in a log of ours, and the five programs."""

    def __init__(self, folder: Path) -> None:
        lines = (folder / "events.jsonl").read_text("utf-8").splitlines()
        self.events = [json.loads(line) for line in lines]
        self.programs: dict[str, list[tuple[str, Any]]] = json.loads((folder / "programs.json").read_text("utf-8"))
        self.real: list[str] = []
        self.store = MemoryStore()
        with CallBoundary("record", self.store) as boundary:
            for event in self.events:
                payload = event["payload"]
                name = event["event_type"].removeprefix("call.")
                boundary.call(name, payload["input"], lambda payload=payload: payload["output"])
        self.recording = self.store.recording(boundary.run_id)

    def never(self, name: str) -> Any:
        self.real.append(name)
        raise AssertionError("a real call")

    def run(self, program: str, recording: Recording | None = None) -> ReplayReport:
        boundary = CallBoundary("replay", recording or self.recording)
        try:
            for name, arguments in self.programs[program]:
                boundary.call(name, arguments, lambda name=name: self.never(name))
            boundary.assert_finished()
        except ReplayMismatch:
            pass
        assert boundary.report is not None
        assert self.real == [], "real calls in every variant: 0"
        return boundary.report

    def at(self, sequence: int) -> int:
        """Our number of the case's event; ours has run.started before it."""
        return sequence + 1


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Case:
    return Case(shared_case("10"))


def test_ok(case: Case) -> None:
    report = case.run("ok")
    assert (report.verdict, report.exit_code, report.calls) == ("pass", 0, 3)


@pytest.mark.parametrize(
    ("program", "kind", "sequence", "words"),
    [
        ("stops_early", "unconsumed", 3, ["1 recorded call left", "expected: other mail.send"]),
        ("one_more", "extra", 4, ["log is exhausted", "call 0.3"]),
        ("changed_argument", "input_changed", 3, ["digest", "to: [-ops-]{+boss+}"]),
        ("swapped", "order", 1, ["expected: other ticket.read", "actual  : other llm"]),
    ],
)
def test_the_first_divergence_is_reported_and_only_that(
    case: Case, program: str, kind: str, sequence: int, words: list[str]
) -> None:
    report = case.run(program)
    assert report.divergence is not None
    assert (report.exit_code, report.divergence.kind) == (1, kind)
    assert report.divergence.sequence == case.at(sequence)
    assert [word for word in words if word not in report.text()] == [], report.text()


def test_a_missing_log_is_an_error_that_names_the_path_and_makes_no_file(case: Case, workdir: Path) -> None:
    for log in ("nowhere.db", "folder/nowhere.loupe"):
        with pytest.raises(LoupeError, match="nowhere") as missing:
            CallBoundary("replay", workdir / log)
        assert missing.value.exit_code == 3
    assert files_below(workdir) == {}


def test_an_empty_log_is_an_error_and_no_pass(case: Case, workdir: Path) -> None:
    with pytest.raises(LoupeError):
        CallBoundary("replay", MemoryStore())
    report = replay(replace(case.recording, events=()), lambda: None)
    assert (report.verdict, report.exit_code, report.reason) == ("damaged", 2, "empty")
    (workdir / "empty.loupe").write_bytes(b"")
    empty = replay(workdir / "empty.loupe", lambda: None)
    assert empty.exit_code in (2, 3)


def test_an_edited_output_fails_at_its_sequence_by_its_digest(case: Case) -> None:
    digest = case.recording.events[case.at(3) - 1].output_digest
    report = case.run("ok", with_body(case.recording, digest, dumps({"message_id": "m-2"})))
    assert report.divergence is not None
    assert (report.verdict, report.exit_code, report.divergence.sequence) == ("damaged", 2, case.at(3))
    assert "does not fit its digest" in report.text()


def test_divergence_damage_and_could_not_run_have_three_codes(case: Case) -> None:
    assert case.run("swapped").exit_code == 1
    assert case.run("ok", with_body(case.recording, case.recording.events[1].output_digest, b"{}")).exit_code == 2
    with pytest.raises(LoupeError) as refused:
        replay(case.recording)
    assert refused.value.exit_code == 3


def test_the_log_is_the_same_afterwards(case: Case, workdir: Path) -> None:
    store = open_url(workdir / "log.db")
    with CallBoundary("record", store) as boundary:
        boundary.call("llm", {"m": "notify?"}, lambda: {"content": "yes"})
    store.close()
    before = files_below(workdir)["log.db"]
    for arguments in ({"m": "notify?"}, {"m": "other"}):
        again = CallBoundary("replay", open_url(workdir / "log.db", read_only=True), run=boundary.run_id)
        try:
            again.call("llm", arguments, lambda: case.never("llm"))
        except ReplayMismatch:
            continue
        again.assert_finished()
    assert files_below(workdir)["log.db"] == before


def test_a_transport_that_raises_is_never_touched(case: Case) -> None:
    """The same through tools, with a client that must not be used."""

    class Shut:
        def send(self, *_: Any) -> Any:
            raise AssertionError("the transport was touched")

    answers: Any = {"ticket.read": {"severity": "high"}, "mail.send": {"message_id": "m-1"}}

    def agent_with(client: Any) -> Any:
        @loupe.tool(effect="read", name="ticket.read")
        def read(id: str) -> Any:
            return client.send("ticket.read", id)

        @loupe.tool(effect="write", name="mail.send")
        def send(to: str, id: str) -> Any:
            return client.send("mail.send", to)

        @loupe.agent(name="desk")
        def desk() -> Any:
            return [read(id="T-4"), send(to="ops", id="T-4")]

        return desk

    class Real:
        def send(self, name: str, *_: Any) -> Any:
            return answers[name]

    from tests.tapes import record_in

    recording = record_in(MemoryStore(), agent_with(Real()))
    assert replay(recording, agent_with(Shut())).verdict == "pass"
    assert sequence_of(recording, "tool.requested") == 6
