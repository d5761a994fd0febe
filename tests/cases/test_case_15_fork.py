"""Shared case 15: every message shape comes back as it went in, through a fork."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.cautions import cautions
from agentloupe.engine.loop import Model
from agentloupe.engine.overrides import MessageEdit, Overrides, apply_to_request, further_instructions
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.looping import run_loop
from tests.cases.test_case_13_fork import Capture


@pytest.fixture
def messages(shared_case: Callable[[str], Path]) -> list[Any]:
    return json.loads((shared_case("15") / "messages.json").read_text())


def recorded(messages: list[Any]) -> MemoryStore:
    store = MemoryStore()
    run_loop(Model(Capture().send), model="m", messages=messages, store=store, run_id="r")
    return store


def test_stored_loaded_and_forked_they_are_equal(messages: list[Any]):
    store = recorded(messages)
    [step] = load_steps(store.recording("r"))
    assert isinstance(step.input, dict)
    assert json.dumps(step.input["messages"]) == json.dumps(messages)
    provider = Capture()
    done = fork("r", from_step=0, store=store, provider=provider)
    assert json.dumps(provider.bodies[0]["messages"]) == json.dumps(messages)
    again = load_steps(store.recording(done.candidates[0].id))[0]
    assert isinstance(again.input, dict)
    assert json.dumps(again.input["messages"]) == json.dumps(messages)


def test_the_system_prompt_replaces_message_0_and_says_what_stays(messages: list[Any]):
    store = recorded(messages)
    provider = Capture()
    done = fork("r", from_step=0, store=store, provider=provider, system_prompt="Z")
    wanted = copy.deepcopy(messages)
    wanted[0]["content"] = "Z"
    assert provider.bodies[0]["messages"] == wanted
    assert "messages 1, 5 are further instructions that stay" in done.notes
    assert further_instructions({"messages": messages}) == [1, 5]


def thinking_index(messages: list[Any]) -> int:
    return next(i for i, m in enumerate(messages) if isinstance(m["content"], list) and "signature" in m["content"][0])


@pytest.mark.parametrize("edit", ["drop", "text", "signature", "redacted"])
def test_editing_or_dropping_a_thinking_block_is_warned_about(messages: list[Any], edit: str):
    at = thinking_index(messages)
    request = {"model": "m", "messages": messages}
    changed = copy.deepcopy(messages[at])
    if edit == "text":
        changed["content"][0]["thinking"] += "!"
    elif edit == "signature":
        changed["content"][0]["signature"] = ""
    elif edit == "redacted":
        del changed["content"][1]
    one = MessageEdit(at, "remove") if edit == "drop" else MessageEdit(at, "set", changed)
    applied = apply_to_request(request, Overrides(messages=(one,)))
    assert any("signed thinking" in line for line in cautions(request, applied.request, applied.edits))
    store = recorded(messages)
    done = fork("r", from_step=0, store=store, provider=Capture(), messages=(one,))
    assert any("signed thinking" in line for line in done.notes)


def test_leaving_thinking_alone_is_not_warned_about(messages: list[Any]):
    done = fork("r", from_step=0, store=recorded(messages), provider=Capture(), system_prompt="Z")
    assert not any("thinking" in line for line in done.notes)


@pytest.mark.parametrize("index", range(14))
def test_each_message_survives_on_its_own_place(messages: list[Any], index: int):
    """Take any one message out: the others go on as they were."""
    provider = Capture()
    fork("r", from_step=0, store=recorded(messages), provider=provider, messages=(MessageEdit(index, "remove"),))
    assert provider.bodies[0]["messages"] == messages[:index] + messages[index + 1 :]
