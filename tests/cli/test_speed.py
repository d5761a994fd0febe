"""Commands that only look start quickly: nothing heavy is loaded that they do not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_LOADED = """
import contextlib, io, json, sys
from agentloupe.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(sys.argv[1:])
print(json.dumps([code, sorted(name.partition(".")[0] for name in sys.modules)]))
"""


def loaded(*words: str) -> set[str]:
    """Top-level names of the modules that a command loads."""
    done = subprocess.run([sys.executable, "-c", _LOADED, *words], capture_output=True, text=True, check=True)
    code, names = json.loads(done.stdout)
    assert code == 0, done.stderr
    return set(names)


HEAVY = {"openai", "anthropic", "xllamacpp", "genai_prices", "httpx", "httpx2", "sqlite3"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], []], ids=" ".join)
def test_the_overview_loads_nothing_but_its_own_library(words: list[str]) -> None:
    assert loaded(*words) & {*HEAVY, "asyncio"} == set()


@pytest.mark.parametrize("verb", ["fork", "list", "replay", "run", "show"])
def test_help_of_a_verb_loads_nothing_heavy(verb: str) -> None:
    assert loaded(verb, "--help") & HEAVY == set()


@pytest.mark.parametrize(
    "words", [["list"], ["show", "last"], ["list", "--cost"], ["compare", "last", "last~1"]], ids=" ".join
)
def test_looking_never_loads_a_model_client(db: Path, words: list[str]) -> None:
    assert loaded(*words) & {"openai", "anthropic", "xllamacpp"} == set()


@pytest.mark.parametrize("words", [["verify", "last"], ["list"]], ids=" ".join)
def test_what_asks_for_no_cost_needs_no_prices(db: Path, words: list[str]) -> None:
    assert loaded(*words) & (HEAVY - {"sqlite3"}) == set()
