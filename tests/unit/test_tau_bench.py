"""tau-bench: each episode one run, told as far as the file tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file, load_trace
from agentloupe.words.errors import Corrupt


@pytest.fixture(scope="module")
def source(shared: Path) -> Path:
    return shared / "data" / "tau_bench" / "gpt-4o-airline.give.json"


@pytest.fixture(scope="module")
def episodes(source: Path) -> list[dict[str, Any]]:
    return json.loads(source.read_text("utf-8"))


def test_counts_are_those_of_the_messages(source: Path, episodes: list[dict[str, Any]]) -> None:
    store = open_url("memory:")
    report = import_file(store, source)
    assert report.format == "tau-bench"
    assert len(report.runs) == len(episodes) == 6
    messages = [m for episode in episodes for m in episode["traj"]]
    assert report.total("model_calls") == sum(m["role"] == "assistant" for m in messages)
    assert report.total("tool_calls") == sum(len(m.get("tool_calls") or []) for m in messages)
    assert report.total("partial_steps") == 0
    assert [run.run_id for run in report.runs] == [f"tau-bench-{e['task_id']}-{e['trial']}" for e in episodes]
    assert "a fork must be told a model" in (report.fidelity or "")


def test_every_request_is_the_prefix_and_every_value_is_exact(source: Path, episodes: list[dict[str, Any]]) -> None:
    store = open_url("memory:")
    report = import_file(store, source)
    for run, episode in zip(report.runs, episodes, strict=True):
        recording = store.recording(run.run_id)
        steps = load_trace(recording).steps
        traj = episode["traj"]
        at = [n for n, message in enumerate(traj) if message["role"] == "assistant"]
        models = [step for step in steps if step.kind == "llm"]
        # repr: null is not missing, 1.0 is not 1, and keys keep their order
        assert [repr(step.input) for step in models] == [repr({"messages": traj[:n]}) for n in at]
        assert [repr(step.output) for step in models] == [repr(traj[n]) for n in at]
        assert [step.output for step in steps if step.kind == "tool"] == [
            m["content"] for m in traj if m["role"] == "tool"
        ]
        extra = recording.body(recording.events[0].bodies["extra"])
        assert isinstance(extra, dict)
        rest = {name: value for name, value in episode.items() if name != "traj"}
        assert {name: extra[name] for name in rest} == rest
        assert extra.get("trailing", []) == traj[at[-1] + 1 :]


def test_the_source_comes_back_and_is_stored_once(source: Path, tmp_path: Path) -> None:
    store = open_url(tmp_path / "loupe.db")
    report = import_file(store, source)
    export_run(store, report.runs[3].run_id, tmp_path / "raw.json", raw=True)
    assert (tmp_path / "raw.json").read_bytes() == source.read_bytes()
    assert store.size().bodies_stored < source.stat().st_size
    before = store.size()
    assert {run.state for run in import_file(store, source).runs} == {"already there"}
    assert store.size().events == before.events
    store.close()


def test_null_and_missing_tool_calls_stay_apart(tmp_path: Path) -> None:
    traj: list[Any] = [
        {"role": "user", "content": "q"},
        {"content": "a", "role": "assistant", "tool_calls": None},
        {"role": "user", "content": "q2"},
        {"content": None, "role": "assistant"},
        {"role": "user", "content": "###STOP###"},
    ]
    path = tmp_path / "tau.json"
    path.write_text(json.dumps([{"task_id": 1, "trial": 2, "reward": 1.0, "info": {}, "traj": traj}, {"task_id": 2}]))
    store = open_url("memory:")
    report = import_file(store, path)
    assert report.quarantined == ("episode 1: no trajectory",)
    steps = load_trace(store.recording("tau-bench-1-2")).steps
    assert [repr(step.output) for step in steps] == [repr(traj[1]), repr(traj[3])]


@pytest.mark.parametrize("text", ['[{"task_id":1,"reward":1', '[{"task_id":1,"reward":0}]'])
def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tau.json"
    path.write_text(text)
    with pytest.raises(Corrupt):
        import_file(open_url("memory:"), path)
