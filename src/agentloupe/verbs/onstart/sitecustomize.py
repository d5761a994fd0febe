"""What Python imports by itself at its start, in every program that `agentloupe run`, `replay` or `fork` starts.

Python finds this file because its folder stands first on `PYTHONPATH`; a `sitecustomize` of the user's own is
imported afterwards, as it would have been. Only the standard library is needed here, and an old one will do: the program
may run in an interpreter that has no Agent Loupe. Then a recording says so and goes on; a replay or a fork must not let it run.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

SPEC = "LOUPE_LAUNCH"
"""The variable that names the session file."""

HERE = str(Path(__file__).resolve().parent)


def start() -> None:
    """Begins the session that the environment names, if it names one, then does what Python would have done without us."""
    named = Path(os.environ.get(SPEC, ""))
    sys.path[:] = [place for place in sys.path if str(Path(place).resolve()) != HERE]
    if named.is_file() and not _is_ours():
        _begin(named)
    _the_next()


def _is_ours() -> bool:
    """Whether the program is the command `agentloupe` itself, which starts sessions of its own."""
    words = list(getattr(sys, "orig_argv", sys.argv))[1:3]
    return words == ["-m", "agentloupe"] or any(Path(word).name == "agentloupe" for word in words[:1])


def _begin(named: Path) -> None:
    spec = json.loads(named.read_bytes().decode())
    try:
        from agentloupe.verbs.launched import begin

        begin(spec)
    except BaseException as wrong:  # noqa: BLE001  # whatever it is, there is no session
        if spec.get("verb") == "record":
            _say_unrecorded(spec, wrong)
            return
        _end(wrong)


def _say_unrecorded(spec: dict[str, object], wrong: BaseException) -> None:
    """The program runs on, unrecorded; who started it is told why."""
    try:
        with (Path(str(spec["notes"])) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps({"failed": _shown(wrong)}) + "\n")
    except (KeyError, OSError):
        sys.stderr.write(f"agentloupe: NOTHING IS RECORDED: {_shown(wrong)}\n")


def _end(wrong: BaseException) -> None:
    """Ends the process before the program's first line: it must not run without the session that was asked for."""
    if os.environ.get("LOUPE_DEBUG"):
        traceback.print_exc()
    sys.stderr.write(f"agentloupe: {_shown(wrong)}\n")
    sys.stderr.flush()
    os._exit(getattr(wrong, "exit_code", 3))


def _shown(wrong: BaseException) -> str:
    if isinstance(wrong, ImportError):
        return f"{sys.executable} cannot load agentloupe ({wrong}): install agent-loupe there"
    return str(wrong)


def _the_next() -> None:
    """Imports the `sitecustomize` that ours stands before. Its errors are its own, and shown as ever."""
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")  # not this one: its folder is off the path
    except ImportError as wrong:
        if wrong.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


if __name__ == "sitecustomize":
    start()
