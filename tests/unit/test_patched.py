"""`loupe.patched`: a deliberate change of the code, in threads, forks and resumed runs; every report names what was asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.engine.report import report_from_json
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient, codecs
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.ledger import export_ledger, replay_folder
from agentloupe.verbs.replaying import replay
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from tests.tapes import record_in

CHANGE = "ask twice"


@loupe.tool(effect="read")
def look(city: str) -> str:
    return city


def ask(text: str) -> str:
    body: Json = {"model": "m", "messages": [{"role": "user", "content": text}]}

    def send(_: Json = None) -> Any:
        return {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}

    call = Call(
        kind="llm",
        name="chat m",
        input=body,
        encode=lambda value: codecs.encode(value).wire,
        decode=codecs.decode,
        resend=send,
    )
    return str(ambient.call(call, send)["choices"][0]["message"]["content"])


def version(new: bool, answers: list[bool] | None = None) -> Callable[..., Any]:
    """The agent before and after the change; `answers` gets what the mark said each time."""

    @loupe.agent(name="changing")
    def changing() -> list[str]:
        done: list[str] = []
        for city in ("Oslo", "Bonn", "Rome"):
            done.append(ask(city))
            done.append(look(city=city))
            if new:
                way = loupe.patched(CHANGE)
                if answers is not None:
                    answers.append(way)
                if way:
                    done.append(loupe.state("twice", city))
        return done

    return changing


def models(recording: Recording, store: MemoryStore) -> list[int]:
    return [step.idx for step in store.steps(recording.run_id) if step.kind == "llm"]


@pytest.fixture
def store(workdir: Any) -> MemoryStore:
    del workdir
    return MemoryStore()


def test_a_report_names_what_was_asked_for(store: MemoryStore) -> None:
    old, new = record_in(store, version(new=False)), record_in(store, version(new=True))
    for recording, has, words in ((old, False, "made before it"), (new, True, "made with it")):
        report = replay(recording, version(new=True))
        assert (report.verdict, report.patched) == ("pass", {CHANGE: has})
        assert report.as_json()["patched"] == {CHANGE: has}
        assert report_from_json(report.as_json()) == report
        assert f"patched {CHANGE}: the recording was {words}" in report.text()
    assert replay(old, version(new=False)).patched == {}


def test_a_fork_keeps_to_the_old_way_once_it_went_it(store: MemoryStore) -> None:
    old = record_in(store, version(new=False))
    answers: list[bool] = []
    made = fork(old.run_id, version(True, answers), from_step=models(old, store)[2], store=store)
    assert made.runs[0].status == "ok", made.runs[0].error
    assert answers == [False] * 3
    forked = store.recording(made.runs[0].id)
    assert verify(forked).ok
    report = replay(forked, version(new=True))
    assert (report.passed, report.patched) == (True, {CHANGE: False}), report.text()


def test_a_fork_goes_the_new_way_where_nothing_was_asked_before(store: MemoryStore) -> None:
    old = record_in(store, version(new=False))
    answers: list[bool] = []
    made = fork(old.run_id, version(True, answers), from_step=models(old, store)[0], store=store)
    assert answers == [True] * 3
    assert replay(store.recording(made.runs[0].id), version(new=True)).patched == {CHANGE: True}
    answers.clear()
    fork(old.run_id, version(True, answers), from_step="start", store=store)
    assert answers == [True] * 3


def test_a_fork_of_a_new_run_stays_new(store: MemoryStore) -> None:
    new = record_in(store, version(new=True))
    answers: list[bool] = []
    made = fork(new.run_id, version(True, answers), from_step=models(new, store)[2], store=store)
    assert answers == [True] * 3
    assert replay(store.recording(made.runs[0].id), version(new=True)).passed


@pytest.mark.parametrize("was_new", [False, True])
def test_a_resumed_run_keeps_one_way_to_its_end(store: MemoryStore, was_new: bool) -> None:
    whole = record_in(store, version(was_new))
    for last in range(1, len(whole.events)):
        cut, answers = MemoryStore(), list[bool]()
        cut.insert(whole.run_id, whole.events[:last], whole.get, Projector)
        loupe.resume(whole.run_id, version(True, answers), store=cut)
        assert len(answers) == 3
        assert len(set(answers)) == 1, (last, answers)
        resumed = cut.recording(whole.run_id)
        report = replay(resumed, version(new=True))
        assert (report.passed, report.patched) == (True, {CHANGE: answers[0]}), report.text()


def test_threads_get_one_answer(store: MemoryStore) -> None:
    def made(new: bool) -> Callable[..., Any]:
        @loupe.agent(name="threaded")
        def threaded() -> list[list[str]]:
            gate = threading.Barrier(4)

            def work(n: int) -> list[str]:
                gate.wait(30)
                found = [look(city=str(n))]
                if new and loupe.patched(CHANGE):
                    found.append(look(city=f"{n} again"))
                return found

            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(work, range(4)))

        return threaded

    old, new = record_in(store, made(new=False)), record_in(store, made(new=True))
    assert replay(old, made(new=True)).passed
    report = replay(new, made(new=True))
    assert (report.passed, report.patched) == (True, {CHANGE: True}), report.text()


def test_what_the_recording_says_of_itself_is_in_every_report(store: MemoryStore, workdir: Path) -> None:
    recording = record_in(store, version(new=True))
    digest = recording.events[0].bodies["snapshot"]
    said = replay(recording, version(new=True)).as_json()["recorded"]
    assert said == {"coverage": "full", "coverage_notes": [], "snapshot": digest}
    assert verify(recording).snapshot == digest
    export_ledger(store, recording.run_id, workdir / "ledger")
    assert replay_folder(workdir / "ledger").fields["snapshot"] == digest
