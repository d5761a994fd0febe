"""One short line for each step: what it did, told by its bodies, where a list has room for no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from agentloupe.engine.project import outcome_of
from agentloupe.engine.views.bodies import held
from agentloupe.engine.views.messages import Message, answer_of, text_in
from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.step import Step

__all__ = ["lines_of"]

_MOST: Final = 200
_SIDE: Final = 90
"""Characters of a tool's arguments, so that there is room for its result."""
_AT_ONCE: Final = 25
"""Steps whose bodies are in memory together."""


def lines_of(steps: Sequence[Step], bodies: Recording) -> dict[int, str]:
    """Of each step, by `idx`: what a model said and asked for, a tool's arguments and result, else the result or the error.

    At most 200 characters without line breaks; empty where the bodies are gone or tell nothing.
    """
    found: dict[int, str] = {}
    for at in range(0, len(steps), _AT_ONCE):
        some = steps[at : at + _AT_ONCE]
        here = replace(bodies, get=held(bodies.get, _digests(some)))
        found.update((step.idx, _cut(_line(step, here), _MOST)) for step in some)
    return found


def _digests(steps: Sequence[Step]) -> Iterator[str | None]:
    for step in steps:
        yield step.output_digest
        if step.kind not in {"llm", "agent"}:
            yield step.input_digest


def _line(step: Step, bodies: Recording) -> str:
    came = bodies.body_if_there(step.output_digest)
    result = None if came is None else outcome_of(step, came)
    failed = step.status not in {"ok", "open"}
    if step.kind == "llm" and not failed:
        answer = answer_of(result)
        return "" if answer is None else _said(answer)
    told = f"{step.error_class or step.status}: {_text(result)}" if failed and result is None else _text(result)
    if step.kind in {"llm", "agent"}:
        return told
    given = bodies.body_if_there(step.input_digest)
    asked = "" if given is None else _cut(_text(given), _SIDE)
    return f"{asked} -> {told}" if asked and told else asked or told


def _said(answer: Message) -> str:
    """What a model said, and which tools it asked for."""
    calls = [f"=> {part.name or ''}({_cut(part.text, _SIDE)})" for part in answer.parts if part.type == "tool_call"]
    return " ".join([text for text in (_cut(text_in(answer), _MOST),) if text] + calls)


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "backslashreplace")


def _cut(text: str, most: int) -> str:
    """A text as one line, cut where it is too long."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"
