"""Shared case 13: a fork that changes one field keeps all others."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.loop import Model
from agentloupe.engine.overrides import Overrides, parse_set
from agentloupe.ports.protocols import Answer
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.looping import run_loop
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ForkRefused
from tests.fork_support import import_runs

COMPLETION: dict[str, Any] = {"model": "m", "choices": [{"message": {"role": "assistant", "content": "{}"}}]}


class Capture:
    """A provider that keeps what it is sent, as it would go over the wire."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    def send(self, request: Mapping[str, Json]) -> Answer:
        self.bodies.append(json.loads(json.dumps(request)))
        return Answer(response=copy.deepcopy(COMPLETION), facts={})


@pytest.fixture
def request_body(shared_case: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads((shared_case("13") / "request.json").read_text())


@pytest.fixture
def expected_body(shared_case: Callable[[str], Path]) -> dict[str, Any]:
    return json.loads((shared_case("13") / "expected_request.json").read_text())


def recorded(body: dict[str, Any]) -> MemoryStore:
    store = MemoryStore()
    more = {name: value for name, value in body.items() if name not in ("model", "messages", "tools")}
    run_loop(
        Model(Capture().send),
        model=body["model"],
        messages=body["messages"],
        tool_schemas=body.get("tools", ()),
        parameters=more,
        store=store,
        run_id="r",
    )
    return store


def sent(store: MemoryStore, **more: Any) -> tuple[Any, list[str]]:
    provider = Capture()
    done = fork("r", from_step=0, store=store, provider=provider, **more)
    return provider.bodies[0], [str(o["path"]) for o in done.candidates[0].overrides]


def in_order(value: Any) -> str:
    return json.dumps(value)


def test_temperature_only(request_body: Any, expected_body: Any):
    body, paths = sent(recorded(request_body), temperature=0.9)
    assert body == expected_body
    assert paths == ["temperature"]


def test_an_unchanged_fork_sends_the_recorded_body(request_body: Any):
    body, paths = sent(recorded(request_body))
    assert body == request_body
    assert json.dumps(body["messages"]) == json.dumps(request_body["messages"])
    assert paths == []


def test_a_system_prompt_only(request_body: Any):
    body, paths = sent(recorded(request_body), system_prompt="Answer in XML.")
    wanted = copy.deepcopy(request_body)
    wanted["messages"][0]["content"] = "Answer in XML."
    assert body == wanted
    assert paths == ["messages[0].content"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("top_p=0.1", "top_p"),
        ("seed=12", "seed"),
        ('stop=["X"]', "stop"),
        ("metadata.case=14", "metadata"),
        ("x_vendor_flag.keep[1]=2", "x_vendor_flag"),
        ("parallel_tool_calls=true", "parallel_tool_calls"),
        ("tool_choice=auto", "tool_choice"),
        ("response_format.json_schema.strict=false", "response_format"),
        ("messages[1].content[1].image_url.detail=high", "messages"),
        ("extra.brand_new={}", "brand_new"),
    ],
)
def test_any_one_field(request_body: Any, text: str, field: str):
    body, paths = sent(recorded(request_body), overrides=Overrides(set_paths=(parse_set(text),)))
    assert {k: v for k, v in body.items() if k != field} == {k: v for k, v in request_body.items() if k != field}
    assert body[field] != request_body.get(field)
    assert len(paths) == 1


@pytest.mark.parametrize(
    "field", ["tool_choice", "response_format", "seed", "stop", "metadata", "x_vendor_flag", "tools"]
)
def test_any_field_taken_out(request_body: Any, field: str):
    body, paths = sent(recorded(request_body), overrides=Overrides(unset_paths=(field,)))
    assert body == {k: v for k, v in request_body.items() if k != field}
    assert paths == [field]


@pytest.mark.parametrize("cut", ["messages", "content"])
def test_a_cut_request_is_no_place_to_fork_from(tmp_path: Path, cut: str, request_body: Any):
    step = {
        "idx": 0,
        "parent_idx": None,
        "kind": "llm",
        "name": "chat small-vision-1",
        "started_at": "2026-04-01T10:00:00Z",
        "ended_at": "2026-04-01T10:00:01Z",
        "input": request_body,
        "output": {"role": "assistant", "content": "{}"},
        "error": None,
    }
    if cut == "messages":
        step["input"] = {name: value for name, value in request_body.items() if name != "messages"}
    else:
        step["input"] = json.dumps(request_body)[:200] + "...(truncated)"
    run = {"id": "r", "name": "n", "started_at": step["started_at"], "ended_at": step["ended_at"], "tags": []}
    path = tmp_path / "cut.json"
    path.write_text(json.dumps({"run": run, "steps": [step]}))
    store = MemoryStore()
    import_runs(store, path)
    with pytest.raises(ForkRefused) as refused:
        fork("r", from_step=0, store=store, provider=Capture())
    assert refused.value.reason == "cut_request"
    assert "step 0" in str(refused.value)


def test_a_deleted_body_is_no_place_to_fork_from(request_body: Any):
    store = recorded(request_body)
    store.erase("r", [])
    with pytest.raises(ForkRefused) as refused:
        fork("r", from_step=0, store=store, provider=Capture())
    assert refused.value.reason == "body_deleted"
