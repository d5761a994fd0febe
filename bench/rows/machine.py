"""What the machine can do: the limits that other rows are held against."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path

import orjson
import zstandard

from bench.agents import conversations
from bench.context import Context
from bench.figures import Figure, Found
from bench.timing import Batch, Sample, by_turns, sample

_MB = 1e6
_ON_THE_DISK = frozenset(
    {"fsync of a small write", "SQLite commits of one row (WAL, FULL)", "SQLite commits of 100 rows (WAL, FULL)"}
)
_BLOCK = 4_000_000


def syncing(context: Context, count: int) -> Batch:
    """Small writes, each with fsync."""

    def batch() -> int:
        with Path(context.path("sync")).open("ab", buffering=0) as file:
            for _ in range(count):
                file.write(b"x" * 512)
                os.fsync(file.fileno())
        return count

    return batch


def committing(context: Context, synchronous: str, each: int, count: int) -> Batch:
    """Commits of `each` rows of 512 bytes in a WAL file."""
    conn = sqlite3.connect(context.path("rows"), isolation_level=None)
    context.ends(conn.close)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute(f"PRAGMA synchronous = {synchronous}")
    conn.execute("CREATE TABLE rows(id INTEGER PRIMARY KEY, data BLOB)")
    rows = [(os.urandom(512),)] * each

    def batch() -> int:
        for _ in range(count):
            conn.execute("BEGIN IMMEDIATE")
            conn.executemany("INSERT INTO rows(data) VALUES (?)", rows)
            conn.execute("COMMIT")
        return count

    return batch


def sha256(context: Context) -> Sample:
    """Seconds for one byte of SHA-256 over a large block."""
    data = os.urandom(_BLOCK)

    def batch() -> int:
        hashlib.sha256(data).digest()
        return len(data)

    return sample(batch, context.rounds)


def zstd3(context: Context) -> Sample:
    """Seconds for one byte of zstd level 3 over prose as agents write it."""
    data = b"".join(orjson.dumps(request["messages"][-1]) for request in conversations(1000))
    compress = zstandard.ZstdCompressor(level=3).compress

    def batch() -> int:
        compress(data)
        return len(data)

    return sample(batch, context.rounds)


def sorted_json(context: Context) -> Sample:
    """Seconds for the sorted JSON of a chat request of some 20 KB."""
    request = list(conversations(20, new=1024))[-1]

    def batch() -> int:
        for _ in range(200):
            orjson.dumps(request, option=orjson.OPT_SORT_KEYS)
        return 200

    return sample(batch, context.rounds)


def measure(context: Context) -> Found:
    """The limits. They have no targets: they are what targets are read beside."""
    found = Found()

    def add(name: str, unit: str, measured: float, median: float, *, rate: bool = True) -> None:
        better = "more" if rate else "less"
        found.figures.append(
            Figure(row="machine", name=name, unit=unit, measured=measured, median=median, better=better)
        )

    disk = by_turns(
        {
            "fsync of a small write": syncing(context, 20),
            "SQLite commits of one row (WAL, NORMAL)": committing(context, "NORMAL", 1, 100),
            "SQLite commits of one row (WAL, FULL)": committing(context, "FULL", 1, 20),
            "SQLite commits of 100 rows (WAL, FULL)": committing(context, "FULL", 100, 5),
        },
        context.turns(10),
        waits=_ON_THE_DISK,
    )
    for name, one in disk.items():
        add(name, "1/s", one.rate, 1 / one.median)
    sha = sha256(context)
    add("SHA-256", "MB/s", sha.rate / _MB, 1 / sha.median / _MB)
    zstd = zstd3(context)
    add("zstd level 3", "MB/s", zstd.rate / _MB, 1 / zstd.median / _MB)
    dumps = sorted_json(context)
    add("sorted JSON of a 20 KB chat request (orjson)", "us", dumps.us, dumps.median * 1e6, rate=False)
    return found
