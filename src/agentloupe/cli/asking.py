"""Asks the person at the terminal for the result of a tool, while a fork waits."""

from __future__ import annotations

import sys

import typer

from agentloupe.cli.output import harmless, pretty
from agentloupe.engine.policy import Question
from agentloupe.words.errors import CassetteMiss, Refused
from agentloupe.words.jsontext import Json, loads

__all__ = ["agree", "ask"]


def agree(question: str) -> None:
    """Asks whether something that cannot be undone shall be done; returns when it shall.

    Raises:
        Refused: nobody is at this terminal.
        Abort: the answer was no.
    """
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        sys.stderr.write("\n")
        raise Refused("this asks before it removes anything, and nobody answered", hint="say --yes") from None


def ask(question: Question) -> Json:
    """Asks on standard error and reads one line: JSON, or else text. A child process finds this function by its name.

    Raises:
        CassetteMiss: nobody is at this terminal, or no answer was given.
    """
    if not sys.stdin.isatty():
        raise CassetteMiss(
            f"{question.tool} needs an answer from a person, and nobody is at this terminal",
            hint="choose another --on-miss, or a stub",
        )
    because = "its policy is human" if question.because == "policy" else "no recorded result exists for this call"
    asked = f"\n{question.tool} asks for its result ({because}). Arguments:\n{pretty(question.arguments)}\n"
    if question.nearest:
        asked += f"nearest recorded call: {question.nearest}\n"
    sys.stderr.write(harmless(asked))
    while True:
        sys.stderr.write("result as JSON (or text): ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise CassetteMiss(f"no answer was given for {question.tool}")
        if not line.strip():
            continue
        try:
            return loads(line)
        except ValueError:
            return line.rstrip("\n")
