"""`agentloupe verify`: is the evidence whole?"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import Anchor, AsJson, Database, Debug, anchor_of, opened
from agentloupe.cli.output import Output, number_of
from agentloupe.engine.verify import Verification, verify
from agentloupe.ports.recording import Recording
from agentloupe.words.errors import Damaged, UsageError, VersionUnknown


def command(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN|FILE", help="A run, or a .loupe file.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every run, and ask the database itself.")] = False,
    anchor: Anchor = None,
    chain_only: Annotated[bool, typer.Option("--chain-only", help="Check events only, no bodies.")] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Check numbers, chain and bodies of a recording. Exit code 0 whole, 2 damaged.

    A chain alone cannot show that its tail was cut: give --anchor for that. Example: agentloupe verify last
    """
    out = Output(as_json)
    if every == (run is not None):
        raise UsageError("verify takes a RUN, a FILE, or --all")
    if every:
        raise typer.Exit(_verify_all(out, db, bodies=not chain_only))
    assert run is not None
    try:
        with _found(run, db) as recording:
            result = verify(recording, bodies=not chain_only, anchor=anchor_of(anchor))
    except (Damaged, VersionUnknown) as wrong:
        if not as_json:
            raise
        out.document({"ok": False, "origin": run, "reason": wrong.reason, "message": wrong.message})
        raise typer.Exit(wrong.exit_code) from wrong
    if as_json:
        out.document(_document(result))
    else:
        out.line(f"{result.run_id}: {result.head}", style=None if result.ok else "red")
        for fault in result.more:
            out.line(f"  also: sequence {fault.sequence}: {fault.reason}")
        body = "bodies not looked at" if chain_only else f"{number_of(result.bodies_checked, 'body')} fit their digests"
        out.line(f"{number_of(result.events, 'event')}, {body}, coverage {result.coverage}, checked by {result.reader}")
    raise typer.Exit(0 if result.ok else 2)


@contextmanager
def _found(run: str, db: str | None) -> Generator[Recording]:
    """The recording of a run or of a file."""
    if Path(run).is_file():
        from agentloupe.importers.loupe_file import open_file

        yield open_file(Path(run))
        return
    from agentloupe.verbs.api import resolve

    with opened(db) as store:
        yield store.recording(resolve(store, run))


def _document(result: Verification) -> dict[str, object]:
    return {
        **asdict(result),
        "reason": result.fault.reason if result.fault else None,
        "head": result.head,
        "more": [asdict(f) for f in result.more],
        "notes": list(result.notes),
    }


def _verify_all(out: Output, db: str | None, *, bodies: bool) -> int:
    from agentloupe.words.run import RunFilter

    bad: list[Verification] = []
    with opened(db) as store:
        faults = store.check()
        names = [row.id for row in store.runs(RunFilter(limit=None))]
        with out.progress("verifying", len(names)) as one_more:
            for name in names:
                result = verify(store.recording(name), bodies=bodies)
                if not result.ok:
                    bad.append(result)
                one_more()
    if out.as_json:
        out.document(
            {
                "ok": not bad and not faults,
                "runs": len(names),
                "damaged": [_document(r) for r in bad],
                "database": faults,
            }
        )
    else:
        for line in faults:
            out.line(f"database: {line}", style="red")
        for result in bad:
            out.line(f"{result.run_id}: {result.head}", style="red")
        out.line(f"{number_of(len(names), 'run')} checked, {len(bad) or 'none'} damaged; ends not anchored")
    return 2 if bad or faults else 0
