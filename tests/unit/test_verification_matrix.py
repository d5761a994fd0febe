"""The verification matrix of deterministic replay, with the ticket agent as its fixture.

| what is done | what must come of it |
| --- | --- |
| same code, same recording | passes, everything is consumed, real side effects: none |
| a changed argument | fails at the first boundary it reaches, with both input digests |
| a deleted event | a gap; chained anew: a divergence, and not what was signed |
| a changed payload | its digest fails; under its own digest, chained anew: not what was signed |
| the program ends early, or calls once more | fails, even where the answer is equal |
| replayed again, out of a database, out of a file | the same report; nothing is changed |
| no network, no credential | passes all the same |
| bodies kept back (digests only) | the flow can be read, no text |
| bodies erased | a limited replay that is refused with its reason, no internal error |

Permissions on bodies and the audit of decryption belong to later work; here nobody is kept from reading what is stored.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.anchors import Anchoring
from agentloupe.engine.project import Projector, project
from agentloupe.engine.report import ReplayReport
from agentloupe.engine.verify import verify
from agentloupe.importers.loupe_file import open_file
from agentloupe.ports import codecs
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import export_run
from agentloupe.verbs.isolated import replay_code
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import Damaged, ReplayRefused
from agentloupe.words.event import Draft, Head
from tests.tapes import edited, record_in, sequence_of, with_body, with_value, without


@dataclass
class Desk:
    """The world of the ticket agent: tickets, a model that writes, a mail service that counts what it sent."""

    ticket: dict[str, Any]
    sending: bool = True
    sent: list[dict[str, Any]] = field(default_factory=list)
    touched: int = 0

    def read(self, id: str) -> dict[str, Any]:
        self.touched += 1
        return {"id": id, **self.ticket}

    def write(self, body: dict[str, Any]) -> dict[str, Any]:
        self.touched += 1
        return {"choices": [{"message": {"role": "assistant", "content": f"Ticket {body['ticket']} needs you."}}]}

    def send(self, to: str, text: str) -> dict[str, Any]:
        self.touched += 1
        self.sent.append({"to": to, "text": text})
        return {"receipt": f"R-{len(self.sent)}"}


class Shut(Desk):
    """A world that raises when it is touched."""

    def read(self, id: str) -> dict[str, Any]:
        raise AssertionError("the tickets were touched")

    def write(self, body: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("the model was touched")

    def send(self, to: str, text: str) -> dict[str, Any]:
        raise AssertionError("the mail was touched")


def ticket_agent(desk: Desk, *, to: str = "ops", early: bool = False, again: bool = False) -> Callable[[str], Any]:
    """A resolved ticket completes without notice; not high, or sending off, waits for a person; else one notification."""
    from agentloupe.ports import ambient
    from agentloupe.words.call import Call

    @loupe.tool(effect="read", name="ticket.read")
    def read(id: str) -> dict[str, Any]:
        return desk.read(id)

    @loupe.tool(effect="write", name="notification.send")
    def send(to: str, text: str) -> dict[str, Any]:
        answer = desk.send(to, text)
        loupe.receipt(answer["receipt"])
        return answer

    def write(id: str) -> str:
        body: Any = {"model": "small", "messages": [{"role": "user", "content": f"Write about {id}"}]}
        call = Call(
            kind="llm", name="chat small", input=body, encode=lambda v: codecs.encode(v).wire, decode=codecs.decode
        )
        answer: Any = ambient.call(call, lambda: desk.write({**body, "ticket": id}))
        return str(answer["choices"][0]["message"]["content"])

    @loupe.agent(name="ticket_agent")
    def agent(id: str) -> Any:
        ticket = read(id)
        if ticket["status"] == "resolved":
            loupe.state("ticket", "completed")
            return {"status": "completed"}
        if ticket["severity"] != "high" or not desk.sending:
            loupe.state("ticket", "waiting")
            return {"status": "waiting", "for": "a person"}
        text = write(id)
        if early:
            return {"status": "notified", "receipt": "R-1"}
        receipt = send(to, text)["receipt"]
        if again:
            send(to, text)
        loupe.check("one notification", True)
        loupe.state("ticket", "notified")
        return {"status": "notified", "receipt": receipt}

    return agent


HIGH = {"status": "open", "severity": "high"}


@pytest.fixture
def recording() -> Recording:
    return record_in(MemoryStore(), ticket_agent(Desk(HIGH)), "T-4")


def _replayed(recording: Recording, **changes: Any) -> ReplayReport:
    return replay(recording, ticket_agent(Shut(HIGH), **changes))


# --- the agent itself -------------------------------------------------------------------------------------------------


def _run(desk: Desk) -> tuple[Recording, Any]:
    recording = record_in(MemoryStore(), ticket_agent(desk), "T-4")
    result: Any = recording.body(recording.events[-1].output_digest)
    return recording, result["result"]


def test_a_resolved_ticket_completes_without_notice() -> None:
    desk = Desk({"status": "resolved", "severity": "high"})
    recording, result = _run(desk)
    assert (result["status"], desk.sent) == ("completed", [])
    assert replay(recording, ticket_agent(Shut(HIGH))).verdict == "pass"


@pytest.mark.parametrize(
    "desk", [Desk({"status": "open", "severity": "low"}), Desk(HIGH, sending=False)], ids=["not high", "sending off"]
)
def test_not_high_or_sending_off_waits_for_a_person(desk: Desk) -> None:
    recording, result = _run(desk)
    assert (result["status"], desk.sent) == ("waiting", [])
    assert replay(recording, ticket_agent(replace(Shut(HIGH), sending=desk.sending))).verdict == "pass"


def test_otherwise_exactly_one_notification_with_a_receipt_id() -> None:
    desk = Desk(HIGH)
    recording, result = _run(desk)
    assert (result, len(desk.sent)) == ({"status": "notified", "receipt": "R-1"}, 1)
    finished = recording.events[sequence_of(recording, "tool.finished", "notification.send") - 1]
    assert finished.attrs["external_id"] == "R-1"
    intents = [e for e in recording.events if e.type == "tool.requested"]
    assert [e.name for e in intents] == ["notification.send"]
    assert isinstance(intents[0].attrs["idempotency_key"], str)


# --- the matrix -------------------------------------------------------------------------------------------------------


def test_the_same_code_passes_consumes_everything_and_touches_nothing(recording: Recording) -> None:
    desk = Desk(HIGH)
    report = replay(recording, ticket_agent(desk))
    assert (report.verdict, report.consumed, report.events) == ("pass", len(recording.events), len(recording.events))
    assert (desk.touched, desk.sent) == (0, [])
    assert _replayed(recording) == report


def test_a_changed_argument_fails_at_the_first_boundary_with_the_input_digest(recording: Recording) -> None:
    found = _replayed(recording, to="boss").divergence
    assert found is not None
    assert (found.kind, found.sequence) == (
        "input_changed",
        sequence_of(recording, "tool.allowed", "notification.send"),
    )
    assert found.expected is not None
    assert found.actual is not None
    assert found.expected.digest is not None
    assert found.actual.digest not in (None, found.expected.digest)


def test_a_changed_agent_argument_fails_at_the_start(recording: Recording) -> None:
    from agentloupe.engine.tape import Tape
    from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed

    tape = open_tape(recording)
    assert isinstance(tape, Tape)
    report = run_replayed(tape, lambda _: ticket_agent(Shut(HIGH))("T-5"), Wishes())
    assert report.divergence is not None
    assert (report.divergence.kind, report.divergence.sequence) == ("input_changed", 1)


def test_a_deleted_event_is_a_gap_at_every_place(recording: Recording) -> None:
    for event in recording.events[1:-1]:
        report = _replayed(without(recording, event.sequence))
        assert (report.exit_code, report.reason) == (2, "gap"), event.sequence
        assert report.divergence is not None
        assert report.divergence.sequence == event.sequence + 1
    assert _replayed(without(recording, recording.events[-1].sequence)).reason == "truncated"


def _forgetting(call_id: str | None) -> Callable[[list[Draft]], list[Draft]]:
    return lambda drafts: [d for d in drafts if d.call_id != call_id or d.call_id is None]


def test_a_deleted_call_chained_anew_is_a_divergence_at_every_place(recording: Recording) -> None:
    calls = dict.fromkeys(e.call_id for e in recording.events if e.call_id)
    assert len(calls) == 5
    for call_id in calls:
        report = _replayed(edited(recording, _forgetting(call_id)))
        assert report.exit_code == 1, (call_id, report.text())


def test_a_changed_payload_fails_its_digest_at_every_place(recording: Recording) -> None:
    desk = Desk(HIGH)
    for event in recording.events:
        served = event.type in ("tool.finished", "model.responded")
        if served and event.output_digest is not None:
            report = replay(with_body(recording, event.output_digest, b'"forged"'), ticket_agent(desk))
            assert (report.exit_code, report.verdict) == (2, "damaged")
            assert report.divergence is not None
            assert report.divergence.sequence == event.sequence
    assert desk.touched == 0


def test_ending_early_fails_even_with_the_same_answer(recording: Recording) -> None:
    found = _replayed(recording, early=True).divergence
    assert found is not None
    assert (found.kind, found.sequence) == ("unconsumed", sequence_of(recording, "tool.allowed", "notification.send"))


def test_one_more_call_fails_and_sends_nothing(recording: Recording) -> None:
    found = _replayed(recording, again=True).divergence
    assert found is not None
    assert found.kind == "name_changed"
    assert found.actual is not None
    assert found.actual.name == "notification.send"


def test_replay_is_repeatable_and_changes_nothing(recording: Recording) -> None:
    before = recording.events
    for changes in ({}, {"to": "boss"}, {"early": True}):
        reports = [_replayed(recording, **changes) for _ in range(10)]
        assert all(report == reports[0] for report in reports)
        assert {report.text() for report in reports} == {reports[0].text()}
    assert recording.events == before
    assert verify(recording).ok


def test_the_same_out_of_a_database_and_out_of_a_file(recording: Recording, tmp_path: Path) -> None:
    """Wherever the recording lies, the report is the same, and what lies there stays as it is."""
    store = open_url(tmp_path / "loupe.db")
    store.insert(recording.run_id, recording.events, recording.get, Projector)
    export_run(store, recording.run_id, tmp_path / "run.loupe")
    before = (tmp_path / "run.loupe").read_bytes(), store.heads(), store.size().bodies
    for changes in ({}, {"to": "boss"}, {"early": True}, {"again": True}):
        wanted = _replayed(recording, **changes)
        stored, filed = store.recording(recording.run_id), open_file(tmp_path / "run.loupe")
        assert [_replayed(one, **changes) for one in (stored, filed)] == [wanted, wanted]
    assert ((tmp_path / "run.loupe").read_bytes(), store.heads(), store.size().bodies) == before
    assert store.check() == []
    assert verify(store.recording(recording.run_id)).ok
    store.close()


def test_what_was_chained_anew_is_not_what_was_signed(recording: Recording) -> None:
    """A replay sees what the program sees; for the rest somebody signed the run, and says at which event it is another one."""
    signed = [Anchoring(Head(len(recording.events), recording.events[-1].hash), "2999-01-01T00:00:00Z", "k" * 64, 1)]
    assert verify(recording, signed=signed).anchored
    for call_id in dict.fromkeys(e.call_id for e in recording.events if e.call_id):
        forged = verify(edited(recording, _forgetting(call_id)), signed=signed)
        assert (forged.fault and forged.fault.reason, forged.anchored) == ("cut", False), call_id
    for event in recording.events:
        if event.type in ("tool.finished", "model.responded"):
            forged = verify(with_value(recording, event.sequence, {"forged": True}), bodies=False, signed=signed)
            assert (forged.fault and forged.fault.reason, forged.anchored) == ("relinked", False), event.sequence


def test_offline_and_without_credentials(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def raising(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket, "create_connection", raising)
    monkeypatch.setattr(subprocess, "Popen", raising)
    assert _replayed(recording).verdict == "pass"


def test_a_reader_of_digests_only_sees_the_flow_but_no_text(recording: Recording) -> None:
    bare = replace(recording, get=lambda _: {})
    trace = project(bare.events)
    assert [step.name for step in trace.steps if step.kind in ("llm", "tool")] == [
        "ticket.read",
        "chat small",
        "notification.send",
    ]
    shown = repr(trace) + repr([e.envelope(e.run_id, e.sequence) for e in bare.events])
    assert "Ticket T-4 needs you" not in shown
    assert "T-4" not in shown
    with pytest.raises(Damaged) as missing:
        bare.body(bare.events[1].input_digest)
    assert missing.value.reason == "body_missing"


def test_erased_bodies_are_a_limited_replay_and_no_internal_error() -> None:
    store = MemoryStore()
    run_id = record_in(store, ticket_agent(Desk(HIGH)), "T-4").run_id
    from agentloupe.ports.ambient import new_event_id, now

    store.erase(run_id, [Draft(type="run.erased", event_id=new_event_id(), recorded_at=now())])
    erased = store.recording(run_id)
    with pytest.raises(ReplayRefused) as refused:
        _replayed(erased)
    assert (refused.value.reason, refused.value.exit_code) == ("limited", 3)
    assert verify(erased).coverage == "limited_replay"
    fold = Projector(run_id)
    for event in erased.events:
        fold.add(event)
    assert fold.take().run.erased


@pytest.mark.slow
def test_without_a_network_for_real() -> None:
    """The same in a child that has none, by code that a child can import."""
    from tests.ticket_child import fixture_agent

    recording = record_in(MemoryStore(), fixture_agent, "T-4")
    report = replay_code(recording, "tests.ticket_child:fixture_agent")
    assert report.verdict == "pass", report.text()
    assert report.isolation.startswith("child process")
