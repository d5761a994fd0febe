"""The agents behind the recordings of event schema 1. Frozen with them: never changed, only added to.

Each is recorded by `tests/recordings/make.py` against a model on this machine, and replayed without one.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from typing import Any, cast
from uuid import UUID

import httpx
import requests
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI, RateLimitError

import agentloupe as loupe

MODEL = "small-1"


def address() -> str:
    """Where the model is while a recording is made; in a replay nobody is asked."""
    return os.environ.get("MODEL_URL", "http://127.0.0.1:9")


def openai() -> OpenAI:
    return loupe.wrap(OpenAI(base_url=f"{address()}/v1", api_key="none", max_retries=0))


def function(name: str, **properties: str) -> Any:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    parameters = {"type": "object", "properties": kinds, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


# --- tools ------------------------------------------------------------------------------------------------------------


class NoStock(Exception):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(item, left)
        self.item = item
        self.left = left


@loupe.tool(effect="read")
def get_weather(city: str) -> dict[str, Any]:
    degrees = {"Beijing": 11.9, "Shanghai": 17.7}
    return {"city": city, "temperature": degrees[city], "sky": "sunny" if city == "Beijing" else "cloudy"}


@loupe.tool(effect="pure")
def add(one: float, other: float) -> float:
    return round(one + other, 6)


@loupe.tool(effect="read")
def look_up(item: str) -> dict[str, Any]:
    if item == "nothing":
        raise NoStock(item, 0)
    return {"item": item, "price": len(item)}


@loupe.tool(effect="write")
def pay(item: str, amount: int) -> str:
    loupe.receipt(f"R-{item}")
    return f"paid {amount} with {len(loupe.idempotency_key())}"


@loupe.tool(effect="read")
async def look_up_async(item: str) -> str:
    await asyncio.sleep(0)
    return item.upper()


@loupe.tool(effect="read")
def pages(count: int) -> Iterator[str]:
    for number in range(count):
        yield f"page {number}"


# --- chat completions -------------------------------------------------------------------------------------------------


@loupe.agent
def weather(question: str) -> str:
    """A loop of its own around the SDK: tools, and an answer at last."""
    client, tools = openai(), {"get_weather": get_weather, "add": add}
    offered = [function("get_weather", city="string"), function("add", one="number", other="number")]
    messages: list[Any] = [{"role": "system", "content": "Use the tools."}, {"role": "user", "content": question}]
    for _ in range(6):
        message = client.chat.completions.create(model=MODEL, messages=messages, tools=offered).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or []:
            assert call.type == "function"
            result = tools[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
        if not message.tool_calls:
            return message.content or ""
    return "no answer"


@loupe.agent
def shop(items: list[str]) -> list[str]:
    """Write effects with receipts, an error that is caught, states and checks."""
    client, done = openai(), list[str]()
    for item in items:
        loupe.state("item", {"now": item})
        try:
            found = look_up(item=item)
        except NoStock as missing:
            done.append(f"no {missing.item}: {missing.left} left")
            continue
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": f"buy {item}?"}])
        done.append(pay(item=item, amount=found["price"]))
    loupe.check("all were asked for", len(done) == len(items), {"done": len(done)})
    return done


@loupe.agent
def impatient(question: str) -> str:
    """The SDK's own error, caught, and asked again."""
    client = openai()
    try:
        client.chat.completions.create(model="busy", messages=[{"role": "user", "content": question}])
    except RateLimitError as busy:
        question = f"{question} after {busy.status_code}"
    return (
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": question}])
        .choices[0]
        .message.content
        or ""
    )


@loupe.agent
def streamer(question: str) -> list[str | None]:
    """A stream that is read to its end, and one that is left early."""
    client = openai()
    asked: list[Any] = [{"role": "user", "content": question}]
    whole = [
        c.choices[0].delta.content for c in client.chat.completions.create(model=MODEL, messages=asked, stream=True)
    ]
    with client.chat.completions.create(model=MODEL, messages=[*asked, asked[0]], stream=True) as left:
        first = next(iter(left)).choices[0].delta.content
    return [*whole, first]


# --- messages of Anthropic --------------------------------------------------------------------------------------------


def anthropic() -> Anthropic:
    return loupe.wrap(Anthropic(base_url=address(), api_key="none", max_retries=0))


@loupe.agent
def claude(question: str) -> str:
    """Blocks with thinking, a tool, and the answer."""
    client = anthropic()
    offered: Any = [{"name": "add", "input_schema": {"type": "object", "properties": {}}}]
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(4):
        reply = client.messages.create(model=MODEL, max_tokens=100, messages=messages, tools=offered)
        messages.append({"role": "assistant", "content": [block.model_dump() for block in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": str(add(**cast("Any", block.input)))}
            for block in reply.content
            if block.type == "tool_use"
        ]
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append({"role": "user", "content": results})
    return "no answer"


@loupe.agent
def claude_streams(question: str) -> str:
    """A stream of events, read by the SDK's helper."""
    with anthropic().messages.stream(
        model=MODEL, max_tokens=100, messages=[{"role": "user", "content": question}]
    ) as stream:
        said = "".join(stream.text_stream)
    return f"{said} / {stream.get_final_message().stop_reason}"


# --- several things at once -------------------------------------------------------------------------------------------


@loupe.agent
def threads(items: list[str]) -> list[Any]:
    """A model and tools in a pool of threads."""
    client = openai()

    def one(item: str) -> Any:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": item}])
        return look_up(item=item)["price"]

    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(one, items))


@loupe.agent
async def tasks(items: list[str]) -> list[str]:
    """Tasks, a timeout and a task that is cancelled."""
    async with AsyncOpenAI(base_url=f"{address()}/v1", api_key="none", max_retries=0) as bare:
        client = loupe.wrap(bare)

        async def one(item: str) -> str:
            await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": item}])
            return await look_up_async(item=item)

        found = await asyncio.gather(*map(one, items))
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            found.append("late")
        task = asyncio.create_task(one("cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        return [*found, *(type(one).__name__ for one in await asyncio.gather(task, return_exceptions=True))]


# --- reads, types, code that changed ----------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    id: UUID
    total: Decimal
    colour: Colour
    at: datetime
    raw: bytes


@loupe.agent
def nested(number: float) -> Order:
    """A nested agent, whose result has types of its own."""
    return Order(loupe.uuid4(), Decimal(str(number)), Colour.RED, loupe.now() + timedelta(days=1), b"\x00\xff")


@loupe.agent
def reader(question: str) -> dict[str, Any]:
    """Everything that a program reads, of values with types."""
    found = loupe.retrieve(
        "handbook",
        question,
        lambda query, top: {"index_version": "3", "documents": [{"id": query, "score": 0.5}] * top},
        top=2,
    )
    order = nested(loupe.random())
    return {
        "order": order,
        "later": order.at > datetime(2020, 1, 1, tzinfo=UTC),
        "drawn": [loupe.rng.randint(1, 6), loupe.rng.choice(["a", "b"])],
        "kept": loupe.env("LANG", "none") != "",
        "found": found,
        "pages": list(pages(count=3)),
        "not a number": float("nan"),
    }


@loupe.agent
def patched(way: str = "new") -> list[str]:
    """A deliberate change of the code, marked: the recording `patched-before` was made without it."""
    if way == "before":
        return [look_up(item="one")["item"]]
    found = [look_up(item="one")["item"]]
    if loupe.patched("look twice"):
        found.append(look_up(item="two")["item"])
    return found


@loupe.agent
def careless(note: str) -> str:
    """A key in the arguments and in a request: removed before anything is stored."""
    openai().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": f"my key is {note}"}])
    return look_up(item="one")["item"]


@loupe.agent
async def yielding(count: int) -> AsyncIterator[str]:
    """An agent that yields."""
    for number in range(count):
        yield await look_up_async(item=str(number))


# --- other HTTP clients -----------------------------------------------------------------------------------------------

BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


@loupe.agent
def plain_http() -> list[Any]:
    """`httpx` and `requests`, as they are."""
    transport: Any = loupe.http_transport()
    with httpx.Client(transport=transport) as client:
        one = client.post(f"{address()}/v1/chat/completions", json=BODY)
    with requests.Session() as session:
        session.mount("http://", loupe.requests_adapter())
        other = session.post(f"{address()}/v1/chat/completions", json=BODY, timeout=30)
    return [one.status_code, one.json()["choices"], other.status_code, other.json()["choices"]]


# --- effects whose end nobody saw -------------------------------------------------------------------------------------


def find_payment(key: str) -> loupe.Done:
    """The bank's list has everything that was begun."""
    return loupe.Done({"charged": "found", "key": len(key)}, external_id="R-found")


@loupe.tool(effect="write", lookup=find_payment)
def charge(item: str) -> dict[str, Any]:
    return {"charged": item, "key": len(loupe.idempotency_key())}


@loupe.agent
def charges(items: list[str]) -> list[Any]:
    """A model, and a charge for each item; the recording `settled` was killed in the middle of two of them."""
    openai().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "charge them"}])
    return [charge(item=item) for item in items]


# --- frames -----------------------------------------------------------------------------------------------------------


@loupe.agent
def bedrock(question: str) -> list[str]:
    """Bedrock through `httpx`: two streams in frames, and a whole answer; recorded when nobody looked into frames."""
    claude, nova = "/model/anthropic.claude-v1:0", "/model/amazon.nova-lite-v1:0"
    asked: Any = {"messages": [{"role": "user", "content": [{"text": question}]}]}
    told: list[str] = []
    transport: Any = loupe.http_transport()
    with httpx.Client(transport=transport) as client:
        for path in (f"{claude}/invoke-with-response-stream", f"{nova}/converse-stream"):
            with client.stream("POST", f"{address()}{path}", json=asked) as response:
                told.append(sha256(b"".join(response.iter_raw())).hexdigest())
        told.append(client.post(f"{address()}{claude}/invoke", json=asked).text)
    return told
