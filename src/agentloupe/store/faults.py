"""What SQLite says, in our words: every error of the database becomes one of the store's errors, with path and way out."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from agentloupe.words.errors import Corrupt, LoupeError, StoreBusy, StoreError, StoreFull, StoreReadOnly

__all__ = ["as_ours", "of_a_file"]

_DAMAGE = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"})
_BUSY = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_PROTOCOL"})
_LITTLE = 65_536
"""Bytes of free space below which an I/O error is taken for a full disk: SQLite reports a full one in several ways."""


def as_ours(error: sqlite3.Error, path: Path) -> LoupeError:
    """The error to raise in place of the database's."""
    name = getattr(error, "sqlite_errorname", None) or ""
    kind = "_".join(name.split("_")[:2])
    if kind in _DAMAGE or str(error).startswith("Could not decode"):
        return Corrupt(
            f"store {path} is damaged ({_short(error)})", hint="restore a copy, or export what can still be read"
        )
    if kind in _BUSY:
        return StoreBusy(f"store {path} is in use by another process for too long", hint="close it there, or try again")
    if kind == "SQLITE_FULL" or (kind == "SQLITE_IOERR" and _full(path)):
        return StoreFull(
            f"the disk that holds {path} is full", hint="free some space; `agentloupe gc` gives unused back"
        )
    if kind == "SQLITE_READONLY":
        return StoreReadOnly(
            f"store {path} cannot be written", hint="set --db or LOUPE_DB to a file in a folder you may write to"
        )
    if kind == "SQLITE_CANTOPEN":
        return StoreError(f"store {path} cannot be opened", hint="check the path and its rights", reason="cannot_open")
    if kind == "SQLITE_TOOBIG":
        return StoreError(f"store {path}: a value is larger than SQLite takes (1 GB)", reason="too_big")
    return StoreError(f"store {path}: {_short(error)}", reason="database")


def of_a_file(error: OSError, path: Path, store: Path) -> LoupeError:
    """The error to raise in place of the system's, of a file that belongs to a store."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or _full(store):
        return StoreFull(
            f"the disk that holds {store} is full", hint="free some space; `agentloupe gc` gives unused back"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(
            f"{path} cannot be written", hint="set --db or LOUPE_DB to a file in a folder you may write to"
        )
    return StoreError(f"store {store}: {path.name}: {error.strerror}", reason="spool")


def _short(error: sqlite3.Error) -> str:
    """One line: SQLite's own messages name tables and pages, never values."""
    return " ".join(str(error).split())[:200]


def _full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LITTLE
    except OSError:
        return False
