"""Secrets to plant, and the search for them in every byte of a folder: also compressed, in base 64 and in escapes."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import zstandard

from agentloupe.store import envelopes

__all__ = ["Canaries"]

_MARK = "Canary"
_ZSTD = b"\x28\xb5\x2f\xfd"


class Canaries:
    """Makes secrets, each to be told from the others by where it was planted."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def key(self, place: str) -> str:
        """A secret that its own shape gives away."""
        return "sk-" + f"ant-{self._mark(place)}-a1b2c3d4e5f6g7h8"

    def word(self, place: str) -> str:
        """A secret that only the name beside it gives away."""
        return f"{self._mark(place)}word"

    def basic(self, place: str) -> str:
        """`Basic ...`: user and password in base 64."""
        return "Basic " + base64.b64encode(f"user:{self._mark(place)}".encode()).decode()

    def _mark(self, place: str) -> str:
        return self._places.setdefault(place, f"{_MARK}{(n := len(self._places)):03d}x{n:03d}y")

    def in_text(self, *texts: str) -> list[str]:
        """The places whose secrets stand in texts."""
        return self._in(text.encode("utf-8", "surrogatepass") for text in texts)

    def in_folder(self, folder: Path) -> list[str]:
        """The places whose secrets stand in any file of a folder."""
        return self._in(content for path in sorted(folder.rglob("*")) if path.is_file() for content in _contents(path))

    def _in(self, contents: Iterable[bytes]) -> list[str]:
        wanted = {place: _spellings(mark) for place, mark in self._places.items()}
        found: dict[str, None] = {}
        for content in contents:
            for place, spellings in wanted.items():
                if any(spelling in content for spelling in spellings):
                    found[place] = None
        return list(found)


def _spellings(mark: str) -> list[bytes]:
    """A mark as it is, and inside of base 64 at each of three places."""
    spelt = [mark.encode()]
    for lead in range(3):
        within = b"\0" * lead + mark.encode()
        spelt.append(base64.b64encode(within[: len(within) // 3 * 3])[4 if lead else 0 :])
    return spelt


def _contents(path: Path) -> Iterator[bytes]:
    raw = path.read_bytes()
    yield raw
    at = raw.find(_ZSTD)
    while at >= 0:  # a file may hold compressed parts anywhere
        yield from _unpacked(raw[at:], whole=False)
        at = raw.find(_ZSTD, at + 1)
    if raw[:15] == b"SQLite format 3":
        yield from _cells(path)


def _cells(path: Path) -> Iterator[bytes]:
    """All values of all tables, unpacked."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as conn:
        for (name,) in list(conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")):
            for row in conn.execute(f'SELECT * FROM "{name}"'):
                for cell in row:
                    if isinstance(cell, str):
                        yield cell.encode("utf-8", "surrogatepass")
                    elif isinstance(cell, bytes):
                        yield cell
                        yield from _unpacked(cell)


def _unpacked(cell: bytes, *, whole: bool = True) -> Iterator[bytes]:
    """What a cell says, whichever way it is compressed; where it is `whole`, it must be known."""
    if cell[:4] != _ZSTD:
        return
    read = 0
    plainly = zstandard.ZstdDecompressor().decompressobj().decompress
    for unpack in (plainly, envelopes.unpack, envelopes.unpack_step, envelopes.unpack_body):
        with suppress(zstandard.ZstdError, ValueError):
            yield unpack(cell)
            read += 1
    assert read or not whole, "something is compressed in a way that this search does not know"
