"""Finds a text in a run: in names of steps, and in what was sent and came back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from agentloupe.engine.news import News
from agentloupe.engine.project import outcome_of
from agentloupe.engine.views.bodies import whole_ones
from agentloupe.engine.views.messages import answer_of
from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import Json
from agentloupe.words.step import Step

__all__ = ["Hit", "Where", "found_in", "hits_in"]

_AT_ONCE: Final = 100

Where = Literal["name", "input", "output", "error", "reasoning"]
_AROUND: Final = 60


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where the text stands, with what stands around it."""

    idx: int
    where: Where
    path: str
    before: str
    match: str
    after: str


def hits_in(idx: int, where: Where, value: Json, wanted: str) -> Iterator[Hit]:
    """Places in a value, the first one of each text in it; case does not count. `wanted` is not empty."""
    sought = wanted.casefold()
    waiting: list[tuple[str, Json]] = [("", value)]
    while waiting:
        path, at = waiting.pop()
        if isinstance(at, dict):
            waiting += [(f"{path}/{name}", inner) for name, inner in reversed(at.items())]
        elif isinstance(at, list):
            waiting += [(f"{path}/{n}", inner) for n, inner in reversed(list(enumerate(at)))]
        else:
            text = at if isinstance(at, str) else "" if at is None else str(at)
            found = _found(text, sought)
            if found is not None:
                start, end = found
                before, after = text[max(start - _AROUND, 0) : start], text[end : end + _AROUND]
                yield Hit(idx, where, path.removeprefix("/"), before, text[start:end], after)


def _found(text: str, sought: str) -> tuple[int, int] | None:
    """Where a text stands in another, in places of the text itself; folding case may change lengths."""
    folded = text.casefold()
    at = folded.find(sought)
    if at < 0:
        return None
    if len(folded) == len(text):
        return at, at + len(sought)
    start = _place(text, at)
    return start, _place(text, at + len(sought))


def _place(text: str, folded_at: int) -> int:
    """The place in a text that a place in its folded form belongs to."""
    seen = 0
    for place, letter in enumerate(text):
        if seen >= folded_at:
            return place
        seen += len(letter.casefold())
    return len(text)


def found_in(bodies: Recording, steps: Sequence[Step], wanted: str, first: int) -> Iterator[tuple[int, list[Hit]]]:
    """Hits step by step from step `first` on: how many steps have been looked at, and what the last one had.

    Of a model's input only what is new in it is looked at: what was said once is found once.
    """
    for start in range(first, len(steps), _AT_ONCE):
        chosen = steps[start : start + _AT_ONCE]
        before = next((step for step in reversed(steps[:start]) if step.kind == "llm"), None)
        news = News([before, *chosen] if before is not None else chosen, whole_ones(bodies.get))
        for step in chosen:
            yield step.idx + 1, list(_of_step(bodies, step, news, wanted))


def _of_step(bodies: Recording, step: Step, news: News, wanted: str) -> Iterator[Hit]:
    yield from hits_in(step.idx, "name", step.name, wanted)
    if step.kind == "llm":
        fresh = news(step)
        for name, value in fresh.parts if fresh is not None else ():
            yield from hits_in(step.idx, "input", {name.removeprefix("set "): value}, wanted)
    else:
        yield from hits_in(step.idx, "input", bodies.body_if_there(step.input_digest), wanted)
    came = bodies.body_if_there(step.output_digest)
    if came is None:
        return
    shown = outcome_of(step, came)
    if step.status not in {"ok", "open"}:
        yield from hits_in(step.idx, "error", shown, wanted)
        return
    answer = answer_of(shown) if step.kind == "llm" else None
    if answer is None:
        yield from hits_in(step.idx, "output", shown, wanted)
        return
    for at, part in enumerate(answer.parts):
        where: Where = "reasoning" if part.type == "reasoning" else "output"
        yield from hits_in(step.idx, where, {str(at): [part.name, part.text]}, wanted)
