"""`agentloupe resume`: a run whose process was killed goes on where it was."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened
from agentloupe.cli.output import Output
from agentloupe.words.errors import ResumeRefused, UsageError

if TYPE_CHECKING:
    from agentloupe.verbs.forkfamily import ForkWishes


_ForceOwner = Annotated[
    bool, typer.Option("--force-owner", help="The run's process was on another host, and you know that it is gone.")
]
_TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="The run was imported before it had ended, and you know that the original never goes on."
    ),
]


def command(
    run: RunRef,
    script: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="The script, as you would type it.", show_default=False),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="The agent, with its recorded arguments.", show_default=False),
    ] = None,
    force_owner: _ForceOwner = False,
    take_over: _TakeOver = False,
    tools_from: Annotated[
        str | None,
        typer.Option(metavar="MODULE", help="Where the functions of live tools are (plain loop).", show_default=False),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=sandbox:MODULE:FUNCTION", help="A sandbox of a fork (plain loop).", show_default=False
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Ask this endpoint of the configuration (plain loop).", show_default=False),
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Go on with an interrupted run: its code runs again over the recording, and from its end for real, as the same run.

    An effect whose outcome nobody saw is asked of its tool's lookup, else a question to you: exit code 3, see agentloupe effects.
    A run of the plain loop (a fork with --engine generic) needs no code: its tools are answered as before.
    Example: agentloupe resume last -- python my_agent.py "a question"
    """
    from agentloupe.verbs.clients import wrapping_clients
    from agentloupe.verbs.resuming import resume_code, resume_command

    if code and script:
        raise UsageError("resume takes --code or a command behind --, not both")
    out = Output(as_json)
    try:
        with opened(db) as store:
            if script:
                done = resume_command(run, script, store=store, force_owner=force_owner, take_over=take_over)
            else:
                wishes = _wishes(tools_from, tool or (), endpoint)
                with wrapping_clients():
                    done = resume_code(
                        run, code, store=store, force_owner=force_owner, take_over=take_over, wishes=wishes
                    )
    except ResumeRefused as refused:
        if not (as_json and refused.intents):
            raise
        record = {"code": refused.code, "reason": refused.reason, "message": refused.message, "hint": refused.hint}
        out.document({"error": record, "intents": [dict(intent) for intent in refused.intents]})
        raise typer.Exit(refused.exit_code) from None
    if done.error is not None:
        sys.excepthook(type(done.error), done.error, done.error.__traceback__)
    status = done.run.status if done.run is not None else "unknown"
    if as_json:
        told = {"run_id": done.run_id, "status": status, "served": done.served, "exit_code": done.exit_code}
        out.document({**told, "notes": list(done.notes)})
    else:
        said = f"{done.served} call{'' if done.served == 1 else 's'} from the recording"
        out.line(f"resumed {done.run_id}: {said}; it ended: {status}")
        for note in done.notes:
            out.line(f"note: {note}")
    raise typer.Exit(done.exit_code if done.error is None else 1)


def _wishes(tools_from: str | None, tool: Sequence[str], endpoint: str | None) -> ForkWishes:
    """What no recording of the plain loop holds."""
    from agentloupe.cli.asking import ask
    from agentloupe.cli.fork import functions_of
    from agentloupe.engine.policy import parse_tool
    from agentloupe.verbs.forkfamily import ForkWishes
    from agentloupe.verbs.pricing import call_price

    return ForkWishes(
        functions=functions_of(tools_from, ()),
        tools=dict(parse_tool(text) for text in tool),
        ask=ask if sys.stdin and sys.stdin.isatty() else None,
        price=call_price,
        endpoint=endpoint,
    )
