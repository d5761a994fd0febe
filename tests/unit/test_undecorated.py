"""A program that knows nothing of Loupe, in each of three ways to ask a model: recorded whole, forked, never run by accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentloupe.cli import main
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.store import open_url
from agentloupe.verbs.running import run_recorded

TOOLS = """
import json, os
def weather(city):
    open("ran", "a").write(city + ".")
    return {"city": city, "celsius": 7}
"""
CHAT = """
from openai import OpenAI
client = OpenAI(api_key="k", base_url=os.environ["MODEL_URL"])
messages = [{"role": "user", "content": "How warm is it in Bonn?"}]
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
while True:
    said = client.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message
    if not said.tool_calls:
        break
    messages.append(said.model_dump(exclude_none=True))
    for call in said.tool_calls:
        result = weather(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
print(said.content)
"""
RESPONSES = """
from openai import OpenAI
client = OpenAI(api_key="k", base_url=os.environ["MODEL_URL"])
items = [{"role": "user", "content": "How warm is it in Bonn?"}]
tools = [{"type": "function", "name": "weather", "parameters": {"type": "object"}}]
while True:
    answer = client.responses.create(model="m", input=items, tools=tools)
    calls = [item for item in answer.output if item.type == "function_call"]
    if not calls:
        break
    items += [item.model_dump(exclude_none=True) for item in answer.output]
    for call in calls:
        result = weather(**json.loads(call.arguments))
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": json.dumps(result)})
print(answer.output_text)
"""
ANTHROPIC = """
from anthropic import Anthropic
client = Anthropic(api_key="k", base_url=os.environ["MODEL_URL"])
messages = [{"role": "user", "content": "How warm is it in Bonn?"}]
tools = [{"name": "weather", "input_schema": {"type": "object"}}]
while True:
    answer = client.messages.create(model="m", max_tokens=99, messages=messages, tools=tools)
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    results = [(call.id, weather(**call.input)) for call in calls]
    blocks = [{"type": "tool_result", "tool_use_id": at, "content": json.dumps(result)} for at, result in results]
    messages.append({"role": "user", "content": blocks})
print(answer.content[0].text)
"""
FORMS = {"chat": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC}
SAYS = "It is 7 degrees."
ARGUMENTS = json.dumps({"city": "Bonn"})


def model(asked: HttpRequest) -> HttpReply:
    """Asks for the weather once, then says what it is, in the form that it is asked in."""
    body = json.loads(asked.body)
    again = any(word in asked.body for word in (b'"tool_call_id"', b'"function_call_output"', b'"tool_result"'))
    return HttpReply(200, json.dumps(_answer(asked.path, body, again)).encode(), {"content-type": "application/json"})


def _answer(path: str, body: dict[str, Any], again: bool) -> dict[str, Any]:
    if path.endswith("/responses"):
        said = {"type": "output_text", "text": SAYS, "annotations": []}
        message = {"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [said]}
        call = {
            "type": "function_call",
            "id": "fc",
            "call_id": "c1",
            "name": "weather",
            "arguments": ARGUMENTS,
            "status": "completed",
        }
        about = {"id": "resp", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
        rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": body["tools"]}
        return {**about, **rest, "output": [message if again else call]}
    if path.endswith("/messages"):
        call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bonn"}}
        about = {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        content = {"type": "text", "text": SAYS} if again else call
        return {**about, "stop_reason": "end_turn" if again else "tool_use", "content": [content]}
    function = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
    message: dict[str, Any] = {"role": "assistant", "content": SAYS if again else None}
    if not again:
        message["tool_calls"] = [function]
    choice = {"index": 0, "finish_reason": "stop" if again else "tool_calls", "message": message}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


@pytest.mark.parametrize("form", FORMS)
def test_the_whole_way(
    form: str, workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "my_agent.py").write_text(TOOLS + FORMS[form])
    (workdir / "loupe.toml").write_text("")
    with serve(model) as server, (workdir / "said").open("w+b") as said:
        monkeypatch.setenv("MODEL_URL", server.url + ("" if form == "anthropic" else "/v1"))
        ran = run_recorded(["python", "my_agent.py"], db="x.db", output=said)
        said.seek(0)
        assert (ran.code, said.read().decode().strip(), ran.models) == (0, SAYS, True)
        store = open_url("x.db", create=False)
        (run,) = store.runs()
        tools = [step for step in store.steps(run.id) if step.kind == "tool"]
        assert [(step.name, step.attrs.get("provenance")) for step in tools] == [("weather", "from_messages")]
        assert (run.coverage, [step.kind for step in store.steps(run.id)]) == (
            "control_flow",
            ["agent", "llm", "tool", "llm"],
        )
        store.close()
        assert (workdir / "ran").read_text() == "Bonn."

        for words in (["replay", "last"], ["fork", "last", "--from", "1", "--engine", "own"]):
            capsys.readouterr()
            assert main([*words, "--db", "x.db", "--", "python", "my_agent.py"]) == 3
            assert "decorate these tools with @loupe.tool: weather" in capsys.readouterr().err
        assert (workdir / "ran").read_text() == "Bonn.", "nothing real runs by accident"


@pytest.mark.parametrize("named", ["weather", "wea*"])
def test_a_tool_that_the_program_answers_itself_need_not_be_seen(
    named: str, workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hand-off to another agent, or a form to answer in: what a framework does in its own code is control logic."""
    (workdir / "my_agent.py").write_text(TOOLS + FORMS["chat"])
    (workdir / "loupe.toml").write_text(f'control_tools = ["other", "{named}"]')
    with serve(model) as server, (workdir / "said").open("w+b") as said:
        monkeypatch.setenv("MODEL_URL", f"{server.url}/v1")
        run_recorded(["python", "my_agent.py"], db="x.db", output=said)
    store = open_url("x.db", create=False)
    (run,) = store.runs()
    assert (run.coverage, [step.kind for step in store.steps(run.id)]) == ("full", ["agent", "llm", "llm"])
    assert store.events(run.id)[-1].attrs["control_tools"] == ["weather"]
    store.close()
    for _ in range(2):
        assert main(["replay", "last", "--db", "x.db", "--", "python", "my_agent.py"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("form", FORMS)
def test_the_plain_loop_forks_it(
    form: str, workdir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "my_agent.py").write_text(TOOLS + FORMS[form])
    (workdir / "loupe.toml").write_text("")
    with serve(model) as server:
        monkeypatch.setenv("MODEL_URL", server.url if form == "anthropic" else f"{server.url}/v1")
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("LLM_MODEL", "m")
        with (workdir / "said").open("wb") as said:
            run_recorded(["python", "my_agent.py"], db="x.db", output=said)
        assert main(["fork", "last", "--from", "1", "--system-prompt", "Be short.", "--db", "x.db", "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["runs"]
    assert (made["status"], made["answer"], made["counts"]["cassette"]) == ("ok", SAYS, 1)
    assert (workdir / "ran").read_text() == "Bonn."
