"""What a run has committed and the database does not have yet: one file for each run that goes on, beside the database.

A commit is one write to the end of this file, which costs a tenth of a transaction and needs no lock; several commits are
then put into the database at once (they are *settled*), and the file is emptied. A process that is killed leaves its file
behind; whoever opens the store next settles it.

The file is a line that says what it is, then frames, one for each append:

    first event's number u64, counts of events and bodies u32 u32, their lengths u32 ..., texts of events, texts of bodies,
    hash of the last event (32 bytes)

All numbers little-endian. Texts are the sealed envelopes and the bodies as packed, so that the chain proves a frame: one
that was cut, or does not go on where the one before ended, and everything behind it, counts as never written.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agentloupe.ports.ambient import random_hex
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.pack import Body, needs
from agentloupe.store.faults import of_a_file
from agentloupe.store.sealing import Sealed
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import Corrupt, VersionUnknown
from agentloupe.words.event import Event, Head, from_envelope
from agentloupe.words.seal import link_bytes, read_sealed

__all__ = ["Found", "Frame", "Spool", "aside", "folder_of", "left", "read", "remove", "set_aside"]

_MAGIC = b"loupe spool 1\n"
_HEAD = struct.Struct("<QII")
_HASH = 32
_LENGTHS = 4
_ASIDE = ".damaged"
_FOLDER = "-spool"


def folder_of(database: Path) -> Path:
    """Where the files of a database lie; it is there only while there are some."""
    return database.with_name(database.name + _FOLDER)


class Spool:
    """The file of one run, written by its one owner once `renew` has made it.

    Args:
        database: the path of the database.
        rid: row of the run.
    """

    def __init__(self, database: Path, rid: int) -> None:
        self._database = database
        self._rid = rid
        self.path = self._new_path()
        self._file = -1
        self._length = 0
        self._named = False

    def append(self, sealed: Sealed, bodies: Sequence[Body], *, sync: bool) -> None:
        """Writes a frame behind the others, all of it or nothing. `sync`: it survives a loss of power.

        Raises:
            StoreFull, StoreReadOnly, StoreError: nothing was written.
        """
        frame = _frame(sealed, bodies)
        reach("spool.before_frame")
        try:
            written = os.write(self._file, frame)
            if written != len(frame):
                raise OSError(28, os.strerror(28))  # a disk that fills up takes a part
            reach("spool.after_frame")
            if sync:
                self._sync()
                reach("spool.after_sync")
        except OSError as error:
            self._back()
            raise of_a_file(error, self.path, self._database) from error
        self._length += written

    @property
    def length(self) -> int:
        """Bytes of the file."""
        return self._length

    @property
    def gone(self) -> bool:
        """Whether there is no file to append to: none was made, or somebody has settled it and taken it away."""
        return self._file < 0 or os.fstat(self._file).st_nlink == 0

    def renew(self) -> None:
        """Empties the file, after everything was settled; makes one where there is none. Where that fails there is none."""
        if self.gone:
            self.close(keep=True)
            self.path = self._new_path()
            with suppress(OSError):
                self._open()
        elif self._length > len(_MAGIC):
            with suppress(OSError):  # settled frames do no harm
                os.ftruncate(self._file, len(_MAGIC))
                self._length = len(_MAGIC)

    def _new_path(self) -> Path:
        return folder_of(self._database) / f"{self._rid}-{random_hex(12)}"

    def _open(self) -> None:
        mode = self._database.stat().st_mode & 0o666
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        for _ in range(100):  # another run may take the empty folder away in between
            self.path.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):
                self._file = os.open(self.path, flags, mode)
                break
        else:
            raise FileNotFoundError(2, os.strerror(2))
        self._named = False
        self._length = os.write(self._file, _MAGIC)

    def _sync(self) -> None:
        _fsync(self._file)
        if not self._named and os.name == "posix":  # the file's name must survive too
            for folder in (self.path.parent, self.path.parent.parent):
                handle = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        self._named = True

    def _back(self) -> None:
        """Takes away what was written of a frame; where that fails too, the frame is no whole one and counts as nothing."""
        if self._file >= 0:
            with suppress(OSError):
                os.ftruncate(self._file, self._length)

    def close(self, *, keep: bool = False) -> None:
        """Removes the file; `keep` leaves it for the next who opens the store."""
        handle, self._file = self._file, -1
        if handle >= 0:
            os.close(handle)
            if not keep:
                remove(self.path)

    def __del__(self) -> None:
        """A run that nobody ended: its file stays."""
        self.close(keep=True)


if hasattr(os, "fdatasync"):

    def _fsync(handle: int) -> None:
        os.fdatasync(handle)

else:

    def _fsync(handle: int) -> None:
        with suppress(ImportError, OSError):
            import fcntl

            full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: a plain fsync leaves data in the drive
            if full is not None:
                fcntl.fcntl(handle, full)
                return
        os.fsync(handle)


def remove(path: Path) -> None:
    """Removes a file, and the folder with the last one."""
    with suppress(OSError):
        path.unlink()
        path.parent.rmdir()


def set_aside(path: Path) -> None:
    """Keeps a file that does not fit its run for a person to look at; nobody settles it any more."""
    with suppress(OSError):
        path.rename(path.with_name(path.name + _ASIDE))


def left(database: Path) -> Iterator[tuple[int, Path]]:
    """The files that are to be settled, with the rows of their runs."""
    for name in _names(database):
        rid = name.partition("-")[0]
        if rid.isdecimal() and not name.endswith(_ASIDE):
            yield int(rid), folder_of(database) / name


def aside(database: Path) -> list[Path]:
    """The files that do not fit their runs."""
    return [folder_of(database) / name for name in _names(database) if name.endswith(_ASIDE)]


def _names(database: Path) -> list[str]:
    try:
        with os.scandir(f"{database}{_FOLDER}") as found:
            return [entry.name for entry in found]
    except OSError:
        return []


# --- frames -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """What one append wrote."""

    sealed: Sealed
    bodies: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What a file holds. Not `whole`: behind the frames are others, not cut, that do not go on from them."""

    frames: list[Frame]
    whole: bool


def _frame(sealed: Sealed, bodies: Sequence[Body]) -> bytes:
    texts = sealed.envelopes
    data = [body.data for body in bodies]
    first = sealed.head.sequence - len(texts) + 1
    lengths = [*map(len, texts), *map(len, data)]
    return b"".join(
        (
            _HEAD.pack(first, len(texts), len(data)),
            struct.pack(f"<{len(lengths)}I", *lengths),
            *texts,
            *data,
            bytes.fromhex(sealed.head.hash),
        )
    )


def read(path: Path, head: Head) -> Found:
    """The frames of a file that go on from `head`; those before it are passed over.

    Raises:
        VersionUnknown: the file was written by a newer version.
        Corrupt: the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Found([], whole=True)  # settled meanwhile
    except OSError as error:
        raise Corrupt(f"{path} cannot be read ({error.strerror})", hint="mend its rights", reason="spool") from error
    if not data.startswith(_MAGIC):
        if _MAGIC.startswith(data):
            return Found([], whole=True)
        raise VersionUnknown(f"{path} was written by another version", hint="upgrade agent-loupe")
    found: list[Frame] = []
    for first, texts, bodies, end in _raw(data):
        if first + len(texts) - 1 <= head.sequence:
            continue
        sealed = _chained(texts, head, first, end)
        if sealed is None:
            return Found(found, whole=False)
        head = sealed.head
        found.append(Frame(sealed, tuple(Body(digest_bytes(text), text, needs(text)) for text in bodies)))
    return Found(found, whole=True)


def _raw(data: bytes) -> Iterator[tuple[int, list[bytes], list[bytes], bytes]]:
    """Whole frames: number of the first event, texts of events, texts of bodies, hash."""
    at = len(_MAGIC)
    while at + _HEAD.size <= len(data):
        first, events, bodies = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        count = events + bodies
        if not events or at + _LENGTHS * count > len(data):
            return
        lengths = struct.unpack_from(f"<{count}I", data, at)
        at += _LENGTHS * count
        if at + sum(lengths) + _HASH > len(data):
            return
        parts = list(_parts(data, at, lengths))
        at += sum(lengths) + _HASH
        yield first, parts[:events], parts[events:], data[at - _HASH : at]


def _parts(data: bytes, at: int, lengths: Iterable[int]) -> Iterator[bytes]:
    for length in lengths:
        yield data[at : at + length]
        at += length


def _chained(texts: Sequence[bytes], head: Head, first: int, end: bytes) -> Sealed | None:
    """The events of a frame, if they go on from `head` and end with the hash that the frame says."""
    hashes = [head.hash]
    for text in texts:
        hashes.append(link_bytes(hashes[-1], text))
    if first != head.sequence + 1 or bytes.fromhex(hashes[-1]) != end:
        return None
    events: list[Event] = []
    for before, text, sealed in zip(hashes[:-1], texts, hashes[1:], strict=True):
        said, _ = read_sealed(text)
        if not isinstance(said, dict) or said.get("sequence") != first + len(events):
            return None
        events.append(from_envelope(said, before, sealed))
    return Sealed(tuple(events), tuple(texts), Head(first + len(events) - 1, hashes[-1]))
