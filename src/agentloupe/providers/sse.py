"""Server-sent events out of bytes, as tolerant as the clients that read them.

Lines may end in LF, CRLF or CR, reads may cut anywhere (also inside a character), `data` may have several lines, comments
and fields that nobody knows are left out, and the last event counts also where its empty line is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentloupe.words.canonical import Json
from agentloupe.words.jsontext import parsed

__all__ = ["DONE", "SseEvent", "events_in"]

DONE = "[DONE]"
"""The data of the event that ends a stream of chat completions."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event.

    Attributes:
        data: its lines, joined by LF.
        name: of the event, where it has one.
        end: how many bytes of the stream it ends after.
    """

    data: str
    name: str | None
    end: int

    @property
    def json(self) -> Json:
        """The data parsed; `None` where it is no JSON."""
        try:
            return parsed(self.data)
        except ValueError:
            return None


def events_in(data: bytes) -> Iterator[SseEvent]:
    """The events of a stream that has come so far, the last of them perhaps cut."""
    lines: list[str] = []
    name: str | None = None
    end = 0
    for raw in data.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True):
        end += len(raw)
        line = raw.rstrip(b"\r\n").decode("utf-8", "replace")
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            lines.append(value)
        elif field == "event":
            name = value
        elif not line:
            if lines:
                yield SseEvent("\n".join(lines), name, end)
            lines, name = [], None
    if lines:
        yield SseEvent("\n".join(lines), name, end)
