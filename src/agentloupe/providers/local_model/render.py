"""Chat messages as a transcript that a base model can go on with, and its line back as a chat message.

The bundled model has no chat template: it was trained on plain text. What it does well is to continue a pattern, so a
conversation becomes lines with labels, after worked examples in the same form:

    Question: <user>
    Call: <tool> <arguments as JSON>       one line for each call
    Result: <what the tool said>           one line for each result, in order
    Answer: <assistant>

The prompt ends after the last whole line. The model writes the next label itself, and with it decides between a call
and an answer (as far as the grammar leaves it that choice).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentloupe.providers.local_model.worked import Worked
from agentloupe.providers.loopback import RequestError, mapping

__all__ = ["ANSWER", "CALL", "Parsed", "parse", "render", "render_examples", "render_worked"]

CALL, RESULT, QUESTION, ANSWER = "Call: ", "Result: ", "Question: ", "Answer: "


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the model wrote: an answer, or calls as (name, raw arguments). `whole`: nothing was cut off."""

    content: str | None
    calls: tuple[tuple[str, str], ...]
    whole: bool


def render_examples(examples: Sequence[Worked]) -> str:
    """The part of the prompt that all conversations with the same tools share, and that the engine computes once."""
    return "".join(f"{render_worked(example)}\n" for example in examples)


def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
    """The prompt after the examples: instructions, the names of the tools, the conversation.

    Raises:
        RequestError: a role or a content part that this model cannot read.
    """
    instructions = [_text(m) for m in messages if m["role"] in ("system", "developer")]
    head = [f"{_line(text)}\n" for text in instructions if text.strip()]
    if tools:
        head.append(f"Tools: {', '.join(str(tool['name']) for tool in tools)}\n")
    lines = [line for at, m in enumerate(messages) for line in _lines(m, at)]
    return "\n".join(head) + ("\n" if head else "") + "".join(lines)


def render_worked(example: Worked) -> str:
    """One worked example, in the same lines as a conversation."""
    lines = [f"{QUESTION}{example.question}\n"]
    for turn in example.turns:
        lines += [_call_line(call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in turn]
        lines += [f"{RESULT}{json.dumps(call.result, ensure_ascii=False)}\n" for call in turn]
    return "".join([*lines, f"{ANSWER}{example.answer}\n"])


def parse(text: str) -> Parsed | None:
    """The message in what the model wrote; None if it is not in the lines above (the grammar was not applied)."""
    if text.startswith(ANSWER):
        return Parsed(text.removeprefix(ANSWER).rstrip(), (), text.endswith("\n"))
    if not text.startswith(CALL):
        return None
    *lines, tail = text.split("\n")
    whole = bool(RESULT.startswith(tail)) and tail != ""
    if tail.startswith(CALL):
        lines.append(tail)
    calls = tuple(
        (name, arguments) for line in lines for name, _, arguments in (line.removeprefix(CALL).partition(" "),)
    )
    return Parsed(None, calls, whole)


def _lines(message: Mapping[str, Any], at: int) -> list[str]:
    role = message["role"]
    if role in ("system", "developer"):
        return []
    if role == "user":
        return [f"{QUESTION}{_line(_text(message))}\n"]
    if role == "tool":
        return [f"{RESULT}{_line(_text(message))}\n"]
    if role == "assistant":
        return _assistant_lines(message)
    raise RequestError(
        f"message {at} has the role {role!r}, which this model does not know", param=f"messages[{at}].role"
    )


def _assistant_lines(message: Mapping[str, Any]) -> list[str]:
    """Calls after the text, if there is text beside them."""
    text = _line(_text(message))
    calls = cast("list[Mapping[str, Any]]", message.get("tool_calls") or [])
    lines = [f"{ANSWER}{text}\n"] if text else []
    for call in calls:
        function = mapping(call.get("function"))
        lines.append(_call_line(str(function.get("name")), _arguments(function.get("arguments"))))
    return lines


def _call_line(name: str, arguments: str) -> str:
    return f"{CALL}{name} {arguments}\n"


def _arguments(text: object) -> str:
    """Arguments in the spelling that the grammar makes the model use; malformed ones as they are."""
    try:
        return json.dumps(json.loads(str(text)), ensure_ascii=False)
    except ValueError:
        return _line(str(text))


def _text(message: Mapping[str, Any]) -> str:
    content: object = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        text = cast("Mapping[str, object]", part).get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise RequestError(
                "this model reads text only: content must be a string or a list of text parts", param="messages"
            )
        texts.append(text)
    return "\n".join(texts)


def _line(text: str) -> str:
    """On one line: a line break inside would look like the next label."""
    return " ".join(text.split("\n")).strip() if "\n" in text else text.strip()
