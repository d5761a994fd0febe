"""rewind-agent around the OpenAI client, whose method it patches. (agent-rewind, in `rewound`, is another project.)

- For each call it writes a file with the request and one with the answer, then commits twice to SQLite (WAL, FULL).
- A replay gives the n-th call the n-th answer, whatever is asked: nothing is compared. A fork is a replay that ends before
  the last call; those after it are made for real, and kept.
- A stream is passed on at once, and kept when it ends, put together.
- Fields that are named like a credential are left out of what is kept; nothing is looked for in texts.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any
from unittest import mock

from bench.peers import load
from bench.timing import Batch

Opened = contextlib.AbstractContextManager[object]


@contextlib.contextmanager
def _quietly(path: Path, opened: Callable[[Any], Opened]) -> Generator[object]:
    """With the one store of that folder, as its users have one; it greets at the terminal."""
    said = io.StringIO()
    with (
        mock.patch.dict("os.environ", REWIND_DATA=str(path.parent / "rewind-agent")),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        opened(load("rewind_agent")) as session,
    ):
        yield session


def recording(path: Path) -> Opened:
    """Calls made inside of it are recorded as a session."""
    return _quietly(path, lambda library: library.session(path.name))


def replaying(path: Path, first: int | None = None) -> Opened:
    """Calls made inside of it are answered from the last session: all, or the `first` ones."""
    return _quietly(path, lambda library: library.replay("latest", from_step=first))


def kept(path: Path) -> int:
    """How many calls the last session has that can be read."""
    store = load("rewind_agent.store").Store(str(path.parent / "rewind-agent"))
    try:
        run = store.get_root_timeline(store.get_latest_session()["id"])["id"]
        steps = store.get_steps(run)
        return sum("choices" in store.blobs.get_json(step["response_blob"]) for step in steps)
    finally:
        store.close()


def forking(path: Path, asks: Callable[[], int]) -> Batch:
    """Forks of these calls before the last one, which is made again. Raises `Absent`."""
    with recording(path):
        calls = asks()

    def batch() -> int:
        with replaying(path, calls - 1):
            asks()
        return 1

    return batch
