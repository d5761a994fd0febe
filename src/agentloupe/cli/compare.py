"""`agentloupe compare`: two runs step by step, or several in one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, harmless, number_of, short
from agentloupe.cli.views import cost_text, counts_text, seconds_text, status_style, tokens_text
from agentloupe.engine.compare import Comparison, Row, Summary
from agentloupe.engine.compare import Path as Road

if TYPE_CHECKING:
    from agentloupe.words.step import Step

_MARKS = {
    "same": ("=", "dim"),
    "input_differs": ("i", "yellow"),
    "output_differs": ("o", "yellow"),
    "only_left": ("<", "red"),
    "only_right": (">", "green"),
    "error_one_side": ("!", "bold red"),
}
_AROUND = 2  # equal rows that are shown before and after a difference


def command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN [RUN...]", help="Runs (or .loupe files); three and more give a table.", show_default=False
        ),
    ],
    all_rows: Annotated[bool, typer.Option("--all", help="Show equal steps too.")] = False,
    row: Annotated[
        int | None,
        typer.Option(
            "--row", metavar="N", help="Show what differs in this row, down to the words.", show_default=False
        ),
    ] = None,
    fail_on: Annotated[
        Literal["miss", "diff"] | None,
        typer.Option(help="Exit with 1 on a miss, or on any difference.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Align two runs by what their steps are, and say where they part; or put several runs in one table.

    Example: agentloupe compare last~1 last
    """
    from agentloupe.verbs.comparing import compare
    from agentloupe.verbs.pricing import price_table

    out = Output(as_json)
    with _store(db, runs) as store:
        found = compare(*runs, store=store, prices=price_table())
        if isinstance(found, Summary):
            _say_summary(out, found)
            failed = fail_on == "miss" and any(line.run.counts.miss for line in found.rows)
            failed = failed or (fail_on == "diff" and (len(found.paths) > 1 or any(p.children for p in found.paths)))
        else:
            if row is not None:
                _say_row(out, found, row, store)
            else:
                _say_pair(out, found, all_rows)
            missed = found.left.counts.miss or found.right.counts.miss
            failed = bool(missed) if fail_on == "miss" else fail_on == "diff" and found.first is not None
    raise typer.Exit(1 if failed else 0)


def _store(db: str | None, runs: Sequence[str]) -> Any:
    """The store, or none where only files are compared and there is none."""
    from contextlib import nullcontext

    return nullcontext(None) if all(Path(run).is_file() for run in runs) else opened(db)


# --- two runs ---------------------------------------------------------------------------------------------------------


def _say_pair(out: Output, found: Comparison, all_rows: bool) -> None:
    if out.as_json:
        out.document(found.as_json())
        return
    out.line(f"left   {found.left.id}  {found.left.status}{_fork_text(found.left)}")
    out.line(f"right  {found.right.id}  {found.right.status}{_fork_text(found.right)}")
    for run in (found.left, found.right):
        if run.overrides:
            out.line(f"changed in {run.id}: " + ", ".join(str(o.get("path", o)) for o in run.overrides))
    for line in found.snapshot.lines():
        out.line(f"ran on: {line}", style="yellow" if found.snapshot.changes else "dim")
    _say_first(out, found)
    _say_deltas(out, found)
    _say_rows(out, found.rows, all_rows)
    out.line("answers", style="bold")
    left, right = found.answers
    if left == right:
        out.line(f"  equal: {short(left, 400)}")
    else:
        out.line(f"  left : {short(left, 400)}")
        out.line(f"  right: {short(right, 400)}")
    if found.first is not None:
        out.line(
            f"one pair of runs is no verdict; look closer: agentloupe compare {found.left.id} {found.right.id} --row {found.first}"
        )


def _fork_text(run: Any) -> str:
    counts = counts_text(run)
    return f"  ({counts}; {run.label})" if counts and run.label else ""


def _say_first(out: Output, found: Comparison) -> None:
    if found.first is None:
        respelled = sum(row.respelled for row in found.rows)
        spelling = f"; {respelled} in spelling only" if respelled else ""
        others = sum(row.of_other_templates for row in found.rows)
        templates = f"; {others} made from another template" if others else ""
        said = "no step differs" if found.identical else f"no step differs in value{spelling}{templates}"
        out.line(said, style="green")
        return
    row = found.rows[found.first]
    step = row.left or row.right
    assert step is not None, "a row has at least one side"
    out.line(
        f"first difference in row {found.first}: {step.kind} {step.name}: {row.status.replace('_', ' ')}",
        style="bold yellow",
    )


def _say_deltas(out: Output, found: Comparison) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "left", "right", "change"):
        table.add_column(title, justify="left" if not title else "right")
    for name, delta in found.deltas.items():
        sides = ((delta.left, delta.partial[0]), (delta.right, delta.partial[1]))
        shown = [_figure(name, value, partial) for value, partial in sides]
        change = "" if delta.change is None else f"{delta.change:+.3f}" if name == "seconds" else f"{delta.change:+}"
        table.add_row(name.replace("_", " "), *shown, change)
    out.draw(table)


def _figure(name: str, value: Any, partial: bool) -> str:
    if value is None:
        return "unknown"
    if name == "cost":
        return cost_text(value, not partial)
    return f"{value:.3f}" if name == "seconds" else f"{value}{'+' if partial else ''}"


def _say_rows(out: Output, rows: Sequence[Row], all_rows: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    shown = set(range(len(rows))) if all_rows else _near_differences(rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("row", "", "left", "right", "what"):
        table.add_column(title, justify="right" if title == "row" else "left")
    hidden = 0
    for number, row in enumerate(rows):
        if number not in shown:
            hidden += 1
            continue
        if hidden:
            table.add_row("", "", f"... {hidden} equal steps", "", "")
            hidden = 0
        mark, style = _MARKS[row.status]
        what = row.status.replace("_", " ") + "".join(f"; {note}" for note in row.notes)
        table.add_row(
            str(number), Text(mark, style=style), _cell(row.left), _cell(row.right), Text(harmless(what), style=style)
        )
    if hidden:
        table.add_row("", "", f"... {hidden} equal steps", "", "")
    out.draw(table)


def _near_differences(rows: Sequence[Row]) -> set[int]:
    different = [number for number, row in enumerate(rows) if row.status != "same"]
    near = {near for number in different for near in range(number - _AROUND, number + _AROUND + 1)}
    return near | {number for number, row in enumerate(rows) if row.respelled or row.of_other_templates}


def _cell(step: Step | None) -> str:
    if step is None:
        return "-"
    source = "" if step.source in ("live", "recorded") else f" [{step.source}]"
    return f"{step.idx} {step.kind} {harmless(step.name)}{source}"


def _say_row(out: Output, found: Comparison, number: int, store: Any) -> None:
    from agentloupe.verbs.comparing import detail
    from agentloupe.words.errors import StepNotFound

    if not 0 <= number < len(found.rows):
        raise StepNotFound(f"the comparison has no row {number}", hint=f"rows are 0 to {len(found.rows) - 1}")
    row = found.rows[number]
    parts = detail(found, row, store=store)
    if out.as_json:
        out.document(parts)
        return
    out.line(f"row {number}: {row.status.replace('_', ' ')}" + "".join(f"; {note}" for note in row.notes), style="bold")
    out.line(f"left : {_cell(row.left)}")
    out.line(f"right: {_cell(row.right)}")
    if "messages" in parts:
        _say_messages(out, "message", parts["messages"])
        _say_messages(out, "answer", parts["answer"])
        for tool in _list(parts["tools"]):
            out.line(f"  tool {tool['name']}: {tool['op']}")
            _say_changes(out, "   ", tool.get("changes"))
        _say_changes(out, "  request", _parameters(parts["input"]))
    else:
        _say_changes(out, "  input", parts.get("input"))
        _say_changes(out, "  output", parts.get("output"))


def _list(value: Any) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", value) if isinstance(value, list) else []


def _parameters(changes: Any) -> list[dict[str, Any]]:
    """Changes of a request outside of its history and its tools, which are shown on their own."""
    shown = ("messages", "tools", "input", "contents")
    return [change for change in _list(changes) if not str(change.get("path", "")).startswith(shown)]


def _say_messages(out: Output, title: str, messages: Any) -> None:
    for message in _list(messages):
        if message["op"] == "same":
            continue
        number = message["left"] if message["right"] is None else message["right"]
        out.line(f"  {title} {number} ({message.get('role')}): {message['op']}")
        if message.get("words"):
            out.line("    " + "".join(_word(*piece) for piece in message["words"]))
        _say_changes(out, "   ", message.get("changes"))


def _say_changes(out: Output, title: str, changes: Any) -> None:
    for change in _list(changes):
        if change.get("more") is True:
            out.line(f"{title} and more")
        else:
            before, after = (
                short(change[side], 160) if side in change else "absent" for side in ("expected", "actual")
            )
            out.line(f"{title} {change.get('path')}: {before} -> {after}")


def _word(op: str, text: str) -> str:
    return {"-": f"[-{text}-]", "+": f"{{+{text}+}}"}.get(op, text)


# --- several runs -----------------------------------------------------------------------------------------------------


def _say_summary(out: Output, found: Summary) -> None:
    if out.as_json:
        out.document(found.as_json())
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("run", "status", "steps", "misses", "tokens", "cost", "took", "label", "answer group", "answer"):
        table.add_column(
            title, justify="right" if title in ("steps", "misses", "cost", "answer group") else "left", overflow="fold"
        )
    for line in found.rows:
        run = line.run
        table.add_row(
            harmless(run.id),
            Text(run.status, style=status_style(run.status)),
            str(run.step_count),
            str(run.counts.miss),
            tokens_text(run.total_input_tokens, run.total_output_tokens, run.usage_complete),
            cost_text(run.cost, run.cost_complete),
            seconds_text(run.started_at, run.ended_at),
            run.label or "",
            str(line.group + 1),
            short(line.answer, 80),
        )
    out.draw(table)
    out.line(
        f"{number_of(len(found.rows), 'run')}, {number_of(found.groups, 'different answer')}; the largest group holds {found.agreement:.0%}"
    )
    out.line("paths", style="bold")
    _say_paths(out, found.paths, len(found.rows))


def _say_paths(out: Output, paths: Sequence[Road], total: int) -> None:
    from rich.tree import Tree

    root = Tree("", hide_root=True, guide_style="dim")
    todo = [(root, path) for path in reversed(paths)]
    while todo:
        above, path = todo.pop()
        names = [f"{step.kind} {harmless(step.name)}" if step.kind != "llm" else "model" for step in path.stretch]
        road = " > ".join(names if len(names) <= 8 else [*names[:4], f"({len(names) - 6} more)", *names[-2:]])
        ends = f"  {len(path.ends)} end here" if path.ends and path.children else ""
        node = above.add(f"{len(path.runs)} of {total}: {road}{ends}")
        todo.extend((node, child) for child in reversed(path.children))
    out.draw(root)
