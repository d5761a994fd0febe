"""Streams that real providers sent: the SSE bodies of the shared cassettes, and the captured chunks beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

import yaml

from agentloupe.providers.assembling import objects_in
from tests.support import SHARED

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # safe both; the other one takes seconds

__all__ = ["RealStream", "in_odd_cuts", "real_streams"]


@dataclass(frozen=True)
class RealStream:
    """One stream: where it is from, its bytes, and which API speaks so (`chat`, `responses`, `messages`, `other`)."""

    name: str
    data: bytes
    api: str


@cache
def real_streams() -> tuple[RealStream, ...]:
    """All of them; empty where the shared data is absent."""
    return tuple(RealStream(name, data, _api(data)) for name, data in (*_captured(), *_cassettes()))


def in_odd_cuts(data: bytes) -> list[bytes]:
    """The same bytes in pieces of uneven lengths, many of them single bytes."""
    parts: list[bytes] = []
    at = 0
    for size in cycle((1, 1, 2, 3, 211, 7, 1, 1021, 5)):
        if at >= len(data):
            return parts
        parts.append(data[at : at + size])
        at += size
    return parts


def _captured() -> Iterator[tuple[str, bytes]]:
    for file in sorted((SHARED / "data" / "sse_vercel").glob("*.chunks.txt")):
        lines = [line for line in file.read_bytes().splitlines() if line.strip()]
        events = [_event(line) for line in lines]
        if b'"choices"' in lines[0]:
            events.append(b"data: [DONE]\n\n")
        yield file.name, b"".join(events)


def _event(line: bytes) -> bytes:
    named = line.removeprefix(b"data: ")
    (told,) = [*objects_in(b"data: " + named + b"\n\n")] or [{}]
    kind = str(told.get("type", ""))
    name = b"event: " + kind.encode() + b"\n" if kind else b""
    return name + b"data: " + named + b"\n\n"


def _cassettes() -> Iterator[tuple[str, bytes]]:
    for file in sorted((SHARED / "data").glob("cassettes_*/*.yaml")):
        text = file.read_text("utf-8")
        if "event-stream" not in text:
            continue
        for n, exchange in enumerate(yaml.load(text, _LOADER)["interactions"]):
            response: dict[str, Any] = exchange["response"]
            headers = {name.lower(): str(value) for name, value in response["headers"].items()}
            body = (response.get("body") or {}).get("string")
            if "event-stream" in headers.get("content-type", "") and isinstance(body, str):
                yield f"{file.stem}-{n}", body.encode()


def _api(data: bytes) -> str:
    kinds = {str(found.get("type", "")).partition(".")[0] for found in objects_in(data)}
    if any("choices" in found for found in objects_in(data)):
        return "chat"
    return "responses" if "response" in kinds else "messages" if "message_start" in kinds else "other"
