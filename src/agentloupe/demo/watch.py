"""Says what a run is working on while it takes long, so that a terminal is never silent for minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from agentloupe.ports.ambient import monotonic_ms
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.words.errors import LoupeError
from agentloupe.words.run import RunFilter

__all__ = ["watching"]

QUIET_SECONDS = 2.0
"""Nothing is said before this time, nor sooner again."""
AGAIN_SECONDS = 10.0
"""After this time the same step is named again."""


@contextmanager
def watching(db: str, say: Callable[[str], None], *, quiet: float = QUIET_SECONDS) -> Generator[None]:
    """While the block runs, `say` hears a line for each step that takes long, and the same again while it goes on.

    Reads the newest run of the store through a connection of its own; what cannot be read is not told.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(db, say, quiet, ended), name="agentloupe-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(db: str, say: Callable[[str], None], quiet: float, ended: threading.Event) -> None:
    if ended.wait(quiet):
        return
    try:
        store = open_url(db, create=False)
    except LoupeError:
        return
    began, told, told_at = monotonic_ms(), "", 0.0
    try:
        while not ended.wait(quiet / 2):
            now = monotonic_ms()
            step = _step(store)
            if step is not None and (step != told or now - told_at > AGAIN_SECONDS * 1000):
                say(f"{step} ({(now - began) / 1000 + quiet:.0f} s)")
                told, told_at = step, now
    finally:
        store.close()


def _step(store: Store) -> str | None:
    """What the newest run is at, in words."""
    try:
        run = next(iter(store.runs(RunFilter(status="running", limit=1))), None)
        steps = store.steps(run.id) if run is not None else []
    except LoupeError:
        return None
    if run is None or not steps:
        return None
    busy = [step for step in steps if step.status == "open" and step.kind != "agent"]
    at = busy[-1] if busy else steps[-1]
    what = (
        "the model answers" if at.kind == "llm" else "its code runs" if at.kind == "agent" else f"{at.kind} {at.name}"
    )
    return f"{run.agent}: step {at.idx}, {what}"
