"""Case 15, import and export: every message shape comes back as it went in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file, load_trace
from agentloupe.words.step import Step


@pytest.fixture
def source(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("15") / "messages.json"


def imported(path: Path) -> tuple[Store, str]:
    store = open_url("memory:")
    return store, import_file(store, path).runs[0].run_id


def last(store: Store, run_id: str) -> Step:
    return load_trace(store.recording(run_id)).steps[-1]


def test_the_whole_history_is_the_request_that_waits_for_an_answer(source: Path) -> None:
    messages = json.loads(source.read_text("utf-8"))
    store, run_id = imported(source)
    step = last(store, run_id)
    assert (step.kind, step.status, step.attrs["pending"]) == ("llm", "open", True)
    assert repr(step.input) == repr({"messages": messages})  # null, "", 1.0 and 1, order of keys, zero-width space
    steps = load_trace(store.recording(run_id)).steps
    assert [s.output for s in steps if s.kind == "llm"][:-1] == [m for m in messages if m["role"] == "assistant"]
    tools = [(s.name, s.output) for s in steps if s.kind == "tool"]
    assert tools == [("lookup", [{"type": "text", "text": "42"}]), ("old_lookup", "7")]


@pytest.mark.parametrize("ending", ["loupe", "jsonl"])
def test_export_and_import_keep_it(source: Path, tmp_path: Path, ending: str) -> None:
    store, run_id = imported(source)
    export_run(store, run_id, tmp_path / f"out.{ending}")
    again, same = imported(tmp_path / f"out.{ending}")
    assert same == run_id
    before, after = load_trace(store.recording(run_id)).steps, load_trace(again.recording(run_id)).steps
    assert [repr((s.kind, s.name, s.input, s.output, s.error)) for s in before] == [
        repr((s.kind, s.name, s.input, s.output, s.error)) for s in after
    ]


def test_a_request_body_keeps_its_other_members(source: Path, tmp_path: Path) -> None:
    body: dict[str, Any] = {
        "temperature": 0.0,
        "model": "m-1",
        "messages": json.loads(source.read_text("utf-8")),
        "tools": [],
    }
    (tmp_path / "body.json").write_text(json.dumps(body), "utf-8")
    store, run_id = imported(tmp_path / "body.json")
    step = last(store, run_id)
    assert step.name == "chat m-1"
    assert step.input == body
    run = store.run(run_id)
    assert run is not None
    assert run.model == "m-1"


def test_the_source_comes_back_byte_for_byte(source: Path, tmp_path: Path) -> None:
    store, run_id = imported(source)
    export_run(store, run_id, tmp_path / "raw.json", raw=True)
    assert (tmp_path / "raw.json").read_bytes() == source.read_bytes()
