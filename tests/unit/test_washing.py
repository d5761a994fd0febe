"""Secret removal from what is imported: everything else stays, and answers are still found."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import agentloupe as loupe
from agentloupe.engine.overrides import NO_OVERRIDES
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file, load_trace

KEY = "sk-" + "ant-api03-1234567890abcdefghij"


def _steps(store: Any, run_id: str) -> list[Any]:
    return list(load_trace(store.recording(run_id)).steps)


def _file(folder: Path, value: Any, name: str = "chat.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(value, indent=1), "utf-8")
    return file


def _conversation(secret: str) -> dict[str, Any]:
    call = {"name": "login", "arguments": json.dumps({"user": "demo", "password": secret})}
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": f"use {KEY} please, order 5512"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "t", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": "t", "content": json.dumps({"access_token": secret, "n": 1})},
            {"role": "assistant", "content": "done"},
        ],
    }


def test_an_import_without_secrets_is_taken_over_as_it_is(workdir: Path) -> None:
    value = _conversation("")
    value["messages"][0]["content"] = "order 5512"
    value["messages"][1]["tool_calls"][0]["function"]["arguments"] = '{"user": "demo"}'
    value["messages"][2]["content"] = "fine"
    file = _file(workdir, value)
    with closing(open_url(workdir / "x.db")) as store:
        (run,) = import_file(store, file).runs
        assert run.removed == 0
        export_run(store, run.run_id, workdir / "raw", raw=True)
        assert (workdir / "raw").read_bytes() == file.read_bytes()


def test_secrets_go_and_what_stands_beside_them_stays(workdir: Path) -> None:
    file = _file(workdir, _conversation("hunter2-hunter2"))
    with closing(open_url(workdir / "x.db")) as store:
        (run,) = import_file(store, file).runs
        (again,) = import_file(store, file).runs
        steps = _steps(store, run.run_id)
        export_run(store, run.run_id, workdir / "raw", raw=True)
    assert run.removed >= 4
    assert (again.state, again.run_id) == ("already there", run.run_id)
    text = repr(steps)
    assert "order 5512" in text
    assert "'user': 'demo'" in text
    assert "hunter2" not in text
    raw = json.loads((workdir / "raw").read_text("utf-8"))
    assert raw["messages"][0]["content"] == "use [removed:key] please, order 5512"
    tool = next(step for step in steps if step.kind == "tool")
    assert tool.attrs["removed"] == ["$.password"]


def test_a_fork_finds_the_answer_of_a_call_whose_arguments_held_a_secret(workdir: Path) -> None:
    secret = "hunter2-hunter2"
    call = {"name": "login", "arguments": json.dumps({"user": "demo", "password": secret})}
    asked: list[Any] = []

    def model(messages: Any, *_: Any) -> Any:
        asked.append(messages)
        if len(asked) > 1:
            return {"role": "assistant", "content": "done"}, 1, 1
        return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": call}]}, 1, 1

    with closing(open_url(workdir / "x.db")) as store:
        (run,) = import_file(store, _file(workdir, _conversation(secret))).runs
        fork = loupe.fork_run(store, run.run_id, 0, NO_OVERRIDES, model)
        (tool,) = [step for step in _steps(store, fork.id) if step.kind == "tool"]
    assert tool.source == "cassette"
    assert "[removed:token]" in asked[1][-1]["content"]


def test_names_tags_and_variables_of_a_foreign_trace(workdir: Path) -> None:
    trace = {
        "run": {"id": "r", "agent_name": "a", "name": f"run {KEY}", "tags": [KEY, "fine"]},
        "steps": [
            {"idx": 0, "kind": "tool", "name": f"t {KEY}", "input": {"x": 1}, "output": {"secret": "s-s-s"}},
            {"idx": 1, "kind": "env", "name": "API_TOKEN", "output": "v-v-v"},
        ],
    }
    with closing(open_url(workdir / "x.db")) as store:
        (run,) = import_file(store, _file(workdir, trace)).runs
        row = store.run(run.run_id)
        steps = _steps(store, run.run_id)
    assert row is not None
    assert row.name == "run [removed:key]"
    assert [step.name for step in steps if step.kind in ("tool", "env")] == ["t [removed:key]", "API_TOKEN"]
    assert "s-s-s" not in repr(steps)
    assert "v-v-v" not in repr(steps)


def test_a_sealed_recording_is_left_as_it_is_and_says_what_it_holds(workdir: Path) -> None:
    file = _file(workdir, _conversation("hunter2-hunter2"))
    with closing(open_url(workdir / "x.db")) as store, closing(open_url(workdir / "y.db")) as other:
        (run,) = import_file(store, file, keep_secrets=True).runs
        assert run.removed == 0
        export_run(store, run.run_id, workdir / "run.loupe")
        (sealed,) = import_file(other, workdir / "run.loupe").runs
        assert "look like credentials" in sealed.found.warnings[0]
        assert store.recording(run.run_id).events[-1].hash == other.recording(run.run_id).events[-1].hash


def test_the_rules_of_the_project_hold(workdir: Path) -> None:
    (workdir / "loupe.toml").write_text('[secrets]\npatterns = { order = "order [0-9]+" }\n', "utf-8")
    with closing(open_url(workdir / "x.db")) as store:
        (run,) = import_file(store, _file(workdir, _conversation("x-x-x-x"))).runs
        assert "5512" not in repr(_steps(store, run.run_id))
        started = store.recording(run.run_id).events[0]
        assert store.recording(run.run_id).body(started.bodies["rules"])["patterns"] == {"order": "order [0-9]+"}  # type: ignore[call-overload, index]
