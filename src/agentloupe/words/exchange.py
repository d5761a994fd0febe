"""How an HTTP exchange is stored as the result of a call, and the provider's own answer inside of it.

    {"status": 200, "reason_phrase": "OK", "http_version": "HTTP/1.1", "headers": [["content-type", "..."]], "text": "..."}

The body is kept as it was read, decoded from its transfer: `text` where it is UTF-8, else `base64`. Nothing in it is
parsed when it is stored; who looks at the answer of a model takes `answer_in`, which does.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Final, cast

from agentloupe.words.canonical import Json
from agentloupe.words.eventstream import MEDIA_TYPE
from agentloupe.words.jsontext import parsed

__all__ = [
    "STREAMS",
    "answer_in",
    "body_members",
    "content_of",
    "exchange",
    "header_of",
    "headers_of",
    "is_exchange",
    "media_type",
]

Pairs = Iterable[tuple[str, str]]

STREAMS: Final = (
    "text/event-stream",
    "application/x-ndjson",
    "application/jsonl",
    "application/stream+json",
    MEDIA_TYPE,
)
"""Media types of bodies that are records, sent one after another."""


def exchange(status: int, headers: Pairs, content: bytes, *, http_version: str, reason_phrase: str) -> dict[str, Json]:
    """The stored form of an answer: its status, its headers in order, its body decoded from its transfer."""
    pairs: list[Json] = [[name, value] for name, value in headers]
    about: dict[str, Json] = {"status": status, "headers": pairs}
    return {**about, "http_version": http_version, "reason_phrase": reason_phrase, **body_members(content)}


def body_members(content: bytes) -> dict[str, Json]:
    """Bytes as one member of a JSON object: `text` where they are UTF-8, else `base64`."""
    try:
        return {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode("ascii")}


def is_exchange(output: Json) -> bool:
    """Whether a stored result has the form of an exchange; no answer of a provider has all of its members."""
    return isinstance(output, dict) and {"status", "headers", "http_version", "reason_phrase"} <= output.keys()


def content_of(stored: dict[str, Json]) -> bytes:
    """The bytes of a stored body. Raises `ValueError` where they are none."""
    text = stored.get("text")
    return text.encode("utf-8") if isinstance(text, str) else base64.b64decode(str(stored.get("base64")), validate=True)


def headers_of(stored: dict[str, Json]) -> list[tuple[str, str]]:
    """The headers of an exchange, in order."""
    return [(str(name), str(value)) for name, value in cast("list[list[Json]]", stored.get("headers") or [])]


def header_of(stored: dict[str, Json], *names: str) -> str | None:
    """The first header that has one of these names (in lower case), or `None`."""
    return next((value for name, value in headers_of(stored) if name.lower() in names), None)


def media_type(header: str | None) -> str:
    """The type that a `content-type` header names, without its parameters; empty where there is none."""
    return (header or "").partition(";")[0].strip().lower()


def answer_in(output: Json) -> Json:
    """What the provider answered: of an exchange its body, parsed where it is JSON; anything else as it is."""
    if not isinstance(output, dict) or not is_exchange(output):
        return output
    text = output.get("text")
    if not isinstance(text, str):
        return output
    try:
        return parsed(text)
    except ValueError:
        return text
