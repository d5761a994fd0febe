"""An old recording against a new one of the same agent, as text for people: what a recording anew has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from agentloupe.engine.compare import Comparison
from agentloupe.engine.difference import shown
from agentloupe.ports.recording import Recording
from agentloupe.verbs.comparing import compare, detail
from agentloupe.words.errors import LoupeError
from agentloupe.words.jsontext import dumps

__all__ = ["changes"]

_LINES: Final = 60
_CHARACTERS: Final = 300
_WORD: Final[Mapping[str, str]] = {"-": "[-{}-]", "+": "{{+{}+}}"}


def changes(name: str, before: Recording, after: Recording) -> str:
    """The old recording against the new one, step by step, as text of at most some sixty lines."""
    lines = [f"recorded {name} anew: {before.run_id} -> {after.run_id}"]
    try:
        found = compare(before, after)
    except LoupeError as wrong:
        return f"{lines[0]}\n  the old one cannot be compared: {wrong}"
    assert isinstance(found, Comparison), "two runs are compared"
    for row in found.rows:
        if row.status != "same":
            step = row.left or row.right
            assert step is not None, "a row has at least one side"
            lines.append(f"  step {step.idx} {step.kind} {step.name}: {row.status.replace('_', ' ')}")
            parts = detail(found, row, sources=(before, after))
            lines += [f"    {line}" for line in _part_lines(cast("Mapping[str, Any]", parts))]
    if found.answers[0] != found.answers[1]:
        lines.append(f"  answer: {_short(found.answers[0])} -> {_short(found.answers[1])}")
    if len(lines) == 1:
        lines.append("  no step differs in value")
    more = len(lines) - _LINES
    return "\n".join([*lines[:_LINES], *([f"  and {more} lines more"] if more > 0 else [])])


def _part_lines(parts: Mapping[str, Any]) -> list[str]:
    """What differs in one row."""
    if "messages" not in parts:
        return [line for side in ("input", "output") for line in _change_lines(side, parts.get(side))]
    lines: list[str] = []
    for title in ("messages", "answer"):
        for message in parts[title]:
            if message["op"] == "same":
                continue
            at = message["left"] if message["right"] is None else message["right"]
            words = "".join(_WORD.get(op, "{}").format(text) for op, text in message.get("words") or ())
            lines.append(
                f"{title} {at} ({message.get('role')}) {message['op']}" + (f": {_cut(words)}" if words else "")
            )
            lines += _change_lines("  ", message.get("changes"))
    lines += [f"tool {tool['name']}: {tool['op']}" for tool in parts.get("tools") or ()]
    rest = [
        c
        for c in parts.get("input") or ()
        if not str(c.get("path", "")).startswith(("messages", "tools", "toolConfig.tools", "input"))
    ]
    return lines + _change_lines("request", rest)


def _change_lines(title: str, found: Any) -> list[str]:
    return [
        f"{title} and more"
        if change.get("more") is True
        else f"{title} {change.get('path')}: {_side(change, 'expected')} -> {_side(change, 'actual')}"
        for change in found or ()
    ]


def _side(change: Mapping[str, Any], name: str) -> str:
    return _short(change[name]) if name in change else "absent"


def _short(value: Any) -> str:
    return _cut(value if isinstance(value, str) else dumps(value).decode())


def _cut(text: str) -> str:
    flat = shown(text)
    return flat if len(flat) <= _CHARACTERS else f"{flat[:_CHARACTERS]}..."
