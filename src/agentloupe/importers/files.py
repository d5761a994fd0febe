"""Opening foreign files: one place for what can go wrong before the first byte is read."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from agentloupe.words.errors import Corrupt, LoupeError, NotFound, UsageError

__all__ = ["HEAD", "LARGEST", "content_of", "head_of", "opened", "top_keys"]

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
        raise UsageError(f"{path} is a folder, not a file", hint="`ledger import` takes over a folder") from folder
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


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\]:,]', re.DOTALL)
"""A string, whole or cut off at the end of the text (what is inside of it is no token), or a sign."""


def top_keys(head: bytes) -> tuple[str, frozenset[str]]:
    """How a JSON text opens (`{`, `[` or nothing), and the names of its members; of a list, those of its first object.

    Takes a text that is cut, and sees as many names as there are.
    """
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1].decode("ascii", "replace")
    if start not in ("{", "["):
        return "", frozenset()
    wanted = 1 if start == "{" else 2
    keys: set[str] = set()
    depth = 0
    last = b""
    for token in _TOKEN.findall(head):
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if depth < wanted:
                break
        elif token == b":" and depth == wanted:
            keys.add(last[1:-1].decode("utf-8", "replace"))
        last = token
    return start, frozenset(keys)
