"""A program that records into a store until it is killed. Says on its output how far it got; run by test_crash.

usage: writer_child.py PATH RUN CALLS POINT
POINT: `-`, or the name of a place in the append where the process kills itself at the last call.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from agentloupe.store import bodies, open_url, spool, writer
from agentloupe.store.spool import Spool
from tests.store.make import Author

whole = spool._frame


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(author: Author, point: str) -> None:
    """Puts a kill into one place of the next append."""
    if point == "before-spool":
        Spool.append = die
    elif point == "inside-spool":
        spool._frame = lambda sealed, new: die(os.write(author.writer._spool._file, whole(sealed, new)[:-9]))  # type: ignore[attr-defined]
    elif point == "before-bodies":
        bodies.put = die
    elif point == "after-bodies":
        bodies._OWN = "INSERT INTO run_bodies SELECT die(?, ?), 1"
        author.writer._db._write_connection().create_function("die", 2, die)  # type: ignore[attr-defined]
    elif point == "before-events":
        writer.put_events = die
    elif point == "before-view":
        author.writer._projection.write = die  # type: ignore[attr-defined]
    elif point == "after-settling":
        author.writer._projection.keep = die  # type: ignore[attr-defined]


def main(path: str, run: str, calls: int, point: str) -> None:
    store = open_url(path)
    author = Author(store, run).started()
    for i in range(calls):
        if point != "-" and i == calls - 1:
            arm(author, point)
        author.tool("count", {"i": i, "text": f"some text that is new at every call {i} " * 20}, {"i": i})
        if point != "-" and i == calls - 1:
            author.writer.flush()
        print(i, flush=True)
    while True:
        author.clock("grouped")
        sys.stdin.read(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
