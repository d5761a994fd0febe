"""`agentloupe rebuild`: lists anew from the events."""

from __future__ import annotations

from typing import Annotated

import typer

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, number_of
from agentloupe.words.run import RunFilter


def command(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run. Default: all.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Make runs and steps anew from the events, and say what differed. Exit code 1 when something did.

    What lists show is computed from events and can be dropped at any time. Example: agentloupe rebuild
    """
    from agentloupe.engine.project import Projector
    from agentloupe.verbs.api import resolve

    out = Output(as_json)
    differed: dict[str, list[str]] = {}
    with opened(db) as store:
        names = [resolve(store, run)] if run else [row.id for row in store.runs(RunFilter(limit=None))]
        with out.progress("rebuilding", len(names)) as one_more:
            for name in names:
                lines = store.rebuild(name, Projector)
                if lines:
                    differed[name] = lines
                one_more()
    if as_json:
        out.document({"runs": len(names), "differed": differed})
    else:
        for name, lines in differed.items():
            for line in lines:
                out.line(f"{name}: {line}")
        out.line(f"{number_of(len(names), 'run')} rebuilt, {len(differed) or 'none'} differed")
    raise typer.Exit(1 if differed else 0)
