"""Tells the steps of forks on standard error while they are made, whoever makes them: this process or a child."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count

from agentloupe.cli.output import harmless
from agentloupe.ports.progress import Progress, Watch
from agentloupe.ports.protocols import Store
from agentloupe.words.errors import LoupeError
from agentloupe.words.step import Step

__all__ = ["telling_steps"]

_LOOK = 0.2
"""Seconds between looks into the store: what a child does is seen nowhere else."""


@contextmanager
def telling_steps(store: Store) -> Generator[Watch]:
    """While the block runs, steps are told as they end. Yields what the forks have to tell of their progress."""
    steps = _Steps(store)
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK):
            steps.look()

    looking = threading.Thread(target=look, name="agentloupe-watch", daemon=True)
    looking.start()
    try:
        yield steps.heard
    finally:
        over.set()
        looking.join()
        steps.look()


class _Steps:
    """The runs that are watched, and which of their steps were told."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: dict[str, set[int]] = {}

    def heard(self, progress: Progress) -> None:
        """A fork told something."""
        if progress.what == "begun":
            self._told[progress.run_id] = set()
        elif progress.what == "rate_limited":
            _say(f"{progress.run_id}: waits {progress.seconds:g} s for its provider: {progress.text}")

    def look(self) -> None:
        """Tells what came since the last time. Never raises: the fork is what matters."""
        for run_id, told in list(self._told.items()):
            with suppress(LoupeError):
                for step in self._store.steps(run_id, first=_first_untold(told)):
                    if step.idx not in told and (step.source == "recorded" or _is_over(step)):
                        told.add(step.idx)
                        if step.source != "recorded" and step.kind != "agent":
                            _say(f"{run_id}: {_line(step)}")


def _first_untold(told: set[int]) -> int:
    """Steps may end in another order than they began."""
    return next(idx for idx in count() if idx not in told)


def _is_over(step: Step) -> bool:
    return step.kind == "agent" or step.status != "open"


def _line(step: Step) -> str:
    source = "" if step.source == "live" else f" [{step.source}]"
    status = "" if step.status == "ok" else f" {step.status}{f': {step.error_class}' if step.error_class else ''}"
    return f"step {step.idx} {step.kind} {step.name}{source}{status}"


def _say(text: str) -> None:
    sys.stderr.write(f"{harmless(text)}\n")
    sys.stderr.flush()
