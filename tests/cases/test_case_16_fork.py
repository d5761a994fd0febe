"""Shared case 16: a result without its call, a call without its result, one id used twice: what a fork makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.cassette import Cassette
from agentloupe.engine.cautions import cautions, read_history
from agentloupe.engine.loop import Model
from agentloupe.engine.project import load_steps
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.looping import run_loop
from tests.cases.test_case_13_fork import Capture
from tests.fork_support import import_runs


@pytest.fixture
def folder(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("16")


@pytest.fixture
def messages(folder: Path) -> list[Any]:
    return json.loads((folder / "messages.json").read_text())


def test_pairs_orphans_and_open_calls(folder: Path, messages: list[Any]):
    expected = json.loads((folder / "expected.json").read_text())
    history = read_history(messages)
    found = [{"call": str(p), "result": p.content} for p in history.pairs if p.result_at is not None]
    assert found == expected["pairs"]
    assert [call_id for _, call_id in history.orphans] == expected["results_without_call"]
    assert [pair.id for pair in history.unanswered] == expected["calls_without_result"]
    assert history.reused == ("lookup:0",)


def test_the_fork_warns_and_sends_it_unchanged(messages: list[Any]):
    store = MemoryStore()
    run_loop(Model(Capture().send), model="m", messages=messages, store=store, run_id="r")
    provider = Capture()
    done = fork("r", from_step=0, store=store, provider=provider)
    assert provider.bodies[0]["messages"] == messages
    said = "\n".join(done.notes)
    for part in ("messages[0] (gone)", "messages[6] (c9)", "lookup:0", "providers refuse such a history"):
        assert part in said


def test_the_imported_conversation_answers_from_its_own_turns(folder: Path):
    store = MemoryStore()
    [run_id] = import_runs(store, folder / "messages.json")
    cassette = Cassette.from_steps(load_steps(store.recording(run_id)))
    assert cassette.play("lookup", {"k": "A"})[:2] == (True, "1")
    assert cassette.play("lookup", {"k": "B"})[:2] == (True, "2")
    assert not cassette.play("lookup", {"k": "C"}).hit


def call(call_id: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": call_id, "function": {"name": "f", "arguments": "{}"}}]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": call_id}


@pytest.mark.parametrize(
    ("messages", "lines"),
    [
        ([call("a"), result("a")], 0),
        ([result("a")], 1),
        ([call("a"), {"role": "user", "content": "x"}], 1),
        ([call("a"), result("a"), result("a")], 1),
        ([call("a"), result("a"), call("a"), result("a")], 1),
        ([call("a"), call("a"), result("a")], 2),
        ([result("x"), call("a"), result("a"), call("a"), {"role": "user", "content": "x"}], 3),
        ([], 0),
    ],
)
def test_other_histories_of_the_kind(messages: list[Any], lines: int):
    request = {"model": "m", "messages": messages}
    assert len(cautions(request, request, ())) == lines
