"""`agentloupe export`: a run into a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened
from agentloupe.cli.output import Output, bytes_text
from agentloupe.words.errors import Refused


def command(
    run: RunRef,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to: .loupe (the recording itself) or .jsonl (its view).",
            show_default=False,
        ),
    ],
    raw: Annotated[bool, typer.Option("--raw", help="Give the source of an imported run back, byte for byte.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Write a run to a file. A .loupe file holds the events as they were sealed and all bodies; it replays anywhere.

    Example: agentloupe export last -o incident.loupe
    """
    from agentloupe.verbs.api import resolve
    from agentloupe.verbs.exchange import export_run
    from agentloupe.verbs.pricing import price_table

    with opened(db) as store:
        run_id = resolve(store, run)
        if output.exists() and not force:
            raise Refused(f"{output} is there already", hint="--force replaces it")
        size = export_run(store, run_id, output, raw=raw, table=price_table())
    out = Output(as_json)
    if as_json:
        out.document({"run": run_id, "file": str(output), "bytes": size})
    else:
        out.line(f"{run_id} written to {output} ({bytes_text(size)})")
