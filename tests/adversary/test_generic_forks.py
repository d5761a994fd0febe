"""Generic forks of agents of one's own in every hand they are written in: an unchanged fork is unchanged to the letter."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_steps
from agentloupe.ports.protocols import Answer
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import Json
from tests.cases.rec import Rec
from tests.fork_support import say
from tests.tapes import record_in

TOOLS: dict[str, Callable[..., Any]] = {
    "look": lambda k: {"v": k, "ü": 1.0},
    "text": lambda k: f"plain ü {k}",
    "count": lambda k: 7,
    "nothing": lambda k: None,
    "many": lambda k: [1, {"a": None}],
    "long": lambda k: k * 400,
}
SCRIPT: list[Any] = [
    [("look", {"k": "a"}), ("text", {"k": "b"})],
    ("count", {"k": "c"}),
    [("many", {"k": "d"}), ("nothing", {"k": "e"}), ("long", {"k": "f"})],
    "done",
]
SPELLED: dict[str, Callable[[Any], str]] = {
    "compact": lambda v: json.dumps(v, separators=(",", ":")),
    "default": json.dumps,
    "indented": lambda v: json.dumps(v, indent=2),
    "unescaped": lambda v: json.dumps(v, ensure_ascii=False),
    "text or JSON": lambda v: v if isinstance(v, str) else json.dumps(v),
    "str": str,
    "repr": repr,
    "in an object": lambda v: json.dumps({"result": v}),
    "with words": lambda v: f"Result: {json.dumps(v)}",
    "in tags": lambda v: f"<result>{json.dumps(v)}</result>",
    "cut short": lambda v: json.dumps(v)[:100],
}
Message = Callable[[Any, str], dict[str, Any]]
MESSAGES: dict[str, Message] = {
    "plain": lambda call, text: {"role": "tool", "tool_call_id": call["id"], "content": text},
    "named": lambda call, text: {
        "tool_call_id": call["id"],
        "role": "tool",
        "name": call["function"]["name"],
        "content": text,
    },
    "other order": lambda call, text: {"role": "tool", "content": text, "tool_call_id": call["id"]},
    "parts": lambda call, text: {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": [{"type": "text", "text": text}],
    },
}
HANDS = [(spelled, "named") for spelled in SPELLED] + [("default", message) for message in MESSAGES]


def completed(message: dict[str, Any]) -> dict[str, Any]:
    """The chat completion around a message."""
    return {"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


class Scripted:
    """A model that goes on with the script from a place; keeps the requests as they came."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.asked: list[Any] = []

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(copy.deepcopy(dict(request)))
        place = self.at + len(self.asked) - 1
        return say(SCRIPT[place], place)

    def send(self, request: Mapping[str, Json]) -> Answer:
        return Answer(response=completed(self.answer(request)), facts={})


def agent_of(
    model: Scripted, spelled: str, message: str, back: Callable[[dict[str, Any]], dict[str, Any]] = lambda said: said
) -> Callable[[], str]:
    """The loop that everybody writes, in one hand; what the model said goes `back` as that makes it."""
    tools = {name: loupe.tool(effect="read", name=name)(tool) for name, tool in TOOLS.items()}
    ask = Rec().llm("m", lambda body: model.answer(body))

    def agent() -> str:
        messages: list[Any] = [{"role": "system", "content": "S"}, {"role": "user", "content": "q"}]
        while True:
            said = ask({"model": "m", "messages": messages, "temperature": 0})
            messages.append(back(said))
            if not said.get("tool_calls"):
                return said["content"]
            for call in said["tool_calls"]:
                function = call["function"]
                result = tools[function["name"]](**json.loads(function["arguments"]))
                messages.append(MESSAGES[message](call, SPELLED[spelled](result)))

    return agent


@pytest.mark.parametrize(("spelled", "message"), HANDS)
def test_an_unchanged_fork_from_any_model_step_asks_what_the_parent_asked(spelled: str, message: str) -> None:
    model, store = Scripted(), MemoryStore()
    recording = record_in(store, agent_of(model, spelled, message))
    at = [step.idx for step in load_steps(recording) if step.kind == "llm"]
    assert len(at) == len(model.asked) == len(SCRIPT)
    for n, step in enumerate(at):
        other = Scripted(n)
        done = fork(recording.run_id, from_step=step, store=store, provider=other, control=False, engine="generic")
        assert [json.dumps(body) for body in other.asked] == [json.dumps(body) for body in model.asked[n:]]
        made = done.candidates[0]
        assert made.counts.miss == 0
        assert replay(made.id, store=store).passed, "a replay writes in that hand, too"


def in_order(message: dict[str, Any], *, dumped: bool) -> dict[str, Any]:
    """The message as `model_dump()` gives it: members in the order of the SDK's class, those that are not there as null."""
    calls = [
        {"id": call["id"], "function": {n: call["function"][n] for n in ("arguments", "name")}, "type": call["type"]}
        for call in message.get("tool_calls", [])
    ]
    whole = {"content": None, "refusal": None, **message, "tool_calls": calls or None}
    names = ("content", "refusal", "role", "tool_calls")
    return {name: whole[name] for name in names if dumped or whole[name] is not None}


@pytest.mark.parametrize("dumped", [True, False], ids=["model_dump()", "model_dump(exclude_none=True)"])
def test_a_message_that_goes_back_with_its_members_in_another_order_is_asked_to_the_letter(dumped: bool) -> None:
    model, store = Scripted(), MemoryStore()
    agent = agent_of(model, "default", "plain", lambda message: in_order(message, dumped=dumped))
    recording = record_in(store, agent)
    at = [step.idx for step in load_steps(recording) if step.kind == "llm"]
    assert next(iter(model.asked[1]["messages"][2])) == ("content" if dumped else "role")
    for n, step in enumerate(at):
        other = Scripted(n)
        done = fork(recording.run_id, from_step=step, store=store, provider=other, control=False, engine="generic")
        assert [json.dumps(body) for body in other.asked] == [json.dumps(body) for body in model.asked[n:]]
        assert replay(done.candidates[0].id, store=store).passed


@pytest.mark.parametrize("spelled", ["with words", "text or JSON"])
def test_of_a_call_with_two_results_each_is_spelled_plainly_and_none_is_given_the_others_text(spelled: str) -> None:
    """Two answers to the same call: which text says which is not told by the call."""
    answers = iter(["one", "two"])
    ask_twice: list[Any] = [("look", {"k": "a"}), ("look", {"k": "a"}), "done"]
    asked: list[Any] = []
    look = loupe.tool(effect="read", name="look")(lambda k: next(answers))

    def reply(body: Any) -> Any:
        asked.append(copy.deepcopy(body))
        return say(ask_twice[len(asked) - 1], len(asked) - 1)

    def agent() -> None:
        ask, messages = Rec().llm("m", reply), list[Any]([{"role": "user", "content": "q"}])
        while calls := (said := ask({"model": "m", "messages": messages})).get("tool_calls"):
            messages += [said, MESSAGES["plain"](calls[0], SPELLED[spelled](look(k="a")))]

    store = MemoryStore()
    recording = record_in(store, agent)
    first = next(step.idx for step in load_steps(recording) if step.kind == "llm")

    bodies: list[Any] = []

    class Again:
        def send(self, request: Mapping[str, Json]) -> Answer:
            bodies.append(json.loads(json.dumps(request)))
            return Answer(response=completed(say(ask_twice[len(bodies) - 1], len(bodies) - 1)), facts={})

    fork(recording.run_id, from_step=first, store=store, provider=Again(), control=False, engine="generic")
    told = [m["content"] for m in bodies[-1]["messages"] if m["role"] == "tool"]
    assert len(told) == 2
    assert "one" in told[0]
    assert "two" in told[1]
