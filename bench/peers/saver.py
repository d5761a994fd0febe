"""LangGraph's SqliteSaver, called as LangGraph's loop calls it for a step: the writes of a task, then the checkpoint.

A checkpoint holds the whole state. The saver sets WAL and leaves synchronous at SQLite's FULL: each of the two commits
survives a loss of power.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from bench.peers import load
from bench.timing import Batch


def _stepping(conn: sqlite3.Connection) -> Callable[[int, dict[str, Any], Any], None]:
    """Stores a step: (its number, the state after it, what the task has written)."""
    saver: Any = load("langgraph.checkpoint.sqlite").SqliteSaver(conn)
    base: Any = load("langgraph.checkpoint.base")
    config: dict[str, Any] = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}

    def step(number: int, state: dict[str, Any], written: Any) -> None:
        nonlocal config
        versions = dict.fromkeys(state, f"{number + 1:032}")
        if number:
            saver.put_writes(config, [("messages", written)], f"task-{number}")
        checkpoint = base.empty_checkpoint() | {"channel_values": state, "channel_versions": versions}
        config = saver.put(config, checkpoint, {"source": "loop", "step": number}, versions)

    return step


@contextmanager
def _connected(path: str | Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, check_same_thread=False)) as conn:
        yield conn


@contextmanager
def steps(path: str, count: int) -> Generator[Batch]:
    """Steps with a small state. Raises `Absent`."""
    with _connected(path) as conn:
        step = _stepping(conn)
        numbers = iter(range(10**9))

        def batch() -> int:
            for _ in range(count):
                number = next(numbers)
                value = {"row": number, "text": "some twenty characters"}
                step(number, {"messages": value}, value)
            return count

        yield batch


def stored(path: Path, requests: Iterator[dict[str, Any]]) -> int:
    """Bytes of the file that keeps the messages of these requests as the state of a step each. Raises `Absent`."""
    with _connected(path) as conn:
        step = _stepping(conn)
        for number, request in enumerate(requests):
            step(number, {"messages": request["messages"]}, request["messages"][-2:])
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size
