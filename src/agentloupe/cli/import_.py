"""`agentloupe import`: runs out of files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, number_of
from agentloupe.words.errors import Damaged


def command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files; their format is seen from their content.", show_default=False),
    ],
    keep_secrets: Annotated[
        bool,
        typer.Option("--keep-secrets", help="Store credentials that the files hold; they are taken out otherwise."),
    ] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Read runs from files: .loupe, JSON Lines of runs, traces, tau-bench conversations, plain chat messages.

    What cannot be read is listed and never lost silently (exit code 2); importing a file twice changes nothing.
    Example: agentloupe import incident.loupe
    """
    from agentloupe.verbs.exchange import import_files

    out = Output(as_json)
    with opened(db, create=True) as store:
        reports = import_files(store, files, keep_secrets=keep_secrets)
    if as_json:
        out.document([report.as_json() for report in reports])
    for report in reports:
        if report.error is not None:
            out.line(f"{report.path}: not imported: {report.error}", style="red")
            continue
        there = sum(1 for run in report.runs if run.state == "already there")
        known = f", {there} of them already there" if there else ""
        counts = ", ".join(
            (
                number_of(report.total("steps"), "step"),
                number_of(report.total("model_calls"), "model call"),
                number_of(report.total("tool_calls"), "tool call"),
            )
        )
        out.line(
            f"{report.path}: {report.format}, {number_of(len(report.runs), 'run')}{known}: {counts}, {number_of(report.total('partial_steps'), 'partial step')}"
        )
        if report.partial:
            out.line(f"  partial: {number_of(len(report.quarantined), 'place')} could not be read", style="bold yellow")
        removed = sum(run.removed for run in report.runs)
        if removed:
            out.line(
                f"  {number_of(removed, 'credential')} {'was' if removed == 1 else 'were'} removed", style="yellow"
            )
        if report.fidelity:
            out.line(f"  not kept by the source: {report.fidelity}", style="yellow")
        for place in report.quarantined:
            out.line(f"  not read: {place}", style="yellow")
        for run in report.runs[:20]:
            out.line(f"  {run.run_id}")
            for warning in run.found.warnings[:5]:
                out.line(f"    {warning}", style="yellow")
        if len(report.runs) > 20:
            out.line(f"  and {len(report.runs) - 20} more")
    errors = [report.error for report in reports if report.error is not None]
    damaged = any(report.partial for report in reports) or any(isinstance(error, Damaged) for error in errors)
    raise typer.Exit(2 if damaged else 3 if errors else 0)
