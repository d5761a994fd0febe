"""One row, measured in a process of its own: what an earlier row has loaded, patched or left running is not in its figures.

python -m bench.apart ROW SCALE ROUNDS FILE
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

from bench.aside import ROOT
from bench.context import Context
from bench.figures import Found, found_of
from bench.rows import NAMES
from bench.timing import PACE, pace_since

LIMIT_S = 600.0
"""A row that takes longer is ended: the others are measured all the same."""
_PACED = frozenset({"us", "ms", "1/s"})


class Failed(Exception):
    """A row was not measured to its end."""


class Row(Protocol):
    """How a row is measured."""

    def __call__(self, name: str, scale: float, rounds: int) -> Found: ...


class _Module(Protocol):
    def measure(self, context: Context) -> Found: ...


def row(name: str) -> _Module:
    """The module of a row. Raises `KeyError` for one that there is not."""
    if name not in NAMES:
        raise KeyError(name)
    return cast("_Module", importlib.import_module(f"bench.rows.{name}"))


def measured_here(name: str, scale: float, rounds: int, say: Callable[[str], None] = lambda _: None) -> Found:
    """A row in this process. Everything that is made on the way is removed again."""
    folder = Path(tempfile.mkdtemp(prefix="loupe-bench-"))
    context = Context(folder, scale=scale, rounds=rounds, say=say)
    first = len(PACE)
    try:
        found = row(name).measure(context)
    finally:
        context.close()
        shutil.rmtree(folder, ignore_errors=True)
    pace = pace_since(first)
    found.figures = [replace(f, pace=pace) if f.unit in _PACED and f.paces else f for f in found.figures]
    return found


def measured_apart(name: str, scale: float, rounds: int, limit_s: float = LIMIT_S) -> Found:
    """A row in a process of its own, which is ended with all that it has started when it takes too long.

    Raises:
        Failed: it took longer than `limit_s`, or ended without a result.
    """
    with tempfile.TemporaryDirectory(prefix="loupe-bench-") as folder:
        kept = Path(folder) / "found.json"
        command = [sys.executable, "-m", "bench.apart", name, str(scale), str(rounds), str(kept)]
        child = subprocess.Popen(command, cwd=ROOT, start_new_session=True, env=os.environ | {"TMPDIR": folder})
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"stopped after {limit_s:.0f} s") from None
        finally:
            _end(child)
        if code != 0 or not kept.exists():
            raise Failed(f"its process ended with code {code}")
        return found_of(cast("Mapping[str, Any]", json.loads(kept.read_text("utf-8"))))


def _end(child: subprocess.Popen[bytes]) -> None:
    """The process and those that it has started: they are one group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _main(name: str, scale: str, rounds: str, kept: str) -> None:
    def say(text: str) -> None:
        print(f"  ... {text}", file=sys.stderr, flush=True)

    found = measured_here(name, float(scale), int(rounds), say)
    Path(kept).write_text(json.dumps(found.as_json()), "utf-8")


if __name__ == "__main__":
    _main(*sys.argv[1:])
