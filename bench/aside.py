"""A subject that is measured in a process of its own, by turns with the others: it brings threads, patches or weight along.

The process makes the subject, then does one batch whenever it is told to, and says how long that took.
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
from pathlib import Path
from typing import Any

from bench.peers import Absent

_PATIENCE_S = 20.0
"""Until a process that has nothing left to do must have ended."""
ROOT = Path(__file__).resolve().parents[1]
"""Where `bench` is found."""


class Aside:
    """One subject. Made by `Context.aside`, which ends it, too.

    Args:
        what: `module:function` of a context manager that gives a batch.
        args: of that function; they travel as JSON.

    Raises:
        Absent: it needs something that is not installed.
    """

    def __init__(self, what: str, *args: Any) -> None:
        self._what = what
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed in `close`
        command = [sys.executable, "-m", "bench.aside", what, json.dumps(args)]
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

    def timed(self) -> tuple[float, float]:
        """Seconds for one operation of a batch: (processor time of that process, wall)."""
        assert self._child.stdin is not None
        self._child.stdin.write("go\n")
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
        for _ in sys.stdin:
            say(_one(batch))
        made.__exit__(None, None, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
