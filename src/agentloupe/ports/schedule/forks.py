"""What happens to runs when a process is forked: the child belongs to none, and the recording says that it lacks it."""

from __future__ import annotations

import os
import weakref
from typing import Any

from agentloupe.ports import surroundings
from agentloupe.ports.surroundings import Surroundings, here

__all__ = ["install", "watch"]

_runs: weakref.WeakSet[Any] = weakref.WeakSet()
_forking: list[Surroundings | None] = []


def watch(boundary: object) -> None:
    """This run is told of forks."""
    _runs.add(boundary)


def _before() -> None:
    _forking.append(here())


def _in_parent() -> None:
    there = _forking.pop()
    if there is None or there.inner or there.boundary is None:
        return
    tell = getattr(there.boundary, "forked", None)
    if tell is not None:
        tell()


def _in_child() -> None:
    """Threads of the parent are not here: nothing may wait for them, and nothing is written."""
    _forking.clear()
    for run in list(_runs):
        schedule = getattr(run, "schedule", None)
        if schedule is not None:
            schedule.abandon()
        detach = getattr(run, "detach", None)
        if detach is not None:
            detach()
    if any(getattr(run, "forgettable", False) for run in _runs):
        surroundings.set_home(None)


def install() -> None:
    """From now on forks are noticed, where the system has them."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
