"""Killed runs of programs that do several things at once go on to the result that they would have had."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentloupe.ports import codecs
from agentloupe.providers.scripted import Answer, Ask, ScriptedServer, say
from agentloupe.store import open_url
from tests.support import ROOT, some_of

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

HEAD = '''
import json, os, signal, sys, threading
from concurrent.futures import ThreadPoolExecutor
from time import sleep
import agentloupe as loupe

guard = threading.Lock()

def did(what):
    """Says that something real happens; and is the end, where that was asked for."""
    with open("did.txt", "a") as out:
        out.write(what + "\\n")
    with guard:
        done = len(open("did.txt").read().split())
    if os.environ.get("DIE_AT") == str(done):
        os.kill(os.getpid(), signal.SIGKILL)

@loupe.tool(effect="read")
def look(who, step):
    sleep((who * 7 + step * 3) % 5 / 1000)
    did(f"look-{who}-{step}")
    return who * 10 + step
'''

POOL = """
def work(who):
    return [look(who, step) for step in range(3)]

@loupe.agent
def agent():
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(work, range(5)))
    return found, look(9, sum(map(sum, found)) % 7)
"""

THREADS = """
import queue

@loupe.agent
def agent():
    jobs, found = queue.Queue(), {}

    def work():
        while (who := jobs.get()) is not None:
            found[who] = [look(who, step) for step in range(3)]

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for who in [*range(5), None, None, None]:
        jobs.put(who)
    for thread in threads:
        thread.join()
    found = [found[who] for who in range(5)]
    return found, look(9, sum(map(sum, found)) % 7)
"""

TAIL = """
if __name__ == "__main__":
    print(json.dumps(agent()))
"""

WHOLE = (
    HEAD
    + """
found = {}

def work(who):
    found[who] = [look(who, step) for step in range(3)]

threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with ThreadPoolExecutor(2) as pool:
    list(pool.map(work, (3, 4)))
found = [found[who] for who in range(5)]
print(json.dumps([found, look(9, sum(map(sum, found)) % 7)]))
"""
)

FORKED = (
    HEAD
    + """
from openai import OpenAI

client = loupe.wrap(OpenAI(base_url=os.environ["LLM_BASE_URL"], api_key="none", max_retries=0))
found = []

def work(who):
    found.append([who, [look(who, step) for step in range(2)]])

def ask(about):
    messages = [{"role": "system", "content": "Be long."}, {"role": "user", "content": json.dumps(about)}]
    return client.chat.completions.create(model="scripted-1", messages=messages).choices[0].message.content

threads = [threading.Thread(target=work, args=(who,)) for who in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
first = ask(found)
with ThreadPoolExecutor(2) as pool:
    list(pool.map(work, range(3, 7)))
print(json.dumps([first, ask([first, found])]))
"""
)

FOUND = [[who * 10 + step for step in range(3)] for who in range(5)]
RESULT = (FOUND, 90 + sum(map(sum, FOUND)) % 7)
CALLS = 16


def run(*words: str, die_at: int | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOUPE_")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "DIE_AT": str(die_at or ""), **more}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def agentloupe(*words: str, die_at: int | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "agentloupe", *words, die_at=die_at, **more)


def did() -> list[str]:
    return Path("did.txt").read_text("utf-8").split()


def result() -> Any:
    """What the run that was stored last came to."""
    store = open_url(Path(".loupe/loupe.db"))
    try:
        recording = store.recording(store.runs()[0].id)
        digest = recording.events[-1].output_digest
        assert digest is not None
        stored: Any = recording.body(digest)
        return codecs.decode(stored["result"])
    finally:
        store.close()


def replays(*words: str) -> None:
    report: dict[str, Any] = json.loads(agentloupe("replay", "last", "--strict-order", "--json", *words).stdout)
    assert (report["verdict"], report["order_proven"]) == ("pass", True), report


PROGRAMS = {"pool": POOL, "threads": THREADS}
KILLED = [(program, die_at) for program in PROGRAMS for die_at in (1, 6, 13)]


@pytest.mark.parametrize(("program", "die_at"), some_of(KILLED, lambda number: number in (1, 3, 5)))
def test_a_killed_agent_goes_on_to_the_same_result(workdir: Path, program: str, die_at: int) -> None:
    Path("my_agent.py").write_text(HEAD + PROGRAMS[program] + TAIL, "utf-8")
    assert run("my_agent.py", die_at=die_at).returncode == -signal.SIGKILL
    done = agentloupe("resume", "last", "--json", "--code", "my_agent:agent")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "ok"
    assert result() == RESULT
    again = [what for what in set(did()) if did().count(what) > 1]
    assert len(set(did())) == CALLS
    assert len(again) <= 3, "only what was open is asked again"
    replays("--code", "my_agent:agent")


@pytest.mark.parametrize("die_at", [2, 11])
def test_a_killed_script_with_threads_goes_on_to_the_same_result(workdir: Path, die_at: int) -> None:
    Path("script.py").write_text(WHOLE, "utf-8")
    assert agentloupe("run", "--", "python", "script.py", die_at=die_at).returncode == 128 + signal.SIGKILL
    done = agentloupe("resume", "last", "--", "python", "script.py")
    assert done.returncode == 0, done.stderr
    assert json.dumps(RESULT) in done.stdout
    assert len(set(did())) == CALLS
    replays("--", "python", "script.py")


def test_a_script_with_threads_is_forked_in_the_middle(workdir: Path) -> None:
    asked: list[tuple[object, object]] = []

    def rule(ask: Ask) -> Answer:
        asked.append(tuple(message["content"] for message in ask.messages))
        return say(f"answer {len(asked)}")

    Path("script.py").write_text(FORKED, "utf-8")
    with ScriptedServer(rule) as server:
        recorded = agentloupe("run", "--", "python", "script.py", LLM_BASE_URL=server.url)
        assert recorded.returncode == 0, recorded.stderr
        before = did()
        words = ("fork", "last", "--from", "16", "--system-prompt", "Be short.", "--no-control", "--json")
        forked = agentloupe(*words, "--", "python", "script.py", LLM_BASE_URL=server.url)
        assert forked.returncode == 0, forked.stdout + forked.stderr
    assert did() == before, "no tool was run again"
    (_, _), (_, second), (system, again) = asked
    assert (system, again) == ("Be short.", second), "all that threads and pool had found, in the same order"
    assert '["answer 1", "answer 3"]' in forked.stdout + forked.stderr
