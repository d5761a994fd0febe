"""`agentloupe ledger`: a run as a folder of files; replayed, compared, written and taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import Anchor, AsJson, Database, Debug, RunRef, anchor_of, opened
from agentloupe.cli.output import Output, bytes_text, number_of
from agentloupe.words.canonical import loads
from agentloupe.words.errors import UsageError
from agentloupe.words.ledger import LEDGER_VERSION

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the ledger.", show_default=False)]
BudgetFile = Annotated[
    Path | None,
    typer.Option("--budget", metavar="FILE", help="The budget, when it lies elsewhere.", show_default=False),
]
SignedBy = Annotated[
    Path | None,
    typer.Option(
        "--public-key",
        metavar="FILE",
        help="The checkpoint has to be signed by this key; without a signature it is damaged.",
        show_default=False,
    ),
]


def replay(
    folder: Folder,
    budget: BudgetFile = None,
    anchor: Anchor = None,
    public_key: SignedBy = None,
    rules: Annotated[
        int,
        typer.Option("--rules", metavar="N", help="Whose rules hold; 0: of plain ledgers, without chain and digests."),
    ] = LEDGER_VERSION,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the report goes. Default: FOLDER/replay_report.json.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read a ledger strictly, derive the state, write replay_report.json. Nothing is executed, nothing else is touched.

    The first fault is named with file, line, sequence and kind. Exit code 0 whole, 2 damaged, 3 newer than this reader.
    Example: agentloupe ledger replay incident/
    """
    from agentloupe.verbs.ledger import replay_folder

    if not 0 <= rules <= LEDGER_VERSION:
        raise UsageError(f"--rules {rules}: there are rules 0 to {LEDGER_VERSION}")
    report = replay_folder(
        folder, budget=budget, rules=rules, anchor=anchor_of(anchor), public_key=public_key, output=output
    )
    out = Output(as_json)
    if as_json:
        out.document(dict(report.fields))
    else:
        out.line(str(report))


def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A report, or a folder with one.", show_default=False)],
    other: Annotated[Path, typer.Argument(metavar="B", help="The other one.", show_default=False)],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Compare two replay reports field by field. Exit code 0 the same, 1 different; a salvage is no report.

    Example: agentloupe ledger compare here/replay_report.json there/replay_report.json
    """
    from agentloupe.verbs.ledger import compare_reports

    found = compare_reports(one, other)
    out = Output(as_json)
    if as_json:
        out.document({"deterministic": not found.changed, "changed_fields": list(found.changed), "why": found.why})
    else:
        out.line(str(found))
        if found.why is not None:
            out.line(found.why)
    raise typer.Exit(1 if found.changed else 0)


def salvage(
    folder: Folder,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write what could be read.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read what can be read of a damaged log. What it gives is marked partial, and no command takes it for a report.

    Exit code 2: a log that needs a salvage is damaged; 0 when every line of it is whole.
    Example: agentloupe ledger salvage incident/ -o salvaged.jsonl
    """
    from agentloupe.verbs.ledger import salvage_folder

    found = salvage_folder(folder, output)
    out = Output(as_json)
    if as_json:
        out.document(found.head())
    else:
        out.line(str(found))
        for one in found.damage[:20]:
            out.line(f"line {one.line}, bytes {one.byte} to {one.byte + one.bytes}: {one.said}", style="red")
        if found.stopped is not None:
            out.line(f"not read on: {found.stopped}", style="red")
    raise typer.Exit(2 if found.damage or found.stopped is not None else 0)


def migrate(
    folder: Folder,
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Where the sealed ledger goes.", show_default=False)],
    budget: BudgetFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make a sealed ledger of a plain one (no version, no chain, no digests), with a report of both readings.

    The old folder stays as it is, and the new one holds its digests. Exit code 0, or 1 when the newer rules conclude
    something else. Example: agentloupe ledger migrate plain/ sealed/
    """
    from agentloupe.verbs.ledger import migrate_folder

    done = migrate_folder(folder, new, budget=budget)
    out = Output(as_json)
    if as_json:
        out.document(loads(done.document()))
    else:
        out.line(f"schema 0: {done.old}")
        out.line(f"schema {LEDGER_VERSION}: {done.new}")
        for one in done.changed:
            out.line(f"{one['conclusion']} changed by {one['rule']}", style="yellow")
    raise typer.Exit(1 if done.changed else 0)


def export(
    run: RunRef,
    folder: Folder,
    bodies: Annotated[bool, typer.Option("--bodies/--no-bodies", help="With or without the values.")] = True,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", metavar="FILE", help="Sign the checkpoint, see `agentloupe anchor keygen`.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Write a run as a ledger: events with their chain, receipts, budget, contract, checkpoint, values.

    Keep the anchor that it prints somewhere else, or sign the folder: with either, a replay proves that nothing was cut.
    Example: agentloupe ledger export last incident/
    """
    from agentloupe.verbs.api import resolve
    from agentloupe.verbs.ledger import export_ledger

    with opened(db) as store:
        done = export_ledger(store, resolve(store, run), folder, bodies=bodies, key=key)
    out = Output(as_json)
    if as_json:
        counts = {"events": done.events, "receipts": done.receipts, "bodies": done.bodies, "bytes": done.bytes}
        out.document(
            {"run": done.run_id, "folder": str(folder), **counts, "anchor": done.anchor, "key_id": done.key_id}
        )
    else:
        values = "without values" if done.bodies is None else number_of(done.bodies, "body")
        counts = f"{number_of(done.events, 'event')}, {number_of(done.receipts, 'receipt')}, {values}"
        out.line(f"{done.run_id} written to {folder} ({counts}, {bytes_text(done.bytes)})")
        out.line(f"anchor {done.anchor}")
        if done.key_id is not None:
            out.line(f"signed by key {done.key_id[:12]}")


def import_(
    folder: Folder,
    budget: BudgetFile = None,
    anchor: Anchor = None,
    public_key: SignedBy = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Take a ledger over as a run, after the checks of a replay. A run that was exported comes back as it was.

    Example: agentloupe ledger import incident/
    """
    from agentloupe.verbs.ledger import import_ledger

    with opened(db, create=True) as store:
        report = import_ledger(store, folder, budget=budget, anchor=anchor_of(anchor), public_key=public_key)
    out = Output(as_json)
    if as_json:
        out.document(report.as_json())
    else:
        out.line(f"{folder}: {report.run_id} {report.state}")
        for warning in report.found.warnings:
            out.line(f"  {warning}", style="yellow")


COMMANDS: Mapping[str, Callable[..., None]] = {
    "replay": replay,
    "compare": compare,
    "salvage": salvage,
    "migrate": migrate,
    "export": export,
    "import": import_,
}
