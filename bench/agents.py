"""The programs that are measured: conversations with a model, tools with plain values, reads."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from agentloupe.ports import ambient
from agentloupe.ports.protocols import Durability, RunWriter, Store
from agentloupe.ports.schedule.core import Mode
from agentloupe.ports.settings import Settings
from agentloupe.providers.chat import request_facts, response_facts
from agentloupe.providers.loopback import completion
from agentloupe.verbs.instrument import as_agent, tool
from agentloupe.verbs.sessions import RecordOpener, RecordSession
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.event import Head

MODEL = "bench-1"
_WORDS = [
    "the",
    "weather",
    "of",
    "a",
    "city",
    "is",
    "asked",
    "for",
    "and",
    "the",
    "tool",
    "answers",
    "with",
    "degrees",
    "wind",
    "and",
    "rain",
    "while",
    "the",
    "agent",
    "keeps",
    "notes",
    "of",
    "what",
    "was",
    "said",
    "before",
    "and",
    "what",
    "it",
    "has",
    "to",
    "find",
    "out",
    "next",
    "so",
    "that",
    "nothing",
    "is",
    "asked",
    "twice",
    "and",
    "every",
    "figure",
    "has",
    "a",
    "source",
]


@lru_cache(20_000)
def text(size: int, seed: int) -> str:
    """Plain prose of about so many bytes, another for every seed."""
    words: list[str] = []
    length, at = 0, seed * 2_654_435_761 % 2**32
    while length < size:
        at = (at * 1_103_515_245 + 12_345) % 2**31
        words.append(f"{_WORDS[at % len(_WORDS)]}{at % 97 if at % 5 == 0 else ''}")
        length += len(words[-1]) + 1
    return " ".join(words)[:size]


def tools_offered() -> list[Json]:
    """Schemas of four tools, as a request brings them along every time."""
    about: Json = {"type": "object", "properties": {"city": {"type": "string"}, "day": {"type": "integer"}}}
    return [
        {"type": "function", "function": {"name": f"tool_{i}", "description": text(120, i), "parameters": about}}
        for i in range(4)
    ]


def conversations(calls: int, *, new: int = 1024, most: int = 40, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Requests of conversations that grow by `new` bytes a call (half asked, half answered), up to `most` messages."""
    offered = tools_offered()
    messages: list[Json] = []
    for i in range(calls):
        if not messages or len(messages) > most:
            messages = [{"role": "system", "content": text(400, seed + i)}]
        else:
            messages = [*messages, {"role": "assistant", "content": answer_text(new // 2, seed + i - 1)}]
        messages = [*messages, {"role": "user", "content": text(new // 2, 2 * (seed + i) + 1)}]
        yield {"model": MODEL, "messages": messages, "tools": offered, "temperature": 0.2}


def answer_text(size: int, seed: int) -> str:
    """What the model says."""
    return text(size, 2 * seed)


def answer(size: int, seed: int) -> dict[str, Any]:
    """A whole answer of the model with a text of so many bytes."""
    return completion(
        id=f"chatcmpl-{seed}",
        model=MODEL,
        created=1_700_000_000,
        message={"role": "assistant", "content": answer_text(size, seed)},
        finish_reason="stop",
        usage={"prompt_tokens": 400, "completion_tokens": 120, "total_tokens": 520},
    )


# --- calls ------------------------------------------------------------------------------------------------------------


def _as_it_is(value: Any) -> Any:
    return value


def ask(request: dict[str, Any], response: dict[str, Any]) -> Any:
    """A model call through the boundary, without any client library."""
    call = Call(
        kind="llm",
        name=f"chat {MODEL}",
        input=request,
        attrs=request_facts(request),
        encode=_as_it_is,
        decode=_as_it_is,
        facts=response_facts,
        resend=lambda _: response,
    )
    return ambient.call(call, lambda: response)


def get(row: int) -> Any:
    """A call with plain values, without a decorator in between."""
    call = Call(kind="other", name="get", input={"row": row}, encode=_as_it_is, decode=_as_it_is)
    return ambient.call(call, lambda: {"row": row, "text": "some twenty characters"})


@tool(effect="read")
def look_up(row: int) -> dict[str, object]:
    """A tool with plain values."""
    return {"row": row, "text": "some twenty characters"}


def plain_calls(count: int) -> int:
    """An agent that makes nothing but calls with plain values."""
    for i in range(count):
        get(i)
    return count


def tool_calls(count: int) -> int:
    """The same with a decorated tool."""
    for i in range(count):
        look_up(i)
    return count


def model_and_tool(steps: int, *, new: int = 200, most: int = 20, last: int = 0) -> int:
    """By turns a model call and a tool; the last conversation, of `last` messages, goes on growing."""
    pairs = (steps - 1) // 2
    short = pairs - last // 2
    for i, request in enumerate(conversations(max(short, 0), new=new, most=most)):
        ask(request, answer(new // 2, i))
        look_up(i)
    for i, request in enumerate(conversations(pairs - max(short, 0), new=new, most=10**9, seed=10**6)):
        ask(request, answer(new // 2, 10**6 + i))
        look_up(i)
    return steps


# --- recording --------------------------------------------------------------------------------------------------------


def settings_in(store: Store) -> Settings:
    """Settings that look at no file of the folder that this is started in."""
    from pathlib import Path

    return Settings(root=Path(store.url.removeprefix("sqlite:///")).parent, db=store.url)


def opened(store: Store) -> RecordSession:
    """A recording that has begun; its boundary can be made the current one."""
    from agentloupe.ports.protocols import Opening

    session = RecordOpener(store, settings=settings_in(store), argv=["bench"]).open(Opening(agent="bench"))
    assert isinstance(session, RecordSession), "that is what this opener opens"
    return session


class _Full:
    """A writer that makes every commit survive a loss of power."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer

        self.run_id = writer.run_id
        self.owner = writer.owner
        self.offer = writer.offer
        self.remind = writer.remind
        self.flush = writer.flush
        self.close = writer.close

    @property
    def head(self) -> Head:
        return self._writer.head

    def append(self, drafts: Any, bodies: Any = (), durability: Durability = "commit") -> None:
        self._writer.append(drafts, bodies, "full" if durability == "commit" else durability)


def in_full(session: RecordSession) -> RecordSession:
    """The same recording, each of whose commits survives a loss of power from now on."""
    book = session.recorder._book  # the one place where durability can be raised for a measurement
    book.writer = _Full(book.writer)
    return session


def recorded(store: Store, agent: Callable[..., object], *args: Any, schedule: Mode = "exact", **kwargs: Any) -> str:
    """Records an agent; the id of its run."""
    settings = replace(settings_in(store), schedule=schedule)
    opener = RecordOpener(store, settings=settings, argv=["bench"])
    with ambient.outside(), ambient.opening_with(opener):
        ran(as_agent(agent)(*args, **kwargs))
    return opener.sessions[0].run_id


def ran(result: Any) -> Any:
    """What an agent gives, of one that is asynchronous what it gives in the end."""
    return asyncio.run(_whole(result)) if inspect.isawaitable(result) else result


async def _whole(awaitable: Awaitable[object]) -> object:
    return await awaitable
