"""Writes a recording into a file of its own, `RUN.loupe`: JSON Lines, compressed with zstd. See docs/reference/loupe-file.md.

The same recording gives the same bytes each time, so that two exports of a run can be compared as files. Envelopes are
written in their canonical form (the bytes that were sealed), bodies as the bytes that were stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, cast

import zstandard

from agentloupe.ports.recording import FILE_FORMAT, FILE_VERSION, Recording
from agentloupe.words.canonical import FORM, Json, canonical, digest_parts, dumps
from agentloupe.words.errors import Corrupt, UsageError
from agentloupe.words.seal import GENESIS

__all__ = ["LoupeFileExporter"]

_LEVEL = 6
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class LoupeFileExporter:
    """Writes one recording.

    Attributes:
        packed: `False` writes the text that `zstd -d` gives.
        written_by: program and version, for people who look into the file.
    """

    packed: bool = True
    written_by: str = "agent-loupe"
    format: str = FILE_FORMAT

    def write(self, recordings: Iterator[Recording], out: BinaryIO) -> None:
        """Writes the one recording that there is.

        Raises:
            UsageError: there are none or several.
            Corrupt: a body is not what its digest says.
        """
        found = list(islice(recordings, 2))
        if len(found) != 1:
            raise UsageError("a .loupe file holds exactly one run", hint="write each run into a file of its own")
        if not self.packed:
            _write(found[0], out, self.written_by)
            return
        compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        with compressor.stream_writer(out, closefd=False) as packed:
            _write(found[0], cast("BinaryIO", packed), self.written_by)


@dataclass(slots=True)
class _Tally:
    """What the last line says of the lines before it."""

    bodies: int = 0
    missing: int = 0


def _write(recording: Recording, out: BinaryIO, written_by: str) -> None:
    tally = _Tally()

    def sent() -> Iterator[bytes]:
        for line in _lines(recording, tally, written_by):
            out.write(line)
            yield line

    whole = digest_parts(sent())
    events = recording.events
    end: dict[str, Json] = {
        "events": len(events),
        "bodies": tally.bodies,
        "missing": tally.missing,
        "head": events[-1].hash if events else GENESIS,
        "sha256": whole,
    }
    out.write(dumps({"end": end}) + b"\n")


def _lines(recording: Recording, tally: _Tally, written_by: str) -> Iterator[bytes]:
    header: dict[str, Json] = {
        "format": FILE_FORMAT,
        "version": FILE_VERSION,
        "form": FORM,
        "run": recording.run_id,
        "written_by": written_by,
    }
    yield dumps(header) + b"\n"
    for event in recording.events:
        envelope = canonical(cast("Json", event.envelope(event.run_id, event.sequence)))
        yield b'{"event":%s,"prev_hash":"%s","hash":"%s"}\n' % (envelope, event.prev_hash.encode(), event.hash.encode())
    named = (digest for event in recording.events for digest in event.digests())
    for digest, data in recording.bodies(named):
        if data is None:
            tally.missing += 1
            continue
        tally.bodies += 1
        if b"\n" in data:
            raise Corrupt(f"{recording.origin}: body {digest[:12]} holds a line break, which no stored value does")
        yield b'{"body":"%s","value":%s}\n' % (digest.encode(), data)
