"""Options that many verbs share, and the ways from an option to a store and a run."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from agentloupe.ports.protocols import Store
from agentloupe.words.errors import UsageError
from agentloupe.words.event import Head

__all__ = ["Anchor", "AsJson", "Database", "Debug", "RunRef", "anchor_of", "opened", "text_given"]

RunRef = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Id of a run, a unique beginning of one, last, or last~1.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE",
        help="The database. Default: LOUPE_DB, or .loupe/loupe.db beside the project.",
        show_default=False,
    ),
]
Anchor = Annotated[
    str | None,
    typer.Option(
        "--anchor", metavar="N:HASH", help="Number and hash of the last event, as noted elsewhere.", show_default=False
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@contextmanager
def opened(db: str | None, *, create: bool = False) -> Generator[Store]:
    """The store that a command works on. Commands that only read do not create one.

    Raises:
        StoreError: there is none (reason `absent`), or it cannot be opened.
    """
    from agentloupe.engine.project import Projector
    from agentloupe.ports.settings import load
    from agentloupe.store.opening import open_url

    store = open_url(load().db if db is None else db, create=create, new_fold=Projector)
    try:
        yield store
    finally:
        store.close()


def anchor_of(text: str | None) -> Head | None:
    """What `--anchor` says. Raises `UsageError`."""
    if text is None:
        return None
    number, _, digest = text.partition(":")
    if not re.fullmatch("[0-9]{1,18}", number) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise UsageError(
            f"--anchor {text}: not N:HASH",
            hint="for instance --anchor 41:<64 hex digits>, as `show RUN --json` gives events and head",
        )
    return Head(int(number), digest.lower())


def text_given(given: str, option: str) -> str:
    """The text itself, or what is in the file behind `@`. Raises `UsageError`, which names the option; `OSError`."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text("utf-8")
    except UnicodeDecodeError as wrong:
        raise UsageError(f"{option} {given}: not UTF-8 text") from wrong
