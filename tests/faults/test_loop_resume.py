"""Forks of the plain loop that are really killed go on in another process, by `agentloupe resume` alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.verify import verify
from agentloupe.providers.loopback import json_reply, serve
from agentloupe.store import open_url
from tests.dialect_support import QUESTION, Dialects, agent_of, answered, turns, weather_answers
from tests.support import ROOT, some_of

pytestmark = pytest.mark.faults

CHILD = """
import os, signal, sys
from agentloupe.verbs.forking import ForkWishes, fork
from sums import add

count = int(os.environ["COUNT"])
what = os.environ["WHAT"]

def watch(progress):
    global count
    if progress.what == what:
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

fork("last", from_step=1, control=False, wishes=ForkWishes(watch=watch, live={"add": "sums"}, functions=[add]))
"""
SUMS = """
import os, signal
import agentloupe as loupe

@loupe.tool(effect="pure", name="add")
def add(a, b):
    with open("did.txt", "a") as out:
        out.write("add\\n")
    if os.environ.get("WHAT") == "tool":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"sum": a + b}
"""


@pytest.fixture
def server(workdir: Path) -> Iterator[Dialects]:
    made = Dialects()
    with serve(made) as running:
        made.url = running.url
        yield made


def python(folder: Path, server: Dialects, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LOUPE_")},
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}",
        "LLM_BASE_URL": f"{server.url}/v1",
        "LLM_API_KEY": "k",
        **more,
    }
    command = [sys.executable, *args]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


WHERE = [("begun", 1), ("asking", 1), ("answered", 1), ("asking", 2), ("answered", 2), ("asking", 3), ("tool", 1)]
"""Before the first model call, before and after answers (and so behind the tools between them), and inside of a live tool."""


@pytest.mark.parametrize(("what", "count"), some_of(WHERE, lambda number: number in (0, 3, 4, 6)))
def test_a_killed_fork_goes_on_without_code_and_nothing_is_asked_twice(
    server: Dialects, workdir: Path, what: str, count: int
) -> None:
    form = "anthropic"
    server.answers = weather_answers()
    loupe.record(agent_of(form, server), QUESTION)
    (workdir / "child.py").write_text(CHILD)
    (workdir / "sums.py").write_text(SUMS)

    def rule(body: Any) -> Any:
        spoken = turns(form, body)
        return json_reply(answered(form, body, weather_answers()[spoken], spoken))

    server.answers = [rule] * 99
    server.asked.clear()
    killed = python(workdir, server, "child.py", WHAT=what, COUNT=str(count))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = len(server.asked)
    done = python(workdir, server, "-m", "agentloupe", "resume", "last", "--tools-from", "sums", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "ok"
    answers = {"begun": 0, "asking": count - 1, "answered": count, "tool": 2}[what]
    assert len(server.asked) - before == 3 - answers, "what was answered before the kill is not paid again"
    sums = (workdir / "did.txt").read_text().count("add")
    assert sums == (2 if what == "tool" else 1), "a pure tool that was killed runs again, one that had ended does not"
    store = open_url(workdir / ".loupe" / "loupe.db")
    try:
        run = store.run(told["run_id"])
        assert run is not None
        assert (run.status, run.counts.live, run.counts.cassette, run.counts.miss) == ("ok", 1, 2, 0)
        recording = store.recording(run.id)
        assert verify(recording).ok
        finished: Any = recording.body(recording.events[-1].output_digest)
        assert finished["result"]["content"][0]["text"] == "Together 20.5 degrees."
    finally:
        store.close()
    assert python(workdir, server, "-m", "agentloupe", "replay", "last").returncode == 0
