"""Idempotency keys of forks: each fork has its own, from its id and what is done, and a resumed fork goes on with the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.policy import ToolRule
from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import ForkWishes, fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.verbs.sessions import RecordOpener
from tests.fork_support import say
from tests.ledger.test_exchange import assert_equal, there_and_back
from tests.unit.test_forker import client, helper, ran

REFUNDS: list[Any] = [("refund", {"order": "o1"})] * 3
given: list[str] = []
"""The keys that the sandbox was given."""


def box(order: str, amount: int = 5) -> str:
    """Stands in for `refund`."""
    given.append(loupe.idempotency_key())
    return f"as if {amount} for {order}"


def spoken(messages: list[Any], *_: Any) -> tuple[dict[str, Any], int, int]:
    """A model that is told how far it is by what it was asked."""
    at = sum(message["role"] == "assistant" for message in messages)
    return say(REFUNDS[at] if at < len(REFUNDS) else "done", at), 1, 1


@pytest.fixture
def parent() -> tuple[MemoryStore, str]:
    """A run of a task, in which the same refund was made three times. Models are steps 3, 5, 7 and 9."""
    store = MemoryStore()
    client.script = spoken
    opener = RecordOpener(store, task_id="T-1")
    with ambient.opening_with(opener):
        helper("q")
    given.clear()
    ran.clear()
    return store, opener.sessions[0].run_id


def keys_of(recording: Recording) -> list[str]:
    """The keys of what was not taken over from a parent, in order."""
    own = (e for e in recording.events if e.type == "tool.allowed" and e.copied_hash is None)
    return [str(e.attrs["idempotency_key"]) for e in own]


WISHES = ForkWishes(tools={"refund": ToolRule("sandbox", sandbox=box)}, control=False)


@pytest.mark.parametrize("engine", ["own", "generic"])
@pytest.mark.parametrize(("step", "inherited"), [(3, 0), (5, 1), (7, 2)])
def test_each_fork_has_keys_of_its_own(parent: tuple[MemoryStore, str], engine: str, step: int, inherited: int) -> None:
    store, run_id = parent
    used = keys_of(store.recording(run_id))
    for _ in range(2):
        given.clear()
        code: dict[str, Any] = {} if engine == "own" else {"provider": from_llm_call(spoken)}
        agent = (helper,) if engine == "own" else ()
        made = fork(run_id, *agent, from_step=step, store=store, wishes=WISHES, **code).candidates[0]
        recording = store.recording(made.id)
        assert (made.engine, keys_of(recording)) == (engine, given), "what the sandbox was given is on the record"
        assert len(given) == 3 - inherited
        used += given
        assert verify(recording).ok
        assert_equal(recording, there_and_back(recording))
        assert replay(recording, *agent).passed
        assert not [e for e in recording.events if e.copied_hash is None and e.type == "tool.requested"]
    assert len(set(used)) == len(used), "never the parent's, never another fork's, never twice"
    assert ran == []


def test_a_fork_that_was_killed_goes_on_with_the_keys_that_it_would_have_had(parent: tuple[MemoryStore, str]) -> None:
    """Although it took over effects and a task from its parent, and whatever it was that it was killed in."""
    store, run_id = parent
    made = fork(run_id, from_step=5, store=store, provider=from_llm_call(spoken), wishes=WISHES).candidates[0]
    whole, before = store.recording(made.id), store.recording(run_id)
    expected = keys_of(whole)
    first = next(e.sequence for e in whole.events if e.copied_hash is None and e.sequence > 1)
    for last in range(first, len(whole.events)):
        held = MemoryStore()
        held.insert(run_id, before.events, before.get, Projector)
        held.insert(made.id, whole.events[:last], whole.get, Projector)
        given.clear()
        resume(made.id, store=held, provider=from_llm_call(spoken), wishes=WISHES)
        again = held.recording(made.id)
        assert keys_of(again) == expected, f"killed behind event {last}"
        assert set(given) <= set(expected)
        assert verify(again).ok
        assert json.dumps(again.body(again.events[-1].output_digest)) == json.dumps(
            whole.body(whole.events[-1].output_digest)
        )
