"""Secret removal from a stream: pieces of bytes as they came, scanned as the texts that they are pieces of.

    stream = StreamScrubber(rules)
    stream.feed([(0.0, b"..."), (12.5, b"...")])    # the pieces that may be stored by now
    stream.end()                                    # the rest

A secret may be cut over pieces, over the events in them, over the characters of a UTF-8 sequence. So the data of each
event is read, and the text that stands at one place in event after event (`choices[0].delta.content`, the arguments of a
tool call) is joined and scanned whole; what was removed is cut again where it was cut before. As many pieces come out as
went in, each with its time; a piece is held back while something in it may be the beginning of a secret.

    text so far                      what may be stored
    "the key is sk-"                 "the" ... (a name, or a prefix, that a secret may follow)
    '{"city": "Os'                   nothing (JSON is looked at by its names, when it is whole)
    "It rains in Oslo. "             all of it
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agentloupe.engine.credentials import field_rule, mark
from agentloupe.engine.rulesets import FIRST_WORDS, words_in
from agentloupe.engine.scrubber import Found, Scrubber, dumps_like, is_opaque, shown
from agentloupe.engine.streamframes import Frame, Frames
from agentloupe.engine.streamshapes import Key, Part, Path, Shapes
from agentloupe.words.eventstream import as_bytes, as_text, respelt
from agentloupe.words.jsontext import Json, loads

if TYPE_CHECKING:
    from agentloupe.engine.privacy import Rules

__all__ = ["Pieces", "StreamScrubber"]

Pieces = Sequence[tuple[float, bytes]]
"""Bytes as they came, each with its time in milliseconds."""

_IDS = (
    *("type", "event", "index", "output_index", "content_index", "summary_index", "item_id", "choice_index"),
    "contentBlockIndex",
)
"""Members of a record that say which of several texts it goes on with."""
_WHOLE = frozenset(
    {
        *("role", "type", "object", "model", "status", "name", "finish_reason", "stop_reason", "stop_sequence"),
        *("service_tier", "system_fingerprint", "event", "obfuscation", "modelVersion", "finishReason", "stopReason"),
    }
)
"""Members that are told whole, never in parts."""


class StreamScrubber:
    """Removes credentials from one stream. Never raises; what fails inside withholds the rest of the stream.

    Args:
        rules: what to look for.
        messages: whether the stream's head says that it is one of messages.

    Attributes:
        withheld: whether something was withheld because a rule, or this, failed.
    """

    HELD = 8_000_000
    """Bytes that are held back at most; beyond them everything is decided by what is there."""
    SILENT = 64
    """Records after which a text that did not go on is over."""

    def __init__(self, rules: Rules, *, messages: bool = False) -> None:
        self.withheld = False
        self._failed = False
        self._scrubber = rules.scrubber
        self._frames = Frames(messages=messages)
        self._shapes = None if self._scrubber.any_text else Shapes()
        self._about = ""
        self._open: dict[Key, _Channel] = {}
        self._removed: dict[str, None] = {}
        self._units: deque[_Unit] = deque()
        self._pieces: deque[tuple[float, int, int]] = deque()
        self._bytes = bytearray()
        self._base = self._got = self._count = 0

    @property
    def removed(self) -> tuple[str, ...]:
        """The places in records from which something was removed: `$.choices[0].delta.content`."""
        return tuple(self._removed)

    @property
    def unread(self) -> int:
        """How many bytes stand where no client reads messages any more; looked through as far as that goes."""
        at = self._frames.unread
        return 0 if at is None else self._got - at

    def feed(self, pieces: Pieces) -> list[tuple[float, bytes]]:
        """The pieces, of these and earlier ones, that may be stored now, in their order."""
        for ms, content in pieces:
            self._pieces.append((ms, self._got, self._got + len(content)))
            self._got += len(content)
            self._bytes += content
        return self._safely(lambda: self._frames.feed(b"".join(content for _, content in pieces)), last=False)

    def end(self) -> list[tuple[float, bytes]]:
        """The pieces that are left; the stream is over."""
        return self._safely(self._frames.end, last=True)

    def _safely(self, frames: _Source, *, last: bool) -> list[tuple[float, bytes]]:
        try:
            if not self._failed:
                for frame in frames():
                    self._take(frame)
                self._settle(last=last or len(self._bytes) > self.HELD)
                return self._released(last=last)
        except Exception:  # noqa: BLE001  # whatever failed: nothing unchecked may be stored
            self.withheld = self._failed = True
        left = [(ms, b"") for ms, _, _ in self._pieces]
        self._pieces.clear()
        self._bytes.clear()
        return left

    # --- what comes ---------------------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        self._count += frame.kind != "plain"
        unit = _Unit(frame)
        self._units.append(unit)
        if frame.about != self._about:
            self._take_about(unit, frame.about)
        known = self._shapes.part_of(frame.text) if self._shapes is not None else None
        if known is not None:
            self._join(known.key, _Fragment(unit, known.path, known.text))
            return
        record = _record(frame.text) if frame.kind != "plain" else None
        if record is None:
            if frame.text and frame.text != "[DONE]":
                self._join((), _Fragment(unit, None, frame.text))
            return
        ids = tuple(record.get(name) for name in _IDS) if isinstance(record, dict) else ()
        parts: list[Part] = []
        blank = self._blank(record, (ids,), (), parts)
        found = Found()
        unit.record = clean = self._scrubber.scrub(blank, found)
        unit.changed = clean is not blank
        if unit.changed:
            self._removed.update(dict.fromkeys(f"${path}" for path in found.removed))
            self.withheld = self.withheld or bool(found.withheld)
        elif len(parts) == 1 and self._shapes is not None:
            self._shapes.learn(frame.text, parts[0])
        for key, path, text in parts:
            self._join(key, _Fragment(unit, path, text))

    def _take_about(self, unit: _Unit, about: str) -> None:
        """What an event says beside its data: most say the same as the one before."""
        if not about.strip():
            return
        clean = self._scrubber.text(about)
        if clean == about:
            self._about = about
        else:
            unit.about, unit.about_changed = clean, True
            self._removed.setdefault("$.*")

    def _blank(self, value: Json, key: Key, path: Path, parts: list[Part]) -> Json:
        """A copy without the texts that may be parts of longer ones; those go into `parts`."""
        if isinstance(value, str):
            if not value or is_opaque(value):
                return value
            parts.append(Part(key, path, value))
            return ""
        if isinstance(value, dict):
            return {name: self._blank_member(value, name, item, key, path, parts) for name, item in value.items()}
        if isinstance(value, list) and not (len(value) == 2 and all(isinstance(item, str) for item in value)):
            return [self._blank(item, (*key, _at(item, i)), (*path, i), parts) for i, item in enumerate(value)]
        return value

    def _blank_member(
        self, holder: dict[str, Json], name: str, item: Json, key: Key, path: Path, parts: list[Part]
    ) -> Json:
        if (
            name in _WHOLE
            or (name == "value" and ("name" in holder or "key" in holder))
            or self._scrubber.means_something(name)
        ):
            return item
        return self._blank(item, (*key, name), (*path, name), parts)

    def _join(self, key: Key, fragment: _Fragment) -> None:
        channel = self._open.get(key)
        if channel is None:
            channel = self._open[key] = _Channel(self._scrubber)
        channel.add(fragment, self._count)

    # --- what is decided ----------------------------------------------------------------------------------------------

    def _settle(self, *, last: bool) -> None:
        for key, channel in list(self._open.items()):
            over = last or self._count - channel.seen > self.SILENT
            for fragment, clean in channel.settle(over=over):
                fragment.unit.put(fragment, clean)
                if clean != fragment.text:
                    self._removed.setdefault("$" + _shown(fragment.path))
            self.withheld = self.withheld or channel.withheld
            if over:
                del self._open[key]

    # --- what goes out ------------------------------------------------------------------------------------------------

    def _released(self, *, last: bool) -> list[tuple[float, bytes]]:
        """The pieces whose bytes are all decided, with what was removed cut as they are cut."""
        done: list[_Unit] = []
        to = self._base
        for unit in self._units:
            if unit.left:
                break
            done.append(unit)
            to = unit.frame.end
        edits = [edit for unit in done for edit in unit.edits(self._raw)]
        out: list[tuple[float, bytes]] = []
        start = self._base
        while self._pieces and (self._pieces[0][2] <= to or last):
            ms, start, end = self._pieces.popleft()
            out.append((ms, self._cut(start, end, edits)))
            start = end
        while self._units and self._units[0].frame.end <= start:
            self._units.popleft()
        keep = self._units[0].frame.start if self._units else start
        del self._bytes[: keep - self._base]
        self._base = keep
        return out

    def _raw(self, start: int, end: int) -> bytes:
        return bytes(self._bytes[start - self._base : end - self._base])

    def _cut(self, start: int, end: int, edits: Sequence[_Edit]) -> bytes:
        """The bytes of one piece after the edits; an edit that lies over several pieces is cut like what it replaces."""
        made: list[bytes] = []
        at = start
        for edit in edits:
            if edit.end <= start or edit.start >= end:
                continue
            first, last = max(start, edit.start), min(end, edit.end)
            made.append(self._raw(at, first))
            to = len(edit.content) if last == edit.end else min(last - edit.start, len(edit.content))
            made.append(edit.content[min(first - edit.start, len(edit.content)) : to])
            at = last
        return b"".join((*made, self._raw(at, end)))


# --- one record -------------------------------------------------------------------------------------------------------


class _Source(Protocol):
    def __call__(self) -> list[Frame]: ...


@dataclass(frozen=True, slots=True)
class _Edit:
    start: int
    end: int
    content: bytes


@dataclass(slots=True)
class _Unit:
    """A frame on its way: what it says (`None`: as its text does), and how many of its texts are undecided."""

    frame: Frame
    record: Json = None
    changed: bool = False
    about: str = ""
    about_changed: bool = False
    left: int = 0
    put_back: list[tuple[Path | None, str]] = field(default_factory=list[tuple[Path | None, str]])

    def put(self, fragment: _Fragment, clean: str) -> None:
        """One of its texts is decided."""
        self.left -= 1
        self.changed = self.changed or clean != fragment.text
        self.put_back.append((fragment.path, clean))

    def edits(self, raw: _Bytes) -> Iterator[_Edit]:
        """What is to be written in other words than it came."""
        frame = self.frame
        if frame.kind == "messages":
            if self.changed or self.about_changed:
                said = self._said(frame.text) if self.changed else None
                about = self.about if self.about_changed else None
                yield _Edit(frame.start, frame.end, respelt(raw(frame.start, frame.end), said, about))
        elif frame.kind == "coded":
            if self.changed:
                yield _Edit(frame.at, frame.to, base64.b64encode(as_bytes(self._said(frame.text))))
        elif self.about_changed:
            # Rare: an event's name or comment holds a secret. The whole event is spelt anew.
            said = self._said(frame.text) if self.changed else frame.text
            data = f"\ndata: {_on_lines(said)}" if said else ""
            yield _Edit(frame.start, frame.end, as_bytes(f"{self.about.strip()}{data}\n\n"))
        elif self.changed:
            said = self._said(as_text(raw(frame.at, frame.to)))
            yield _Edit(frame.at, frame.to, as_bytes(_on_lines(said) if frame.kind == "events" else said))

    def _said(self, like: str) -> str:
        if self.put_back and self.put_back[0][0] is None:
            return self.put_back[0][1]
        record = loads(self.frame.text) if self.record is None else self.record
        for path, text in self.put_back:
            record = _with(record, path or (), text)
        return dumps_like(record, like)


class _Bytes(Protocol):
    def __call__(self, start: int, end: int, /) -> bytes: ...


class _Fragment(NamedTuple):
    """A part of a text: where it stands (`None`: it is all that its unit says)."""

    unit: _Unit
    path: Path | None
    text: str


def _record(text: str) -> Json:
    if text[:1] not in ("{", "["):
        return None
    try:
        return loads(text)
    except ValueError:
        return None


def _at(item: Json, place: int) -> object:
    """What an element of a list is known by: the index that it says, else its place."""
    index = item.get("index") if isinstance(item, dict) else None
    return index if isinstance(index, int) else place


def _with(value: Json, path: Path, text: str) -> Json:
    """The value with a text put at a path; at a place that removal has renamed it is left out."""
    if not path:
        return text
    part = path[0]
    if isinstance(value, dict) and isinstance(part, str) and part in value:
        return {**value, part: _with(value[part], path[1:], text)}
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return [*value[:part], _with(value[part], path[1:], text), *value[part + 1 :]]
    return value


def _on_lines(text: str) -> str:
    return text.replace("\n", "\ndata: ")


def _shown(path: Path | None) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in path or ())


# --- one text ---------------------------------------------------------------------------------------------------------

_WINDOW = 600
"""Characters behind a word like `password` in which its value must have begun."""
_LONGEST = 160
"""Characters before such a word that may belong to it: the rest of a name, the scheme of a URL."""
_BEGINNINGS = frozenset(word[:n] for word in FIRST_WORDS for n in range(1, len(word)))
_REACH = max(map(len, FIRST_WORDS))
_RUN = re.compile(r"[!-~]*")
_OPENER = re.compile(r"(?P<n>[A-Za-z][\w.\-]{0,63})(?:\\*[\"'])?\s*[:=]\s*(?P<w>\\*[\"'])")


class _Channel:
    """One text that comes in parts."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.withheld = False
        self.seen = 0
        self._scrubber = scrubber
        self._waiting: list[_Fragment] = []
        self._before = ""  # the last character that was decided: it may forbid that a secret begins
        self._document: bool | None = None
        self._text = ""

    def add(self, fragment: _Fragment, count: int) -> None:
        """The text goes on with this."""
        fragment.unit.left += 1
        self._waiting.append(fragment)
        self._text += fragment.text
        self.seen = count

    def settle(self, *, over: bool) -> list[tuple[_Fragment, str]]:
        """The parts that can be decided now, in order, with what may be stored of each; all of them when it is `over`."""
        if not self._waiting:
            return []
        count = len(self._waiting) if over else self._decided()
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        if not taken:
            return []
        raw = "".join(part.text for part in taken)
        clean = self._clean(self._before + raw)
        clean = clean.removeprefix(self._before)
        self._text = self._text[len(raw) :]
        self._before = raw[-1:]
        return list(zip(taken, spread(raw, clean, [len(part.text) for part in taken]), strict=True))

    def _clean(self, text: str) -> str:
        clean = self._scrubber.text(text)
        if clean.startswith(mark("withheld:")[:-1]):
            self.withheld = True
        return clean

    def _decided(self) -> int:
        """How many of the waiting parts nothing that follows can change."""
        text = self._text
        if self._document is None and text.strip():
            self._document = text.lstrip()[:1] in ("{", "[")
        if self._document:
            if not _is_whole(text):
                return 0
            self._document = False
            return len(self._waiting)
        to = settled(text, any_text=self._scrubber.any_text)
        count = length = 0
        for part in self._waiting:
            if length + len(part.text) > to:
                break
            count, length = count + 1, length + len(part.text)
        if count and length < len(text) and self._cuts(text, length):
            return 0
        return count

    def _cuts(self, text: str, at: int) -> bool:
        """Whether a secret lies across a place."""
        whole = self._before + text
        if self._scrubber.finds_nothing(whole):
            return False
        at += len(self._before)
        return self._scrubber.text(whole) != self._scrubber.text(whole[:at]) + self._scrubber.text(whole[at:])


def _is_whole(text: str) -> bool:
    if text.rstrip()[-1:] not in ("}", "]"):
        return False
    try:
        loads(text)
    except ValueError:
        return False
    return True


def settled(text: str, *, any_text: bool = False) -> int:
    """How much of a running text cannot be part of a secret that is not over yet.

    Args:
        text: what there is so far.
        any_text: whether there are shapes that any text may belong to (those of a workspace).
    """
    if any_text:
        return max(0, len(text) - _WINDOW)
    zone = max(0, len(text) - _WINDOW)
    low = text.lower()
    first = len(text)
    for word in words_in(low[zone:] if zone else low):
        first = min(first, low.find(word, zone))
    for n in range(min(_REACH, len(text)), 0, -1):
        if low[-n:] in _BEGINNINGS:
            first = min(first, len(text) - n)
            break
    run = len(text) - len(_RUN.match(text[::-1])[0])  # type: ignore[index]  # it matches the empty text, too
    if run < first and (len(text) - run < _LONGEST or words_in(low[run:])):
        first = run  # a word that is not over may become a name: `api`, then `_key`
    first = min(first, _open_quote(text, first))
    return first if first == len(text) else _word_before(text, first)


def _word_before(text: str, at: int) -> int:
    """The beginning of the word that a place lies in, as far as a name can reach."""
    begin = max(0, at - _LONGEST)
    return at - len(_RUN.match(text[begin:at][::-1])[0])  # type: ignore[index]  # see above


def _open_quote(text: str, to: int) -> int:
    """Where the value of a secret name begins that is in quotes and not over; `to` when there is none."""
    if '"' not in text and "'" not in text:
        return to
    for match in _OPENER.finditer(text, 0, len(text)):
        if match.start() < to and text.find(match["w"], match.end()) < 0 and field_rule(match["n"]):
            return match.start()
    return to


_MARK = re.compile(r"\[removed:[^\]\n]{1,100}\]")


def spread(raw: str, clean: str, lengths: Sequence[int]) -> list[str]:
    """A cleaned text in as many parts as the raw one had; joined they are the cleaned one."""
    if raw == clean:
        cuts = _cuts_of(lengths)
    else:
        blocks = _aligned(raw, clean)
        cuts = [_moved(at, blocks, len(clean)) for at in _cuts_of(lengths)]
        cuts[-1:] = [len(clean)]
    return [clean[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]


def _cuts_of(lengths: Sequence[int]) -> list[int]:
    at = 0
    return [at := at + length for length in lengths]


def _aligned(raw: str, clean: str) -> list[tuple[int, int, int]]:
    """What lies between removed values: (start in raw, start in clean, length), in order."""
    blocks: list[tuple[int, int, int]] = []
    at = done = 0
    for gap in (*_MARK.finditer(clean), None):
        begin, stop = (gap.start(), gap.end()) if gap else (len(clean), len(clean))
        kept = clean[done:begin]
        found = raw.find(kept, at) if gap or not raw.endswith(kept) else max(at, len(raw) - len(kept))
        if kept and found >= 0:
            blocks.append((found, done, len(kept)))
            at = found + len(kept)
        done = stop
    return blocks


def _moved(at: int, blocks: Sequence[tuple[int, int, int]], length: int) -> int:
    """Where a place of the raw text lies in the cleaned one: what was removed goes with the part in which it began."""
    for start, clean, size in blocks:
        if at <= start:
            return clean
        if at <= start + size:
            return clean + at - start
    return length
