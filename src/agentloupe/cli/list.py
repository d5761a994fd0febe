"""`agentloupe list`: runs, newest first or by family."""

from __future__ import annotations

import os
from typing import Annotated, get_args

import typer

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, harmless
from agentloupe.cli.views import cost_text, counts_text, run_json, status_style, tokens_text
from agentloupe.ports.protocols import Store
from agentloupe.verbs.choosing import chosen_runs
from agentloupe.words.errors import StoreError
from agentloupe.words.keeping import kept_less
from agentloupe.words.run import STATUSES, Coverage, Run, RunFilter


def command(
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    status: Annotated[str | None, typer.Option(help=f"Only runs of this status: {', '.join(STATUSES)}.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only runs with this tag.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only runs that called this tool.")] = None,
    error: Annotated[str | None, typer.Option(help="Only runs with a step that failed with this error class.")] = None,
    task: Annotated[str | None, typer.Option(help="Only runs of this task.")] = None,
    parent: Annotated[str | None, typer.Option(help="Only forks of this run.")] = None,
    trace: Annotated[str | None, typer.Option(help="Only runs of this trace.")] = None,
    model: Annotated[str | None, typer.Option(help="Only runs that asked this model.")] = None,
    coverage: Annotated[
        str | None, typer.Option(help=f"Only runs of this coverage: {', '.join(get_args(Coverage))}.")
    ] = None,
    misses: Annotated[bool, typer.Option("--misses", help="Only forks that had a miss.")] = False,
    forks: Annotated[bool, typer.Option("--forks", help="Only runs that forks were made of.")] = False,
    roots: Annotated[bool, typer.Option("--roots", help="Only runs that are no forks.")] = False,
    text: Annotated[
        str | None,
        typer.Option("--find", metavar="TEXT", help="Only runs whose id begins with this, or whose name holds it."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only runs that started at or after this time (ISO 8601; UTC unless it has an offset)."
        ),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only runs that started before this time.")] = None,
    sort: Annotated[
        str,
        typer.Option(
            metavar="ORDER", help="newest, or family: each run with the forks of it and of those, the first run first."
        ),
    ] = "newest",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many runs.")] = 50,
    offset: Annotated[int, typer.Option(min=0, help="Leave out this many of the newest.")] = 0,
    cost: Annotated[
        bool, typer.Option("--cost", help="Also what each run cost; reads its steps and the prices.")
    ] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """List runs, newest first or by family. With --json costs are always told.

    Example: agentloupe list --tag fork -n 10
    """
    wanted = chosen_runs(
        agent=agent,
        status=status,
        tag=tag,
        tool=tool,
        error=error,
        task_id=task,
        parent_run_id=parent,
        trace_id=trace,
        model=model,
        coverage=coverage,
        missed=misses,
        forked=forks,
        roots=roots,
        order=sort,
        text=text,
        since=since,
        until=until,
        limit=limit,
        offset=offset,
        spelled="--{}".format,
    )
    _tell(Output(as_json), wanted, db, cost=cost)


def _tell(out: Output, wanted: RunFilter, db: str | None, *, cost: bool) -> None:
    runs, total = _read(wanted, db, cost=cost or out.as_json)
    if out.as_json:
        out.document([run_json(run) for run in runs])
    elif not runs and total:
        out.line(f"no runs from {wanted.offset + 1} on: there are {total}")
    elif not runs:
        anything = wanted == RunFilter(limit=wanted.limit, offset=wanted.offset, order=wanted.order)
        yet = " yet: record one with agentloupe demo, or agentloupe run -- python my_agent.py"
        out.line("no runs" + (yet if anything else " match"))
    else:
        _table(out, runs, cost=cost)
        if wanted.offset + len(runs) < total or wanted.offset:
            out.line(f"{wanted.offset + 1} to {wanted.offset + len(runs)} of {total}")


def _read(wanted: RunFilter, db: str | None, *, cost: bool) -> tuple[list[Run], int]:
    """A page of runs, and how many there are in all; none where there is no store yet, unless a person named one."""
    try:
        with opened(db) as store:
            runs = store.runs(wanted)
            return (_priced(store, runs) if cost else runs), store.count(wanted)
    except StoreError as absent:
        if absent.reason != "missing" or db is not None or os.environ.get("LOUPE_DB", "").strip():
            raise
        return [], 0


def _priced(store: Store, runs: list[Run]) -> list[Run]:
    from agentloupe.verbs.pricing import priced_run

    return [priced_run(store, run) for run in runs]


def _table(out: Output, runs: list[Run], *, cost: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    named = any(run.name != run.agent for run in runs)
    for title, right in (
        ("run", False),
        *((("name", False),) if named else ()),
        ("status", False),
        ("started (UTC)", False),
        ("steps", True),
        ("tokens", False),
        *((("cost", True),) if cost else ()),
        ("fork of", False),
        ("answered by", False),
    ):
        table.add_column(title, justify="right" if right else "left", no_wrap=title == "run")
    for run in runs:
        fork = (
            f"{run.parent_run_id} @ {run.forked_from_step if run.forked_from_step is not None else 'start'}"
            if run.parent_run_id
            else ""
        )
        label = f" {run.label}" if run.label == "hypothetical" else ""
        words = [None if run.coverage == "full" else run.coverage, kept_less(run.coverage_notes)]
        told = ", ".join(word for word in words if word)
        coverage = f" ({told})" if told else ""
        table.add_row(
            harmless(run.id),
            *((harmless(run.name if run.name != run.agent else ""),) if named else ()),
            Text(run.status + coverage, style=status_style(run.status)),
            run.started_at[:19].replace("T", " "),
            str(run.step_count),
            tokens_text(run.total_input_tokens, run.total_output_tokens, run.usage_complete),
            *((cost_text(run.cost, run.cost_complete),) if cost else ()),
            harmless(fork),
            counts_text(run) + label,
        )
    out.draw(table)
