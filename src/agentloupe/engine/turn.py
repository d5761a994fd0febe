"""One call on its way through a recorder."""

from __future__ import annotations

from dataclasses import dataclass

from agentloupe.engine.streaming import Arriving
from agentloupe.ports import ambient
from agentloupe.words.call import Call

__all__ = ["Again", "Turn", "TurnAgain"]


class Turn(ambient.HasPlace):
    """One call on its way."""

    __slots__ = ("arriving", "began", "call", "key", "recorded")

    def __init__(self, place: ambient.Place, call: Call) -> None:
        self.place = place
        self.call = call
        self.key = ""
        self.began = 0.0
        self.recorded = False
        self.arriving: Arriving | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """What an earlier attempt has stored of a call that has no end.

    Attributes:
        inner_calls: how many calls were made inside of it.
        stage: of a tool: where it stands, see `words.effects.LIFE`.
        key: of a write: the idempotency key that it keeps.
    """

    inner_calls: int
    stage: str | None = None
    key: str | None = None


class TurnAgain(Turn):
    """One call whose beginning an earlier attempt has stored."""

    __slots__ = ("again", "inner_calls")

    def __init__(self, place: ambient.Place, call: Call, again: Again) -> None:
        super().__init__(place, call)
        self.again = again
        self.inner_calls = again.inner_calls
