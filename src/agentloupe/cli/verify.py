"""`agentloupe verify`: is the evidence whole?"""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import Anchor, AsJson, Database, Debug, anchor_of, opened
from agentloupe.cli.output import Output, number_of
from agentloupe.engine.anchors import Anchors
from agentloupe.engine.indexed import index_differences
from agentloupe.engine.verify import Verification, said_of, verify
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.words.errors import Damaged, UsageError, VersionUnknown

AnchorsFile = Annotated[
    Path | None,
    typer.Option(
        "--anchors",
        metavar="FILE",
        help="Signed checkpoints, see `agentloupe anchor`. Default: the setting anchors.",
        show_default=False,
    ),
]
PublicKey = Annotated[
    Path | None,
    typer.Option(
        "--public-key",
        metavar="FILE",
        help="The key that they are signed with. Default: the setting anchor_key.",
        show_default=False,
    ),
]
Proof = Annotated[
    Path | None,
    typer.Option("--proof", metavar="FILE", help="In place of --anchors: the proof of this run.", show_default=False),
]


def command(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN|FILE", help="A run, or a .loupe file.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every run, and ask the database itself.")] = False,
    anchor: Anchor = None,
    anchors: AnchorsFile = None,
    proof: Proof = None,
    public_key: PublicKey = None,
    chain_only: Annotated[bool, typer.Option("--chain-only", help="Check events only, no bodies.")] = False,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Check numbers, chain and bodies of a recording, and hold it against what was signed. Exit code 0 whole, 2 damaged.

    A chain alone cannot show that its tail was cut, or that all of it was made anew: anchors do. With --anchors or --proof,
    a run that they do not name is exit code 1; so is a run of which lists and `show` say something else than its events. Example: agentloupe verify last
    """
    out = Output(as_json)
    if every == (run is not None):
        raise UsageError("verify takes a RUN, a FILE, or --all")
    if every and (anchor or proof):
        raise UsageError("--all takes --anchors; --anchor and --proof are of one run")
    try:
        known = _signed(anchors, proof, public_key)
        if run is None:
            raise typer.Exit(_verify_all(out, db, known, bodies=not chain_only))
        with _found(run, db) as (recording, store):
            signed = () if known is None else known.of(recording.run_id)
            result = verify(recording, bodies=not chain_only, anchor=anchor_of(anchor), signed=signed)
            index = index_differences(store, recording) if store is not None and result.ok else ()
    except (Damaged, VersionUnknown) as wrong:
        if not as_json:
            raise
        out.document({"ok": False, "origin": run or "--all", "reason": wrong.reason, "message": wrong.message})
        raise typer.Exit(wrong.exit_code) from wrong
    asked = (anchors or proof) is not None and not signed
    _say(out, result, index, chain_only=chain_only, not_named=asked)
    raise typer.Exit((1 if asked or index else 0) if result.ok else 2)


def _signed(anchors: Path | None, proof: Path | None, public_key: Path | None) -> Anchors | None:
    """What was signed: as the options say, else as the settings do."""
    from agentloupe.ports.settings import load
    from agentloupe.verbs.anchoring import configured_anchors, open_anchors, open_proof

    if anchors is not None and proof is not None:
        raise UsageError("give --anchors or --proof, not both")
    if anchors is None and proof is None:
        if public_key is not None:
            raise UsageError("--public-key says who is believed; --anchors or --proof, what was signed")
        return configured_anchors(load())
    key = public_key or load().anchor_key
    if key is None:
        raise UsageError("whose signature? --public-key FILE", hint="`agentloupe anchor keygen` writes it as FILE.pub")
    return open_anchors(anchors, key) if anchors is not None else open_proof(proof or Path(), key)


def _say(out: Output, result: Verification, index: tuple[str, ...], *, chain_only: bool, not_named: bool) -> None:
    if out.as_json:
        document = _document(result) | {"index": list(index)}
        if result.ok and (not_named or index):
            document["reason"] = "not_anchored" if not_named else "index"
        out.document(document)
        return
    out.line(f"{result.run_id}: {result.head}", style=None if result.ok else "red")
    for fault in result.more:
        out.line(f"  also: sequence {fault.sequence}: {fault.reason}")
    if index:
        out.line(f"{_INDEX}: {'; '.join(index)}", style="red")
    if not_named:
        out.line("no anchor names this run: nothing that was signed says anything about it", style="yellow")
    body = "bodies not looked at" if chain_only else f"{number_of(result.bodies_checked, 'body')} fit their digests"
    out.line(f"{number_of(result.events, 'event')}, {body}, coverage {result.coverage}, checked by {result.reader}")


_INDEX = "the events are whole, and lists and `show` say something else; `agentloupe rebuild` makes them anew"


@contextmanager
def _found(run: str, db: str | None) -> Generator[tuple[Recording, Store | None]]:
    """The recording of a run with its store, or of a file."""
    if Path(run).is_file():
        from agentloupe.importers.loupe_file import open_file

        yield open_file(Path(run)), None
        return
    if Path(run).is_dir():
        raise UsageError(
            f"{run} is a folder", hint=f"a ledger is checked by: agentloupe ledger replay {shlex.quote(run)}"
        )
    from agentloupe.verbs.api import resolve

    with opened(db) as store:
        yield store.recording(resolve(store, run)), store


def _document(result: Verification) -> dict[str, object]:
    return {
        **asdict(result),
        "reason": result.fault.reason if result.fault else None,
        "head": result.head,
        "more": [asdict(f) for f in result.more],
        "proves": list(result.proves),
        "notes": list(result.notes),
    }


def _verify_all(out: Output, db: str | None, known: Anchors | None, *, bodies: bool) -> int:
    from agentloupe.verbs.anchoring import verify_store

    with opened(db) as store:
        found = verify_store(store, known, bodies=bodies, progress=lambda total: out.progress("verifying", total))
    if out.as_json:
        out.document(
            {
                "ok": found.ok,
                "runs": len(found.results),
                "bodies": bodies,
                "damaged": [_document(r) for r in found.bad],
                "lost": [{"run_id": run_id, **asdict(fault)} for run_id, fault in found.lost],
                "anchors": None if known is None else _anchors_document(known, found.counts()),
                "database": list(found.database),
                "index": [{"run_id": run_id, "differ": list(differ)} for run_id, differ in found.index],
            }
        )
    else:
        for line in found.database:
            out.line(f"database: {line}", style="red")
        for run_id, fault in found.lost:
            out.line(f"{run_id}: damaged: {said_of(fault)}", style="red")
        for result in found.bad:
            out.line(f"{result.run_id}: {result.head}", style="red")
        for run_id, differ in found.index:
            out.line(f"{run_id}: {_INDEX}: {'; '.join(differ)}", style="red")
        runs = number_of(len(found.results), "run")
        said = "ends not anchored" if known is None else _anchors_said(known, found.counts())
        looked = "" if bodies else ", bodies not looked at"
        out.line(f"{runs} checked, {len(found.bad) or 'none'} damaged{looked}; {said}")
    return (1 if found.index else 0) if found.ok else 2


def _anchors_document(known: Anchors, counts: dict[str, int]) -> dict[str, object]:
    last = known.last
    assert last is not None
    signed = {"store": known.store, "number": last.number, "at": last.at, "key_id": last.key_id, "named": last.runs}
    return {**signed, **counts, "torn": known.torn}


def _anchors_said(known: Anchors, counts: dict[str, int]) -> str:
    last = known.last
    assert last is not None
    torn = "; a line behind it was begun and is none" if known.torn else ""
    return (
        f"{counts['anchored']} as they were signed by checkpoint {last.number} at {last.at} or before"
        f" ({counts['grown']} went on since, {counts['deleted']} were deleted), {counts['not_yet']} not signed yet."
        f" Nothing is proven about what happened since, nor about checkpoints that the file may have lost at its end{torn}"
    )
