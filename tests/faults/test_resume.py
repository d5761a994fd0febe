"""Runs that were really killed go on in another process: own code, scripts, models, and again after a second kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agentloupe.engine.verify import verify
from agentloupe.providers.scripted import Answer, Ask, ScriptedServer, say
from agentloupe.store import open_url
from tests.support import ROOT

pytestmark = pytest.mark.faults

AGENT = '''
import json, os, signal, sys
import agentloupe as loupe

def did(what):
    """Says that something real happens; and is the end, where that was asked for."""
    with open("did.txt", "a") as out:
        out.write(what + "\\n")
    if os.environ.get("DIE") == what:
        os.kill(os.getpid(), signal.SIGKILL)

@loupe.tool(effect="read")
def find(order):
    did(f"find {order}")
    return {"order": order, "paid": True}

@loupe.tool(effect="write")
def refund(order):
    did(f"refund {order}")
    return f"R-{order}"

@loupe.agent
def desk(orders):
    done = []
    for order in orders:
        loupe.now()
        if find(order=order)["paid"]:
            done.append(refund(order=order))
        loupe.state("done", len(done))
        did(f"done {order}")
    return done

@loupe.agent
def thinker(question):
    from openai import OpenAI
    client = loupe.wrap(OpenAI(base_url=os.environ["LLM_BASE_URL"], api_key="none", max_retries=0))
    messages = [{"role": "user", "content": question}]
    for turn in range(3):
        answer = client.chat.completions.create(model="scripted-1", messages=messages)
        text = answer.choices[0].message.content
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"and {turn}?"}]
    return messages[-2]["content"]

if __name__ == "__main__":
    print(json.dumps(desk(sys.argv[1:])))
'''


@pytest.fixture
def project(workdir: Path) -> Path:
    (workdir / "my_agent.py").write_text(AGENT, "utf-8")
    return workdir


def python(project: Path, *args: str, die: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the project; `die`: the thing at which it kills itself."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LOUPE_")},
        "PYTHONPATH": str(ROOT / "src"),
        "DIE": die,
        **more,
    }
    command = [sys.executable, *args]
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=50, check=False
    )


def loupe(project: Path, *args: str, die: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return python(project, "-m", "agentloupe", *args, die=die, **more)


def did(project: Path) -> list[str]:
    return (project / "did.txt").read_text().splitlines()


def checked(project: Path) -> str:
    """The one run there is, whole; its status."""
    store = open_url(project / ".loupe/loupe.db")
    try:
        (run,) = store.runs()
        assert verify(store.recording(run.id)).ok
        assert store.check() == []
        return run.status
    finally:
        store.close()


def test_a_killed_run_goes_on_and_may_be_killed_again(project: Path) -> None:
    killed = python(project, "-c", "import my_agent; my_agent.desk(['a', 'b', 'c'])", die="find b")
    assert killed.returncode == -signal.SIGKILL
    assert checked(project) == "interrupted"
    again = loupe(project, "resume", "last", "--code", "my_agent:desk", die="done b")
    assert again.returncode == -signal.SIGKILL
    assert checked(project) == "interrupted"
    last = loupe(project, "resume", "last", "--code", "my_agent:desk", "--json")
    assert last.returncode == 0, last.stderr
    told = json.loads(last.stdout)
    assert told["status"] == checked(project) == "ok"
    assert did(project) == [
        *("find a", "refund a", "done a", "find b"),
        *("done a", "find b", "refund b", "done b"),
        *("done a", "done b", "find c", "refund c", "done c"),
    ]
    assert loupe(project, "replay", "last", "--code", "my_agent:desk").returncode == 0


def test_a_write_that_nobody_saw_end_is_a_question_and_never_tried_again(project: Path) -> None:
    assert python(project, "my_agent.py", "a", "b", die="refund b").returncode == -signal.SIGKILL
    for _ in range(2):
        asked = loupe(project, "resume", "last", "--code", "my_agent:desk")
        assert asked.returncode == 3
        assert "tool refund (write) was begun, and nobody saw its end" in asked.stderr
        assert "idempotency key" in asked.stderr
    machine = loupe(project, "resume", "last", "--json", "--", "python", "my_agent.py", "a", "b")
    assert machine.returncode == 3
    told = json.loads(machine.stdout)
    assert told["error"]["reason"] == "open_intent"
    assert [intent["tool"] for intent in told["intents"]] == ["refund"]
    assert len(told["intents"][0]["idempotency_key"]) == 64
    assert did(project) == ["find a", "refund a", "done a", "find b", "refund b"]
    assert checked(project) == "interrupted"


def test_a_killed_script_goes_on_as_it_was_typed(project: Path) -> None:
    killed = loupe(project, "run", "--", "python", "my_agent.py", "a", "b", die="done a")
    assert killed.returncode == 128 + signal.SIGKILL
    refused = loupe(project, "resume", "last")
    assert refused.returncode == 3
    assert "-- python my_agent.py a b" in refused.stderr
    done = loupe(project, "resume", "last", "--", "python", "my_agent.py", "a", "b")
    assert done.returncode == 0, done.stderr
    assert '["R-a", "R-b"]' in done.stdout
    assert did(project) == ["find a", "refund a", "done a", "done a", "find b", "refund b", "done b"]
    assert checked(project) == "ok"


def test_a_script_with_other_arguments_is_stopped_and_nothing_real_happens(project: Path) -> None:
    assert loupe(project, "run", "--", "python", "my_agent.py", "a", "b", die="find b").returncode != 0
    before = did(project)
    done = loupe(project, "resume", "last", "--", "python", "my_agent.py", "z")
    assert done.returncode == 3
    assert "input_changed" in done.stderr
    assert did(project) == before
    assert checked(project) == "interrupted"


def test_a_model_call_without_an_answer_is_asked_again(project: Path) -> None:
    """The process dies while the model thinks, twice."""
    asked: list[int] = []
    victims: dict[int, subprocess.Popen[bytes]] = {}

    def rule(ask: Ask) -> Answer:
        turn = len(ask.messages) // 2
        asked.append(turn)
        if turn in victims:
            _wait_until_seen(project, turn)
            victims.pop(turn).kill()
        return say(f"answer {turn}")

    with ScriptedServer(rule) as server:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LLM_BASE_URL": server.url}
        code = "import my_agent; my_agent.thinker('well?')"
        first = [sys.executable, "-c", code]
        again = [sys.executable, "-m", "agentloupe", "resume", "last", "--code", "my_agent:thinker"]
        for turn, command in ((1, first), (2, again)):
            with subprocess.Popen(command, cwd=project, env=environment) as child:
                victims[turn] = child
                assert child.wait(timeout=50) == -signal.SIGKILL
            assert checked(project) == "interrupted"
        done = loupe(project, "resume", "last", "--code", "my_agent:thinker", LLM_BASE_URL=server.url)
        assert done.returncode == 0, done.stderr
    assert asked == [0, 1, 1, 2, 2]
    assert checked(project) == "ok"
    store = open_url(project / ".loupe/loupe.db")
    recording = store.recording(store.runs()[0].id)
    assert [e.attrs["asked_again"] for e in recording.events if e.type == "attempt.started"] == [["0.1"], ["0.2"]]
    assert len([e for e in recording.events if e.type == "model.requested"]) == 3
    store.close()
    replayed = loupe(project, "replay", "last", "--code", "my_agent:thinker", LLM_BASE_URL="http://127.0.0.1:9")
    assert replayed.returncode == 0, replayed.stdout


def _wait_until_seen(project: Path, call: int) -> None:
    """The request of the nth call is on the disk; the file is the only thing that tells."""
    store = open_url(project / ".loupe/loupe.db")
    deadline = time.monotonic() + 30
    while store.steps(store.runs()[0].id)[-1].n != call and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    store.close()


def test_what_the_agent_raises_is_shown_and_recorded(project: Path) -> None:
    code = AGENT.replace(
        '        did(f"done {order}")', '        did(f"done {order}")\n        assert order != "b", "no b"'
    )
    (project / "my_agent.py").write_text(code, "utf-8")
    assert python(project, "my_agent.py", "a", "b", die="find b").returncode == -signal.SIGKILL
    done = loupe(project, "resume", "last", "--code", "my_agent:desk")
    assert done.returncode == 1
    assert "AssertionError: no b" in done.stderr
    assert "it ended: error" in done.stdout
    assert checked(project) == "error"


def test_a_living_run_is_not_taken(project: Path) -> None:
    waits = "import my_agent, sys\nmy_agent.find.__wrapped__\nimport agentloupe as loupe\n"
    code = (
        waits
        + "with loupe.recording('waits'):\n    my_agent.find(order='a')\n    print('up', flush=True)\n    sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=project, env=environment, stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        refused = loupe(project, "resume", "last", "--force-owner", "--", "python", "my_agent.py")
        assert refused.returncode == 3
        assert f"process {child.pid} owns it" in refused.stderr
        child.communicate()
    assert checked(project) == "ok"
