"""Ctrl-C anywhere: exit code 130, one line, what was recorded is kept and readable, no child is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloupe.providers.scripted import Answer, Ask, ScriptedServer
from agentloupe.providers.scripted.samples import sample_rule
from tests.cli.driving import Done, agentloupe, start
from tests.support import ROOT

pytestmark = pytest.mark.faults


class Slow:
    """A model that stops answering after some answers, until it is let go."""

    def __init__(self, answers: int) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Event()
        self._left = answers
        self.server = ScriptedServer(self._rule)

    def _rule(self, asked: Ask) -> Answer:
        if self._left == 0:
            self.asked.release()
            self.go.wait(30)
        else:
            self._left -= 1
        return sample_rule(asked)


@pytest.fixture
def slow(request: pytest.FixtureRequest) -> Iterator[Slow]:
    model = Slow(request.param)
    with model.server:
        yield model
        model.go.set()


def group_of(process: subprocess.Popen[str]) -> list[int]:
    """Living processes of the group that the command leads."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == process.pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def interrupted(
    process: subprocess.Popen[str], model: Slow, number: int = signal.SIGINT, *, all_of_it: bool = True
) -> Done:
    """Sends a signal while the model is asked: to the whole group as a terminal does, or to the command alone."""
    assert model.asked.acquire(timeout=40)
    if all_of_it:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=40)
    assert group_of(process) == []
    return Done(process.returncode, out, err)


@pytest.mark.parametrize("slow", [1], indirect=True)
@pytest.mark.parametrize("all_of_it", [True, False], ids=["in a terminal", "the command alone"])
def test_record(tmp_path: Path, slow: Slow, all_of_it: bool) -> None:
    db = tmp_path / "l.db"
    command = ["run", "--db", db, "--", "python", "examples/weather/agent.py"]
    done = interrupted(start(*command, LLM_BASE_URL=slow.server.url), slow, all_of_it=all_of_it)
    assert done.code == 130
    assert "\nKeyboardInterrupt\nagentloupe: recorded weather-" in done.err  # the program's own traceback, then ours
    (run,) = agentloupe("list", "--json", "--db", db).json
    assert (run["status"], run["steps"]) == ("cancelled", 5)
    assert agentloupe("verify", "last", "--db", db).code == 0
    assert "get_weather" in agentloupe("show", "last", "--db", db).out


@pytest.mark.parametrize("slow", [1], indirect=True)
def test_record_that_is_asked_to_end(tmp_path: Path, slow: Slow) -> None:
    db = tmp_path / "l.db"
    command = ["run", "--db", db, "--", "python", "examples/weather/agent.py"]
    done = interrupted(start(*command, LLM_BASE_URL=slow.server.url), slow, signal.SIGTERM, all_of_it=False)
    assert done.code == 128 + signal.SIGTERM
    (run,) = agentloupe("list", "--json", "--db", db).json
    assert run["status"] == "interrupted"
    assert run["steps"] >= 4  # that the model was asked may have been in memory only; what it answered never is


@pytest.mark.parametrize("slow", [0], indirect=True)
@pytest.mark.parametrize("behind", [[], ["--", "python", "examples/weather/agent.py"]], ids=["generic", "own"])
def test_fork(db: Path, weather: str, slow: Slow, behind: list[str]) -> None:
    process = start("fork", weather, "--from", "4", "--db", db, *behind, LLM_BASE_URL=slow.server.url)
    done = interrupted(process, slow)
    assert (done.code, done.out) == (130, "")
    assert done.error == "interrupted; what was recorded so far is kept"
    (run,) = agentloupe("list", "--json", "--db", db, "--parent", weather).json
    assert (run["status"], run["steps"]) == ("cancelled", 5)
    assert agentloupe("verify", "--all", "--db", db).code == 0


STUCK = """
import sys
import agentloupe as loupe

@loupe.agent
def agent():
    loupe.random()
    if len(sys.argv) > 1:
        open(sys.argv[1], "w").close()
        sys.stdin.readline()

agent()
"""


def test_replay(tmp_path: Path) -> None:
    script, db, fifo = tmp_path / "agent.py", tmp_path / "l.db", tmp_path / "reached"
    script.write_text(STUCK)
    assert agentloupe("run", "--db", db, "--", "python", script).code == 0
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "-m", "agentloupe", "replay", "last", "--db", str(db), "--", "python", str(script), str(fifo)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    fifo.open().close()  # returns when the other end is opened: the program is in the middle of its agent
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=40)
    assert group_of(process) == []
    done = Done(process.returncode, out, err)
    assert (done.code, done.out, done.error) == (130, "", "interrupted; what was recorded so far is kept")
    assert agentloupe("verify", "last", "--db", db).code == 0


@pytest.mark.parametrize("slow", [1], indirect=True)
def test_demo(tmp_path: Path, slow: Slow) -> None:
    db = tmp_path / "l.db"
    process = start("demo", "--model", "env", "--db", db, LLM_BASE_URL=slow.server.url, LLM_MODEL="m")
    done = interrupted(process, slow)
    assert done.code == 130
    assert done.error == "interrupted; what was recorded so far is kept"
    (run,) = agentloupe("list", "--json", "--db", db).json
    assert (run["status"], run["steps"]) == ("cancelled", 5)
