"""A process that records runs into a file that others record into at the same time. Run by test_processes.

usage: recording_child.py PATH NAME RUNS
"""

from __future__ import annotations

import sys

from agentloupe.store import open_url
from tests.store.make import Author


def main(path: str, name: str, runs: int) -> None:
    store = open_url(path)
    for i in range(runs):
        author = Author(store, f"{name}-{i}").started(agent=name, root=True)
        history = [{"role": "system", "content": "You answer briefly. " * 50}]
        for turn in range(5):
            history.append({"role": "user", "content": f"{name} {i} {turn}"})
            author.model(history)
            author.clock("grouped")
            author.tool("look", {"name": name, "turn": turn}, {"found": turn}, effect="write" if turn == 4 else "read")
        author.finished(i)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
