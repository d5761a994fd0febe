"""`agentloupe doctor`: what of a program a replay could not give back, with the way out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentloupe.cli.common import AsJson, Database, Debug
from agentloupe.cli.output import Output, number_of
from agentloupe.words.errors import UsageError

if TYPE_CHECKING:
    from agentloupe.verbs.doctor import Diagnosis, Finding


def command(
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT | -- COMMAND...",
            help="The program, as you would type it; with --code the words that the function is called with.",
            show_default=False,
        ),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="A function to call, in place of a program.", show_default=False),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the recorded run.", show_default=False)] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Run an agent, twice more from its recording, and list each source of nondeterminism that escapes.

    The first run is real: it asks the model, and its tools run, once. The recording is kept, with the tag doctor.
    Exit code 0 nothing found, 1 something found or the replay parts, 3 nothing was recorded.
    Examples: agentloupe doctor my_agent.py; agentloupe doctor -- python my_agent.py "a question"
    """
    from agentloupe.verbs.doctor import examine

    if not script and code is None:
        raise UsageError("doctor needs a program", hint="for instance: agentloupe doctor my_agent.py")
    sys.stdout.flush()
    with_program = sys.stderr.buffer if as_json else None
    found = examine(script or (), code=code, db=db, name=name, output=with_program)
    out = Output(as_json)
    if as_json:
        out.document(found.as_json())
    else:
        _show(out, found)
    raise typer.Exit(found.exit_code)


def _show(out: Output, found: Diagnosis) -> None:
    from agentloupe.verbs.doctor import BLIND

    for line in found.ran.said():
        out.line(line)
    if found.ran.code:
        out.line(f"the program ended with exit code {found.ran.code}", style="yellow")
    if found.run_id is None:
        return
    if found.findings:
        out.line(f"{number_of(len(found.findings), 'source')} of nondeterminism:", style="red")
    for finding in found.findings:
        _show_finding(out, finding)
    if found.libraries:
        out.line("in libraries (no matter, unless what they read reaches a prompt or decides a branch):")
        for library, kinds in found.libraries.items():
            out.line(f"  {library}: {', '.join(f'{kind} {times}' for kind, times in sorted(kinds.items()))}")
    if found.refused is not None:
        out.line(f"not replayed: {found.refused}", style="yellow")
    elif found.replay is not None:
        first, _, rest = found.replay.text().partition("\n")
        out.line(f"second run, from the recording: {first}")
        if not found.replay.passed:
            out.line(rest)
    if not found.findings and not found.exit_code:
        out.line("nothing escapes that the doctor can see", style="green")
    out.line(f"not seen: {'; '.join(BLIND)}")


def _show_finding(out: Output, finding: Finding) -> None:
    place = f"{finding.file}:{finding.line}" if finding.file else "(no line)"
    times = f", {finding.times} times" if finding.times > 1 else ""
    out.line(f"  {place}  {finding.kind}: {finding.what}{times}")
    out.line(f"      instead: {finding.mend}")
