"""A module that is named for a replay or a fork runs while it is imported: nothing may happen then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agentloupe as loupe
from agentloupe.verbs.importing import imported
from agentloupe.verbs.replaying import agent_named
from agentloupe.words.errors import ReplayRefused

PAYER = """
import agentloupe as loupe

@loupe.tool(effect="write")
def pay(amount):
    with open("paid.txt", "a", encoding="utf-8") as lines:
        lines.write(f"{amount}\\n")
    return "paid"

@loupe.agent
def payer():
    return pay(amount=5)
"""
STARTS = {
    "agent": "payer()",
    "tool": "pay(amount=1)",
    "record": "loupe.record(payer)",
    "block": "with loupe.recording('nightly') as block:\n    pay(amount=2)",
    "async": "import asyncio\nasync def later():\n    return payer()\nasyncio.run(later())",
    "swallowed": "try:\n    payer()\nexcept Exception:\n    pass",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOUPE_DB", str(tmp_path / "loupe.db"))
    return tmp_path


def module(folder: Path, name: str, *, ends_with: str = "") -> str:
    (folder / f"{name}.py").write_text(PAYER + ends_with + "\n", "utf-8")
    return name


@pytest.mark.parametrize("how", [name for name in STARTS if name != "swallowed"])
def test_a_start_at_import_is_refused(here: Path, how: str) -> None:
    name = module(here, f"starts_{how}", ends_with=STARTS[how])
    with pytest.raises(ReplayRefused, match=f"the module {name} .* while it is imported") as refused:
        imported(name)
    assert refused.value.reason == "runs_on_import"
    assert f"{name}.py:" in str(refused.value)
    assert not (here / "paid.txt").exists()
    assert not (here / "loupe.db").exists()
    assert name not in sys.modules


def test_nothing_happens_where_the_refusal_is_swallowed(here: Path) -> None:
    assert callable(agent_named(f"{module(here, 'swallows', ends_with=STARTS['swallowed'])}:payer"))
    assert not (here / "paid.txt").exists()


def test_plain_reads_pass(here: Path) -> None:
    name = module(here, "reads", ends_with="MODE = loupe.env('MODE_OF_THIS', 'calm')\nSTARTED = loupe.now()")
    assert imported(name).MODE == "calm"


def test_afterwards_agents_start_as_always(here: Path) -> None:
    found = agent_named(f"{module(here, 'quiet')}:payer")
    assert found() == "paid"
    assert len(loupe.open_store(here / "loupe.db").runs()) == 1


@pytest.mark.parametrize("words", [["replay", "last"], ["fork", "last", "--from", "start"]], ids=["replay", "fork"])
def test_neither_replay_nor_fork_pays_twice(here: Path, words: list[str]) -> None:
    name = module(here, "pays", ends_with="print(payer())")
    subprocess.run([sys.executable, f"{name}.py"], check=True, capture_output=True, cwd=here)
    command = [sys.executable, "-m", "agentloupe", *words, "--code", f"{name}:payer"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 3
    assert "starts the agent 'payer' while it is imported" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert (here / "paid.txt").read_text("utf-8") == "5\n"
    assert len(loupe.open_store(here / "loupe.db").runs()) == 1


MAKER = """
import os
import agentloupe as loupe

class Bot:
    def __init__(self, mood):
        self.mood = mood

    @loupe.agent(name="bot")
    def answer(self, question):
        return f"{question}: {self.mood}"

def make_bot():
    return Bot("calm")

def breaks():
    raise ValueError("no mood")

def starts():
    Bot("rash").answer("unasked")

if __name__ == "__main__":
    make_bot().answer("How are you?")
"""


def made(folder: Path, name: str) -> str:
    (folder / f"{name}.py").write_text(MAKER, "utf-8")
    return name


@pytest.mark.parametrize("verb", [["replay", "last"], ["fork", "last", "--from", "start"]], ids=["replay", "fork"])
def test_a_method_is_driven_on_an_object_that_is_made_for_it(here: Path, verb: list[str]) -> None:
    name = made(here, "makes")
    subprocess.run([sys.executable, f"{name}.py"], check=True, cwd=here)
    command = [sys.executable, "-m", "agentloupe", *verb, "--code", f"{name}:make_bot().answer"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("pass: " if verb[0] == "replay" else "How are you?: calm") in done.stdout


@pytest.mark.parametrize(
    ("path", "reason", "said"),
    [
        ("Bot.answer", "no_code", "is a method, and needs its object"),
        ("Bot().answer", "no_code", "cannot be loaded: Bot\\(\\) raised TypeError"),
        ("breaks().answer", "no_code", "cannot be loaded: breaks\\(\\) raised ValueError: no mood"),
        ("make_bot().reply", "no_code", "cannot be loaded: .* no attribute 'reply'"),
        ("starts().answer", "runs_on_import", "starts the agent 'bot' while it makes the agent"),
    ],
)
def test_a_method_without_its_object_is_refused(here: Path, path: str, reason: str, said: str) -> None:
    name = made(here, f"refuses_{path.partition('(')[0].replace('.', '_')}_{reason}_{path[-5:]}")
    with pytest.raises(ReplayRefused, match=said) as refused:
        agent_named(f"{name}:{path}")
    assert refused.value.reason == reason
    assert not (here / "loupe.db").exists()
