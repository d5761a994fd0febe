"""What a recorder holds of one streamed answer that is on its way, and what its end says about it."""

from __future__ import annotations

from agentloupe.engine.privacy import Rules
from agentloupe.engine.streamscrubber import StreamScrubber
from agentloupe.ports.codecs import encode
from agentloupe.ports.streams import How, Piece, Streamed, pieces_wire
from agentloupe.words.call import OutcomeStatus
from agentloupe.words.canonical import Json
from agentloupe.words.eventstream import MEDIA_TYPE
from agentloupe.words.exchange import STREAMS, body_members, content_of, header_of, is_exchange, media_type

__all__ = ["Arriving", "clean_body", "facts_of_stream", "status_of_stream"]

_STATUS: dict[How, OutcomeStatus] = {
    "complete": "ok",
    "left_early": "cancelled",
    "cancelled": "cancelled",
    "broken": "error",
    "open": "cancelled",
}


class Arriving:
    """Pieces that came and are not stored yet: those since the last batch, and those that may begin a secret.

    Args:
        head: what came before the first piece.
        rules: of secret removal.
    """

    __slots__ = ("_held", "_scrubber", "seen")

    def __init__(self, head: Json, rules: Rules) -> None:
        self.seen = Streamed(head)
        said = header_of(head, "content-type") if isinstance(head, dict) else None
        self._scrubber = StreamScrubber(rules, messages=media_type(said) == MEDIA_TYPE)
        self._held: list[Piece] = []

    def add(self, piece: Piece) -> bool:
        """Takes a piece; whether it is the first of a new batch."""
        self.seen.pieces.append(piece)
        self._held.append(piece)
        return len(self._held) == 1

    def take(self, *, last: bool) -> Json:
        """The next batch in the form that is stored; `None`: nothing can be stored now. `last`: nothing more will come."""
        held, self._held = self._held, []
        clean = self._scrubber.feed(held)
        if last:
            clean += self._scrubber.end()
        return list[Json](pieces_wire(clean)) if clean else None

    @property
    def removed(self) -> tuple[str, ...]:
        """Places in the stream's records from which a secret was removed."""
        return self._scrubber.removed

    @property
    def withheld(self) -> bool:
        """Whether a rule failed, so that something was withheld."""
        return self._scrubber.withheld

    @property
    def unread(self) -> int:
        """How many bytes at the end stand where messages should and no client reads any."""
        return self._scrubber.unread


def clean_body(output: Json, rules: Rules) -> Json:
    """A whole answer that is a stream's, without secrets that are cut over its records; anything else is the very same."""
    if not isinstance(output, dict) or not is_exchange(output):
        return output
    said = media_type(header_of(output, "content-type"))
    if said not in STREAMS:
        return output
    try:
        content = content_of(output)
    except ValueError:
        return output
    scrubber = StreamScrubber(rules, messages=said == MEDIA_TYPE)
    clean = b"".join(data for _, data in (*scrubber.feed([(0.0, content)]), *scrubber.end()))
    if clean == content:
        return output
    return {**{name: value for name, value in output.items() if name not in ("text", "base64")}, **body_members(clean)}


def status_of_stream(streamed: Streamed) -> OutcomeStatus:
    """How the call ended whose answer this is."""
    return _STATUS[streamed.how]


def facts_of_stream(streamed: Streamed) -> dict[str, Json]:
    """How the stream ended, of how many pieces it is, when the first came; `broken` is what ended it, as JSON."""
    facts: dict[str, Json] = {**streamed.facts, "stream": streamed.how, "pieces": len(streamed.pieces)}
    facts |= {name: True for name in ("closed", "lost", "waiting") if getattr(streamed, name)}
    if streamed.cancels:
        facts["end_cancels"] = streamed.cancels
    if streamed.pieces:
        facts["first_piece_ms"] = streamed.pieces[0][0]
    if streamed.error is not None:
        facts["broken"] = encode(streamed.error).wire
    return facts
