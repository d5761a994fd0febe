"""Who owns a run, and whether that process still lives.

An owner is named by host, pid and the start time of the process, since a pid alone is given out again. The start time is
opaque text; on Linux it is field 22 of `/proc/<pid>/stat` (ticks since boot, proc(5)) with the id of the boot.
"""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from agentloupe.words.errors import OwnerAlive
from agentloupe.words.run import Owner

__all__ = ["alive", "check_gone", "gone", "this_process"]

_PROC = Path("/proc")
_GONE_STATES = frozenset("ZXx")
"""Process states of proc(5) that no longer run: zombie, dead."""


def this_process(epoch: int = 1) -> Owner:
    """The owner that stands for this process."""
    pid = os.getpid()
    return Owner(_host(), pid, _own_start(pid) or "", epoch)


def alive(owner: Owner) -> bool:
    """Whether the owner's process still runs. A process on another host counts as alive: nobody can tell from here."""
    if owner.host != _host():
        return True
    if owner.pid == os.getpid():
        return owner.started == (_own_start(owner.pid) or "")
    if not _exists(owner.pid):
        return False
    return _started(owner.pid) == (owner.started or None)


def gone(host: str, pid: int, started: str) -> bool:
    """Whether nobody writes any more for an owner that is not among the writers of this very process."""
    return (pid == os.getpid() and host == _host()) or not alive(Owner(host, pid, started))


def check_gone(run_id: str, owner: Owner | None, *, force: bool) -> None:
    """Raises `OwnerAlive` unless a run may be taken from its owner; see `ports.Store.take_over`."""
    if owner is None or not alive(owner):
        return
    if owner.host == _host():
        raise OwnerAlive(
            f"run {run_id} is going on: process {owner.pid} owns it",
            hint="wait for that process, or end it",
            reason="owner_alive",
        )
    if not force:
        raise OwnerAlive(
            f"run {run_id} belongs to process {owner.pid} on host {owner.host!r}, and nobody can tell from here whether "
            "that still lives",
            hint="once you know that it is gone, say so with --force-owner",
            reason="other_host",
        )


@cache
def _host() -> str:
    return platform.node() or "localhost"


@cache
def _own_start(pid: int) -> str | None:
    return _started(pid)


@cache
def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is there and belongs to somebody else
    return True


def _started(pid: int) -> str | None:
    """When a process started, as opaque text; `None` when it is gone or nothing tells."""
    if not _PROC.joinpath("self/stat").exists():
        return _started_by_ps(pid)
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, also parentheses: the numbers begin behind the last one.
    rest = text.rpartition(")")[2].split()
    if len(rest) < 20 or rest[0] in _GONE_STATES:
        return None
    return f"{_boot()}-{rest[19]}"


def _started_by_ps(pid: int) -> str | None:
    """For systems without /proc: `ps` is POSIX, `lstart` is known to BSD, macOS and procps."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603  # fixed words and a number
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
