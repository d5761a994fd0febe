"""Compares runs: two of them step by step, or several in one table with the tree of their paths.

Steps are aligned by what they are (see `align`), never by index. A model step is compared by what it answered and by what
was *new* in its input: a changed system prompt makes one step differ, not every step after it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, cast

from agentloupe.align import Item, align
from agentloupe.canonical import Json, canonical
from agentloupe.run import Run
from agentloupe.step import Step

__all__ = ["Comparison", "Path", "Row", "RowStatus", "Side", "Summary", "SummaryRow", "compare_runs", "summarise"]

RowStatus = Literal["same", "input_differs", "output_differs", "only_left", "only_right", "error_one_side"]


@dataclass(frozen=True, slots=True)
class Side:
    """One run as a comparison needs it.

    Attributes:
        run, steps: the run's row and its steps in order; bodies need not be loaded.
        news: a value that is equal for two model steps exactly when what was new in their inputs is equal; `None` when
            it is not known (the whole input is compared then).
        answer: the run's final answer, `None` when there is none.
    """

    run: Run
    steps: Sequence[Step]
    news: Callable[[Step], str | None]
    answer: Json = None


@dataclass(frozen=True, slots=True)
class Row:
    """A pair of steps, or one without a partner. `notes` say what the status alone does not."""

    status: RowStatus
    left: Step | None
    right: Step | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """One figure on both sides; `None` is unknown and makes the difference unknown."""

    left: Decimal | float | int | None
    right: Decimal | float | int | None

    @property
    def change(self) -> Decimal | float | int | None:
        """Right minus left."""
        if self.left is None or self.right is None:
            return None
        return self.right - self.left  # type: ignore[operator]  # both sides of one figure have one type


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs aligned.

    Attributes:
        rows: every step of both sides, each once.
        first: index in `rows` of the first difference, or `None`.
        identical: nothing differs, not even in spelling.
        deltas: steps, model_calls, misses, errors, input_tokens, output_tokens, cost, seconds.
    """

    left: Run
    right: Run
    rows: tuple[Row, ...]
    first: int | None
    identical: bool
    deltas: dict[str, Delta]
    answers: tuple[Json, Json]

    def count(self, status: RowStatus) -> int:
        """How many rows have this status."""
        return sum(1 for row in self.rows if row.status == status)


def compare_runs(left: Side, right: Side) -> Comparison:
    """Aligns two runs and says of every pair what differs."""
    pairs = align([_item(step) for step in left.steps], [_item(step) for step in right.steps])
    rows = tuple(
        _row(None if i is None else left.steps[i], None if j is None else right.steps[j], left, right) for i, j in pairs
    )
    first = next((k for k, row in enumerate(rows) if row.status != "same"), None)
    plain = first is None and all(not row.notes for row in rows) and canonical(left.answer) == canonical(right.answer)
    mine, theirs = _figures(left), _figures(right)
    deltas = {name: Delta(mine[name], theirs[name]) for name in mine}
    return Comparison(left.run, right.run, rows, first, plain, deltas, (left.answer, right.answer))


def _item(step: Step) -> Item:
    if step.kind == "llm":
        return Item("llm", ("llm", step.output_digest, step.error_class), flexible=True)
    family = (step.kind, step.name)
    return Item(family, (*family, step.input_key))


def _row(left: Step | None, right: Step | None, side: Side, other: Side) -> Row:
    if left is None or right is None:
        return Row("only_right" if left is None else "only_left", left, right)
    notes: list[str] = []
    if left.name != right.name:
        notes.append("name differs")
    inputs = _input_differs(left, right, side, other, notes)
    outputs = left.output_digest != right.output_digest and _outputs_differ(left, right, notes)
    if _failed(left) != _failed(right):
        return Row("error_one_side", left, right, (*notes, "input differs") if inputs else tuple(notes))
    if inputs:
        return Row("input_differs", left, right, (*notes, "output differs") if outputs else tuple(notes))
    return Row("output_differs" if outputs else "same", left, right, tuple(notes))


def _failed(step: Step) -> bool:
    """A miss counts as an errored step."""
    return step.status in {"error", "cancelled", "unknown"} or step.error_class is not None or step.source == "miss"


def _input_differs(left: Step, right: Step, side: Side, other: Side, notes: list[str]) -> bool:
    if left.input_key == right.input_key:
        if (
            left.kind != "llm"
            and None not in (left.input_digest, right.input_digest)
            and left.input_digest != right.input_digest
        ):
            notes.append("input: equal values, different spelling")
        return False
    if left.kind == "llm":
        mine, theirs = side.news(left), other.news(right)
        if mine is not None and mine == theirs:
            notes.append("input differs only in what came before")
            return False
    return True


def _outputs_differ(left: Step, right: Step, notes: list[str]) -> bool:
    if left.loaded and right.loaded and _same(left.output, right.output):
        if left.kind != "llm":
            notes.append("output: equal values, different spelling")
        return False
    return True


def _same(one: Json, other: Json) -> bool:
    """Equal as values. A model's message is compared without the ids that every call gets anew."""
    return canonical(_without_ids(one)) == canonical(_without_ids(other))


def _without_ids(message: Json) -> Json:
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    calls = cast("list[Json]", message["tool_calls"])
    bare = [{k: v for k, v in call.items() if k != "id"} if isinstance(call, dict) else call for call in calls]
    return {**message, "tool_calls": cast("Json", bare)}


def _figures(side: Side) -> dict[str, Decimal | float | int | None]:
    run, steps = side.run, side.steps
    return {
        "steps": len(steps),
        "model_calls": sum(1 for step in steps if step.kind == "llm"),
        "misses": run.counts.miss,
        "errors": sum(1 for step in steps if _failed(step)),
        "input_tokens": run.total_input_tokens,
        "output_tokens": run.total_output_tokens,
        "cost": run.cost,
        "seconds": seconds(run),
    }


def seconds(run: Run) -> float | None:
    """How long the run took, or `None` while it is open."""
    if run.ended_at is None:
        return None
    return (datetime.fromisoformat(run.ended_at) - datetime.fromisoformat(run.started_at)).total_seconds()


# --- several runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One run in the table. `group` numbers equal final answers (after normalising blanks, case and Unicode form)."""

    run: Run
    figures: dict[str, Decimal | float | int | None]
    answer: Json
    group: int


@dataclass(frozen=True, slots=True)
class Path:
    """A stretch of road that some runs took together.

    Attributes:
        stretch: the steps as one of those runs (the first) took them, up to where a run ends or the roads part.
        runs: ids of the runs that came here.
        ends: ids of the runs that ended with the stretch's last step.
        children: where the others went, the most travelled first.
    """

    stretch: tuple[Step, ...]
    runs: tuple[str, ...]
    ends: tuple[str, ...]
    children: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Several runs side by side. `agreement` is the share of the largest group of equal answers (0 to 1)."""

    rows: tuple[SummaryRow, ...]
    groups: int
    agreement: float
    paths: tuple[Path, ...]


def summarise(sides: Sequence[Side]) -> Summary:
    """A table of runs, their answers grouped, and the tree of the paths they took."""
    groups: dict[bytes, int] = {}
    rows: list[SummaryRow] = []
    for side in sides:
        group = groups.setdefault(canonical(_normal(side.answer)), len(groups))
        rows.append(SummaryRow(side.run, _figures(side), side.answer, group))
    sizes = [sum(1 for row in rows if row.group == group) for group in range(len(groups))]
    agreement = max(sizes) / len(rows) if rows else 0.0
    walks = [(side.run.id, [step for step in side.steps if step.kind != "agent"]) for side in sides]
    return Summary(tuple(rows), len(groups), agreement, _branches(walks, 0))


def _normal(answer: Json) -> Json:
    if not isinstance(answer, str):
        return answer
    return " ".join(unicodedata.normalize("NFKC", answer).casefold().split())


def _branches(walks: Sequence[tuple[str, Sequence[Step]]], depth: int) -> tuple[Path, ...]:
    """Groups the walks by what they did at `depth`. Recursion is as deep as roads part, at most the number of runs."""
    grouped: dict[tuple[object, ...], list[tuple[str, Sequence[Step]]]] = {}
    for walk in walks:
        if depth < len(walk[1]):
            grouped.setdefault(_behaviour(walk[1][depth]), []).append(walk)
    paths = [_stretch(members, depth) for members in grouped.values()]
    return tuple(sorted(paths, key=lambda path: -len(path.runs)))


def _stretch(members: list[tuple[str, Sequence[Step]]], depth: int) -> Path:
    """Goes on while all members do the same and none of them ends."""
    shown = members[0][1]
    end = depth + 1
    while all(len(steps) > end for _, steps in members) and len({_behaviour(steps[end]) for _, steps in members}) == 1:
        end += 1
    return Path(
        stretch=tuple(shown[depth:end]),
        runs=tuple(run_id for run_id, _ in members),
        ends=tuple(run_id for run_id, steps in members if len(steps) == end),
        children=_branches(members, end),
    )


def _behaviour(step: Step) -> tuple[object, ...]:
    """Model steps are one behaviour whatever they said: their calls, which follow, tell the roads apart."""
    if step.kind == "llm":
        return ("llm", step.error_class)
    return (step.kind, step.name, step.input_key, step.error_class)
