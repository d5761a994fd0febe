"""Many rows by few statements.

Python's `sqlite3` lets go of the interpreter's lock for every statement that it runs, also for each row of `executemany`. In a
program of many threads each time is one in which the thread that settles waits for all of them, and one of them for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar

__all__ = ["insert", "parts"]

T = TypeVar("T")

_MOST = 64
"""Rows of one statement: with the columns of any table far below the parameters that SQLite takes (999 before 3.32)."""


def parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """The rows in parts whose lengths are powers of two, so that there are few statements to be kept prepared."""
    at, size = 0, _MOST
    while at < len(rows):
        while size > len(rows) - at:
            size >>= 1
        yield rows[at : at + size]
        at += size


def insert(conn: sqlite3.Connection, into: str, rows: Sequence[tuple[object, ...]], then: str = "") -> int:
    """Inserts rows, all as long as the first; returns how many rows of the table changed.

    Args:
        conn: in a transaction.
        into: `table(column, ...)`.
        rows: the values of each.
        then: what follows the values: `ON CONFLICT ...`.
    """
    changed = 0
    for part in parts(rows):
        row = f"({','.join('?' * len(part[0]))})"
        sql = f"INSERT INTO {into} VALUES {','.join([row] * len(part))} {then}"  # noqa: S608  # ours, and question marks
        changed += conn.execute(sql, tuple(chain.from_iterable(part))).rowcount
    return changed
