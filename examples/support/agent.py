"""A support assistant that pays money back: the tool that must never run twice.

    python examples/support/agent.py "Please refund order A-1001, the headphones are broken."

The model is named by LLM_BASE_URL, LLM_API_KEY, LLM_MODEL and LLM_EXTRA_BODY (JSON). Orders are made up; each refund
that really happens is one line in `refunds.jsonl` (SUPPORT_REFUNDS names another file), so that anyone can count them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from openai import OpenAI

import agentloupe as loupe

INSTRUCTIONS = "You are a support agent. Look an order up before you refund it, and never refund more than it cost."
QUESTION = "Please refund order A-1001, the headphones are broken."
ORDERS = {
    "A-1001": {"item": "headphones", "total": 59.9, "refundable": True},
    "A-1002": {"item": "concert ticket", "total": 80.0, "refundable": False},
    "A-1003": {"item": "desk lamp", "total": 34.5, "refundable": True},
}
MAX_TURNS = 8


@loupe.tool(effect="read")
def lookup_order(order_id: str) -> dict[str, Any]:
    if order_id not in ORDERS:
        raise LookupError(f"there is no order {order_id}")
    order = ORDERS[order_id]
    return {
        "order_id": order_id,
        "item": order["item"],
        "total": order["total"],
        "currency": "EUR",
        "refundable": order["refundable"],
    }


@loupe.tool(effect="write")
def refund_order(order_id: str, amount: float) -> dict[str, Any]:
    order = ORDERS.get(order_id)
    if order is None or not order["refundable"] or not 0 < amount <= order["total"]:
        raise ValueError(f"order {order_id} cannot be refunded with {amount} EUR")
    book = Path(os.environ.get("SUPPORT_REFUNDS", "refunds.jsonl"))
    number = len(book.read_text("utf-8").splitlines()) + 1 if book.exists() else 1
    # With the key a payment provider can tell a repetition of this refund from a second one.
    entry = {"refund_id": f"R-{number}", "order_id": order_id, "amount": amount, "key": loupe.idempotency_key()}
    with book.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(entry) + "\n")
    loupe.receipt(str(entry["refund_id"]))
    return {"refund_id": entry["refund_id"], "order_id": order_id, "amount": amount, "currency": "EUR"}


def function(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


FUNCTIONS = {"lookup_order": lookup_order, "refund_order": refund_order}
TOOLS = [
    function("lookup_order", "Finds an order by its number.", {"order_id": {"type": "string"}}),
    function("refund_order", "Pays an order back.", {"order_id": {"type": "string"}, "amount": {"type": "number"}}),
]


def run_tool(name: str, arguments: str) -> str:
    """The result as JSON; whatever goes wrong becomes an error that the model can read."""
    try:
        return json.dumps(FUNCTIONS[name](**json.loads(arguments)), ensure_ascii=False)
    except Exception as error:  # noqa: BLE001 - the model is told, and goes on
        return json.dumps({"error": f"{type(error).__name__}: {error}"}, ensure_ascii=False)


@loupe.agent(name="support")
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
