"""Starts a user's program so that a session waits in it: recorded, replayed or forked, without a line changed.

The program is started exactly as it was typed. What reaches into it is its environment: a folder that stands first on
`PYTHONPATH` holds a `sitecustomize`, which Python imports before the program's first line (see `onstart`), and a variable names a
JSON file that says what to begin: `{"verb": "record", "name": ..., "tags": [...], "db": ...}`. So `__main__`, arguments, streams, terminal,
signals, tracebacks and exit codes are the program's own, and whatever it starts in turn finds the same environment.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentloupe.ports.recording import Recording
from agentloupe.verbs.onstart.sitecustomize import HERE, SPEC
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import Json, dumps

__all__ = ["MODEL_URLS", "command", "environment", "python_command", "variables_of", "write_spec"]

MODEL_URLS = "LOUPE_MODEL_URLS"
"""The variable of the setting `model_urls`."""

_EXAMPLE = "agentloupe run -- python my_agent.py ARGS"
_DEAF = {"E": "ignores the environment", "I": "ignores the environment", "S": "leaves out what is done at the start"}
"""Letters of the interpreter's options with which it would not find us."""


def write_spec(path: Path, verb: str, fields: Mapping[str, Json]) -> Path:
    """Writes the session file that `environment` names."""
    path.write_bytes(dumps({"verb": verb, **fields}))
    return path


def environment(spec: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which a program finds the session of that file; `base`: the one to start from."""
    known = dict(os.environ if base is None else base)
    others = [place for place in known.get("PYTHONPATH", "").split(os.pathsep) if place and place != HERE]
    return {**known, SPEC: str(spec), "PYTHONPATH": os.pathsep.join([HERE, *others])}


def variables_of(recording: Recording) -> dict[str, str]:
    """The variables under which a recorded program is run again: the seed of its hashes, its further addresses of models."""
    started = next((event for event in recording.events if event.type == "run.started"), None)
    snapshot = recording.body(started.bodies.get("snapshot")) if started is not None else None
    known = snapshot if isinstance(snapshot, dict) else {}
    kept, urls = known.get("env"), known.get("model_urls")
    seed = kept.get("PYTHONHASHSEED") if isinstance(kept, dict) else None
    found = {MODEL_URLS: ",".join(map(str, urls))} if isinstance(urls, list) else {}
    return {**found, "PYTHONHASHSEED": seed} if isinstance(seed, str) else found


def command(script: Sequence[str]) -> list[str]:
    """What to start for what a user typed behind `--`: any program that is, or comes to start, a Python program.

    Plain `python` is the interpreter that has Loupe; a word that ends in `.py` is run by it.

    Raises:
        UsageError: there is no such program or script, or its Python would not find us.
    """
    if not script:
        raise UsageError("expected a program behind --", hint=_EXAMPLE)
    first = script[0]
    if _is_python(first):
        return [_which(first), *_heard(first, script[1:])]
    if first == "-m" or first.endswith((".py", ".pyw")) or (Path(first).is_file() and not os.access(first, os.X_OK)):
        return [sys.executable, *_heard(first, script)]
    beside = None if os.sep in first else Path(sys.executable).with_name(first)
    found = shutil.which(first) or (str(beside) if beside is not None and beside.is_file() else None)
    if found is None:
        raise UsageError(f"no such program: {first}", hint=_EXAMPLE)
    return [found, *script[1:]]


def python_command(script: Sequence[str]) -> list[str]:
    """As `command`, for what must not run without us: only Python itself, and scripts that name it in their first line.

    Raises:
        UsageError: it is another program, whose Python might not find us.
    """
    words = command(script)
    if _is_python(words[0]):
        return words
    named = _named_in(Path(words[0]))
    if not named or not _is_python(named[0]):
        hint = "give the Python program itself: -- python my_agent.py ARGS, or -- python -m my_package ARGS"
        raise UsageError(f"{script[0]!r} is no Python program", hint=hint)
    return [named[0], *_heard(script[0], [*named[1:], *words])]


def _named_in(program: Path) -> list[str]:
    """The words of the line `#!` of a script; none where it has none."""
    try:
        with program.open("rb") as file:
            line = file.readline(1024)
    except OSError:
        return []
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
        words[:1] = [shutil.which(word) or word for word in words[:1]]
    return words


def _is_python(word: str) -> bool:
    name = Path(word).name
    return name.startswith(("python", "pypy")) and not name.endswith(".py")


def _which(word: str) -> str:
    """The interpreter that was named; plain `python` is this one, which has Loupe."""
    return sys.executable if word in ("python", "python3") else word


def _heard(typed: str, words: Sequence[str]) -> Sequence[str]:
    """The words behind an interpreter, if it will find us with them, and the script that they name is there."""
    letters, rest = _options(words)
    for letter in letters:
        if letter in _DEAF:
            hint = f"leave -{letter} out"
            raise UsageError(f"{typed} -{letter} {_DEAF[letter]}, and Loupe with it", hint=hint)
    if letters[-1:] not in ("c", "m") and rest and rest[0] != "-" and not Path(rest[0]).exists():
        raise UsageError(f"no such script: {rest[0]}", hint="it is looked for in the current folder")
    if letters[-1:] in ("c", "m") and not rest:
        raise UsageError(f"{typed} -{letters[-1]} needs a word more", hint=_EXAMPLE)
    return words


def _options(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The letters of Python's own options, up to `c` or `m`, which end them, and the words behind."""
    letters, at = "", 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word, at = words[at], at + 1
        if word.startswith("--"):
            at += word == "--check-hash-based-pycs"
            continue
        for place, letter in enumerate(word[1:], 2):
            letters += letter
            if letter in "cm":
                return letters, [*([word[place:]] if word[place:] else []), *words[at:]]
            if letter in "WX":
                at += place == len(word)
                break
    return letters, words[at:]
