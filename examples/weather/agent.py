"""A weather assistant: asks a model, runs the tools it wants, until it answers.

    python examples/weather/agent.py "what is the difference in temperature between Beijing and Shanghai now?"

The model is named by LLM_BASE_URL, LLM_API_KEY, LLM_MODEL and LLM_EXTRA_BODY (JSON). The weather is made up.
"""

from __future__ import annotations

import ast
import json
import operator
import os
import sys
from typing import Any

from openai import OpenAI

import agentloupe as loupe

INSTRUCTIONS = (
    "You are a weather assistant. Use the tools for data and for arithmetic; never do arithmetic in your head. "
    "Ask for everything you need at once."
)
QUESTION = "what is the difference in temperature between Beijing and Shanghai now, and in Fahrenheit?"
WEATHER = {"Beijing": (11.9, "sunny"), "Shanghai": (17.7, "cloudy"), "Guangzhou": (24.3, "sunny")}
MAX_TURNS = 8

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}


@loupe.tool(effect="read")
def get_weather(city: str, unit: str = "celsius") -> dict[str, Any]:
    if city not in WEATHER:
        raise LookupError(f"no weather is known for {city}")
    degrees, condition = WEATHER[city]
    if unit == "fahrenheit":
        degrees = round(degrees * 9 / 5 + 32, 1)
    return {"city": city, "temperature": degrees, "unit": unit, "condition": condition}


@loupe.tool(effect="pure")
def calculate(expression: str) -> dict[str, Any]:
    if len(expression) > 100 or not set(expression) <= set("0123456789.eE+-*/%() "):
        raise ValueError("only numbers, + - * / ** % and parentheses are allowed")
    result = value_of(ast.parse(expression.strip(), mode="eval").body)
    if not abs(result) < 1e60:
        raise ValueError("the number is too large")
    return {"expression": expression, "result": float(f"{result:.12g}")}


def value_of(node: ast.expr) -> float:
    """Numbers, + - * / % **, signs: nothing else has a value here."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return value_of(node.operand) * (-1 if isinstance(node.op, ast.USub) else 1)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](value_of(node.left), value_of(node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, exponent = value_of(node.left), value_of(node.right)
        if abs(exponent) <= 16 and (base >= 0 or exponent.is_integer()):
            return base**exponent
    raise ValueError("not an arithmetic expression")


def function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


FUNCTIONS = {"get_weather": get_weather, "calculate": calculate}
TOOLS = [
    function(
        "get_weather",
        "The weather in a city now.",
        {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        ["city"],
    ),
    function(
        "calculate",
        "Works out an arithmetic expression of numbers, + - * / ** % and parentheses.",
        {"expression": {"type": "string"}},
        ["expression"],
    ),
]


def run_tool(name: str, arguments: str) -> str:
    """The result as JSON; whatever goes wrong becomes an error that the model can read."""
    try:
        return json.dumps(FUNCTIONS[name](**json.loads(arguments)), ensure_ascii=False)
    except Exception as error:  # noqa: BLE001 - the model is told, and goes on
        return json.dumps({"error": f"{type(error).__name__}: {error}"}, ensure_ascii=False)


@loupe.agent(name="weather")
def assistant(question: str, model: str = "scripted-1", extra_body: dict[str, Any] | None = None) -> str:
    client = loupe.wrap(OpenAI(base_url=os.environ.get("LLM_BASE_URL"), api_key=os.environ.get("LLM_API_KEY", "none")))
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
    for _ in range(MAX_TURNS):
        reply = client.chat.completions.create(model=model, messages=messages, tools=TOOLS, extra_body=extra_body)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = run_tool(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError(f"no answer after {MAX_TURNS} turns")


if __name__ == "__main__":
    print(
        assistant(
            " ".join(sys.argv[1:]) or QUESTION,
            model=os.environ.get("LLM_MODEL", "scripted-1"),
            extra_body=json.loads(os.environ.get("LLM_EXTRA_BODY") or "null"),
        )
    )
