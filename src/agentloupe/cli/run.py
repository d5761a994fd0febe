"""`agentloupe run`: record a script that uses the SDK."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import Database, Debug
from agentloupe.verbs.children import run_child
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import Json


def command(
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...", help="The script, as you would type it: python my_agent.py ...", show_default=False
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the runs.", show_default=False)] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag of the runs; may be repeated.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option(help="Id of the task that the run works on.", show_default=False)] = None,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Run a Python script and record every agent in it. The exit code is the script's.

    A script that opens no run of its own is recorded as one. Example: agentloupe run --name nightly -- python my_agent.py "a question"
    """
    from agentloupe.verbs import launch

    if not script:
        raise UsageError("run needs a command", hint="for instance: agentloupe run -- python my_agent.py")
    fields: dict[str, Json] = {
        "name": name,
        "tags": list[Json](tag or ()),
        "task_id": task,
        "db": db,
        "argv": list[Json](script),
    }
    with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
        spec = launch.write_spec(Path(folder) / "spec.json", "record", fields)
        words = launch.command(spec, script)
        sys.stdout.flush()
        raise typer.Exit(run_child(words, insist=False))
