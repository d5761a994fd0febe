"""`agentloupe anchor`: sign where the runs of a database end, in a file outside of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened
from agentloupe.cli.output import Output, bytes_text, number_of


def keygen(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where the private key goes; FILE.pub holds the public one.")
    ],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make an Ed25519 key pair. Keep FILE where the agents and their recorder cannot read it; give FILE.pub to everybody.

    A key is never overwritten. Example: agentloupe anchor keygen anchor.key
    """
    from agentloupe.verbs.anchoring import make_anchor_key

    key_id = make_anchor_key(file)
    out = Output(as_json)
    if as_json:
        out.document({"key_id": key_id, "private": str(file), "public": f"{file}.pub"})
    else:
        out.line(f"key {key_id[:12]}: {file} is private (only its owner can read it), {file}.pub is public")


def write(
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key.", show_default=False)],
    to: Annotated[
        Path, typer.Option("--to", metavar="ANCHORS", help="The anchor file, outside the database.", show_default=False)
    ],
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--public-key", metavar="FILE", help="Earlier keys, where the key was changed.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Sign where every run ends now, and append that to the anchor file. Exit code 2 when the database went back behind it.

    Example: agentloupe anchor write --key anchor.key --to anchors.jsonl
    """
    from agentloupe.verbs.anchoring import write_anchor

    with opened(db) as store:
        done = write_anchor(store, to, key=key, public_key=public_key)
    out = Output(as_json)
    if as_json:
        said = {"number": done.number, "at": done.at, "key_id": done.key_id, "runs": done.runs, "changed": done.changed}
        out.document({**said, "digest": done.digest, "mended": done.mended, "anchors": str(to)})
        return
    if done.mended:
        out.line("a torn line at the end, left by an interrupted write, was taken away", style="yellow")
    out.line(
        f"checkpoint {done.number} of {number_of(done.runs, 'run')} ({done.changed} changed) signed at {done.at}"
        f" by key {done.key_id[:12]}, appended to {to}"
    )


def prove(
    run: RunRef,
    anchors: Annotated[Path, typer.Option("--anchors", metavar="FILE", help="The anchor file.", show_default=False)],
    public_key: Annotated[
        Path, typer.Option("--public-key", metavar="FILE", help="The public key.", show_default=False)
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where the proof goes.", show_default=False)
    ],
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Write the proof that one run is part of the last checkpoint, to go with an export of it; it names no other run.

    Example: agentloupe anchor prove last --anchors anchors.jsonl --public-key anchor.key.pub -o incident.proof
    """
    from agentloupe.verbs.anchoring import write_proof
    from agentloupe.verbs.api import resolve

    with opened(db) as store:
        run_id = resolve(store, run)
    size = write_proof(anchors, public_key, run_id, output)
    out = Output(as_json)
    if as_json:
        out.document({"run": run_id, "file": str(output), "bytes": size})
    else:
        out.line(f"proof of {run_id} written to {output} ({bytes_text(size)})")


COMMANDS: Mapping[str, Callable[..., None]] = {"keygen": keygen, "write": write, "prove": prove}
