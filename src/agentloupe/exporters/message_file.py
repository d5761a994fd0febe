"""Messages of the outbox as a file of JSON Lines: one line each, safe on the disk before the next ones are asked for."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from agentloupe.ports.outbox import Message
from agentloupe.words.canonical import dumps
from agentloupe.words.errors import OwnerAlive, Refused

__all__ = ["MessageFile"]

_BLOCK: Final = 65536
_OPENING: Final = b'{"id":'
"""What every line begins with, see `Message.as_json`."""


class MessageFile:
    """Implements `ports.Sink`. Appends; goes on behind what is there.

    A line that was cut when its writer died is taken away first: its message was not counted as delivered, and comes again.
    A file that holds anything else is left as it is.

    Args:
        path: the file; it is made where it is not there, its folder is not.

    Raises:
        OwnerAlive: another publisher has the file (reason `publishing`).
        Refused: what is there is no file of messages (reason `not_messages`).
        OSError: it cannot be opened, here and when messages come: written. `deliver` raises `Refused` (reason `moved`)
            where the file is not at its place any more.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            _lock(self._file, path)
            self._size = _whole_lines(self._file, path)
            os.ftruncate(self._file, self._size)
        except BaseException:
            self.close()
            raise
        if new and os.name == "posix":  # the file's name must survive too
            folder = os.open(path.absolute().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Sink.deliver`: all of them or none are in the file, as far as this process can tell."""
        self._check_place()
        data = b"".join(dumps(message.as_json()) + b"\n" for message in messages)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _check_place(self) -> None:
        """Raises `Refused` where nobody would find what is written: the file was deleted, moved or replaced meanwhile."""
        try:
            same = os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            same = False
        if not same:
            raise Refused(
                f"{self._path} is not the file any more that was opened: it was deleted, moved or replaced",
                hint="publish again: what waits is still in the outbox",
                reason="moved",
            )

    def close(self) -> None:
        """See `Sink.close`."""
        handle, self._file = self._file, -1
        if handle >= 0:
            os.close(handle)


def _lock(file: int, path: Path) -> None:
    """Keeps other publishers out until the file is closed: what they cut off could be a line that is being written."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # where there are no such locks, the file has one writer by agreement
        return
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        raise OwnerAlive(
            f"{path} is being written by another publisher",
            hint="one publisher at a time: wait for it, end it, or name another file",
            reason="publishing",
        ) from None


def _whole_lines(file: int, path: Path) -> int:
    """Bytes up to the last line break. Raises `Refused` for what no publisher has written: it is not ours to cut."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise _foreign(path)
    size = os.lseek(file, 0, os.SEEK_END)
    whole = _last_break(file, size)
    for start in (0, whole):
        os.lseek(file, start, os.SEEK_SET)
        # After a power loss the end may be zeros that were never written.
        found = os.read(file, len(_OPENING)).rstrip(b"\0")
        if not _OPENING.startswith(found):
            raise _foreign(path)
    return whole


def _foreign(path: Path) -> Refused:
    return Refused(
        f"{path} is no file of messages, and is left as it is",
        hint="name a new file, or one that `agentloupe effects publish` has written",
        reason="not_messages",
    )


def _last_break(file: int, end: int) -> int:
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        found = os.read(file, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
