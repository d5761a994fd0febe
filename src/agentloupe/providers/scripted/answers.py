"""What a scripted model is asked and what it answers, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

__all__ = ["Answer", "Ask", "Done", "ToolCall", "as_object", "ask", "done_calls", "fail", "say", "text_of"]

Usage = Mapping[str, object] | Literal["estimated"] | None
"""Token counts as sent, an estimate made from the texts, or none at all."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of an answer: `arguments` is raw text and may be malformed; without an `id` it is given one."""

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the model.

    Attributes:
        content: the text, or None.
        calls: the tool calls, in order.
        extra: more fields of the message (`reasoning_content`, `refusal`).
        usage: token counts as sent, `"estimated"` (from the lengths of the texts), or None: left out.
        finish_reason: None: `tool_calls` where there are calls, else `stop`.
        model: the model that says it answered; None: the one that was asked for.
        status: the HTTP status; from 400 on the answer is an error.
        headers: HTTP headers beside the usual ones.
        body: sent in place of the whole body where it is not None: JSON, or bytes as they are.
    """

    content: str | None = None
    calls: tuple[ToolCall, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict[str, object])
    usage: Usage = "estimated"
    finish_reason: str | None = None
    model: str | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: object = None


def say(text: str, *, usage: Usage = "estimated", model: str | None = None) -> Answer:
    """A final answer."""
    return Answer(content=text, usage=usage, model=model)


def ask(
    *calls: tuple[str, Mapping[str, object] | str], content: str | None = None, usage: Usage = "estimated"
) -> Answer:
    """An answer that asks for tools: pairs of a name and its arguments, as an object or as raw text."""
    return Answer(
        content=content,
        calls=tuple(ToolCall(name, args if isinstance(args, str) else json.dumps(args)) for name, args in calls),
        usage=usage,
    )


def fail(
    status: int, message: str = "scripted failure", *, headers: Mapping[str, str] | None = None, body: object = None
) -> Answer:
    """An HTTP error: OpenAI's error object with this message, or any other `body`."""
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    error = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    return Answer(status=status, headers=headers or {}, body=error if body is None else body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request as a rule sees it.

    Attributes:
        messages: the conversation so far.
        tools: the names of the tools that may be called (empty with `tool_choice: "none"`).
        params: everything else of the request.
        asked_before: how often this model was asked with the very same messages before.
        continues: whether this is the first request that goes on from an answer that this model gave. A fork's
            request goes on from an answer that was given to somebody else, or that was continued already.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: frozenset[str]
    params: Mapping[str, Any]
    asked_before: int
    continues: bool

    @property
    def instructions(self) -> str:
        """All system and developer texts."""
        return "\n".join(text_of(m) for m in self.messages if m.get("role") in ("system", "developer"))

    @property
    def question(self) -> str:
        """The last text of the user."""
        return next((text_of(m) for m in reversed(self.messages) if m.get("role") == "user"), "")


@dataclass(frozen=True, slots=True)
class Done:
    """One tool call of the conversation that has its result: `result` is None where the tool failed."""

    name: str
    arguments: Mapping[str, Any]
    result: Mapping[str, Any] | None
    text: str


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message: its content, or the text parts of it joined."""
    content: object = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    found = [cast("Mapping[str, object]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in found if isinstance(text, str))


def done_calls(messages: tuple[Mapping[str, Any], ...]) -> list[Done]:
    """The answered tool calls since the last user message, in order of their results."""
    start = max((at for at, m in enumerate(messages) if m.get("role") == "user"), default=0)
    asked: dict[str, tuple[str, Mapping[str, Any]]] = {}
    found: list[Done] = []
    for message in messages[start:]:
        for call in cast("list[Mapping[str, Any]]", message.get("tool_calls") or []):
            function = as_object(call.get("function"))
            asked[str(call.get("id"))] = (str(function.get("name")), as_object(function.get("arguments")))
        if message.get("role") == "tool" and str(message.get("tool_call_id")) in asked:
            name, arguments = asked[str(message.get("tool_call_id"))]
            result = _object(text_of(message))
            failed = result is None or set(result) == {"error"}
            found.append(Done(name, arguments, None if failed else result, text_of(message)))
    return found


def as_object(value: object) -> Mapping[str, Any]:
    """A JSON object, or the one in a text; anything else is an empty one."""
    return _object(value) or {}


def _object(text: object) -> Mapping[str, Any] | None:
    """The JSON object in a text, if it is one."""
    try:
        value: object = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None
