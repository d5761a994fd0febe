"""A whole chat completion as the stream that a client gets who asked for one: server-sent events of chunks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["events_of"]

_WORDS = re.compile(r"\s*\S+|\s+")
_PIECE = 12
"""Characters of a tool's arguments in one chunk."""


def events_of(whole: Mapping[str, Any], *, usage: bool) -> Iterator[bytes]:
    """The events, ending in `[DONE]`; the text comes word by word, the arguments of tools in pieces.

    Args:
        whole: a `chat.completion` with one choice.
        usage: whether the client wants token counts, in a chunk of their own without choices.
    """
    about = {name: whole[name] for name in ("id", "created", "model", "system_fingerprint") if name in whole}
    about["object"] = "chat.completion.chunk"
    counted: dict[str, Any] = {"usage": None} if usage else {}
    (choice,) = whole["choices"]
    for delta in _deltas(choice["message"]):
        yield _event({**about, "choices": [_choice(delta, None)], **counted})
    yield _event({**about, "choices": [_choice({}, choice["finish_reason"])], **counted})
    if usage:
        yield _event({**about, "choices": [], "usage": whole.get("usage")})
    yield b"data: [DONE]\n\n"


def _deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content: str | None = message.get("content")
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    others = {name: value for name, value in message.items() if name not in ("role", "content", "tool_calls")}
    yield {"role": message["role"], "content": None if content is None else "", **others}
    for word in _WORDS.findall(content or ""):
        yield {"content": word}
    for at, call in enumerate(calls):
        function: dict[str, str] = call["function"]
        yield {"tool_calls": [{**call, "index": at, "function": {**function, "arguments": ""}}]}
        arguments = function["arguments"]
        for start in range(0, len(arguments), _PIECE):
            piece = arguments[start : start + _PIECE]
            yield {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}


def _choice(delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode("ascii") + b"\n\n"
