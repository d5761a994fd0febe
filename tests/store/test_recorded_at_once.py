"""Forty agents recorded by four processes at once, through the recorder, while another reads: nothing lost, nothing locked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agentloupe.engine.project import load_steps
from agentloupe.engine.verify import verify
from agentloupe.store import open_url
from agentloupe.words.run import RunFilter
from tests.support import ROOT

CHILD = """
import sys
import agentloupe as loupe
from tests.cases.rec import Rec

@loupe.tool(effect="read")
def look(k: str) -> dict:
    return {"found": k}

@loupe.tool(effect="write")
def send(to: str) -> str:
    return f"sent to {to}"

ask = Rec().llm("m", lambda body: {"role": "assistant", "content": "x" * 300})

@loupe.agent(name="worker")
def worker(name: str) -> str:
    history = [{"role": "system", "content": "You answer briefly. " * 50}]
    for turn in range(3):
        history.append({"role": "user", "content": f"{name} {turn}"})
        history.append(ask({"model": "m", "messages": history}))
        look(f"{name} {turn}")
        loupe.now()
    return send(name)

sys.stdin.readline()  # all begin at once
for n in range(10):
    loupe.record(worker, f"{sys.argv[1]}-{n}")
"""


def test_forty_agents_by_four_processes_with_a_reader_that_reads_all_the_while(tmp_path: Path) -> None:
    db = tmp_path / "loupe.db"
    open_url(db).close()
    reader = open_url(db, read_only=True)
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "LOUPE_DB": str(db)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, f"p{i}"],
            cwd=ROOT, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(4)
    ]  # fmt: skip
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    looks = 0
    while any(child.poll() is None for child in children):
        for run in reader.runs(RunFilter(limit=5)):
            # What a reader sees is a whole beginning of the run, never half a step.
            steps = load_steps(reader.recording(run.id), reader.steps(run.id))
            assert all(step.output is not None for step in steps if step.status == "ok" and step.kind != "agent")
            looks += 1
    said = [child.communicate()[1] for child in children]
    assert ([child.returncode for child in children], said) == ([0] * 4, [""] * 4)
    assert looks
    runs = reader.runs(RunFilter(limit=None))
    assert len(runs) == len({run.id for run in runs}) == 40
    results: list[object] = []
    for run in runs:
        assert (run.status, run.coverage, run.step_count) == ("ok", "full", 11)
        recording = reader.recording(run.id)
        assert verify(recording).ok
        steps = load_steps(recording)
        assert len(steps) == 11
        results.append(steps[0].output)
    assert sorted(map(str, results)) == sorted(f"sent to p{i}-{n}" for i in range(4) for n in range(10))
    reader.close()
    store = open_url(db)
    assert store.check() == []
    store.close()
