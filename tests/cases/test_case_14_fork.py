"""Shared case 14: the new model refuses an old parameter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.overrides import Overrides, parse_set
from agentloupe.engine.project import load_steps
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.scripted import ScriptedServer, fail, say
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.looping import run_loop
from tests.fork_support import Script

KEY = "sk-" + "a1B2" * 10


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = shared_case("14")
    return json.loads((folder / "request.json").read_text()), json.loads((folder / "provider_400.json").read_text())


def recorded(body: dict[str, Any]) -> MemoryStore:
    store = MemoryStore()
    more = {name: value for name, value in body.items() if name not in ("model", "messages")}
    run_loop(Script("a plan"), model=body["model"], messages=body["messages"], parameters=more, store=store, run_id="r")
    return store


def test_the_refusal_is_shown_and_nothing_is_dropped(case: Any):
    body, refusal = case
    store = recorded(body)
    with ScriptedServer([fail(400, body=refusal)]) as server:
        provider = Endpoint(server.url, KEY)
        run = fork("r", from_step=0, store=store, provider=provider, model="think-1").candidates[0]
        assert server.model.requests == [{**body, "model": "think-1"}]
    assert run.status == "error"
    [step] = load_steps(store.recording(run.id))
    assert (step.kind, step.status, step.name) == ("llm", "error", "chat think-1")
    assert step.attrs["status_code"] == 400
    for part in ("400", refusal["error"]["message"], "max_tokens"):
        assert part in str(step.error)
        assert part in str(run.error)
    everything = json.dumps([e.envelope(e.run_id, e.sequence) for e in store.recording(run.id).events]) + str(step)
    assert KEY not in everything


def test_renaming_and_dropping_is_an_explicit_choice_and_recorded(case: Any):
    body, _ = case
    store = recorded(body)
    overrides = Overrides(
        model="think-1",
        set_paths=(parse_set("max_completion_tokens=300"),),
        unset_paths=("max_tokens", "temperature"),
    )
    with ScriptedServer([say("thought")]) as server:
        run = fork("r", from_step=0, store=store, provider=Endpoint(server.url, KEY), overrides=overrides).candidates[0]
        assert server.model.requests == [
            {"model": "think-1", "messages": body["messages"], "max_completion_tokens": 300}
        ]
    assert run.status == "ok"
    stored = store.recording(run.id)
    assert stored.body(stored.events[0].bodies["overrides"]) == [
        {"path": "model", "op": "set", "value": "think-1"},
        {"path": "max_completion_tokens", "op": "set", "value": 300},
        {"path": "max_tokens", "op": "remove", "value": None},
        {"path": "temperature", "op": "remove", "value": None},
    ]
    assert [o["path"] for o in run.overrides] == ["model", "max_completion_tokens", "max_tokens", "temperature"]


@pytest.mark.parametrize("status", [401, 404, 422, 429, 500, 503])
def test_other_refusals_end_the_fork_the_same_way(case: Any, status: int):
    body, _ = case
    store = recorded(body)
    with ScriptedServer([fail(status, "not today")]) as server:
        run = fork("r", from_step=0, store=store, provider=Endpoint(server.url), model="think-1").candidates[0]
        assert len(server.model.requests) == 1
    assert (run.status, run.step_count) == ("error", 1)
    assert str(status) in str(run.error)


def test_nobody_at_the_address_is_said(case: Any):
    body, _ = case
    store = recorded(body)
    with ScriptedServer([]) as server:
        url = server.url
    run = fork("r", from_step=0, store=store, provider=Endpoint(url)).candidates[0]
    assert run.status == "error"
    assert "no model answers" in str(run.error)
