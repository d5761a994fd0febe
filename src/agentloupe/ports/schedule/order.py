"""The order of hand-overs on a tape, and how far a program has come in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Order", "Turn"]


class Turn(NamedTuple):
    """A hand-over on a tape: of which input, and what (calls that start, lanes that end) had happened since the one before.

    `at_once`: nothing was waited for, since the time of this timer was over when it was set. It has a place in no order.
    `stream`: the streamed call of which this is a piece or the end; it goes where that call goes.
    """

    id: str
    need: tuple[str, ...] = ()
    at_once: bool = False
    stream: str | None = None


class Order:
    """What is to be handed over next.

    Args:
        turns: of the tape; none for a recording.

    Attributes:
        at_once: timers whose time was over when they were set.
    """

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self.at_once = frozenset(turn.id for turn in turns if turn.at_once)
        self._turns = [turn for turn in turns if not turn.at_once] if self.at_once else turns
        self._at = 0
        self._known = {turn.id for turn in self._turns}
        self._dropped: set[str] = set()
        self._happened: set[str] = set()

    def __bool__(self) -> bool:
        """Whether the next hand-over is the tape's."""
        return self._at < len(self._turns)

    def __contains__(self, id: object) -> bool:
        """Whether there is a turn for this input."""
        return id in self._known

    def head(self) -> Turn | None:
        """The next turn."""
        while self._at < len(self._turns):
            turn = self._turns[self._at]
            if self._counts(turn):
                return turn
            self._at += 1
        return None

    def ripe(self, turn: Turn) -> bool:
        """Whether all has happened that stands before a turn."""
        return all(name in self._happened for name in turn.need)

    def advance(self) -> None:
        """The next turn was taken."""
        self._at += self._at < len(self._turns)

    def happened(self, names: Iterable[str]) -> None:
        """Calls have started, or lanes have ended."""
        if self._turns:
            self._happened.update(names)

    def drop(self, ids: Iterable[str]) -> bool:
        """These turns are left out, and with a streamed call those of its pieces; whether there is an order at all."""
        names = tuple(ids)
        self.happened(names)
        if self._turns:
            self._dropped.update(names)
        return bool(self._turns)

    def cut(self) -> None:
        """Nothing of what is left counts any more."""
        self._turns = self._turns[: self._at]

    def awaited(self) -> str | None:
        """The first thing that did not happen yet; `None` when nothing is left."""
        turn = self.head()
        if turn is None:
            return None
        return next((name for name in turn.need if name not in self._happened), turn.id)

    def left(self) -> list[str]:
        """Inputs that were not handed over."""
        return [turn.id for turn in self._turns[self._at :] if self._counts(turn)]

    def _counts(self, turn: Turn) -> bool:
        return turn.id not in self._dropped and (turn.stream is None or turn.stream not in self._dropped)
