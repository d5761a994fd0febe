"""A subject that is measured in a process of its own, by turns with the others: it brings threads, patches or weight along.

The process makes the subject, then does one batch whenever it is told to, and says how long that took. What cannot be
installed beside the others, or needs another Python, has an environment of its own below `.venv/peers`.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import Absent

_PATIENCE_S = 20.0
"""Until a process that has nothing left to do must have ended."""
ROOT = Path(__file__).resolve().parents[1]
"""Where `bench` is found."""
PEERS = ROOT / ".venv" / "peers"
"""Where the Makefile puts environments of others."""


def python_of(peer: str) -> str:
    """The interpreter of a peer that has an environment of its own.

    Raises:
        Absent: there is none.
    """
    found = PEERS / peer / "bin" / "python"
    if not (PEERS / peer / ".ready").is_file():  # what was not installed to its end is not there
        raise Absent(peer)
    return str(found)


@dataclass(frozen=True, slots=True)
class Part:
    """One of several batches of a process."""

    aside: Aside
    name: str

    def timed(self) -> tuple[float, float]:
        """As `Aside.timed`."""
        return self.aside.timed(self.name)


class Aside:
    """One subject, or several that share a process. Made by `Context.aside`, which ends it, too.

    Args:
        what: `module:function` of a context manager that gives a batch, or several by name. A batch that gives seconds in place
            of a count has timed one operation by itself.
        args: of that function; they travel as JSON.
        python: the interpreter; ours where none is named.

    Raises:
        Absent: it needs something that is not installed.
    """

    def __init__(self, what: str, *args: Any, python: str = sys.executable) -> None:
        self._what = what
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        command = [python, "-m", "bench.aside", what, json.dumps(args)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, text=True, cwd=ROOT)
        try:
            ready = self._answer()
        except BaseException:
            self.close()
            raise
        if absent := ready.get("absent"):
            self.close()
            raise Absent(str(absent))

    def timed(self, part: str = "") -> tuple[float, float]:
        """Seconds for one operation of a batch, of several the named one: (processor time of that process, wall)."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{part}\n")
        self._child.stdin.flush()
        taken = self._answer()
        return taken["cpu"] / taken["count"], taken["wall"] / taken["count"]

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._child.wait(_PATIENCE_S)
            self._said.seek(0)
            last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"{self._what} ended: {''.join(last) or 'it said nothing'}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        try:
            self._child.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
        self._said.close()


def _one(batch: Any) -> dict[str, Any]:
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    count = batch()
    if isinstance(count, float):
        return {"count": 1, "cpu": count, "wall": count}
    return {"count": count, "cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def main(what: str, args: str) -> None:
    """The process: says that it is ready, or what is absent; then a line for every line."""
    with open(os.dup(1), "w", encoding="utf-8") as out:  # noqa: PTH123  # what libraries print goes elsewhere
        os.dup2(2, 1)

        def say(answer: dict[str, Any]) -> None:
            print(json.dumps(answer), file=out, flush=True)

        module, _, function = what.partition(":")
        try:
            made = getattr(importlib.import_module(module), function)(*json.loads(args))
            batch = made.__enter__()
        except Absent as absent:
            say({"absent": str(absent)})
            return
        say({"ready": True})
        for line in sys.stdin:
            say(_one(batch[line.strip()] if isinstance(batch, dict) else batch))
        made.__exit__(None, None, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
