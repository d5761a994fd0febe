"""Runs of the plain loop that were cut anywhere go on without code, and end as they would have."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import json_reply, serve
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import ForkWishes, fork
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.words.errors import ResumeRefused
from tests.dialect_support import (
    FORMS,
    HISTORY,
    QUESTION,
    TOOLS,
    Dialects,
    agent_of,
    answered,
    definition,
    ran,
    turns,
    weather_answers,
)
from tests.tapes import record_in


@pytest.fixture
def server(workdir: Path) -> Iterator[Dialects]:
    made = Dialects()
    with serve(made) as running:
        made.url = running.url
        yield made


def rule(form: str, *answers: Any) -> Any:
    """Answers by how often the model has spoken: whoever asks again gets the same."""

    def answer(body: Any) -> Any:
        return json_reply(answered(form, body, answers[turns(form, body)], turns(form, body)))

    return answer


ROAD: list[Any] = [
    [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Ulm"})],
    [("add", {"a": 1, "b": 2}), ("send", {"text": "x"}), ("get_weather", {"city": "Oslo"})],
    "done",
]
"""A fork's: from the cassette, a miss, a live tool, a stub for one that writes, the last result again."""


def whole_fork(server: Dialects, form: str, **more: Any) -> tuple[Store, Recording, ForkWishes]:
    store = MemoryStore()
    server.answers = weather_answers()
    run_id = record_in(store, agent_of(form, server), QUESTION).run_id
    server.answers = [rule(form, *ROAD)] * 99
    wishes = ForkWishes(
        functions=[TOOLS["add"]],
        live={"add": "arithmetic"},
        tools={"send": 'stub:"kept"'},
        control=False,
        overrides=loupe.Overrides(temperature=0.75),
        **more,
    )
    where = Endpoint(f"{server.url}/v1", "k")
    run = fork(run_id, from_step=1, store=store, provider=where, wishes=wishes).candidates[0]
    return store, store.recording(run.id), wishes


def cut(store: Store, recording: Recording, last: int, parent: str | None) -> MemoryStore:
    """A store with the first events of a run, as a killed process leaves them, and its parent."""
    held = MemoryStore()
    if parent is not None:
        whole = store.recording(parent)
        held.insert(parent, whole.events, whole.get, Projector)
    held.insert(recording.run_id, recording.events[:last], recording.get, Projector)
    return held


def told(recording: Recording) -> list[Any]:
    """What happened, without ids, times, and what says that there was another attempt."""
    found: list[Any] = []
    for event in recording.events:
        if event.type in ("attempt.started", "run.started", "schedule.marked", "tool.started"):
            continue
        own = {
            n: v for n, v in event.attrs.items() if n in ("error_class", "status", "reused", "played_step", "effect")
        }
        bodies = [recording.body(d) for d in (event.input_digest, event.output_digest) if d is not None]
        found.append((event.type, event.name, event.call_id, event.source, own, copy.deepcopy(bodies)))
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_fork_cut_anywhere_goes_on_and_ends_as_it_would_have(server: Dialects, form: str) -> None:
    store, recording, wishes = whole_fork(server, form)
    first = next(e.sequence for e in recording.events if e.copied_hash is None and e.sequence > 1)
    parent = str(recording.events[0].attrs["parent_run_id"])
    expected = told(recording)
    where = Endpoint(f"{server.url}/v1", "k")
    for last in range(first - 1, len(recording.events)):
        held = cut(store, recording, last, parent)
        server.asked.clear()
        ran.clear()
        done = resume(recording.run_id, store=held, provider=where, wishes=ForkWishes(functions=wishes.functions))
        made = held.recording(recording.run_id)
        assert told(made) == expected, f"cut behind event {last}"
        ended = sum(e.type == "model.responded" and e.copied_hash is None for e in recording.events[:last])
        assert len(server.asked) == 3 - ended, "no model is asked twice for what is recorded"
        over = any(
            e.type == "tool.finished" and e.name == "add" and e.copied_hash is None for e in recording.events[:last]
        )
        assert ran == ([] if over else [("add", (1, 2))])
        assert done.run is not None
        assert (done.run.status, done.run.counts.as_dict()) == ("ok", counts_of(store, recording.run_id))
        assert verify(made).ok
        report = replay(made)
        assert report.passed, report.text()


def counts_of(store: Store, run_id: str) -> dict[str, int]:
    run = store.run(run_id)
    assert run is not None
    return run.counts.as_dict()


def tools_of(*names: str) -> list[Any]:
    return [definition("chat", name) for name in names]


def test_a_recording_of_the_loop_cut_anywhere_goes_on_and_asks_about_open_writes(server: Dialects) -> None:
    store = MemoryStore()
    road = [*weather_answers()[:2], [("send", {"text": "all"})], "done"]
    server.answers = [rule("chat", *road)] * 99
    where = Endpoint(f"{server.url}/v1", "k")
    from agentloupe.engine.loop import Model
    from agentloupe.providers.chat import response_facts

    model = Model(where.send, response_facts)
    steps = run_loop(
        model, TOOLS, model="small-1", question="q", tool_schemas=tools_of(*TOOLS), store=store, run_id="loop-1"
    )
    assert len(steps) == 8
    recording = store.recording("loop-1")
    expected = told(recording)
    refused = 0
    for last in range(1, len(recording.events)):
        held = cut(store, recording, last, None)
        server.asked.clear()
        ran.clear()
        begun = {e.type for e in recording.events[:last] if e.name == "send"}
        wishes = ForkWishes(functions=TOOLS)
        if "tool.requested" in begun and "tool.finished" not in begun:
            refused += 1
            with pytest.raises(ResumeRefused, match="did this happen") as question:
                resume("loop-1", store=held, provider=where, wishes=wishes)
            assert (question.value.reason, server.asked, ran) == ("open_intent", [], [])
            continue
        done = resume("loop-1", store=held, provider=where, wishes=wishes)
        assert done.result == {"role": "assistant", "content": "done"}
        assert told(held.recording("loop-1")) == expected
        asked = sum(e.type == "model.responded" for e in recording.events[:last])
        finished = sum(e.type == "tool.finished" for e in recording.events[:last])
        assert (len(server.asked), len(ran)) == (4 - asked, 4 - finished)
    assert refused > 0


def test_limits_of_the_run_hold_over_its_attempts(server: Dialects) -> None:
    store, recording, wishes = whole_fork(server, "chat", limits=loupe_limits(max_steps=2))
    parent = str(recording.events[0].attrs["parent_run_id"])
    answers = [e.sequence for e in recording.events if e.type == "model.responded" and e.copied_hash is None]
    held = cut(store, recording, answers[0], parent)
    server.asked.clear()
    done = resume(
        recording.run_id,
        store=held,
        provider=Endpoint(f"{server.url}/v1"),
        wishes=ForkWishes(functions=wishes.functions),
    )
    assert len(server.asked) == 1
    assert done.run is not None
    assert (done.run.status, done.result) == ("error", None)
    assert held.steps(recording.run_id)[-1].name == "max_steps"


def loupe_limits(**limits: Any) -> Any:
    from agentloupe.engine.loop import Limits

    return Limits(**limits)


def test_what_a_recording_cannot_hold_is_asked_for(server: Dialects) -> None:
    store, recording, _ = whole_fork(server, "chat")
    parent = str(recording.events[0].attrs["parent_run_id"])
    where = Endpoint(f"{server.url}/v1")
    server.asked.clear()
    held = cut(store, recording, len(recording.events) - 1, parent)
    with pytest.raises(loupe.LoupeError, match="its function was not given"):
        resume(recording.run_id, store=held, provider=where)
    orphan = cut(store, recording, len(recording.events) - 1, None)
    with pytest.raises(ResumeRefused) as gone:
        resume(recording.run_id, store=orphan, provider=where)
    assert gone.value.reason == "parent_gone"
    with pytest.raises(ResumeRefused, match="has ended"):
        resume(recording.run_id, store=store, provider=where)
    assert server.asked == []
    for left in (held, orphan):
        assert left.recording(recording.run_id).events == recording.events[:-1], "left as it was"


def test_a_fork_that_asks_otherwise_than_it_did_is_stopped(server: Dialects) -> None:
    """Its first request is on its tape: another history (here of a tampered answer) is a divergence, and nothing is sent."""
    store, recording, wishes = whole_fork(server, "chat")
    parent = str(recording.events[0].attrs["parent_run_id"])
    asked = [e for e in recording.events if e.type == "model.requested" and e.copied_hash is None]
    body: Any = recording.body(asked[1].input_digest)
    assert json.dumps(body[HISTORY["chat"]]).count("cassette miss") == 1
    held = cut(store, recording, asked[1].sequence, parent)
    server.asked.clear()
    done = resume(
        recording.run_id,
        store=held,
        provider=Endpoint(f"{server.url}/v1"),
        wishes=ForkWishes(functions=wishes.functions),
    )
    assert server.asked[0] == body, "an open question is asked again as it was"
    assert done.served >= 3
