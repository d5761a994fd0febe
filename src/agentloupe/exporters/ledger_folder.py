"""Writes the files of a ledger: a whole folder at once, a report beside the evidence, a line behind a torn one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from agentloupe.ports import ambient
from agentloupe.ports.faultpoints import reach
from agentloupe.words.errors import LoupeError, Refused
from agentloupe.words.ledger import RECEIPTS

__all__ = ["append_line", "write_file", "write_folder"]


def write_folder(folder: Path, files: Mapping[str, Iterable[bytes]], receipts: Mapping[str, bytes]) -> int:
    """Writes a folder, whole or not at all: beside its place first, then renamed. Returns its bytes.

    Raises:
        Refused: something is there already (reason `exists`).
        LoupeError: it cannot be written (reason `unwritable`).
    """
    if os.path.lexists(folder):
        raise Refused(f"{folder} is there already", hint="name a folder that is not there yet", reason="exists")
    beside = folder.with_name(f".{folder.name}.{ambient.random_hex(8)}.part")
    size = 0
    try:
        (beside / RECEIPTS).mkdir(parents=True)
        for name, data in receipts.items():
            size += _written(beside / RECEIPTS / name, (data,))
        reach("ledger.after_receipts")
        for name, parts in files.items():
            size += _written(beside / name, parts)
        reach("ledger.before_rename")
        beside.rename(folder)
    except OSError as wrong:
        raise _unwritable(folder, wrong) from wrong
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return size


def write_file(path: Path, data: bytes) -> None:
    """Writes a file, whole or not at all; a file or link of that name is replaced, never followed.

    Raises:
        LoupeError: it cannot be written, or a device or pipe is there (reason `unwritable`).
    """
    if path.exists() and not path.is_symlink() and not path.is_file():  # root would replace /dev/null
        raise _unwritable(path, OSError(errno.EINVAL, "it is no plain file"))
    beside = path.with_name(f".{path.name}.{ambient.random_hex(8)}.part")
    try:
        _written(beside, (data,))
        reach("file.before_rename")
        beside.replace(path)
    except OSError as wrong:
        raise _unwritable(path, wrong) from wrong
    finally:
        with suppress(OSError):  # what stands in the way of this has been said above
            beside.unlink(missing_ok=True)


def append_line(path: Path, make: Callable[[bytes], bytes]) -> bytes:
    """Appends a line of its own to a log, on disk when it returns. Bytes of a torn line before it stay where they are.

    Args:
        path: the log.
        make: makes the line from what the log holds; nobody else appends meanwhile (where the system has locks).

    Raises:
        LoupeError: it cannot be written (reason `unwritable`). Also what `make` raises; then nothing was written.
    """
    try:
        with path.open("rb+") as log:
            _lock(log.fileno())
            data = log.read()
            line = make(data)
            assert b"\n" not in line
            log.write((b"\n" if data and not data.endswith(b"\n") else b"") + line + b"\n")
            log.flush()
            os.fsync(log.fileno())
    except OSError as wrong:
        raise _unwritable(path, wrong) from wrong
    return line


def _lock(file: int) -> None:
    """Keeps other writers of the log out until the file is closed."""
    try:
        from fcntl import LOCK_EX, flock
    except ImportError:  # where there are no such locks, the log has one writer by agreement
        return
    flock(file, LOCK_EX)


def _written(path: Path, parts: Iterable[bytes]) -> int:
    with path.open("xb") as out:
        out.writelines(parts)
        out.flush()
        os.fsync(out.fileno())
        return out.tell()


def _unwritable(path: Path, wrong: OSError) -> LoupeError:
    return LoupeError(f"{path} cannot be written: {wrong.strerror or wrong}", reason="unwritable")
