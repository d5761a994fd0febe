"""Forks on the terminal: the three arms with their figures, what to know before believing them, where to look next."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentloupe.cli.output import Output, fail, harmless, short
from agentloupe.cli.views import cost_text, counts_text, run_json, status_style, tokens_text
from agentloupe.engine.compare import Comparison, Row, Side, compare_runs
from agentloupe.ports.protocols import Store
from agentloupe.verbs.comparing import side_of
from agentloupe.verbs.pricing import price_table
from agentloupe.words.run import Counts, Run

if TYPE_CHECKING:
    from agentloupe.verbs.forking import ForkResult

__all__ = ["arms_table", "not_even_begun", "road_of", "say_road", "show_forks", "without_class"]


def show_forks(out: Output, store: Store, result: ForkResult, fail_on: str | None) -> int:
    """Shows what came of a fork; returns the exit code."""
    table = price_table()
    arms = [("observed", side_of(store, result.parent.id, table))]
    arms += [("control", side_of(store, run.id, table)) for run in result.controls]
    arms += [("candidate", side_of(store, run.id, table)) for run in result.candidates]
    compared = [compare_runs(arms[0][1], side) for _, side in arms[1:]]
    roads = [road_of(comparison) for comparison in compared]
    failed = _failed(result, roads, fail_on)
    if out.as_json:
        listed: list[dict[str, Any]] = [
            {**run_json(side.run), "answer": side.answer, "first_difference": road}
            for (_, side), road in zip(arms[1:], roads, strict=True)
        ]
        split = len(result.controls)
        parent = run_json(arms[0][1].run)
        notes = list(result.notes)
        out.document({"parent": parent, "controls": listed[:split], "runs": listed[split:], "notes": notes})
        _say_failed(result, failed)
        return failed
    for note in result.notes:
        out.line(f"note: {note}", style="yellow")
    arms_table(out, arms)
    alike: dict[object, list[tuple[str, Run, dict[str, Any] | None]]] = {}
    for (arm, side), road in zip(arms[1:], roads, strict=True):
        same = (arm, side.run.error, str(road)) if side.run.error else side.run.id
        alike.setdefault(same, []).append((arm, side.run, road))
    for found in alike.values():
        arm, run, road = found[0]
        say_road(out, f"{arm} {run.id}" if len(found) == 1 else f"{arm}, {len(found)} runs", run, road)
    if not result.controls:
        out.line(
            "one fork is no verdict: even an unchanged fork may take another road; --repeat 3 forks beside controls"
        )
    first = result.candidates[0].id
    out.line("next:")
    out.command(f"  agentloupe compare {result.parent.id} {first}")
    out.command(f"  agentloupe show {first}")
    _say_failed(result, failed)
    return failed


def _say_failed(result: ForkResult, failed: int) -> None:
    """On standard error: why none of the forks came to a good end. Who got no answer at all is told by the command."""
    if failed == 3 and not not_even_begun(result):
        run = result.candidates[0]
        why = without_class(run.error or "it did not say why")
        fail(f"{run.id} was made and ended as {run.status}: {why}", code=failed, slug="fork_failed")


def say_road(out: Output, who: str, run: Run, road: dict[str, Any] | None) -> None:
    """Where a fork leaves its parent's road, and whether its answers can be believed."""
    if road is None:
        out.line(f"{who}: same road as its parent")
    else:
        at = road["right"] if road["left"] is None else road["left"]
        out.line(f"{who}: leaves its parent's road at step {at} ({road['what']})")
    if run.label == "hypothetical":
        why = "an answer was neither real nor recorded for that very call"
        out.line(f"  hypothetical from step {run.hypothetical_from} on: {why}", style="yellow")


def arms_table(out: Output, arms: Sequence[tuple[str, Side]]) -> None:
    """One line for each run: figures, counts, label, answer."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("arm", "run", "status", "steps", "tools answered by", "label", "new tokens", "new cost"):
        table.add_column(title, justify="right" if title == "steps" else "left", overflow="fold")
    for arm, side in arms:
        run = side.run
        own = ("", "", "", "")
        if arm != "observed":
            tokens = tokens_text(run.new_input_tokens, run.new_output_tokens)
            own = (counts_text(run), run.label or "", tokens, cost_text(run.new_cost))
        status = Text(run.status, style=status_style(run.status))
        table.add_row(arm, harmless(run.id), status, str(run.step_count), *own)
    out.draw(table)
    failed = Counter((arm, without_class(side.run.error)) for arm, side in arms if side.run.error)
    for (arm, why), times in failed.items():
        out.line(f"{arm} failed{f' {times} times' if times > 1 else ''}: {why}", style="red")
    for arm, side in arms:
        if not side.run.error and side.answer is not None:
            out.line(f"{arm} answers: {short(side.answer, 240)}")


def road_of(comparison: Comparison) -> dict[str, Any] | None:
    """The first difference: step numbers of both sides and what differs; `None` where the roads are the same.

    An agent's own step differs because of what is in it, and stands before that: it is named only when nothing else is.
    """
    if comparison.first is None:
        return None
    rest = [row for row in comparison.rows[comparison.first :] if row.status != "same"]
    row = next((row for row in rest if _is_real(row)), rest[0])
    step = row.left or row.right
    assert step is not None, "a row has at least one side"
    left, right = row.left.idx if row.left else None, row.right.idx if row.right else None
    return {"left": left, "right": right, "what": f"{step.kind} {step.name}: {row.status.replace('_', ' ')}"}


def _is_real(row: Row) -> bool:
    return any(step is not None and step.kind != "agent" for step in (row.left, row.right))


def without_class(error: str) -> str:
    """A recorded error as people read it: one of our own without the name of its class."""
    return re.sub(r"^agentloupe\.(?:words\.)?errors\.\w+: ", "", error)


def not_even_begun(result: ForkResult) -> bool:
    """Whether no candidate got even its first answer: the model could not be asked."""
    return all(
        run.status == "error" and run.new_output_tokens is None and run.counts.as_dict() == Counts().as_dict()
        for run in result.candidates
    )


def _failed(result: ForkResult, roads: Sequence[dict[str, Any] | None], fail_on: str | None) -> int:
    """1 where a check that was asked for failed, 3 where no candidate ended well, else 0."""
    if not_even_begun(result):
        return 3
    missed = fail_on == "miss" and any(run.counts.miss for run in result.candidates)
    differs = fail_on == "diff" and any(road is not None for road in roads[len(result.controls) :])
    if missed or differs:
        return 1
    return 3 if all(run.status != "ok" for run in result.candidates) else 0
