"""Opening foreign files: one place for what can go wrong before the first byte is read."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from agentloupe.errors import Corrupt, LoupeError, NotFound, UsageError

__all__ = ["HEAD", "LARGEST", "content_of", "head_of", "opened"]

HEAD: Final = 65_536
"""Bytes at the beginning of a file by which its format is recognised."""

LARGEST: Final = 1 << 30
"""Bytes of a foreign file that are read at most; it is held in memory as a whole."""


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A file, open for reading.

    Raises:
        NotFound: there is none. UsageError: it is a folder. LoupeError: it may not be read (reason `unreadable`).
    """
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError) as missing:
        raise NotFound(f"there is no file {path}") from missing
    except IsADirectoryError as folder:
        raise UsageError(f"{path} is a folder, not a file") from folder
    except OSError as wrong:
        raise _unreadable(path, wrong) from wrong
    with file:
        try:
            yield file
        except OSError as wrong:
            raise _unreadable(path, wrong) from wrong


def _unreadable(path: Path, wrong: OSError) -> LoupeError:
    return LoupeError(f"{path} cannot be read: {wrong.strerror or wrong}", reason="unreadable")


def head_of(path: Path) -> bytes:
    """The beginning of a file. Raises like `opened`."""
    with opened(path) as file:
        return file.read(HEAD)


def content_of(path: Path) -> bytes:
    """A whole file. Raises like `opened`, and `Corrupt` (reason `too_large`)."""
    with opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Corrupt(f"{path}: more than {LARGEST} bytes; that is not read", reason="too_large")
    return content
