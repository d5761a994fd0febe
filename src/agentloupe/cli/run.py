"""`agentloupe run`: record a program without a line changed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentloupe.cli.common import Database, Debug
from agentloupe.words.errors import UsageError
from agentloupe.words.keeping import profile_named, share_named


def command(
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND...",
            help="The program, as you would type it: python my_agent.py ...",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the runs.", show_default=False)] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Tag of the runs; may be repeated.", show_default=False)
    ] = None,
    task: Annotated[
        str | None, typer.Option(metavar="ID", help="Id of the task that the run works on.", show_default=False)
    ] = None,
    model_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Host, HOST:PORT or beginning of a URL of a model that is not known by itself; may be repeated.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="PROFILE",
            help="What is kept of values: full, redacted or digest_only; over code and settings.",
            show_default=False,
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the runs, 0 to 1, that are kept by the profile; of the others digests are kept; over code and settings.",
            show_default=False,
        ),
    ] = None,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Run a program and record every agent in it. The exit code is the program's.

    Any program that is Python or comes to start it. One that opens no run of its own is recorded as one.
    Examples: agentloupe run --name nightly -- python my_agent.py "a question"; agentloupe run -- my-agent --verbose
    """
    from agentloupe.verbs.running import run_recorded

    if not script:
        raise UsageError("run needs a command", hint="for instance: agentloupe run -- python my_agent.py")
    sys.stdout.flush()
    ran = run_recorded(
        script,
        name=name,
        tags=tag or (),
        task_id=task,
        db=db,
        model_urls=model_url or (),
        profile=profile_named(profile),
        sample=share_named(sample),
    )
    for line in ran.said():
        sys.stderr.write(f"agentloupe: {line}\n")
    raise typer.Exit(ran.code)
