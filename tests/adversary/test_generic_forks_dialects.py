"""Generic forks of agents that speak Anthropic's messages, Responses or Converse, in the hands that they are written in."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import agentloupe as loupe
from agentloupe.engine.compare import Comparison
from agentloupe.engine.project import load_steps
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import serve
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from tests.dialect_support import HISTORY, TOOLS, Dialects, definition, ran
from tests.stream_support import http_client

SCRIPT: list[Any] = [
    [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})],
    [("add", {"a": 3.5, "b": 17.0})],
    [("get_weather", {"city": "Zürich"})],
    "Together 20.5 degrees.",
]
Spelled = Callable[[Any], str]
SPELLED: dict[str, Spelled] = {
    "compact": lambda v: json.dumps(v, separators=(",", ":")),
    "default": json.dumps,
    "indented": lambda v: json.dumps(v, indent=2),
    "unescaped": lambda v: json.dumps(v, ensure_ascii=False),
    "str": str,
    "with words": lambda v: f"Result: {json.dumps(v)}",
    "in tags": lambda v: f"<result>{json.dumps(v)}</result>",
    "cut short": lambda v: json.dumps(v)[:12],
}
Told = Callable[[str, str], dict[str, Any]]
RESULTS: dict[str, dict[str, Told]] = {
    "anthropic": {
        "plain": lambda call, text: {"type": "tool_result", "tool_use_id": call, "content": text},
        "parts": lambda call, text: {
            "type": "tool_result",
            "tool_use_id": call,
            "content": [{"type": "text", "text": text}],
        },
        "marked": lambda call, text: {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": False},
        "other order": lambda call, text: {"tool_use_id": call, "type": "tool_result", "content": text},
        "content first": lambda call, text: {"content": text, "tool_use_id": call, "type": "tool_result"},
    },
    "responses": {
        "plain": lambda call, text: {"type": "function_call_output", "call_id": call, "output": text},
        "parts": lambda call, text: {
            "type": "function_call_output",
            "call_id": call,
            "output": [{"type": "input_text", "text": text}],
        },
        "other order": lambda call, text: {"call_id": call, "output": text, "type": "function_call_output"},
    },
}
RESULTS["converse"] = {
    "plain": lambda call, text: {"toolResult": {"toolUseId": call, "content": [{"text": text}]}},
    "parts": lambda call, text: {"toolResult": {"toolUseId": call, "content": [{"json": {"said": text}}]}},
    "values": lambda call, text: {"toolResult": {"toolUseId": call, "content": [{"json": json.loads(text)}]}},
    "marked": lambda call, text: {"toolResult": {"toolUseId": call, "content": [{"text": text}], "status": "success"}},
    "other order": lambda call, text: {
        "toolResult": {"status": "success", "content": [{"text": text}], "toolUseId": call}
    },
}
Back = Callable[[Any], Any]


def _back(call: str, members: tuple[str, ...], thought: str) -> dict[str, Back]:
    """How a part of an answer is given back: in a dialect where calls and thoughts are of these types."""

    def by_hand(part: Any) -> Any:
        return (
            {name: getattr(part, name) for name in members}
            if part.type == call
            else part.model_dump(exclude_unset=True)
        )

    return {
        "objects": lambda part: part,
        "dumped": lambda part: part.model_dump(),
        "without nulls": lambda part: part.model_dump(exclude_none=True),
        "by hand": by_hand,
        "without thoughts": lambda part: None if part.type == thought else part.model_dump(exclude_unset=True),
    }


BACK: dict[str, dict[str, Back]] = {
    "anthropic": _back("tool_use", ("type", "id", "name", "input"), "thinking"),
    "responses": _back("function_call", ("type", "call_id", "name", "arguments"), "reasoning"),
}
CONVERSE = {
    "objects": lambda block: block,
    "dumped": lambda block: block,
    "by hand": lambda block: {name: dict(sorted(said.items(), reverse=True)) for name, said in block.items()},
    "without thoughts": lambda block: None if "reasoningContent" in block else block,
}
BACK["converse"] = CONVERSE
HANDS = [
    (form, spelled, result, back)
    for form in RESULTS
    for spelled, result, back in (
        *((spelled, "plain", "objects") for spelled in SPELLED),
        *(("default", result, "objects") for result in RESULTS[form] if result != "plain"),
        *(("default", "plain", back) for back in BACK[form] if back != "objects"),
        ("with words", "parts", "dumped"),
    )
]


@pytest.fixture
def server(workdir: Path) -> Iterator[Dialects]:
    ran.clear()
    made = Dialects(*SCRIPT)
    with serve(made) as running:
        made.url = running.url
        yield made


def given_back(form: str, back: str, said: Any) -> list[Any]:
    """What a model said, as the agent writes it into its history."""
    return [part for part in map(BACK[form][back], said) if part is not None]


def anthropic_agent(server: Dialects, spelled: str, result: str, back: str) -> Callable[[], str]:
    told = RESULTS["anthropic"][result]

    def agent() -> str:
        history: list[Any] = [{"role": "user", "content": "q"}]
        tools: Any = [definition("anthropic", name) for name in TOOLS]
        http = anthropic.DefaultHttpxClient(verify=False)
        made = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0, http_client=http)
        with loupe.wrap(made) as client:
            while True:
                asked: Any = {"model": "small-1", "max_tokens": 50, "tools": tools, "messages": history}
                answer = client.messages.create(**asked)
                calls = [block for block in answer.content if block.type == "tool_use"]
                if not calls:
                    return str(answer.content[0].text)
                history.append({"role": "assistant", "content": given_back("anthropic", back, answer.content)})
                results = [told(call.id, SPELLED[spelled](TOOLS[call.name](**call.input))) for call in calls]
                history.append({"role": "user", "content": results})

    return loupe.agent(name="weather")(agent)


def responses_agent(server: Dialects, spelled: str, result: str, back: str) -> Callable[[], str]:
    told = RESULTS["responses"][result]

    def agent() -> str:
        history: list[Any] = [{"role": "user", "content": "q"}]
        tools: Any = [definition("responses", name) for name in TOOLS]
        http = openai.DefaultHttpxClient(verify=False)
        made = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0, http_client=http)
        with loupe.wrap(made) as client:
            while True:
                asked: Any = {"model": "small-1", "tools": tools, "input": history, "store": False}
                answer = client.responses.create(**asked)
                calls = [item for item in answer.output if item.type == "function_call"]
                if not calls:
                    return str(answer.output_text)
                history += given_back("responses", back, answer.output)
                for call in calls:
                    value = TOOLS[call.name](**json.loads(call.arguments))
                    history.append(told(call.call_id, SPELLED[spelled](value)))

    return loupe.agent(name="weather")(agent)


def converse_agent(server: Dialects, spelled: str, result: str, back: str) -> Callable[[], str]:
    told = RESULTS["converse"][result]

    def agent() -> str:
        history: list[Any] = [{"role": "user", "content": [{"text": "q"}]}]
        tools: Any = {"tools": [definition("converse", name) for name in TOOLS]}
        with http_client("httpx", asynchronous=False) as client:
            while True:
                asked: Any = {
                    "messages": history,
                    "system": [{"text": "s"}],
                    "inferenceConfig": {"maxTokens": 50},
                    "toolConfig": tools,
                }
                answer = client.post(f"{server.url}/v1/model/small-1/converse", json=asked).json()
                said = answer["output"]["message"]["content"]
                calls = [block["toolUse"] for block in said if "toolUse" in block]
                if not calls:
                    return str(said[0]["text"])
                history.append({"role": "assistant", "content": given_back("converse", back, said)})
                results = [
                    told(call["toolUseId"], SPELLED[spelled](TOOLS[call["name"]](**call["input"]))) for call in calls
                ]
                history.append({"role": "user", "content": results})

    return loupe.agent(name="weather")(agent)


AGENTS = {"anthropic": anthropic_agent, "responses": responses_agent, "converse": converse_agent}


@pytest.mark.parametrize(("form", "spelled", "result", "back"), HANDS)
def test_an_unchanged_fork_from_any_model_step_asks_what_the_parent_asked(
    server: Dialects, form: str, spelled: str, result: str, back: str
) -> None:
    done = loupe.record(AGENTS[form](server, spelled, result, back))
    asked, store = copy.deepcopy(server.asked), loupe.open_store()
    at = [step.idx for step in load_steps(store.recording(done.run_id)) if step.kind == "llm"]
    assert len(at) == len(asked) == len(SCRIPT)
    for n, step in enumerate(at):
        server.asked.clear()
        ran.clear()
        server.answers = SCRIPT[n:]
        where = Endpoint(f"{server.url}/v1", "k")
        made = fork(done.run_id, from_step=step, provider=where, control=False, engine="generic").candidates[0]
        assert (made.status, made.counts.miss, ran) == ("ok", 0, [])
        sent, said = ([json.dumps(body[HISTORY[form]]) for body in asks] for asks in (server.asked, asked[n:]))
        assert sent == said
        assert server.asked == asked[n:]
        assert replay(made.id).passed, "a replay writes in that hand, too"
        found = compare(done.run_id, made.id)
        assert isinstance(found, Comparison)
        assert (found.rows[step].status, found.rows[step].notes, made.overrides) == ("same", (), ())
        names = [
            [one.name for one in load_steps(store.recording(run)) if one.kind == "llm"]
            for run in (done.run_id, made.id)
        ]
        assert names[0] == names[1]


def test_converse_is_asked_for_the_recorded_model_with_a_key_also_by_a_fork_of_a_fork(server: Dialects) -> None:
    run_id = loupe.record(converse_agent(server, "default", "plain", "objects")).run_id
    where = Endpoint(f"{server.url}/v1", "k")
    for prompt in ("Be brief.", "Be long."):
        server.asked.clear()
        server.paths.clear()
        server.headers.clear()
        at = next(step.idx for step in load_steps(loupe.open_store().recording(run_id)) if step.kind == "llm")
        (made,) = fork(run_id, from_step=at, provider=where, engine="generic", system_prompt=prompt).candidates
        assert made.status == "ok", made.error
        assert server.paths == ["/v1/model/small-1/converse"] * len(SCRIPT)
        assert {headers["authorization"] for headers in server.headers} == {"Bearer k"}
        assert all(body["system"] == [{"text": prompt}] and "model" not in body for body in server.asked)
        new = [one for one in load_steps(loupe.open_store().recording(made.id)) if one.kind == "llm"]
        assert [one.attrs["model"] for one in new] == ["small-1"] * len(SCRIPT), "a fact, and not of the body"
        assert [change["path"] for change in made.overrides] == ["system"]
        assert replay(made.id).passed
        run_id = made.id
