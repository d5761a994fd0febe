"""Fault points: a closed list, armed by one variable of the process's environment and by nothing else."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentloupe.ports import faultpoints
from agentloupe.ports.faultpoints import POINTS, VARIABLE, armed_by, reach
from agentloupe.words.errors import UsageError
from tests.support import ROOT, SRC


def reached() -> dict[str, str]:
    """The file in which each point is: the calls of `reach` in the source, each with one literal."""
    found: dict[str, str] = {}
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
                (said,) = node.args
                assert isinstance(said, ast.Constant), f"{path}:{node.lineno}: a point is a literal"
                found[str(said.value)] = path.relative_to(SRC).as_posix()
    return found


def test_every_place_is_on_the_list_and_every_name_has_a_place() -> None:
    assert set(reached()) == set(POINTS)


def test_only_one_module_reads_the_variable() -> None:
    readers = [path for path in SRC.rglob("*.py") if VARIABLE in path.read_text("utf-8")]
    assert readers == [SRC / "ports/faultpoints.py"]


def test_a_process_that_nobody_armed_has_nothing_to_do_at_a_point() -> None:
    assert VARIABLE not in os.environ
    assert reach is armed_by("")
    assert reach is faultpoints._unarmed
    reach("settle.after_head")


@pytest.mark.parametrize("said", ["effect", "settle.after_head:x", "settle.after_head:1:pause", "settle.after_head:-1"])
def test_what_names_no_point_is_an_error(said: str) -> None:
    with pytest.raises(UsageError, match="names no fault point"):
        armed_by(said)


@pytest.mark.parametrize(
    ("said", "dies_at"), [("settle.after_head", 1), ("settle.after_head:3", 3), ("settle.after_head:2:stop", 2)]
)
def test_an_armed_point_acts_once_at_the_nth_time(said: str, dies_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(faultpoints, "_end", lambda said, *, stop: ended.append(stop))
    armed = armed_by(said)
    for n in range(1, 6):
        armed("settle.after_bodies")
        armed("settle.after_head")
        assert len(ended) == (n >= dies_at)
    assert ended == ["stop" in said]


CODE = """
from agentloupe.ports.faultpoints import reach
for n in range(3):
    print(n, flush=True)
    reach("settle.after_head")
"""


def start(said: str, cwd: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), VARIABLE: said}
    command = [sys.executable, "-c", CODE]
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=-1, stderr=-1, text=True)


def test_an_armed_process_is_killed_and_leaves_a_word(tmp_path: Path) -> None:
    with start("settle.after_head:2", tmp_path) as child:
        out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == ("0\n1\n", -signal.SIGKILL)
    assert err == f"agentloupe: killed by {VARIABLE}=settle.after_head:2\n"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP: stops a process")
def test_a_process_can_be_made_to_stand_still(tmp_path: Path) -> None:
    with start("settle.after_head:2:stop", tmp_path) as child:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        child.send_signal(signal.SIGCONT)
        out, _ = child.communicate(timeout=60)
    assert (out, child.returncode) == ("0\n1\n2\n", 0)
