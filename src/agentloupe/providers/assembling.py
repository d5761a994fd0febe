"""The whole answer of a model out of its stream: what the same endpoint would have said had nobody asked it to stream.

Pure functions over the bytes so far. The form is told by the events themselves, since many servers speak the dialect of
another. What came of an answer that was left, or broke, is put together the same way; what did not come is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from agentloupe.ports.streams import Streamed
from agentloupe.providers import (
    assemble_anthropic,
    assemble_chat,
    assemble_converse,
    assemble_gemini,
    assemble_responses,
)
from agentloupe.providers.sse import DONE, SseEvent, events_in
from agentloupe.words.canonical import Json
from agentloupe.words.eventstream import Message, messages_in, size_at
from agentloupe.words.jsontext import dumps, parsed, quoted

__all__ = ["assembled", "first_token_ms", "is_done", "objects_in"]

Chunk = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How one API streams.

    Attributes:
        speaks: whether this object is one of its events.
        assemble: the whole answer.
        last: whether this event is the last one that says anything.
        says: whether this event brings something that the model made.
    """

    speaks: Callable[[Chunk], bool]
    assemble: Callable[[Iterable[Chunk]], Json]
    last: Callable[[Chunk], bool]
    says: Callable[[Chunk], bool]


_DIALECTS = tuple(
    _Dialect(module.speaks, module.assemble, module.last, module.says)
    for module in (assemble_chat, assemble_responses, assemble_anthropic, assemble_gemini, assemble_converse)
)


def _events(data: bytes) -> Iterator[SseEvent]:
    """The events of a stream: those that the server sent, or what messages say as such events."""
    if not size_at(data, 0):
        yield from events_in(data)
        return
    for message, end in messages_in(data):
        yield SseEvent(_said(message), message.headers.get(":event-type"), end)


def _said(message: Message) -> str:
    """What a message says: a model's own event, an event under its name, or an error in the form of Anthropic's event."""
    told = message.headers
    if told.get(":message-type", "event") == "event":
        return message.text if message.wrapped else f"{{{quoted(told.get(':event-type', ''))}:{message.text}}}"
    try:
        payload = parsed(message.text)
    except ValueError:
        payload = message.text
    why: Json = told.get(":error-message", payload.get("message") if isinstance(payload, dict) else payload)
    error: Json = {"type": told.get(":exception-type") or told.get(":error-code"), "message": why}
    return dumps({"type": "error", "error": error}).decode()


def objects_in(data: bytes) -> Iterator[dict[str, Json]]:
    """The JSON objects among the events; what is none (a cut last event, `[DONE]`) is left out."""
    for event in _events(data):
        found = event.json
        if isinstance(found, dict):
            yield found


def _dialect(chunks: Iterable[Chunk]) -> _Dialect | None:
    return next((dialect for chunk in chunks for dialect in _DIALECTS if dialect.speaks(chunk)), None)


def assembled(data: bytes) -> Json:
    """The whole answer; `None` where the bytes are no stream of a form that is known."""
    chunks = list(objects_in(data))
    dialect = _dialect(chunks)
    return None if dialect is None else dialect.assemble(chunks)


def is_done(data: bytes) -> bool:
    """Whether the stream has said all that it will say."""
    events = list(_events(data))
    if events and events[-1].data.strip() == DONE:
        return True
    chunks = list(objects_in(data))
    dialect = _dialect(chunks)
    return dialect is not None and any(dialect.last(chunk) for chunk in chunks)


def first_token_ms(streamed: Streamed) -> float | None:
    """When the first thing came that the model made, in milliseconds since the answer opened."""
    dialect = None
    for event in _events(streamed.data):
        chunk = event.json
        if not isinstance(chunk, dict):
            continue
        dialect = dialect or _dialect([chunk])
        if dialect is not None and dialect.says(chunk):
            return _came_at(streamed, event.end)
    return None


def _came_at(streamed: Streamed, end: int) -> float | None:
    """When the byte before `end` came."""
    seen = 0
    for ms, data in streamed.pieces:
        seen += len(data)
        if seen >= end:
            return ms
    return None
