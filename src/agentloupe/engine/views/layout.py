"""Which cards a run's transcript has, from headers alone: so that any page of it can be drawn without reading the rest.

One level at a time: the steps that lie directly in the run, or directly in one of its steps. A model step takes the tools
that follow it along, up to the next model step, however many; sub-agents are a card each; more than five equal calls one
after another that follow no model step are one card, and so is a kept prefix, where a person wants it folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, Literal, NamedTuple

from agentloupe.words.step import Step

__all__ = ["FOLD", "Unit", "level_of", "units_of"]

FOLD: Final = 5
"""Equal calls one after another that are still shown one by one."""

UnitKind = Literal["question", "model", "agent", "step", "group", "kept", "limit"]


class Unit(NamedTuple):
    """One card before it is filled.

    Attributes:
        card: what it shows.
        steps: its steps; of a model card the model step and the tools that follow it.
        kept: its first step was kept from the parent.
    """

    card: UnitKind
    steps: tuple[Step, ...]
    kept: bool


def level_of(steps: Sequence[Step], inside: int | None) -> list[Step]:
    """The steps that lie directly in step `inside`; without it those of the run itself, below its root step."""
    if inside is not None:
        return [step for step in steps if step.parent_idx == inside and step.idx != inside]
    top = [step for step in steps if step.parent_idx is None]
    if len(top) == 1 and top[0].kind == "agent" and len(steps) > 1:
        return [step for step in steps if step.parent_idx == top[0].idx and step.idx != top[0].idx]
    return top


def units_of(level: Sequence[Step], *, fold_kept: bool) -> list[Unit]:
    """The cards of one level, in order."""
    units: list[Unit] = []
    asked = next((step for step in level if step.kind == "llm"), None)
    if asked is not None:
        units.append(Unit("question", (asked,), _kept(asked)))
    rest = list(level)
    if fold_kept:
        prefix = [step for step in level if _kept(step)]
        if prefix:
            units.append(Unit("kept", tuple(prefix), kept=True))
            rest = [step for step in level if not _kept(step)]
    units += _cards(rest)
    return units


def _kept(step: Step) -> bool:
    return step.source == "recorded"


def _cards(steps: Sequence[Step]) -> Iterator[Unit]:
    at = 0
    while at < len(steps):
        end = at + 1
        while end < len(steps) and steps[end].kind != "llm":
            end += 1
        stretch = steps[at:end]
        if stretch[0].kind == "llm":
            yield from _model(stretch[0], stretch[1:])
        else:
            yield from _others(stretch)
        at = end


def _model(model: Step, after: Sequence[Step]) -> Iterator[Unit]:
    """A model step with the tools that it asked for, then whatever else happened before the next one."""
    if not after:
        yield Unit("model", (model,), _kept(model))
        return
    tools = tuple([step for step in after if step.kind == "tool"])
    yield Unit("model", (model, *tools), _kept(model))
    if len(tools) < len(after):
        yield from _others([step for step in after if step.kind != "tool"])


def _others(steps: Sequence[Step]) -> Iterator[Unit]:
    for _, run in groupby(steps, lambda step: (step.kind, step.name, _kept(step))):
        members = tuple(run)
        if len(members) > FOLD and members[0].kind != "agent":
            yield Unit("group", members, _kept(members[0]))
            continue
        for step in members:
            card: UnitKind = "agent" if step.kind == "agent" else "limit" if step.attrs.get("limit") else "step"
            yield Unit(card, (step,), _kept(step))
