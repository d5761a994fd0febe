"""Options that many verbs share, and the ways from an option to a store and a run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated

import typer

from agentloupe.ports.protocols import Store

__all__ = ["AsJson", "Database", "Debug", "RunRef", "opened"]

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
