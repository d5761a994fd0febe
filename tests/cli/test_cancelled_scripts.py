"""A fork of a script ends when it is told to, also while its model does not answer and where it lets nothing interrupt it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentloupe.engine.verify import verify
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.forkchild import fork_command
from agentloupe.words.errors import Cancelled
from tests.cli.driving import agentloupe
from tests.cli.test_interrupts import group_of
from tests.held import HELD
from tests.support import ROOT

pytestmark = pytest.mark.faults

SCRIPT = (
    HELD
    + """
import agentloupe as loupe
from agentloupe.ports import ambient
from agentloupe.words.call import Call

def answer(body):
    if (HERE / "hold").exists():
        held()
    return {"model": "m", "choices": [{"message": {"role": "assistant", "content": "said"}}]}

@loupe.agent
def helper():
    if (HERE / "early").exists():
        held()
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    call = Call(kind="llm", name="chat m", input=body, encode=lambda v: v, decode=lambda v: v, resend=answer)
    ambient.call(call, lambda: answer(body))
    return "done"

if __name__ == "__main__":
    helper()
"""
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    made = tmp_path / "my_agent.py"
    made.write_text(SCRIPT)
    os.mkfifo(tmp_path / "reached")
    done = agentloupe("run", "--db", tmp_path / "l.db", "--", "python", made)
    assert done.code == 0, done.err
    return made


@pytest.fixture
def store(script: Path) -> Iterator[Store]:
    found = open_url(str(script.parent / "l.db"))
    yield found
    found.close()


def behaves(script: Path, *how: str) -> None:
    for name in how:
        (script.parent / name).touch()


def reached(script: Path) -> None:
    """Returns when the script is in the middle of what it waits for."""
    (script.parent / "reached").open().close()


def cancelling(script: Path, cancel: Cancel) -> threading.Thread:
    def wait_and_cancel() -> None:
        reached(script)
        cancel.cancel("enough")

    thread = threading.Thread(target=wait_and_cancel, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("deaf", [False, True], ids=["hears it", "hears nothing"])
def test_a_token_ends_it(script: Path, store: Store, deaf: bool) -> None:
    behaves(script, "hold", *(["deaf"] if deaf else []))
    cancel = Cancel()
    thread = cancelling(script, cancel)
    parent = store.runs()[0].id
    done = fork_command(parent, ["python", str(script)], from_step=1, store=store, cancel=cancel)
    thread.join()
    (made,) = done.candidates
    assert made.status == "cancelled"
    assert [(step.kind, step.status) for step in store.steps(made.id)][-1] == ("llm", "open" if deaf else "cancelled")
    assert verify(store.recording(made.id)).ok
    assert (made.coverage == "limited_replay") == deaf


def test_one_that_has_not_begun_leaves_nothing(script: Path, store: Store) -> None:
    behaves(script, "early", "deaf")
    cancel = Cancel()
    thread = cancelling(script, cancel)
    parent = store.runs()[0].id
    with pytest.raises(Cancelled, match="enough"):
        fork_command(parent, ["python", str(script)], from_step=1, store=store, cancel=cancel)
    thread.join()
    assert [run.id for run in store.runs()] == [parent]
    with pytest.raises(Cancelled):  # and nothing is begun with a token that was used
        fork_command(parent, ["python", str(script)], from_step=1, store=store, cancel=cancel)


def test_ctrl_c_ends_one_that_hears_nothing(script: Path, store: Store) -> None:
    behaves(script, "hold", "deaf")
    parent = store.runs()[0].id
    command = ["fork", parent, "--from", "1", "--db", str(script.parent / "l.db"), "--", "python", str(script)]
    process = subprocess.Popen(
        [sys.executable, "-m", "agentloupe", *command], cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
    )
    reached(script)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert group_of(process) == []  # pyright: ignore[reportArgumentType]  # it looks at the process's number only
    assert (process.returncode, err.decode().count("interrupted; what was recorded so far is kept")) == (130, 1)
    (made,) = (run for run in store.runs() if run.id != parent)
    assert (made.status, made.coverage) == ("cancelled", "limited_replay")
    assert verify(store.recording(made.id)).ok


def test_ctrl_c_ends_a_fork_by_code(script: Path, store: Store) -> None:
    """The code runs in the command's own process."""
    behaves(script, "hold")
    parent = store.runs()[0].id
    words = ["fork", parent, "--from", "1", "--db", str(script.parent / "l.db"), "--code", "my_agent:helper"]
    process = subprocess.Popen(
        [sys.executable, "-m", "agentloupe", *words], cwd=script.parent, stderr=subprocess.PIPE, start_new_session=True
    )
    reached(script)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode().count("interrupted; what was recorded so far is kept")) == (130, 1)
    (made,) = (run for run in store.runs() if run.id != parent)
    assert (made.status, made.coverage) == ("cancelled", "full")
    assert verify(store.recording(made.id)).ok
