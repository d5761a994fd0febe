"""Recorded streams that a replay serves: the program reads them by itself, and must read them as far as it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from agentloupe.engine.report import DivergenceKind
from agentloupe.engine.tape import RecordedCall
from agentloupe.ports import codecs
from agentloupe.ports.protocols import Reading
from agentloupe.ports.streams import How, Piece, Played, pieces_of
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Corrupt, ReplayMismatch

__all__ = ["PlayedStreams", "parts_of"]

Differs = Callable[[RecordedCall, DivergenceKind, str], ReplayMismatch]
"""Stops the replay, unless it is stopped already; returns the signal that stops the program."""


class PlayedStreams:
    """The streams of one replay.

    Args:
        body: the value behind a digest.
        differs: see `Differs`.
    """

    def __init__(self, body: Callable[[str], Json], differs: Differs) -> None:
        self._body = body
        self._differs = differs
        self._served: list[tuple[RecordedCall, Played]] = []
        self._readings: list[Reading] = []

    def play(self, recorded: RecordedCall) -> Played:
        """The recorded stream, to be read. Raises `Damaged` where a body of it is lost or is not what a recorder writes."""
        head, pieces, error = parts_of(recorded, self._body)
        attrs = recorded.attrs
        played = Played(head, pieces, cast("How", attrs.get("stream", "open")), error, lost=attrs.get("lost") is True)
        played.cancels = 1 if attrs.get("end_cancels") else 0
        played.waiting = attrs.get("waiting") is True
        played.past = lambda: self._past(recorded, played)
        played.left = lambda count: self._left(recorded, played, count)
        self._served.append((recorded, played))
        return played

    def _past(self, recorded: RecordedCall, played: Played) -> ReplayMismatch:
        """The program reads on where the recorded one had left, or where the recording ends."""
        after = f"after {len(played.pieces)} pieces"
        if played.how == "open":
            return self._differs(recorded, "truncated", f"the recording has no end of this stream {after}")
        return self._differs(recorded, "extra", f"the program reads on {after}, where the recorded one left the stream")

    def _left(self, recorded: RecordedCall, played: Played, count: int) -> None:
        """The program left after so many pieces: as recorded, or not."""
        whole = len(played.pieces)
        if played.how in ("cancelled", "open") or (played.how == "left_early" and count == whole):
            return
        other = "left it later" if played.how == "left_early" else "read it to its end"
        text = f"the program left the stream after {count} of {whole} pieces, the recorded one {other}"
        self._differs(recorded, "unconsumed", text)  # not raised: who closes a stream expects no exception

    def items(self, recorded: RecordedCall) -> Reading:
        """What is told how far the program takes a result that comes item by item."""

        def less(text: str) -> None:
            self._differs(recorded, "unconsumed", text)  # not raised: who closes a generator expects no exception

        self._readings.append(Reading(lambda text: self._differs(recorded, "extra", text), less))
        return self._readings[-1]

    def ended(self) -> None:
        """The program has ended: streams that it did not read to their end were left by it now. The session's flag tells."""
        for _, played in self._served:
            if not played.over:
                played.over = True
                played.left(played.read)
        for reading in self._readings:
            reading.ended()


def parts_of(recorded: RecordedCall, body: Callable[[str], Json]) -> tuple[Json, list[Piece], BaseException | None]:
    """What came before the first piece, the pieces, and what broke the stream.

    Raises:
        Corrupt: a body is not what a recorder writes. Damaged: a body is lost.
    """
    head = body(cast("str", recorded.head_digest))
    try:
        pieces = [piece for name in recorded.piece_digests for piece in pieces_of(body(name))]
    except ValueError as wrong:
        raise Corrupt(f"a body of a stream: {wrong}", reason="body") from wrong
    broken = None if recorded.broken_digest is None else codecs.decode(body(recorded.broken_digest))
    if recorded.attrs.get("stream") == "broken" and not isinstance(broken, BaseException):
        raise Corrupt("a broken stream without what broke it", reason="no_exception")
    return head, pieces, broken if isinstance(broken, BaseException) else None
