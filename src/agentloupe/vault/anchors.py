"""The anchor file: JSON Lines beside no database, written by whoever holds the key."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from agentloupe.words.errors import Corrupt, LoupeError, NotFound

__all__ = ["append", "read", "whole_lines"]


def read(path: Path) -> bytes:
    """What an anchor file holds.

    Raises:
        NotFound: there is none (reason `no_anchors`). LoupeError: it cannot be read (reason `unreadable`).
    """
    if path.exists() and not path.is_file():  # a pipe or a device would never end
        raise LoupeError(f"{path} cannot be read: it is no plain file", reason="unreadable")
    try:
        return path.read_bytes()
    except FileNotFoundError as wrong:
        hint = "`agentloupe anchor write` makes one; a file that was there and is gone is evidence by itself"
        raise NotFound(f"no anchors {path}", hint=hint, reason="no_anchors") from wrong
    except OSError as wrong:
        raise LoupeError(f"{path} cannot be read: {wrong.strerror}", reason="unreadable") from wrong


def whole_lines(data: bytes) -> tuple[list[bytes], bool]:
    """The lines, and whether a torn one stands behind them: one that was begun, and has no line break."""
    *lines, rest = data.split(b"\n")
    return lines, bool(rest)


def append(path: Path, make: Callable[[list[bytes]], bytes]) -> None:
    """Appends one line, on disk when it returns; a torn line is taken away before, since it was never an anchor.

    Args:
        path: the file; it is made where there is none, readable by its owner only.
        make: makes the line from those before it; nobody else appends meanwhile.

    Raises:
        LoupeError: it cannot be written (reason `unwritable`). Corrupt: it is a file of something else (reason
            `anchor_line`). Also what `make` raises; then nothing was changed.
    """
    try:
        file, made = _opened(path)
        try:
            _lock(file)
            _plain(path, file)
            data = _all(file)
            _refuse_others(path, data)
            _append(file, data, make)
        except BaseException:
            if made and not os.fstat(file).st_size:
                path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        if not data:
            _sync_folder(path.absolute().parent)
    except OSError as wrong:
        raise LoupeError(f"{path} cannot be written: {wrong.strerror}", reason="unwritable") from wrong


_BEGINNING = b'{"checkpoint":{'


def _refuse_others(path: Path, data: bytes) -> None:
    """What has no whole line is taken away only when it can be the torn beginning of an anchor; zeros are left by a power loss."""
    begun = data.rstrip(b"\0")[: len(_BEGINNING)]
    if b"\n" not in data and not _BEGINNING.startswith(begun):
        hint = "it was left as it is; name an anchor file, or a new one"
        raise Corrupt(f"{path}: line 1: no anchor", hint=hint, reason="anchor_line")


def _opened(path: Path) -> tuple[int, bool]:
    """The file to append to, and whether it was made: what was there before is never taken away."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), True
    except FileExistsError:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600), False  # where a link leads may be new


def _plain(path: Path, file: int) -> None:
    """Refuses a device or a pipe, and a file that another writer made, and took away when it failed."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no plain file")
    if not os.path.samestat(found, path.stat()):
        raise OSError(errno.ESTALE, "it was replaced meanwhile; try again")


def _append(file: int, data: bytes, make: Callable[[list[bytes]], bytes]) -> None:
    lines, torn = whole_lines(data)
    line = make(lines) + b"\n"
    end = data.rfind(b"\n") + 1
    if torn:
        os.ftruncate(file, end)
    _put(file, line, end)
    os.fsync(file)


def _all(file: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _put(file: int, line: bytes, start: int) -> None:
    """Writes the whole line, or takes back what a full disk let in of it."""
    done = 0
    try:
        while done < len(line):
            done += os.pwrite(file, line[done:], start + done)
    except OSError:
        os.ftruncate(file, start)
        raise


def _sync_folder(folder: Path) -> None:
    """A new file is there after a power loss only when its folder was written, too."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _lock(file: int) -> None:
    """Keeps other writers out until the file is closed."""
    try:
        from fcntl import LOCK_EX, flock
    except ImportError:  # where there are no such locks, the file has one writer by agreement
        return
    flock(file, LOCK_EX)
