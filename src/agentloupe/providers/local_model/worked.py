"""Worked examples that show the model the form of a conversation, chosen by the tools that are offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentloupe.providers.loopback import mapping

__all__ = ["LIBRARY", "MAX_EXAMPLES", "Worked", "WorkedCall", "examples_for"]

MAX_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class WorkedCall:
    """One call of an example with its result."""

    name: str
    arguments: Mapping[str, Any]
    result: object


@dataclass(frozen=True, slots=True)
class Worked:
    """One example: a question, the calls of each turn, the answer."""

    question: str
    turns: tuple[tuple[WorkedCall, ...], ...]
    answer: str


def examples_for(tools: Sequence[Mapping[str, Any]]) -> list[Worked]:
    """Examples that call only offered tools, with arguments that these tools have; else one made from the schemas."""
    parameters = {str(tool["name"]): _properties(tool).keys() for tool in tools}
    fitting = [
        example for example in LIBRARY if all(_fits(call, parameters) for turn in example.turns for call in turn)
    ]
    if fitting or not tools:
        return fitting[:MAX_EXAMPLES] if tools else []
    return [_made_up(tool) for tool in tools[:MAX_EXAMPLES]]


def _fits(call: WorkedCall, parameters: Mapping[str, Any]) -> bool:
    return call.name in parameters and call.arguments.keys() <= parameters[call.name]


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(tool.get("parameters")).get("properties"))


def _made_up(tool: Mapping[str, Any]) -> Worked:
    """Shows one tool with plausible arguments; its description stands for the question."""
    name = str(tool["name"])
    arguments = {key: _sample(key, schema) for key, schema in _properties(tool).items()}
    question = str(tool.get("description") or f"Use {name}.").strip().splitlines()[0]
    return Worked(question, ((WorkedCall(name, arguments, {"ok": True}),),), f"Done: {name}.")


def _sample(key: str, schema: object) -> object:
    """A value for a parameter: what its schema offers, else one of its type."""
    known = mapping(schema)
    if "const" in known:
        return known["const"]
    for name in ("examples", "enum"):
        values: object = known.get(name)
        if isinstance(values, list) and values:
            return cast("list[object]", values)[0]
    if "default" in known:
        return known["default"]
    samples: dict[str, object] = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    return samples.get(str(known.get("type")), key)


def _weather(city: str, temperature: float, condition: str) -> WorkedCall:
    result = {"city": city, "temperature": temperature, "unit": "celsius", "condition": condition}
    return WorkedCall("get_weather", {"city": city}, result)


def _sum(expression: str, result: float) -> WorkedCall:
    return WorkedCall("calculate", {"expression": expression}, {"expression": expression, "result": result})


def _order(order_id: str, item: str, total: float, *, refundable: bool) -> WorkedCall:
    found = {"order_id": order_id, "item": item, "total": total, "currency": "EUR", "refundable": refundable}
    return WorkedCall("lookup_order", {"order_id": order_id}, found)


def _refund(order_id: str, amount: float, refund_id: str) -> WorkedCall:
    result = {"refund_id": refund_id, "order_id": order_id, "amount": amount, "currency": "EUR"}
    return WorkedCall("refund_order", {"order_id": order_id, "amount": amount}, result)


LIBRARY: tuple[Worked, ...] = (
    Worked(
        "How much warmer is it in Cairo than in Oslo?",
        (
            (_weather("Oslo", 8.5, "rainy"), _weather("Cairo", 31.2, "sunny")),
            (_sum("31.2 - 8.5", 22.7),),
        ),
        "The difference is 22.7 C. Cairo is warmer.",
    ),
    Worked(
        "what is the difference in temperature between Lima and Madrid, and in Fahrenheit?",
        (
            (_weather("Lima", 19.1, "cloudy"), _weather("Madrid", 27.4, "sunny")),
            (_sum("27.4 - 19.1", 8.3),),
            (_sum("(27.4 - 19.1) * 9 / 5", 14.94),),
        ),
        "The difference is 8.3 C, which is 14.94 F. Madrid is warmer.",
    ),
    Worked(
        "I want my money back for C-3310.",
        ((_order("C-3310", "ticket", 80.0, refundable=False),),),
        "Sorry, order C-3310 is not refundable.",
    ),
    Worked(
        "Please refund order B-2044, it arrived broken.",
        ((_order("B-2044", "lamp", 34.5, refundable=True),), (_refund("B-2044", 34.5, "R-7"),)),
        "Done: 34.5 EUR are paid back for order B-2044, receipt R-7.",
    ),
    Worked(
        "The shoes of order D-4127 do not fit, can I get a refund?",
        ((_order("D-4127", "shoes", 112.9, refundable=True),), (_refund("D-4127", 112.9, "R-8"),)),
        "Done: 112.9 EUR are paid back for order D-4127, receipt R-8.",
    ),
)
