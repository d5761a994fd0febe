"""`agentloupe replay`: the same code, its recorded world, offline, to the first divergence."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, TypedDict

import typer

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output
from agentloupe.engine.report import LEVELS, NOTHING_RUN, ReplayReport
from agentloupe.verbs.patience import PATIENCE_SECONDS
from agentloupe.words.errors import UsageError


class _Ways(TypedDict):
    patience: float | None
    timeout: float | None
    strict_order: bool


Patience = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="A program that neither calls, works nor sleeps for so long stands still: diverged, `missing`. 0: wait.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="End the program after so long, whatever it does: no verdict.", show_default=False
    ),
]
_VERDICT_STYLES = {0: "green", 1: "red", 2: "magenta", 3: "yellow"}


def command(
    run: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run, or a .loupe file.", show_default=False)],
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]", help="The script to drive, as you would type it.", show_default=False
        ),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="The agent to drive, with its recorded arguments.", show_default=False
        ),
    ] = None,
    level: Annotated[str, typer.Option(help="How much must agree: flow, state or content.")] = "content",
    expect: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Differences that are meant, as JSON; passes only if exactly those appear.",
            show_default=False,
        ),
    ] = None,
    until_failure: Annotated[
        bool, typer.Option("--until-failure", help="Stop at the call that failed in the recording.")
    ] = False,
    pdb: Annotated[bool, typer.Option("--pdb", help="With --until-failure: open the debugger there.")] = False,
    strict_order: Annotated[
        bool, typer.Option("--strict-order", help="Fail a pass that cannot prove the order of what happened at once.")
    ] = False,
    patience: Patience = PATIENCE_SECONDS,
    timeout: Timeout = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Drive an agent's code over a recording: no network, no credentials, nothing is executed.

    Exit code 0 pass, 1 first divergence (or, with --strict-order, a doubtful pass), 2 damaged recording, 3 could not run.
    Examples: agentloupe replay last -- python my_agent.py "a question"; agentloupe replay last --code my_app.agents:support
    """
    from agentloupe.verbs.isolated import replay_code, replay_command
    from agentloupe.verbs.replaying import names_file

    if level not in LEVELS:
        raise UsageError(f"--level {level}: no such level", hint=f"one of {', '.join(LEVELS)}")
    if code and script:
        raise UsageError("replay takes --code or a command behind --, not both")
    if pdb and not until_failure:
        raise UsageError("--pdb needs --until-failure")
    if patience < 0 or (timeout is not None and timeout <= 0):
        raise UsageError("--patience and --timeout are seconds, and not negative", hint="--patience 0 waits for ever")
    out = Output(as_json)
    # A debugger waits for a person, who may take all the time there is.
    patient = None if pdb or patience == 0 else patience
    ways = _Ways(patience=patient, timeout=timeout, strict_order=strict_order)
    until: bool | str = "debugger" if pdb else until_failure
    with nullcontext() if Path(run).is_file() or names_file(run) else opened(db) as store:
        if script:
            report = replay_command(run, script, store=store, level=level, expect=expect, until_failure=until, **ways)
        else:
            report = replay_code(run, code, store=store, level=level, expect=expect, until_failure=until, **ways)
    _print(report, out, as_json=as_json)
    raise typer.Exit(report.exit_code)


def _print(report: ReplayReport, out: Output, *, as_json: bool) -> None:
    if as_json:
        out.document(report.as_json())
    else:
        first, _, rest = report.text().partition("\n")
        out.line(first, style=_VERDICT_STYLES[report.exit_code])
        if rest:
            out.line(rest)
        if report.isolation != NOTHING_RUN:
            out.line(f"  ran in a {report.isolation}")
