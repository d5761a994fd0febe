"""A step of Bedrock's Converse is told like any other: its prompt, its tools and its model stand where every form has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.testclient import TestClient

import agentloupe as loupe
from agentloupe.cli import main as cli
from agentloupe.engine.overrides import Overrides, ToolEdit, apply_to_request
from agentloupe.ports.protocols import Store
from agentloupe.providers.loopback import json_reply, serve
from agentloupe.verbs.comparing import tool_changes
from agentloupe.words.dialects import tools_in, without_tools
from tests.server.answers import good
from tests.unit.test_gemini import recorded, steps

MODEL = "amazon.nova-lite-v1:0"
WEATHER = {"toolSpec": {"name": "weather", "description": "d" * 400, "inputSchema": {"json": {"type": "object"}}}}
ASKED: dict[str, Any] = {
    "system": [{"text": "Be short."}],
    "messages": [{"role": "user", "content": [{"text": "Bergen?"}]}],
    "inferenceConfig": {"maxTokens": 9},
    "toolConfig": {"tools": [WEATHER], "toolChoice": {"any": {}}},
}
USE = {"toolUseId": "t1", "name": "weather", "input": {"place": "Bergen"}}
ANSWER: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [{"text": "I look."}, {"toolUse": USE}]}},
    "stopReason": "tool_use",
    "usage": {"inputTokens": 300, "outputTokens": 2, "totalTokens": 302},
}
TWICE = {**ASKED, "toolConfig": {"tools": [WEATHER, {"toolSpec": {**WEATHER["toolSpec"], "name": "tide"}}]}}


@pytest.fixture
def run(store: Store) -> str:
    """A run with two model steps; the second is told of one tool more."""
    with serve(lambda _: json_reply(ANSWER)) as answering:

        @loupe.agent(name="forecaster")
        def forecaster() -> None:
            with httpx.Client(transport=cast("Any", loupe.http_transport())) as client:
                for asked in (ASKED, TWICE):
                    client.post(f"{answering.url}/model/{MODEL}/converse", json=asked)

        return recorded(store, forecaster)


def test_the_page_knows_model_tools_and_parameters(client: TestClient, store: Store, run: str) -> None:
    first, second = steps(store, run, "llm")
    at = f"/api/runs/{run}/steps/{first.idx}"
    told = good(client.get(at))["overview"]
    assert (told["asked_for"], told["tools"]) == (MODEL, ["weather"])
    assert told["parameters"] == {"inferenceConfig": {"maxTokens": 9}, "toolConfig": {"toolChoice": {"any": {}}}}
    assert first.attrs["endpoint"] == "/model/*/converse"
    filled = {part["role"]: part["tokens"] for part in good(client.get(f"{at}/context"))["parts"]}
    assert filled.keys() == {"tool schemas", "system", "user"}
    assert filled["tool schemas"] > 250
    assert good(client.get(f"/api/runs/{run}/steps/{second.idx}"))["tools_changed"] is True
    found = good(client.get(f"/api/runs/{run}/steps/{second.idx}/diff"))
    assert [(tool["op"], tool["name"]) for tool in found["tools"]] == [("added", "tide")]
    assert [change["path"] for change in found["parameters"]] == ["toolConfig"]
    dialog = good(client.get(f"/api/runs/{run}/fork?from={first.idx}"))
    assert [tool["name"] for tool in dialog["tools"]] == ["weather"]


def test_show_has_the_call_that_is_asked_for_the_prompt_and_the_tools(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del workdir
    with serve(lambda _: json_reply(ANSWER)) as answering:

        def forecaster() -> None:
            with httpx.Client(transport=cast("Any", loupe.http_transport())) as client:
                client.post(f"{answering.url}/model/{MODEL}/converse", json=ASKED)

        loupe.record(forecaster)
    assert cli(["show", "last"]) == 0
    assert 'I look. => weather({"place":"Bergen"})' in capsys.readouterr().out
    assert cli(["show", "last", "1"]) == 0
    said = capsys.readouterr().out
    assert "--- system\nBe short.\n" in said
    assert "--- tools (1)\nweather   (whole with --tools)" in said
    assert "d" * 40 not in said
    assert cli(["show", "last", "1", "--tools"]) == 0
    assert '"toolSpec"' in capsys.readouterr().out


def test_tools_are_edited_where_they_stand() -> None:
    other: Any = {"toolSpec": {"name": "tide", "inputSchema": {"json": {}}}}

    def made(*edits: ToolEdit) -> Any:
        return apply_to_request(ASKED, Overrides(tools=edits), "converse").request

    more = made(ToolEdit("add", "tide", other))
    assert more == {**ASKED, "toolConfig": {"tools": [WEATHER, other], "toolChoice": {"any": {}}}}
    assert "toolConfig" not in made(ToolEdit("remove", "weather")), "no list may be empty"
    bare = {"messages": ASKED["messages"], "inferenceConfig": {}}
    assert apply_to_request(bare, Overrides(tools=(ToolEdit("add", "tide", other),)), "converse").request == {
        **bare,
        "toolConfig": {"tools": [other]},
    }


def test_tools_of_each_form() -> None:
    tools: list[Any] = [WEATHER]
    assert tools_in({"tools": tools, "toolConfig": {"functionCallingConfig": {}}}) == tools
    assert tools_in(ASKED) == tools
    assert tools_in({"messages": []}) == []
    assert without_tools({"tools": tools, "model": "m"}) == {"model": "m"}
    assert without_tools({"toolConfig": {"tools": tools}, "system": []}) == {"system": []}
    assert tool_changes(tools, []) == [{"op": "removed", "name": "weather"}]
