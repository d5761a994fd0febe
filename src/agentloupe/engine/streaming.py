"""What a recorder holds of one streamed answer that is on its way, and what its end says about it."""

from __future__ import annotations

from collections.abc import Callable

from agentloupe.engine.privacy import Scrubbed
from agentloupe.ports.codecs import encode
from agentloupe.ports.streams import How, Piece, Streamed, pieces_wire
from agentloupe.words.call import OutcomeStatus
from agentloupe.words.canonical import Json

__all__ = ["Arriving", "facts_of_stream", "status_of_stream"]

_STATUS: dict[How, OutcomeStatus] = {
    "complete": "ok",
    "left_early": "cancelled",
    "cancelled": "cancelled",
    "broken": "error",
    "open": "cancelled",
}


class Arriving:
    """Pieces that came and are not stored yet.

    Args:
        clean: secret removal.
    """

    __slots__ = ("_clean", "_held", "removed", "seen")

    def __init__(self, head: Json, clean: Callable[[Json], Scrubbed]) -> None:
        self.seen = Streamed(head)
        self.removed: list[str] = []
        self._clean = clean
        self._held: list[Piece] = []

    def add(self, piece: Piece) -> bool:
        """Takes a piece; whether it is the first of a new batch."""
        self.seen.pieces.append(piece)
        self._held.append(piece)
        return len(self._held) == 1

    def take(self) -> Json:
        """The next batch in the form that is stored; `None`: nothing waits."""
        held, self._held = self._held, []
        if not held:
            return None
        clean = self._clean(pieces_wire(held))
        self.removed += clean.removed
        return clean.value


def status_of_stream(streamed: Streamed) -> OutcomeStatus:
    """How the call ended whose answer this is."""
    return _STATUS[streamed.how]


def facts_of_stream(streamed: Streamed) -> dict[str, Json]:
    """How the stream ended, of how many pieces it is, when the first came; `broken` is what ended it, as JSON."""
    facts: dict[str, Json] = {**streamed.facts, "stream": streamed.how, "pieces": len(streamed.pieces)}
    if streamed.closed:
        facts["closed"] = True
    if streamed.pieces:
        facts["first_piece_ms"] = streamed.pieces[0][0]
    if streamed.error is not None:
        facts["broken"] = encode(streamed.error).wire
    return facts
