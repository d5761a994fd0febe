"""Forks of agents that use Responses and Anthropic messages: their own code goes on, live, in the form of the API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import ForkRefused


class Server:
    """Asks for the tool `look` once, then answers `<model>: <what the tool said>`, in the form that it is asked in."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[dict[str, Any]] = []

    def __call__(self, request: HttpRequest) -> HttpReply:
        asked = json.loads(request.body)
        self.seen.append(asked)
        return json_reply(_message(asked) if request.path.endswith("/messages") else _response(asked))


def _response(asked: dict[str, Any]) -> dict[str, Any]:
    last = asked["input"][-1]
    if last.get("type") == "function_call_output":
        part = {"type": "output_text", "text": f"{asked['model']}: {last['output']}", "annotations": []}
        item: dict[str, Any] = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }
    else:
        item = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look", "arguments": '{"city": "Oslo"}'}
    whole = {"id": "resp", "object": "response", "created_at": 1, "status": "completed", "model": asked["model"]}
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    return {**whole, "output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}


def _message(asked: dict[str, Any]) -> dict[str, Any]:
    content = asked["messages"][-1]["content"]
    if isinstance(content, list):
        block: dict[str, Any] = {"type": "text", "text": f"{asked['model']}: {content[0]['content']}"}
    else:
        block = {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Oslo"}}
    about = {"id": "msg", "type": "message", "role": "assistant", "model": asked["model"], "stop_sequence": None}
    return {**about, "content": [block], "stop_reason": "end_turn", "usage": {"input_tokens": 3, "output_tokens": 2}}


@pytest.fixture
def server(workdir: object) -> Iterator[Server]:
    made = Server()
    with serve(made) as running:
        made.url = running.url
        yield made


ran: list[str] = []


def look(city: str) -> str:
    ran.append(city)
    return f"fog in {city}"


declared = loupe.tool(effect="read", name="look")(look)


def _responses(server: Server, tool: Callable[..., str], **more: Any) -> Callable[[str], str]:
    def talk(question: str) -> str:
        http = openai.DefaultHttpxClient(verify=False)
        with loupe.wrap(openai.OpenAI(api_key="k", base_url=server.url, max_retries=0, http_client=http)) as client:
            history: list[Any] = [{"role": "user", "content": question}]
            first = client.responses.create(model="small-1", input=history, instructions="be brief", **more)
            call: Any = first.output[0]
            result = tool(**json.loads(call.arguments))
            history += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": result}]
            return client.responses.create(model="small-1", input=history, instructions="be brief", **more).output_text

    return talk


def _messages(server: Server, tool: Callable[..., str], **more: Any) -> Callable[[str], str]:
    def talk(question: str) -> str:
        http = anthropic.DefaultHttpxClient(verify=False)
        made = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0, http_client=http)
        with loupe.wrap(made) as client:
            asked: Any = {"model": "small-1", "max_tokens": 9, "system": "be brief", **more}
            history: list[Any] = [{"role": "user", "content": question}]
            first = client.messages.create(messages=history, **asked)
            call: Any = first.content[0]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": tool(**call.input)}
            history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
            answer: Any = client.messages.create(messages=history, **asked).content[0]
            return answer.text

    return talk


FORMS = {"responses": _responses, "messages": _messages}
FORM = pytest.mark.parametrize("form", FORMS)


@FORM
def test_a_fork_goes_on_live_with_what_was_changed(server: Server, form: str) -> None:
    agent = loupe.agent(name="talk")(FORMS[form](server, declared))
    done = loupe.record(agent, "how is it?")
    assert done.result == "small-1: fog in Oslo"
    before, tools = len(server.seen), len(ran)
    changed = fork(run := done.run_id, agent, from_step=3, control=False, model="other-1", system_prompt="be long")
    run = changed.candidates[0]
    assert run.status == "ok"
    (sent,) = server.seen[before:]
    assert (sent["model"], sent["instructions" if form == "responses" else "system"]) == ("other-1", "be long")
    assert len(ran) == tools, "the tool is answered from the recording"
    recording = loupe.open_store().recording(run.id)
    finished: Any = recording.body(recording.events[-1].output_digest or "")
    assert finished["result"] == "other-1: fog in Oslo"
    report = replay(run.id, agent)
    assert report.passed, report.text()


@FORM
def test_a_fork_from_the_first_step_is_answered_from_the_recording(server: Server, form: str) -> None:
    agent = loupe.agent(name="talk")(FORMS[form](server, declared))
    run_id = loupe.record(agent, "how is it?").run_id
    before, tools = len(server.seen), len(ran)
    run = fork(run_id, agent, from_step=1, control=False, model="other-1").candidates[0]
    assert run.status == "ok"
    assert [body["model"] for body in server.seen[before:]] == ["other-1", "other-1"]
    assert len(ran) == tools
    steps = [step for step in loupe.open_store().steps(run.id) if step.kind == "tool"]
    assert [step.source for step in steps] == ["cassette"]


@FORM
def test_a_tool_that_is_not_decorated_is_seen(server: Server, form: str) -> None:
    agent = loupe.agent(name="talk")(FORMS[form](server, look))
    done = loupe.record(agent, "how is it?")
    assert done.run is not None
    assert done.run.coverage == "control_flow"
    steps = loupe.open_store().steps(done.run_id)
    assert [(step.name, step.attrs["provenance"]) for step in steps if step.kind == "tool"] == [
        ("look", "from_messages")
    ]
    before, tools = len(server.seen), len(ran)
    with pytest.raises(ForkRefused, match="look"):
        fork(done.run_id, agent, from_step=1, control=False)
    assert (len(server.seen), len(ran)) == (before, tools)


HOSTED: dict[str, list[Any]] = {
    "responses": [{"type": "mcp", "server_label": "x", "server_url": "https://x.example"}],
    "messages": [{"type": "code_execution_20250825", "name": "code_execution"}],
}


@FORM
def test_hosted_tools_that_may_write_are_refused_unless_named(server: Server, form: str) -> None:
    agent = loupe.agent(name="talk")(FORMS[form](server, declared, tools=HOSTED[form]))
    run_id = loupe.record(agent, "how is it?").run_id
    step = next(s for s in loupe.open_store().steps(run_id) if s.kind == "llm")
    kind = HOSTED[form][0]["type"]
    assert (step.attrs["hosted"], step.attrs["server_held"]) == ([kind], True)
    before = len(server.seen)
    with pytest.raises(ForkRefused, match=kind) as refused:
        fork(run_id, agent, from_step=3, control=False, model="other-1")
    assert refused.value.reason == "hosted_tool"
    assert len(server.seen) == before
    named = fork(run_id, agent, from_step=3, control=False, model="other-1", live={kind: "it only looks"})
    assert named.candidates[0].status == "ok"
    assert any("for real" in note for note in named.notes)


def test_forking_what_the_provider_holds_warns(server: Server) -> None:
    agent = loupe.agent(name="talk")(_responses(server, declared, previous_response_id="resp_0"))
    run_id = loupe.record(agent, "how is it?").run_id
    forked = fork(run_id, agent, from_step=3, control=False, model="other-1")
    assert any("server_held" in note for note in forked.notes)
