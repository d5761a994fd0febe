"""What happens to runs when a process is started: the child belongs to none, and the recording says that it lacks it.

Forks are told by the system. Other ways are looked for where Python starts processes: `subprocess`, which the event loop
uses too, and `multiprocessing`, whose fork server starts them out of sight.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agentloupe.ports import surroundings
from agentloupe.ports.callers import HARMLESS, asker, is_own
from agentloupe.ports.surroundings import Surroundings, here

__all__ = ["install", "tell_of_interpreter", "watch"]

_runs: weakref.WeakSet[Any] = weakref.WeakSet()
_forking: list[Surroundings | None] = []


def watch(boundary: object) -> None:
    """This run is told of processes."""
    _runs.add(boundary)
    _look_for_multiprocessing()


def _before() -> None:
    _forking.append(here())


def _in_parent() -> None:
    _tell(_forking.pop())


def _tell(there: Surroundings | None, *child: str) -> None:
    if there is None or there.inner or there.boundary is None:
        return
    tell = getattr(there.boundary, "forked", None)
    if tell is not None:
        tell(*child)


def tell_of_interpreter(there: Surroundings) -> None:
    """Work of a run was given to another interpreter of this process, in which there is nothing of Loupe."""
    _tell(there, "other interpreter")


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


def _told(start: Callable[..., Any]) -> Callable[..., Any]:
    """What starts a process, and tells the run of the code that asked for it."""

    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> Any:
        done = start(*args, **kwargs)
        there = here()
        if there is not None and (asks := asker()) not in HARMLESS and not is_own(asks):
            _tell(there)
        return done

    return started


def _look_for_multiprocessing() -> None:
    """It is imported by few programs, and by these at any time."""
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None and not hasattr(processes.BaseProcess.start, "__wrapped__"):
        processes.BaseProcess.start = _told(processes.BaseProcess.start)


def _fork_exec(plain: Callable[..., int]) -> Callable[..., int]:
    """By this `multiprocessing` starts its servers, before any process out of sight."""

    @functools.wraps(plain)
    def started(*args: Any, **kwargs: Any) -> int:
        _look_for_multiprocessing()
        return plain(*args, **kwargs)

    return started


def install() -> None:
    """From now on processes are noticed."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
    import subprocess

    popen: Any = subprocess.Popen
    popen.__init__ = _told(popen.__init__)
    for name in ("system", "posix_spawn", "posix_spawnp"):
        if (start := getattr(os, name, None)) is not None:
            setattr(os, name, _told(start))
    with suppress(ImportError):
        import _posixsubprocess

        posix: Any = _posixsubprocess
        posix.fork_exec = _fork_exec(posix.fork_exec)
    _look_for_multiprocessing()
