"""Runs that people look at in the browser tests: a support desk and its forks, and one run of every state."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agentloupe.engine.loop import Limits, from_llm_call
from agentloupe.engine.overrides import Overrides
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.providers.scripted import Answer, Ask, ToolCall
from agentloupe.verbs.forkfamily import ForkWishes
from agentloupe.verbs.forking import fork
from agentloupe.verbs.instrument import agent, as_agent, tool
from agentloupe.verbs.looping import run_loop
from agentloupe.verbs.sessions import RecordOpener
from bench.agents import model_and_tool, settings_in
from tests.fork_support import schema

__all__ = [
    "BIG",
    "MODEL",
    "NEW_PROMPT",
    "World",
    "desk_rule",
    "gated_run",
    "long_run",
    "make_world",
    "observed_run",
    "recorded",
]

MODEL: Final = "demo-large"
PROMPT: Final = """You are the support desk of a flower shop.
Use tools for data and arithmetic.
If the frost guarantee applies, refund the order."""
NEW_PROMPT: Final = """You are the support desk of a flower shop.
Use tools for data and arithmetic.
Never do sums in your head.
If the frost guarantee applies, refund only the boxes that were delivered below 0 °C."""
QUESTION: Final = (
    "Order A-1042, two boxes of flowers to Beijing and Shanghai. They arrived frozen. "
    "How far apart are the temperatures there today, and do I get my money back?"
)
HOSTILE: Final = (
    "<script>alert(1)</script> \u202egnp.exe\u202c \x00\x1b[31m [a](javascript:alert(1)) \u200b\U0001f600 你好 שלום"
)
BIG: Final = 9_007_199_254_740_993
SCHEMAS: Final[list[Any]] = [
    schema("get_weather", city={"type": "string"}),
    schema("look_up_policy", topic={"type": "string"}),
    schema("calculate", expression={"type": "string"}),
    schema("issue_refund", order_id={"type": "string"}, boxes={"type": "array"}, amount={"type": "number"}),
]


@tool(effect="read", name="get_weather")
def get_weather(city: str) -> str:
    return {"Beijing": "-4.1 °C, clear, wind 3 m/s", "Shanghai": "7.6 °C, cloudy, wind 5 m/s"}[city]


@tool(effect="read", name="look_up_policy")
def look_up_policy(topic: str) -> str:
    return f"{topic}: a box is refunded if the destination was below 0 °C on the day of delivery."


@tool(effect="pure", name="calculate")
def calculate(expression: str) -> float:
    return {"7.6 - -4.1": 11.7}.get(expression, 0.0)


@tool(effect="write", name="issue_refund")
def issue_refund(order_id: str, boxes: Sequence[str], amount: float) -> dict[str, Any]:
    return {"receipt": "rf-20817", "order": order_id, "boxes": len(boxes), "amount": amount, "ledger": BIG}


TOOLS: Final = {one.__name__: one for one in (get_weather, look_up_policy, calculate, issue_refund)}

Turn = tuple[str, Sequence[tuple[str, Mapping[str, Any]]] | str]
"""What a model thinks, and what it then says: calls, or a text."""

_FIRST: Final[Turn] = (
    "Two destinations, one order. I need today's temperature in both cities before anything else.",
    [("get_weather", {"city": "Beijing"}), ("get_weather", {"city": "Shanghai"})],
)
_REFUND: Final = {"order_id": "A-1042", "boxes": ["Beijing", "Shanghai"], "amount": 48.0}
OBSERVED: Final[Sequence[Turn]] = (
    _FIRST,
    (
        "I need the exact rule before I decide. About 12 degrees apart.",
        [("look_up_policy", {"topic": "Frost guarantee"})],
    ),
    ("The guarantee applies to the order. 48.00 for both boxes.", [("issue_refund", _REFUND)]),
    (
        "",
        (
            "Sorry about the frozen flowers. Both boxes are covered by our frost guarantee, so I have refunded 48.00 for "
            "order A-1042 (receipt rf-20817). The two cities are about 12 degrees apart today."
        ),
    ),
)
CHANGED: Final[Sequence[Turn]] = (
    (
        (
            "The guarantee now speaks of single boxes, so I must know the exact rule. The customer also asks for the "
            "difference, and sums are not for my head: 7.6 minus -4.1 goes to the calculator. Both can run at once."
        ),
        [("look_up_policy", {"topic": "Frost guarantee"}), ("calculate", {"expression": "7.6 - -4.1"})],
    ),
    (
        "Only boxes below 0 °C. Beijing -4.1: yes. Shanghai 7.6: no. One box of two, 24.00.",
        [("issue_refund", {"order_id": "A-1042", "boxes": ["Beijing"], "amount": 24.0})],
    ),
    (
        "",
        (
            "Sorry about the frozen flowers. Only the Beijing box was delivered below 0 °C, so the frost guarantee covers "
            "that one: I asked for a refund of 24.00, but I could not confirm that it was paid. The two cities are "
            "11.7 °C apart today."
        ),
    ),
)


class Desk:
    """A model that follows a script, chosen by the prompt that it is given; safe from several threads."""

    def __call__(
        self, messages: list[Any], tools: list[Any], model: str | None, temperature: float | None
    ) -> tuple[dict[str, Any], int, int]:
        asked = sum(message.get("role") == "assistant" for message in messages)
        changed = "Never do sums" in str(messages[0].get("content"))
        script = [_FIRST, *CHANGED] if changed else OBSERVED
        thought, said = script[min(asked, len(script) - 1)]
        size = len(json.dumps(messages)) // 4
        return _message(thought, said, asked), size, 60 + 20 * asked


def desk_rule(asked: Ask) -> Answer:
    """The same model behind an address: what `Desk` answers."""
    said, _, _ = Desk()(list(asked.messages), [], None, None)
    calls = [ToolCall(one["function"]["name"], one["function"]["arguments"]) for one in said.get("tool_calls", ())]
    thought = {"reasoning_content": said["reasoning_content"]} if "reasoning_content" in said else {}
    return Answer(content=said["content"], calls=tuple(calls), extra=thought)


def _message(thought: str, said: Sequence[tuple[str, Mapping[str, Any]]] | str, at: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if thought:
        message["reasoning_content"] = thought
    if not isinstance(said, str):
        message["tool_calls"] = [
            {"id": f"call_{at}_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for n, (name, given) in enumerate(said)
        ]
    return message


@dataclass(frozen=True)
class World:
    """Ids of runs by what they are good for."""

    observed: str
    candidates: tuple[str, ...]
    controls: tuple[str, ...]
    failed: str
    hostile: str
    nested: str

    @property
    def all(self) -> tuple[str, ...]:
        return (self.observed, *self.candidates, *self.controls, self.failed, self.hostile, self.nested)


def make_world(store: Store) -> World:
    """Records the runs; a second or two."""
    desk = Desk()
    observed = observed_run(store, desk)
    wishes = ForkWishes(
        overrides=Overrides(system_prompt=NEW_PROMPT),
        live={"calculate": "arithmetic only, no effect"},
        functions=TOOLS,
        repeat=3,
        control=True,
        engine="generic",
        limits=Limits(max_steps=8),
    )
    done = fork(observed, from_step=3, store=store, provider=from_llm_call(desk), wishes=wishes)
    return World(
        observed=observed,
        candidates=tuple(run.id for run in done.candidates),
        controls=tuple(run.id for run in done.controls),
        failed=_failed(store),
        hostile=_hostile(store),
        nested=_nested(store),
    )


def observed_run(store: Store, desk: Desk | None = None) -> str:
    """The run that forks begin at."""
    run_loop(
        desk or Desk(),
        TOOLS,
        model=MODEL,
        system=PROMPT,
        question=QUESTION,
        tool_schemas=SCHEMAS,
        store=store,
        run_id="frost-refund-260301-b7e2f0",
        name="Frost refund, order A-1042",
        tags=["refund"],
    )
    return "frost-refund-260301-b7e2f0"


def _failed(store: Store) -> str:
    """A run that a limit ended."""
    turns = 0

    def again(messages: list[Any], *_: object) -> tuple[dict[str, Any], int, int]:
        nonlocal turns
        turns += 1
        return _message("Once more.", [("get_weather", {"city": "Beijing"})], turns), 100, 10

    run_loop(
        again,
        TOOLS,
        model="demo-small",
        question="Is it still cold?",
        tool_schemas=SCHEMAS,
        max_steps=5,
        store=store,
        run_id="weather-watch-260301-9af331",
        name="Weather watch",
    )
    return "weather-watch-260301-9af331"


def _hostile(store: Store) -> str:
    """A run whose every text tries to be more than text."""

    def told(messages: list[Any], *_: object) -> tuple[dict[str, Any], int, int]:
        said = HOSTILE if len(messages) > 2 else [("issue_refund", {"order_id": HOSTILE, "boxes": [], "amount": BIG})]
        return _message(HOSTILE, said, len(messages)), 10, 10

    run_loop(
        told,
        TOOLS,
        model="demo-small",
        question=HOSTILE,
        tool_schemas=SCHEMAS,
        store=store,
        run_id="hostile-260301-61ad0c",
        name=HOSTILE,
    )
    return "hostile-260301-61ad0c"


def _nested(store: Store) -> str:
    """A run with a sub-agent in it, and more than five equal calls one after another."""

    @tool(effect="read", name="search_policy")
    def search_policy(topic: str) -> str:
        return f"{topic}: two sentences."

    @agent(name="policy-check")
    def policy_check(topic: str) -> str:
        return " ".join(search_policy(f"{topic} {n}") for n in range(3))

    def policy_digest(topic: str) -> str:
        for _ in range(8):
            get_weather("Beijing")
        return policy_check(topic)

    return recorded(store, policy_digest, "frost")


def recorded(store: Store, program: Callable[..., object], *args: object) -> str:
    """Records a program into a store; the id of its run."""
    opener = RecordOpener(store, settings=settings_in(store))
    with ambient.opening_with(opener):
        as_agent(program)(*args)
    return opener.sessions[-1].run_id


def long_run(store: Store, steps: int) -> str:
    """A run of so many steps with honest sizes: a model step, then a tool, over and over."""
    return recorded(store, model_and_tool, steps)


def gated_run(store: Store, run_id: str, go: threading.Semaphore, turns: int) -> None:
    """A run that takes a turn each time that it may: a model step, then a tool."""

    def told(messages: list[Any], *_: object) -> tuple[dict[str, Any], int, int]:
        go.acquire()
        at = len(messages)
        return _message("", [("get_weather", {"city": "Beijing"})] if at < 2 * turns else "Done.", at), 10, 10

    run_loop(
        told,
        TOOLS,
        model=MODEL,
        question="How cold is it now?",
        tool_schemas=SCHEMAS,
        max_steps=turns + 1,
        store=store,
        run_id=run_id,
        name="Growing",
    )
