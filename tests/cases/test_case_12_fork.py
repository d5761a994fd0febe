"""Shared case 12: two forks of one step, and a fork of a fork."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.overrides import Overrides
from agentloupe.engine.project import Projector, load_steps, project
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.forking import fork_run
from agentloupe.words.run import Run
from tests.fork_support import Script, exported, import_runs


@pytest.fixture
def folder(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("12")


def script_of(fork: dict[str, Any]) -> Script:
    return Script(*[said.get("content") or (said["tool"], said["args"]) for said in fork["model_says"]])


def steps_of(store: Store, run_id: str) -> list[Any]:
    return [(s.idx, s.kind, s.name, s.source, s.input, s.output, s.error) for s in load_steps(store.recording(run_id))]


def row(run: Run | None) -> Any:
    assert run is not None
    return {name: getattr(run, name) for name in Run.__dataclass_fields__ if name != "owner"}


def test_siblings_and_a_grandchild(folder: Path, tmp_path: Path):
    expected = json.loads((folder / "expected.json").read_text())
    script = json.loads((folder / "script.json").read_text())
    path = str(tmp_path / "runs.db")
    store = open_url(path)
    [original] = import_runs(store, folder / "trace.json")
    assert original == "orig-12"
    before = exported(store, original)

    runs: dict[str, Run] = {}
    scripts = {name: script_of(script[name]) for name in script}

    def run(name: str, parent: str) -> None:
        made = script[name]
        overrides = Overrides(**made["override"])
        runs[name] = fork_run(store, parent, made["from_step"], overrides, scripts[name])

    workers = [threading.Thread(target=run, args=(name, original)) for name in ("fork_x", "fork_y")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    run("fork_y2", runs["fork_y"].id)
    live = {name: (row(store.run(r.id)), steps_of(store, r.id)) for name, r in runs.items()}
    store.close()

    store = open_url(path)
    assert (exported(store, original) == before) is expected["original_bytes_unchanged"]
    assert runs["fork_x"].step_count == expected["fork_x.step_count"]
    assert runs["fork_y"].step_count == expected["fork_y.step_count"]
    assert ("X done" in json.dumps(steps_of(store, runs["fork_y"].id))) is expected["fork_y.sees_text_of_fork_x"]
    names = {r.id: name for name, r in runs.items()}
    lineage = {name: [names.get(str(r.parent_run_id), r.parent_run_id), r.forked_from_step] for name, r in runs.items()}
    assert lineage == expected["lineage"]
    tools = [s for name in live for s in live[name][1] if s[1] == "tool"]
    assert sum(s[3] not in ("recorded", "cassette") for s in tools) == expected["tool_prefix_executions"]
    reloaded = {name: (row(store.run(r.id)), steps_of(store, r.id)) for name, r in runs.items()}
    assert (reloaded == live) is expected["reload_equals_live"]

    # each began at its own step, with its own prompt and what came before
    asked = scripts["fork_y"].asked[0]["messages"]
    assert asked[0]["content"] == "Y"
    assert len(asked) == 4
    assert scripts["fork_x"].asked[0]["messages"][0]["content"] == "X"
    y2 = scripts["fork_y2"].asked[0]
    assert (y2["messages"][0]["content"], y2["temperature"], len(y2["messages"])) == ("Y", 1, 6)
    assert [s[3] for s in steps_of(store, runs["fork_y"].id)] == ["recorded", "recorded", "live", "cassette", "live"]

    store.erase(runs["fork_x"].id, [])
    store.gc()
    assert steps_of(store, runs["fork_y"].id) == live["fork_y"][1]
    assert exported(store, original) == before
    store.close()


@pytest.mark.parametrize("depth", [1, 4])
def test_forks_of_forks_of_forks(folder: Path, depth: int):
    from agentloupe.store.memory import MemoryStore

    store = MemoryStore()
    [parent] = import_runs(store, folder / "trace.json")
    for generation in range(depth):
        run = fork_run(store, parent, 2, Overrides(system_prompt=f"G{generation}"), Script(("lookup", {"k": "B"}), "x"))
        steps = load_steps(store.recording(run.id))
        assert [s.source for s in steps] == ["recorded", "recorded", "live", "cassette", "live"]
        assert steps[3].output == {"v": 2}
        assert steps[3].attrs["origin"] == "orig-12/0.3"
        # what is newest has been played already; what is left is the original's, once
        assert run.counts.reused == 0
        parent = run.id
        found = project(store.recording(parent).events).run
        assert (found.parent_run_id, found.step_count) == (run.parent_run_id, 5)
    assert Projector("x").take().steps == ()
