"""A test that starts its agent itself: its run is replayed from a file, or recorded into it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from agentloupe.engine.guard import placeholder_keys
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.report import ReplayReport
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.verbs.clients import wrapping_clients
from agentloupe.verbs.replaying import Wishes, find_recording, open_tape, replayer_for, shut_off
from agentloupe.verbs.replaysession import ReplayOpener
from agentloupe.verbs.testing import Case, OneRun, Told, judged, missing, near, read_or_none, taking, written
from agentloupe.words.errors import LoupeError, ReplayMismatch

__all__ = ["Taped"]


class Taped:
    """The time in which a test starts its agent itself, replayed from a file or recorded into it.

        taped = Taped(case)
        refused = taped.opened()
        with taped:
            ...  # the test
        told = taped.told(error)

    Args:
        case: its `path` is a file; `agent`, `arguments` and `isolated` are not looked at.
    """

    def __init__(self, case: Case) -> None:
        assert isinstance(case.path, Path), "a test's own recording is a file"
        self._case = case
        self._path = case.path
        self._left = ExitStack()
        self._replayer: Replayer | None = None
        self._recording: Recording | None = None
        self._taken: OneRun | None = None

    def opened(self) -> Told | None:
        """Reads the recording. What is given says why the test need not begin: there is none, or it is not whole.

        Raises:
            LoupeError: it cannot be replayed.
        """
        case = self._case
        if not self._path.exists() or case.mode == "all":
            if case.mode == "none":
                return Told(passed=False, text=missing(self._path, case.again))
            self._taken = OneRun()
            return None
        wishes = Wishes(level=case.level, expect=case.expect, strict_order=case.strict_order)
        self._recording = find_recording(self._path, None)
        opened = open_tape(self._recording, wishes)
        if isinstance(opened, ReplayReport):
            return judged(opened, self._recording, self._path, "")
        self._replayer = replayer_for(opened, wishes)
        return None

    def __enter__(self) -> Self:
        if self._taken is not None:
            self._left.enter_context(taking(self._taken))
        elif self._replayer is not None:
            self._left.enter_context(_replaying(self._replayer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.close()

    def is_outdated(self) -> bool:
        """Whether the test, which has run, no longer agrees, and is to be recorded anew then."""
        replayer = self._replayer
        return self._case.mode == "new_episodes" and replayer is not None and replayer.report().verdict == "diverged"

    def anew(self) -> Taped:
        """The time in which the test runs once more, to be recorded in place of what is there."""
        again = Taped(replace(self._case, mode="all"))
        refused = again.opened()
        assert refused is None, "what is recorded needs no recording"
        return again

    def told(self, error: BaseException | None) -> Told:
        """What the test has shown. `error`: what it raised; the recording of a test that failed is not written.

        Raises:
            UsageError: it was to be recorded, and did not start exactly one run.
        """
        if self._taken is not None:
            return _taken_by_test(self._taken, self._path, error)
        assert self._replayer is not None, "opened"
        assert self._recording is not None, "opened"
        told = judged(self._replayer.report(), self._recording, self._path, self._case.again)
        if told.passed and isinstance(error, ReplayMismatch):
            return replace(told, passed=False, text=f"{told.text}\n{error.message}")
        return told


def _replaying(replayer: Replayer) -> ExitStack:
    """Everything that starts inside is this replay, in every thread, and nothing gets out."""
    opener = ReplayOpener(replayer)
    stack = ExitStack()
    stack.enter_context(wrapping_clients())
    stack.enter_context(placeholder_keys())
    stack.enter_context(shut_off(replayer, opener))
    stack.enter_context(ambient.opening_with(opener))
    return stack


def _taken_by_test(taken: OneRun, path: Path, error: BaseException | None) -> Told:
    if error is not None:
        return Told(passed=False, text=f"the test failed: {near(path)} was not written")
    made = taken.recording()
    try:
        opened = open_tape(made)
    except LoupeError as wrong:
        return Told(
            passed=False, text=f"recorded, and not written to {near(path)}, since it cannot be replayed: {wrong}"
        )
    if isinstance(opened, ReplayReport):
        return Told(passed=False, text=opened.text(), report=opened)
    return written(path, taken, read_or_none(path), None)
