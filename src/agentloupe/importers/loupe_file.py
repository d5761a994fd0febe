"""Reads a recording out of a file of its own, `RUN.loupe`, packed or as plain text. See docs/reference/loupe-file.md.

A file says of itself how much it holds and what its text's SHA-256 is, so a cut and a changed byte are both found before
anything in it is believed. Everything that is wrong with a file is `Damaged`, with the byte offset in the text; what is
larger or deeper than a reader should follow is refused the same way (reason `too_large`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Never, cast

import zstandard

from agentloupe.importers.files import opened
from agentloupe.ports.protocols import Imported, ImportedRun
from agentloupe.ports.recording import FILE_FORMAT, FILE_VERSION, Recording
from agentloupe.words.canonical import Json, digest_bytes, digest_parts, dumps, loads
from agentloupe.words.errors import Corrupt, Damaged, Truncated, VersionUnknown
from agentloupe.words.event import Event, Head, from_envelope
from agentloupe.words.seal import GENESIS, check_chain

__all__ = ["LoupeFileImporter", "open_file", "read_text"]

LARGEST_TEXT = 2 << 30
"""Bytes of text in one file."""
LARGEST_LINE = 512 << 20
LARGEST_EVENT = 16 << 20
"""Bytes of the line of an event: it holds structure, no values."""
LARGEST_RATIO = 500
"""How many times its size a file may unpack to, once that is more than `FREE`."""
FREE = 64 << 20

_MAGIC = b"\x28\xb5\x2f\xfd"
_BEGINNING = b'{"format":"loupe",'
_BODY, _VALUE, _END = b'{"body":"', b'","value":', b'{"end":'
_BODY_STARTS = len(_BODY) + 64 + len(_VALUE)
_BITE = 2048  # of packed bytes: a zstd block of 4 bytes can stand for 128 KiB


@dataclass(frozen=True, slots=True)
class LoupeFileImporter:
    """Takes a recording over as it is: its numbers and hashes stay."""

    format: str = FILE_FORMAT

    def detects(self, head: bytes) -> bool:
        """Whether it begins like a `.loupe` file: packed by zstd, or its text."""
        return head.startswith((_MAGIC, _BEGINNING))

    def read(self, path: Path) -> Imported:
        """Reads the file's one run; its chain and all its bodies are checked.

        Raises:
            Truncated, Corrupt: the file is not whole, or not what was sealed.
            VersionUnknown: written by something newer.
        """
        recording = open_file(path)
        _check(recording)
        return Imported(format=self.format, runs=(_counted(recording),))


def open_file(path: Path) -> Recording:
    """The recording in a file, to replay or verify it. The chain of its events is not yet checked.

    Raises:
        NotFound: there is no such file.
        Truncated: it ends before it should; names the byte where.
        Corrupt: its bytes are not those that were written.
        VersionUnknown: written by something newer.
    """
    with opened(path) as file:
        packed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        text = _unpacked(file, path) if packed else _plain(file, path)
    return read_text(text, str(path))


def read_text(text: bytes, origin: str) -> Recording:
    """The recording in a file's text. Raises like `open_file`."""
    lines = _Lines(text, origin)
    _check_end(lines)
    events = tuple(lines.event(i) for i in range(1, lines.bodies_at))
    bodies = dict(lines.body(i) for i in range(lines.bodies_at, lines.count - 1))
    run_id = _check_header(lines, events, bodies)

    def get(digests: Sequence[str]) -> Mapping[str, bytes]:
        return {digest: bodies[digest] for digest in digests if digest in bodies}

    end = Head(len(events), events[-1].hash if events else GENESIS)
    return Recording(run_id, events, get, origin, end)


# --- bytes to text ----------------------------------------------------------------------------------------------------


def _plain(file: BinaryIO, path: Path) -> bytes:
    text = file.read(LARGEST_TEXT + 1)
    if len(text) > LARGEST_TEXT:
        _too_large(path, f"more than {LARGEST_TEXT} bytes of text")
    return text


def _unpacked(file: BinaryIO, path: Path) -> bytes:
    """The text behind zstd. A little at a time: a small file can claim much."""
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    text = bytearray()
    read = 0
    try:
        while not reader.eof and (bite := file.read(_BITE)):
            read += len(bite)
            text += reader.decompress(bite)
            if len(text) > LARGEST_TEXT or (len(text) > FREE and len(text) > LARGEST_RATIO * read):
                _too_large(path, f"unpacks to more than {len(text) // LARGEST_RATIO * LARGEST_RATIO} bytes from {read}")
    except zstandard.ZstdError as wrong:
        raise Corrupt(
            f"{path}: the packed bytes up to {read} do not unpack (after {len(text)} bytes of text)",
            hint="take a copy that is whole, or export the run again",
            reason="packing",
        ) from wrong
    if reader.eof and (reader.unused_data or file.read(1)):
        raise Corrupt(
            f"{path}: bytes follow after the end, at byte {read - len(reader.unused_data)}", reason="after_end"
        )
    if not reader.eof:
        raise _cut(_Lines(bytes(text), str(path)), f"its packed bytes end at byte {read}, before their end")
    return bytes(text)


def _too_large(path: Path | str, what: str) -> Never:
    raise Corrupt(f"{path}: {what}; that is not read", reason="too_large")


# --- lines ------------------------------------------------------------------------------------------------------------


class _Lines:
    """A file's text, line by line: the header, events, bodies, the end."""

    def __init__(self, text: bytes, origin: str) -> None:
        self.text = text
        self.origin = origin
        self.starts = [0, *_breaks(text)]
        self.rest = self.starts.pop() if self.starts[-1] == len(text) else None
        self.whole = self.rest is not None and bool(text)
        self.count = len(self.starts)
        self.bodies_at = next((i for i in range(1, self.count) if not self.begins(i, b'{"event":')), self.count)

    def span(self, i: int) -> tuple[int, int]:
        """Where a line begins, and where the next one does."""
        return self.starts[i], self.starts[i + 1] if i + 1 < self.count else len(self.text)

    def begins(self, i: int, lead: bytes) -> bool:
        return self.text.startswith(lead, self.starts[i])

    def line(self, i: int, limit: int) -> bytes:
        """A line without its line break."""
        start, stop = self.span(i)
        if stop - start > limit:
            _too_large(self.origin, f"line {i + 1} at byte {start} has {stop - start} bytes, more than {limit}")
        return self.text[start:stop].removesuffix(b"\n")

    def fault(self, i: int, what: str) -> Never:
        raise Corrupt(f"{self.origin}: line {i + 1} at byte {self.starts[i]}: {what}", reason="line")

    def value(self, i: int, limit: int) -> dict[str, Json]:
        """A line as an object of strict JSON."""
        try:
            value = loads(self.line(i, limit))
        except ValueError:
            self.fault(i, "not strict JSON")
        if not isinstance(value, dict):
            self.fault(i, "not an object")
        return value

    def event(self, i: int) -> Event:
        """The event of a line; its schema, type and fields are known ones."""
        record = self.value(i, LARGEST_EVENT)
        envelope, before, sealed = record.get("event"), record.get("prev_hash"), record.get("hash")
        if not (
            isinstance(envelope, dict) and isinstance(before, str) and isinstance(sealed, str) and len(record) == 3
        ):
            self.fault(i, "not an event with its two hashes")
        try:
            return from_envelope(envelope, before, sealed)
        except VersionUnknown as unknown:
            raise VersionUnknown(
                f"{self.origin}: stops at line {i + 1}: {unknown.message}", hint=unknown.hint, reason=unknown.reason
            ) from unknown
        except Damaged as wrong:
            self.fault(i, wrong.message)

    def body(self, i: int) -> tuple[str, bytes]:
        """Digest and exact bytes of a line's body; never written anew, since only these bytes fit the digest."""
        line = self.line(i, LARGEST_LINE)
        digest, data = line[len(_BODY) : len(_BODY) + 64], line[_BODY_STARTS:-1]
        shape = (line[: len(_BODY)], line[len(_BODY) + 64 : _BODY_STARTS], line[-1:])
        if shape != (_BODY, _VALUE, b"}"):
            self.fault(i, "neither an event, nor a body, nor the end")
        if digest_bytes(data).encode() != digest:
            self.fault(i, f"the body is not what its digest {digest[:12].decode('ascii', 'replace')} says")
        return digest.decode(), data

    def last_event(self) -> str:
        """How far the events go that are whole, for a message."""
        for i in reversed(range(1, self.bodies_at)):
            try:
                return f"the last whole event is sequence {self.event(i).sequence}"
            except (Damaged, VersionUnknown):
                continue
        return "no event is whole"


def _breaks(text: bytes) -> Iterator[int]:
    """Offsets after every line break."""
    at = text.find(b"\n")
    while at >= 0:
        yield at + 1
        at = text.find(b"\n", at + 1)


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_end(lines: _Lines) -> None:
    """The last line says how much there is, and the digest of everything before it."""
    text, origin = lines.text, lines.origin
    last = lines.count - 1
    complete = lines.whole and last >= 1 and lines.begins(last, _END)
    if not complete:
        _refuse_newer(lines)
        if not text.startswith(_BEGINNING[: len(text)]):
            raise Corrupt(f"{origin}: not a .loupe file", reason="not_loupe")
        if any(lines.begins(i, _END) for i in range(1, lines.count)) and lines.whole:
            raise Corrupt(f"{origin}: something follows after the end", reason="after_end")
        place = (
            f"ends inside line {lines.count} at byte {len(text)}" if not lines.whole else f"ends at byte {len(text)}"
        )
        raise _cut(lines, f"{place} of its text, before its last line")
    start = lines.starts[last]
    found = digest_parts([memoryview(text)[:start]])  # type: ignore[list-item]  # any buffer will do
    end = lines.value(last, LARGEST_EVENT).get("end")
    if not isinstance(end, dict) or end.get("sha256") != found:
        raise Corrupt(f"{origin}: its bytes are not those that were written (SHA-256 of the text)", reason="sha256")
    _refuse_newer(lines)
    if dumps({"end": end}) + b"\n" != text[start:]:
        lines.fault(last, "the end is not written as it should be")


def _cut(lines: _Lines, place: str) -> Truncated:
    return Truncated(
        f"{lines.origin}: {place}; {lines.last_event()}",
        hint="take a copy that is whole, or export the run again",
        reason="cut",
    )


def _refuse_newer(lines: _Lines) -> None:
    """Says of a file whose form is newer that it is; anything else in the header is looked at later."""
    try:
        header = lines.value(0, 1 << 16) if lines.count else {}
    except Damaged:
        return
    version = header.get("version")
    if header.get("format") == FILE_FORMAT and isinstance(version, int) and version > FILE_VERSION:
        raise VersionUnknown(
            f"{lines.origin}: version {version} of the file form is newer than this reader ({FILE_VERSION})",
            hint="upgrade agent-loupe",
        )


def _check_header(lines: _Lines, events: Sequence[Event], bodies: Mapping[str, bytes]) -> str:
    """The header and the end agree with what lies between them. Returns the run's id."""
    header = lines.value(0, 1 << 16)
    run_id = header.get("run")
    if header.get("format") != FILE_FORMAT or not isinstance(run_id, str):
        lines.fault(0, "not the header of a .loupe file")
    end = cast("dict[str, Json]", lines.value(lines.count - 1, LARGEST_EVENT)["end"])
    found: dict[str, Json] = {
        "events": len(events),
        "bodies": len(bodies),
        "head": events[-1].hash if events else GENESIS,
    }
    for name, value in found.items():
        if end.get(name) != value:
            lines.fault(lines.count - 1, f"it counts {name} {end.get(name)}, but there are {value}")
    return run_id


def _check(recording: Recording) -> None:
    """The chain holds and belongs to this run."""
    links = (
        (
            event.sequence,
            cast("Mapping[str, Json]", event.envelope(event.run_id, event.sequence)),
            event.prev_hash,
            event.hash,
        )
        for event in recording.events
    )
    fault = check_chain(links, run_id=recording.run_id)
    if fault is not None:
        raise Corrupt(
            f"{recording.origin}: the chain breaks at sequence {fault.sequence} ({fault.reason})", reason=fault.reason
        )
    if not recording.events:
        raise Truncated(f"{recording.origin}: the recording is empty", reason="empty")


def _counted(recording: Recording) -> ImportedRun:
    """The run with the counts for the report."""
    calls = {event.call_id: event for event in reversed(recording.events) if event.call_id and event.kind}
    kinds = [event.kind for event in calls.values()]
    return ImportedRun(
        run_id=recording.run_id,
        sealed=recording,
        steps=len(kinds) + (1 if recording.events[0].attrs.get("root") else 0),
        model_calls=kinds.count("llm"),
        tool_calls=kinds.count("tool"),
        partial_steps=sum(1 for event in calls.values() if "partial_step" in event.attrs),
        fidelity=cast("str | None", recording.events[0].attrs.get("fidelity")),
    )
