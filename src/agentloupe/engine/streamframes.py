r"""How a streamed body is framed: the bytes of a stream as records, each with the place of what it says.

    frames = Frames()
    frames.feed(b'data: {"a": 1}\n')     # []: the event is not over
    frames.feed(b'\n')                    # [Frame(start=0, end=16, at=6, to=14, text='{"a": 1}', kind='events')]

Four framings are told apart by how a stream begins: server-sent events, lines of JSON, messages with their length
(`words.eventstream`), and none (`plain`). Frames lie side by side and hold every byte. Bytes that are no UTF-8 are kept as
lone surrogates. Where something stands that is no message, the rest of the stream is plain, but for what is `coded` in base 64 as
events in messages are.
"""

from __future__ import annotations

import base64
import codecs
import re
from typing import Literal, NamedTuple

from agentloupe.words.eventstream import as_bytes, as_text, is_right, message_in, size_at
from agentloupe.words.jsontext import loads

__all__ = ["Frame", "Frames", "Kind"]

Kind = Literal["", "events", "lines", "messages", "plain", "coded"]

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a \r at the very end may be half of \r\n
_FIELD = re.compile(rb"(?:data|event|id|retry)\s*:|:")
_CODED = re.compile(rb'"bytes"\s*:\s*"([A-Za-z0-9+/]*=*)')
_MAY_BE_CODED = re.compile(rb'"b?y?t?e?s?"?\s*:?\s*\Z')
_BOM = b"\xef\xbb\xbf"


class Frame(NamedTuple):
    """One record of a stream.

    Attributes:
        start, end: its bytes, counted from the beginning of the stream.
        at, to: the bytes in it that say something (the data of an event, the line).
        text: what they say; the data of several lines joined.
        about: the rest of an event as text (its name, its id, comments), or of a message.
        kind: how this one is framed.
    """

    start: int
    end: int
    at: int
    to: int
    text: str
    about: str = ""
    kind: Kind = "plain"


class Frames:
    """Cuts a stream into frames as it comes. `kind` is known from the first whole line, or the first message, on.

    Args:
        messages: whether its head says that it is one of messages.

    Attributes:
        unread: the byte from which on no client reads messages: a checksum or a length is wrong there.
    """

    def __init__(self, *, messages: bool = False) -> None:
        self.kind: Kind = ""
        self.unread: int | None = None
        self._said = messages
        self._held = bytearray()
        self._base = 0  # place of the first held byte in the stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def feed(self, content: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        self._held += content
        if not self.kind:
            self._look()
        return self._framed(last=False) if self.kind else []

    def end(self) -> list[Frame]:
        """The frames that are left."""
        if not self.kind:
            self._look(last=True)
        return self._framed(last=True)

    def _framed(self, *, last: bool) -> list[Frame]:
        made = self._messages(last=last) if self.kind == "messages" else []
        if self.kind == "plain":
            return [*made, *(self._plain(last=last) if self.unread is None else self._rest(last=last))]
        return made if self.kind == "messages" else self._whole(last=last)

    def _look(self, *, last: bool = False) -> None:
        """Finds out the framing, as soon as there is a line that says something, or the beginning of a message."""
        size = size_at(self._held, 0)
        if size:
            self.kind = "messages"
            return
        if size is None and not last and (self._said or self._held.startswith(b"\0")):
            return
        if size == 0 and self._said:
            self.unread = 0
        head = bytes(self._held).removeprefix(_BOM).lstrip(b"\r\n")
        end = _LINE_END.search(head)
        line = head if end is None else head[: end.start()]
        if _FIELD.match(line):
            self.kind = "events"
        elif end is not None and line.lstrip().startswith(b"{"):
            self.kind = "lines" if _is_json(line) else "plain"
        elif last or end is not None or (line and line.lstrip()[:1] not in _MAY_BE_FRAMED):
            self.kind = "plain"

    def _messages(self, *, last: bool) -> list[Frame]:
        """Messages that are complete; at the end also the one that is cut."""
        made: list[Frame] = []
        held, at = self._held, 0
        while (size := size_at(held, at)) and (at + size <= len(held) or last):
            one, start = bytes(held[at : at + size]), self._base + at
            if self.unread is None and len(one) == size and not is_right(one):
                self.unread = start
            said = message_in(one)
            end = start + len(one)
            made.append(Frame(start, end, start, end, said.text, said.about, "messages"))
            at += len(one)
        del held[:at]
        self._base += at
        if size == 0 and self.unread is None:
            self.unread = self._base
        if size == 0 or last:
            self.kind = "plain"
        return made

    def _rest(self, *, last: bool) -> list[Frame]:
        """What stands where no message is: plain, and what is coded in it."""
        made: list[Frame] = []
        held, at = bytes(self._held), 0
        found = list(_CODED.finditer(held))
        begun = _MAY_BE_CODED.search(held, found[-1].end() if found else 0)
        if not last and found and found[-1].end() == len(held):
            begun = found.pop()  # it may go on
        end = len(held) if last or begun is None else begun.start()
        for start, stop in (*(match.span(1) for match in found), (end, end)):
            to = stop - ((stop - start) % 4 == 1)  # one character more says nothing
            if at < start:
                made.append(self._piece(at, start, as_text(held[at:start]), "plain"))
            if start < to:
                made.append(self._piece(start, to, as_text(base64.b64decode(held[start:to] + b"==")), "coded"))
            at = to
        del self._held[:at]
        self._base += at
        return made

    def _piece(self, start: int, end: int, text: str, kind: Kind) -> Frame:
        return Frame(self._base + start, self._base + end, self._base + start, self._base + end, text, kind=kind)

    def _whole(self, *, last: bool) -> list[Frame]:
        """Events or lines that are complete; at the end also the one that is not."""
        made: list[Frame] = []
        start = at = 0
        lines: list[tuple[int, int]] = []
        held = bytes(self._held)
        for match in _LINE_END.finditer(held):
            line, at = (at, match.start()), match.end()
            if line[0] != line[1]:
                lines.append(line)
            if lines and (line[0] == line[1] or self.kind == "lines"):
                made.append(self._frame(held, start, at, lines))
                start, lines = at, []
        if last and start < len(held):
            if at < len(held):
                lines.append((at, len(held)))
            made.append(self._frame(held, start, len(held), lines))
            start = len(held)
        del self._held[:start]
        self._base += start
        return made

    def _frame(self, held: bytes, start: int, end: int, lines: list[tuple[int, int]]) -> Frame:
        base = self._base
        spans = lines if self.kind == "lines" else [span for line in lines if (span := _data(held, *line))]
        text = as_text(b"\n".join(held[a:b] for a, b in spans))
        first, to = (spans[0][0], spans[-1][1]) if spans else (end, end)
        about = as_text(held[start:first] + held[to:end]) if self.kind == "events" else ""
        return Frame(base + start, base + end, base + first, base + to, text, about, self.kind)

    def _plain(self, *, last: bool = False) -> list[Frame]:
        text = self._decoder.decode(bytes(self._held), last)
        used = len(as_bytes(text))
        self._decoder.reset()  # what is half a character stays among the held bytes
        start, self._base = self._base, self._base + used
        del self._held[:used]
        return [Frame(start, self._base, start, self._base, text)] if used else []


_MAY_BE_FRAMED = (b"", b"{", b"d", b"e", b"i", b"r", b":")


def _is_json(line: bytes) -> bool:
    try:
        loads(as_text(line))
    except ValueError:
        return False
    return True


def _data(held: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where the data of a line stands, if it has some."""
    line = held[start:end]
    lead = len(_BOM) if line.startswith(_BOM) else 0
    if line[lead : lead + 5] != b"data:":
        return None
    start += lead + 5
    return (start + 1, end) if held[start : start + 1] == b" " else (start, end)
