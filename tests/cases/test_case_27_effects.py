"""Case 27, as a run: the process died between doing and noting. Its two states of the outside are asked at a resume and a fork."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.verify import verify
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs import instrument
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.words.errors import ResumeRefused
from tests.fork_support import Script
from tests.tapes import record_in, sequence_of
from tests.unit.test_forker import client


class Outside:
    """The mail service of the case: what it holds by idempotency key, and how often it was asked to send."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.sends: list[str] = []
        self.asked: list[str] = []
        self.broken = False

    def send(self) -> Any:
        key = loupe.idempotency_key()
        self.sends.append(key)
        return self.held.setdefault(key, {"message_id": "m-1"})

    def lookup(self, key: str) -> loupe.Done | loupe.NotDone:
        self.asked.append(key)
        if self.broken:
            raise ConnectionError("no route to the mail service")
        there = self.held.get(key)
        return loupe.NotDone() if there is None else loupe.Done(there, external_id=there["message_id"])


class Case:
    """The case's log as a run of ours that was killed behind `started`; the model's question is before the mail."""

    def __init__(self, folder: Path, *, offers_lookup: bool = True) -> None:
        _, intent, started = (json.loads(line) for line in (folder / "events.jsonl").read_bytes().splitlines())
        asked = intent["payload"]["input"]
        self.folder, self.outside, self.store = folder, Outside(), MemoryStore()
        self.key_of_case: str = asked["idempotency_key"]
        assert started["payload"]["input"] == {"idempotency_key": self.key_of_case}
        lookup = self.outside.lookup if offers_lookup else None

        @loupe.tool(effect="write", name=asked["name"], lookup=lookup)
        def send_mail(to: str, s: str) -> Any:
            return self.outside.send()

        @loupe.agent(name="run-27")
        def agent() -> Any:
            client.create(model="small-1", messages=[{"role": "user", "content": "tell ops"}])
            return send_mail(**asked["args"])

        self.agent = agent
        client.script = Script("mail it")
        whole = record_in(MemoryStore(), agent)
        last = sequence_of(whole, "tool.started")
        self.store.insert(whole.run_id, whole.events[:last], whole.get, Projector)
        self.run_id = whole.run_id
        self.before = self.recording()
        self.key = str(self.before.events[last - 1].attrs["idempotency_key"])
        self.outside.held.clear()
        self.outside.sends.clear()

    def is_now(self, state: str) -> None:
        """The outside is as one of the case's files says, under the key that our run has."""
        found = json.loads((self.folder / state).read_text("utf-8"))
        self.outside.held = {self.key if key == self.key_of_case else key: value for key, value in found.items()}

    def recording(self) -> Recording:
        return self.store.recording(self.run_id)

    def appended(self) -> list[Any]:
        """What came behind the log as it was, of the mail; and that nothing else has changed."""
        now = self.recording()
        assert now.events[: len(self.before.events)] == self.before.events, "the log is only appended to"
        assert verify(now).ok
        return [e for e in now.events[len(self.before.events) :] if e.name == "send_mail"]


@pytest.fixture(autouse=True)
def tools_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instrument, "_tools", dict(instrument._tools))


def test_what_the_outside_has_is_confirmed_by_lookup_and_not_sent(shared_case: Callable[[str], Path]) -> None:
    case = Case(shared_case("27"))
    case.is_now("outside_has_it.json")
    done = resume(case.run_id, case.agent, store=case.store)
    assert (done.result, case.outside.sends, case.outside.asked) == ({"message_id": "m-77"}, [], [case.key])
    noted, confirmed = case.appended()
    assert (noted.type, confirmed.type) == ("tool.unknown", "tool.confirmed")
    told = {name: confirmed.attrs[name] for name in ("outcome", "how", "external_id", "idempotency_key")}
    assert told == {"outcome": "finished", "how": "lookup", "external_id": "m-77", "idempotency_key": case.key}
    assert case.recording().body(confirmed.output_digest) == {"message_id": "m-77"}
    assert replay(case.recording(), case.agent).passed
    assert case.outside.sends == []


def test_what_the_outside_does_not_have_is_sent_once_under_the_same_key(shared_case: Callable[[str], Path]) -> None:
    case = Case(shared_case("27"))
    case.is_now("outside_empty.json")
    assert resume(case.run_id, case.agent, store=case.store).result == {"message_id": "m-1"}
    assert case.outside.sends == [case.key]
    assert [e.type for e in case.appended()] == [
        *("tool.unknown", "tool.confirmed", "tool.requested", "tool.started", "tool.finished")
    ]
    assert replay(case.recording(), case.agent).passed
    with pytest.raises(ResumeRefused):
        resume(case.run_id, case.agent, store=case.store)
    assert case.outside.sends == [case.key]


@pytest.mark.parametrize("offers_lookup", [True, False])
@pytest.mark.parametrize("state", ["outside_has_it.json", "outside_empty.json"])
def test_whoever_cannot_be_asked_leaves_it_unknown_for_a_person(
    shared_case: Callable[[str], Path], offers_lookup: bool, state: str
) -> None:
    case = Case(shared_case("27"), offers_lookup=offers_lookup)
    case.is_now(state)
    case.outside.broken = True
    for _ in range(2):
        with pytest.raises(ResumeRefused) as refused:
            resume(case.run_id, case.agent, store=case.store)
        assert refused.value.reason == "open_intent"
        (question,) = refused.value.intents
        assert (question["status"], question["idempotency_key"]) == ("unknown", case.key)
        assert ("ConnectionError" in str(question["why"])) is offers_lookup
    assert [e.type for e in case.appended()] == ["tool.unknown"]
    assert case.outside.sends == []


def test_a_strict_replay_of_the_log_is_incomplete_behind_started_and_sends_nothing(
    shared_case: Callable[[str], Path],
) -> None:
    case = Case(shared_case("27"))
    report = replay(case.recording(), case.agent)
    assert (report.verdict, report.exit_code, report.reason) == ("damaged", 2, "truncated")
    assert report.divergence is not None
    assert report.divergence.sequence == len(case.before.events) + 1, "behind `started`, where the end should be"
    assert (case.outside.sends, case.outside.asked) == ([], [])
    assert case.recording().events == case.before.events


@pytest.mark.parametrize("state", ["outside_has_it.json", "outside_empty.json"])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_fork_from_before_gets_a_miss_and_sends_nothing(
    shared_case: Callable[[str], Path], state: str, resumed: bool
) -> None:
    """Also where the outside has it: what the parent's lookup found is the parent's. A resumed parent has an answer to give."""
    case = Case(shared_case("27"))
    case.is_now(state)
    if resumed:
        resume(case.run_id, case.agent, store=case.store)
    case.outside.sends.clear()
    case.outside.asked.clear()
    before = case.recording().events
    model = next(step.idx for step in case.store.steps(case.run_id) if step.kind == "llm")
    client.script = Script("mail it")
    made = fork(case.run_id, case.agent, from_step=model, store=case.store).candidates[0]
    (mail,) = [s for s in load_steps(case.store.recording(made.id)) if s.name == "send_mail"]
    assert mail.source == ("cassette" if resumed else "miss")
    assert (case.outside.sends, case.outside.asked) == ([], [])
    assert case.recording().events == before
