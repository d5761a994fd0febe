"""Owners of runs: whether a process still lives, without asking the wrong one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentloupe.store import owners
from agentloupe.store.owners import alive, this_process
from agentloupe.words.run import Owner


def owner_of(pid: int) -> Owner:
    started = owners._started(pid)
    assert started is not None
    return replace(this_process(), pid=pid, started=started)


def test_this_process_is_alive() -> None:
    me = this_process(3)
    assert (me.pid, me.epoch) == (os.getpid(), 3)
    assert alive(me)


def test_another_process_under_the_same_number_is_not_the_owner() -> None:
    assert not alive(replace(this_process(), started="at another time"))
    assert not alive(replace(owner_of(os.getppid()), started="at another time"))
    assert alive(owner_of(os.getppid()))


def test_a_process_is_alive_until_it_is_killed_also_as_a_zombie() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = owner_of(process.pid)
        assert alive(owner)
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet collected
        assert not alive(owner)
        process.wait()
        assert not alive(owner)


def test_nobody_can_tell_about_another_host() -> None:
    assert alive(Owner("somewhere-else", 1, "x"))


def test_without_proc_ps_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(owners, "_PROC", tmp_path)
    owners._own_start.cache_clear()
    try:
        parent = replace(this_process(), pid=os.getppid(), started=owners._started(os.getppid()) or "")
        assert parent.started.count(":") == 2, "ps tells a date with a time"
        assert alive(parent)
        assert not alive(replace(parent, started="Mon Jan  1 00:00:00 1990"))
        assert alive(this_process())
    finally:
        owners._own_start.cache_clear()
