"""Compares runs: two of them step by step, or several in one table with the tree of their paths.

Steps are aligned by what they are (see `align`), never by index. A model step is compared by what it answered and by what
was *new* in its input: a changed system prompt makes one step differ, not every step after it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, get_args

from agentloupe.engine.align import Item, align
from agentloupe.engine.news import same_value, without_ids
from agentloupe.engine.snapshots import Snapshot, SnapshotComparison, compare_snapshots
from agentloupe.engine.withholding import cannot_be_told, digest_kept
from agentloupe.words.canonical import Json, canonical, dumps
from agentloupe.words.jsontext import quick_text
from agentloupe.words.keeping import DIGESTS, KEPT
from agentloupe.words.prompts import TEMPLATE, prompt_change
from agentloupe.words.run import Run
from agentloupe.words.step import Step

__all__ = [
    "SPELLING",
    "Comparison",
    "Delta",
    "Outputs",
    "Path",
    "Row",
    "RowStatus",
    "Side",
    "Summary",
    "SummaryRow",
    "compare_runs",
    "seconds",
    "summarise",
]

SPELLING = "equal values, different spelling"
"""What a note says of two texts whose digests differ and whose values do not."""

RowStatus = Literal["same", "input_differs", "output_differs", "only_left", "only_right", "error_one_side"]


Outputs = Callable[[Sequence[Step]], Mapping[int, Json]]
"""Outputs of steps by `idx`, as `Step.output` shows them; of a failed step its error. Asked for many at once."""


def _loaded(steps: Sequence[Step]) -> Mapping[int, Json]:
    return {step.idx: step.output if step.error is None else step.error for step in steps if step.loaded}


def _unknown(_: Step) -> object:
    return None


@dataclass(frozen=True, slots=True)
class Side:
    """One run as a comparison needs it.

    Attributes:
        run, steps: the run's row and its steps in order; bodies need not be loaded.
        news: a value that is equal for two model steps exactly when what was new in their inputs is equal; `None` when
            it is not known (the whole input is compared then). See `news`.
        outputs: loads outputs; only those are asked for that have to be looked at. A step that is not in its answer
            counts as different.
        answer: the run's final answer, `None` when there is none.
        snapshot: reads what the run depended on.
    """

    run: Run
    steps: Sequence[Step]
    news: Callable[[Step], object] = _unknown
    outputs: Outputs = _loaded
    answer: Json = None
    snapshot: Callable[[], Snapshot] = Snapshot


@dataclass(frozen=True, slots=True)
class Row:
    """A pair of steps, or one without a partner. `notes` say what the status alone does not."""

    status: RowStatus
    left: Step | None
    right: Step | None
    notes: tuple[str, ...] = ()

    @property
    def respelled(self) -> bool:
        """Whether values are equal that are spelled otherwise."""
        return any(note.endswith(SPELLING) for note in self.notes)

    @property
    def of_other_templates(self) -> bool:
        """Whether the calls were made from other prompt templates."""
        return any(note.startswith(TEMPLATE) for note in self.notes)

    def as_json(self) -> dict[str, Json]:
        """Status, notes, and of each side what a list of steps shows."""
        return {
            "status": self.status,
            "left": _step_json(self.left),
            "right": _step_json(self.right),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Delta:
    """One figure on both sides; `None` is unknown and makes the difference unknown.

    Attributes:
        left, right: the figures.
        partial: of which side a part is not known, so that the figure is a lower bound; the difference is unknown then.
    """

    left: Decimal | float | int | None
    right: Decimal | float | int | None
    partial: tuple[bool, bool] = (False, False)

    @property
    def change(self) -> Decimal | float | int | None:
        """Right minus left."""
        if self.left is None or self.right is None or any(self.partial):
            return None
        return self.right - self.left  # type: ignore[operator]  # both sides of one figure have one type

    def as_json(self) -> dict[str, Json]:
        """`{left, right, change}`; decimals as exact text."""
        return {"left": _plain(self.left), "right": _plain(self.right), "change": _plain(self.change)}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs aligned.

    Attributes:
        rows: every step of both sides, each once.
        first: index in `rows` of the first difference, or `None`.
        identical: nothing differs, not even in spelling.
        deltas: steps, model_calls, misses, errors, input_tokens, output_tokens, cost, seconds.
        snapshot: how what they depended on differs.
    """

    left: Run
    right: Run
    rows: tuple[Row, ...]
    first: int | None
    identical: bool
    deltas: dict[str, Delta]
    answers: tuple[Json, Json]
    snapshot: SnapshotComparison

    def count(self, status: RowStatus) -> int:
        """How many rows have this status."""
        return sum(1 for row in self.rows if row.status == status)

    def first_at(self) -> tuple[int, int] | None:
        """The first difference as indexes of steps on both sides; where a side has none, that of its next step."""
        if self.first is None:
            return None
        rest = self.rows[self.first :]
        mine = next((row.left.idx for row in rest if row.left is not None), self.left.step_count)
        theirs = next((row.right.idx for row in rest if row.right is not None), self.right.step_count)
        return mine, theirs

    def as_json(self) -> dict[str, Json]:
        """The comparison as JSON.

        `rows` name steps by their `idx`; `first` is `{row, left_idx, right_idx}`; `counts` has `unchanged`, `changed`, `added`
        (only right), `removed` (only left), `respelled`, `other_templates` and each status; costs are exact decimal text.
        """
        return {**self.head_json(), "rows": [row.as_json() for row in self.rows]}

    def head_json(self) -> dict[str, Json]:
        """The same without the rows."""
        at = self.first_at()
        statuses: tuple[RowStatus, ...] = get_args(RowStatus)
        counts: dict[str, Json] = {status: self.count(status) for status in statuses}
        changed = ("input_differs", "output_differs", "error_one_side")
        counts["unchanged"] = self.count("same")
        counts["changed"] = sum(1 for row in self.rows if row.status in changed)
        counts["respelled"] = sum(row.respelled for row in self.rows)
        counts["other_templates"] = sum(row.of_other_templates for row in self.rows)
        counts["added"], counts["removed"] = self.count("only_right"), self.count("only_left")
        return {
            "left": _run_json(self.left),
            "right": _run_json(self.right),
            "identical": self.identical,
            "first": {"row": self.first, "left_idx": at[0], "right_idx": at[1]} if at is not None else None,
            "counts": counts,
            "deltas": {name: delta.as_json() for name, delta in self.deltas.items()},
            "answers": {"left": self.answers[0], "right": self.answers[1]},
            "snapshot": self.snapshot.as_json(),
        }


def compare_runs(left: Side, right: Side) -> Comparison:
    """Aligns two runs and says of every pair what differs. Swapping the sides swaps left and right and nothing else."""
    look = _Look(left, right)
    pairs = align([look.item(0, step) for step in left.steps], [look.item(1, step) for step in right.steps])
    paired = [(None if i is None else left.steps[i], None if j is None else right.steps[j]) for i, j in pairs]
    look.load_differing(paired)
    rows = tuple(_row(mine, theirs, look) for mine, theirs in paired)
    first = next((k for k, row in enumerate(rows) if row.status != "same"), None)
    plain = first is None and all(not row.notes for row in rows) and canonical(left.answer) == canonical(right.answer)
    figures, theirs = _figures(left), _figures(right)
    deltas = {
        name: Delta(figures[name], theirs[name], (_partial(name, left.run), _partial(name, right.run)))
        for name in figures
    }
    depended = compare_snapshots(left.snapshot(), right.snapshot())
    return Comparison(left.run, right.run, rows, first, plain, deltas, (left.answer, right.answer), depended)


class _Look:
    """What has been looked at: outputs are read only where digests do not tell, many at once."""

    def __init__(self, left: Side, right: Side) -> None:
        self.sides = (left, right)
        self.values: tuple[dict[int, Json], dict[int, Json]] = ({}, {})
        models = [{step.output_digest for step in side.steps if step.kind == "llm"} for side in self.sides]
        for at, side in enumerate(self.sides):
            elsewhere = models[1 - at]
            self._load(at, [s for s in side.steps if s.kind == "llm" and s.output_digest not in elsewhere])

    def _load(self, at: int, steps: Sequence[Step]) -> None:
        """Takes outputs; of a model the message without the ids that every call gets anew."""
        wanted = [step for step in steps if step.idx not in self.values[at] and step.output_digest is not None]
        if not wanted:
            return
        found = self.sides[at].outputs(wanted)
        for step in wanted:
            if step.idx in found:
                value = found[step.idx]
                self.values[at][step.idx] = without_ids(value) if step.kind == "llm" else value

    def item(self, at: int, step: Step) -> Item:
        """What alignment knows of a step."""
        if step.kind == "llm":
            values = self.values[at]
            answer = quick_text(values[step.idx]) if step.idx in values else _name_of_output(step)
            return Item("llm", ("llm", answer, step.error_class), flexible=True)
        family = (step.kind, step.name)
        return Item(family, (*family, step.input_key))

    def load_differing(self, pairs: Sequence[tuple[Step | None, Step | None]]) -> None:
        """Loads the outputs of pairs whose digests differ."""
        differ = [
            (one, other) for one, other in pairs if one and other and _name_of_output(one) != _name_of_output(other)
        ]
        self._load(0, [one for one, _ in differ])
        self._load(1, [other for _, other in differ])

    def outputs_alike(self, left: Step, right: Step) -> bool:
        """Whether two outputs whose digests differ are equal as values."""
        mine, theirs = self.values
        if left.idx in mine and right.idx in theirs:
            return same_value(mine[left.idx], theirs[right.idx])
        return digest_kept(left, mine.get(left.idx)) == digest_kept(right, theirs.get(right.idx)) is not None

    def outputs_respelled(self, left: Step, right: Step) -> bool:
        """Whether two outputs that are equal as values are different texts."""
        mine, theirs = self.values
        known = left.idx in mine and right.idx in theirs
        return known and dumps(mine[left.idx]) != dumps(theirs[right.idx])


def _row(left: Step | None, right: Step | None, look: _Look) -> Row:
    if left is None or right is None:
        return Row("only_right" if left is None else "only_left", left, right)
    notes: list[str] = []
    if left.name != right.name:
        notes.append("name differs")
    inputs = _input_differs(left, right, look, notes)
    template = prompt_change(left.attrs, right.attrs)
    if template is not None:
        notes.append(template)
    outputs = _name_of_output(left) != _name_of_output(right) and _outputs_differ(left, right, look, notes)
    if outputs and left.kind == "agent":
        # What a span returns follows from the steps in it: the difference is there, and in the final answers.
        notes.append("result differs")
        outputs = False
    if _failed(left) != _failed(right):
        return Row("error_one_side", left, right, (*notes, "input differs") if inputs else tuple(notes))
    if inputs:
        return Row("input_differs", left, right, (*notes, "output differs") if outputs else tuple(notes))
    return Row("output_differs" if outputs else "same", left, right, tuple(notes))


def _failed(step: Step) -> bool:
    """A miss counts as an errored step."""
    return step.status in {"error", "cancelled", "unknown"} or step.error_class is not None or step.source == "miss"


def _input_differs(left: Step, right: Step, look: _Look, notes: list[str]) -> bool:
    if left.input_key == right.input_key:
        digests = (left.input_digest, right.input_digest)
        # Equal requests may be packed in two ways: of model steps the digests say nothing.
        if left.kind != "llm" and None not in digests and digests[0] != digests[1]:
            notes.append(f"input: {SPELLING}")
        return False
    if left.kind == "llm":
        mine, theirs = look.sides[0].news(left), look.sides[1].news(right)
        if mine is not None and mine == theirs:
            notes.append("input differs only in what came before")
            return False
    return True


def _outputs_differ(left: Step, right: Step, look: _Look, notes: list[str]) -> bool:
    if not look.outputs_alike(left, right):
        notes.extend(cannot_be_told(left, right))
        return True
    if left.kind != "llm" or look.outputs_respelled(left, right):  # a model's response has ids and times of its own
        notes.append(f"output: {SPELLING}")
    return False


def _name_of_output(step: Step) -> str | None:
    """What tells an output from others without reading it: the name of its body, or the digest that was kept in its place."""
    return step.output_digest or digest_kept(step)


def _figures(side: Side) -> dict[str, Decimal | float | int | None]:
    run, steps = side.run, side.steps
    if run.erased and not steps:  # nothing is known of steps that are gone
        unknown = dict.fromkeys(("model_calls", "errors", "input_tokens", "output_tokens", "cost"))
        return {"steps": run.step_count or None, "misses": run.counts.miss, **unknown, "seconds": seconds(run)}
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


def _partial(figure: str, run: Run) -> bool:
    if figure == "cost":
        return run.cost is not None and not run.cost_complete
    return figure in ("input_tokens", "output_tokens") and not run.usage_complete


def seconds(run: Run) -> float | None:
    """How long the run took, or `None` while it is open."""
    if run.ended_at is None:
        return None
    return (datetime.fromisoformat(run.ended_at) - datetime.fromisoformat(run.started_at)).total_seconds()


def _plain(value: Decimal | float | None) -> Json:
    return str(value) if isinstance(value, Decimal) else value


def _run_json(run: Run) -> dict[str, Json]:
    return {
        "id": run.id,
        "name": run.name,
        "agent": run.agent,
        "status": run.status,
        "parent_run_id": run.parent_run_id,
        "forked_from_step": run.forked_from_step,
        "arm": run.arm,
        "overrides": [dict(one) for one in run.overrides],
        "label": run.label,
        "hypothetical_from": run.hypothetical_from,
        "counts": dict[str, Json](run.counts.as_dict()),
        "steps": run.step_count,
        "usage_complete": run.usage_complete,
        "cost_complete": run.cost_complete,
    }


def _step_json(step: Step | None) -> Json:
    if step is None:
        return None
    return {
        "idx": step.idx,
        "kind": step.kind,
        "name": step.name,
        "status": step.status,
        "source": step.source,
        "error_class": step.error_class,
    }


# --- several runs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One run in the table. `group` numbers equal final answers (after normalising blanks, case and Unicode form).

    Where a run of the table kept digests only, answers are equal where their digests are.
    """

    run: Run
    figures: dict[str, Decimal | float | int | None]
    answer: Json
    group: int

    def as_json(self) -> dict[str, Json]:
        """The run's row with its figures, final answer and the number of its group."""
        figures: dict[str, Json] = {name: _plain(value) for name, value in self.figures.items()}
        return {**_run_json(self.run), "figures": figures, "answer": self.answer, "group": self.group}


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

    def as_json(self) -> dict[str, Json]:
        """The stretch by kinds and names of its steps, the runs, and where they went on."""
        return {
            "stretch": [_step_json(step) for step in self.stretch],
            "runs": list(self.runs),
            "ends": list(self.ends),
            "children": [child.as_json() for child in self.children],
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """Several runs side by side. `agreement` is the share of the largest group of equal answers (0 to 1)."""

    rows: tuple[SummaryRow, ...]
    groups: int
    agreement: float
    paths: tuple[Path, ...]

    def as_json(self) -> dict[str, Json]:
        """The table and the tree of paths as JSON."""
        return {
            "runs": [row.as_json() for row in self.rows],
            "groups": self.groups,
            "agreement": self.agreement,
            "paths": [path.as_json() for path in self.paths],
        }


def summarise(sides: Sequence[Side]) -> Summary:
    """A table of runs, their answers grouped, and the tree of the paths they took."""
    groups: dict[bytes, int] = {}
    by_digest = any(side.steps and side.steps[0].attrs.get(KEPT) == DIGESTS for side in sides)
    rows: list[SummaryRow] = []
    for side in sides:
        group = groups.setdefault(_same_for_equals(side, by_digest), len(groups))
        rows.append(SummaryRow(side.run, _figures(side), side.answer, group))
    sizes = [sum(1 for row in rows if row.group == group) for group in range(len(groups))]
    agreement = max(sizes) / len(rows) if rows else 0.0
    walks = [(side.run.id, [step for step in side.steps if step.kind != "agent"]) for side in sides]
    return Summary(tuple(rows), len(groups), agreement, _branches(walks, 0))


def _same_for_equals(side: Side, by_digest: bool) -> bytes:
    root = side.steps[0] if side.steps else None
    if not by_digest or root is None or root.kind != "agent":
        return canonical(_normal(side.answer))
    result = side.outputs([root]).get(root.idx)
    name = digest_kept(root, None if result is None else {"result": result})  # the form in which a run's end holds it
    return canonical(_normal(side.answer)) if name is None else name.encode()


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
