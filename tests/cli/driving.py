"""The command, in this process or in one of its own, and a model whose answers a test chooses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from agentloupe.cli import main
from agentloupe.providers.scripted import Answer, Ask, ScriptedServer
from agentloupe.providers.scripted.samples import sample_rule
from tests.support import ROOT

# What a terminal would obey, what would turn a line around, and what is no text at all.
ESCAPES = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\b"
MARKS = "\u202egnp.exe\u2066\u200b\ufeff\u061c\xad\u2028"
HOSTILE = f"a{ESCAPES}b{MARKS}c"


@dataclass(frozen=True)
class Done:
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document that standard output must be, and nothing else; strict: no NaN, no double keys."""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=_refuse, object_pairs_hook=_once)

    @property
    def error(self) -> str:
        """The line that says what went wrong."""
        (line,) = [line for line in self.err.splitlines() if line.startswith("agentloupe: ")]
        assert "Traceback" not in self.err
        return line.removeprefix("agentloupe: ")


def _refuse(text: str) -> Any:
    raise AssertionError(f"{text} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), f"double keys among {[key for key, _ in pairs]}"
    return found


class Command:
    """`agentloupe ARGS...` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str | Path) -> Done:
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        return Done(code, out, err)

    def ok(self, *words: str | Path) -> str:
        """The text of a command that must succeed."""
        done = self(*words)
        assert done.code == 0, done.err
        assert done.err == ""
        return done.out

    def json(self, *words: str | Path) -> Any:
        """The document of a command that must succeed."""
        done = self(*words, "--json")
        assert done.code == 0, done.err
        assert done.err == ""
        return done.json


def first_run(cli: Command, agent: str) -> str:
    """Id of the newest run of an agent."""
    return str(cli.json("list", "--agent", agent)[0]["id"])


def start(*words: str | Path, cwd: Path = ROOT, **variables: str) -> subprocess.Popen[str]:
    """`agentloupe ARGS...` as a process with a session of its own, so that signals can be sent to all of it."""
    return subprocess.Popen(
        [sys.executable, "-m", "agentloupe", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def agentloupe(*words: str | Path, cwd: Path = ROOT, patience: float = 50, **variables: str) -> Done:
    """`agentloupe ARGS...` in a process of its own, to its end, which it must reach within `patience` seconds."""
    with start(*words, cwd=cwd, **variables) as process:
        try:
            out, err = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return Done(process.returncode, out, err)


class Model:
    """A scripted model behind an address; `answer` is what it says next, the sample's rule where it is None."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self._server = ScriptedServer(self._rule)

    def _rule(self, asked: Ask) -> Answer:
        return self.answer if self.answer is not None else sample_rule(asked)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    def __enter__(self) -> Self:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)
