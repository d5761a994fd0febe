"""`fork --watch`: steps are told while the fork goes on, whoever makes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.driving import agentloupe, start
from tests.cli.test_interrupts import Slow


@pytest.fixture
def slow() -> Iterator[Slow]:
    """A model that answers once, and then only when it is let go."""
    model = Slow(1)
    with model.server:
        yield model
        model.go.set()


@pytest.mark.parametrize("behind", [[], ["--", "python", "examples/weather/agent.py"]], ids=["generic", "own"])
def test_steps_are_told_as_they_end(db: Path, weather: str, slow: Slow, behind: list[str]) -> None:
    process = start("fork", weather, "--from", "1", "--watch", "--db", db, *behind, LLM_BASE_URL=slow.server.url)
    assert process.stderr is not None
    heard: list[str] = []
    while not any(" tool " in line for line in heard):  # of a fork that has not ended: its model does not answer
        line = process.stderr.readline()
        assert line, heard
        heard.append(line)
    assert process.poll() is None
    slow.go.set()
    out, rest = process.communicate(timeout=60)
    heard += rest.splitlines()
    assert process.returncode == 0, (out, heard)
    steps = [line.partition(": step ")[2].split() for line in heard if ": step " in line]
    assert [(words[0], words[1]) for words in steps[:2]] == [("1", "llm"), ("2", "tool")], heard
    assert steps[1][-1] == "[cassette]"
    assert all(line.startswith(f"{weather}-fork-") for line in heard if ": step " in line)


def test_nothing_is_told_where_nobody_looks(db: Path, weather: str, slow: Slow) -> None:
    slow.go.set()
    process = start("fork", weather, "--from", "4", "--db", db, LLM_BASE_URL=slow.server.url)
    assert process.communicate(timeout=60)[1] == ""
    assert agentloupe("list", "--db", db).code == 0
