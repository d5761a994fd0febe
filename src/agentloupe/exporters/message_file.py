"""Messages of the outbox as a file of JSON Lines: one line each, safe on the disk before the next ones are asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentloupe.ports.outbox import Message
from agentloupe.words.canonical import dumps

__all__ = ["MessageFile"]

_BLOCK = 65536


class MessageFile:
    """Implements `ports.Sink`. Appends; goes on behind what is there.

    A line that was cut when its writer died is taken away first: its message was not counted as delivered, and comes again.

    Args:
        path: the file; it is made where it is not there, its folder is not.

    Raises:
        OSError: it cannot be opened, here and when messages come: written.
    """

    def __init__(self, path: Path) -> None:
        new = not path.exists()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        self._size = _whole_lines(self._file)
        os.ftruncate(self._file, self._size)
        if new and os.name == "posix":  # the file's name must survive too
            folder = os.open(path.absolute().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def deliver(self, messages: Sequence[Message]) -> None:
        """See `Sink.deliver`: all of them or none are in the file, as far as this process can tell."""
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

    def close(self) -> None:
        """See `Sink.close`."""
        handle, self._file = self._file, -1
        if handle >= 0:
            os.close(handle)


def _whole_lines(file: int) -> int:
    """Bytes up to the last line break."""
    end = os.lseek(file, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        os.lseek(file, start, os.SEEK_SET)
        found = os.read(file, end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
