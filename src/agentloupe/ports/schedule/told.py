"""What a tape is told beside its events, since their order is not the order of the hand-overs.

The end of a call is an event before it is the program's turn to get it; pieces of streams are handed over that are no events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentloupe.ports.schedule.parts import PieceTurn
from agentloupe.ports.schedule.pieces import Passed
from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json

__all__ = ["Told"]


class Told:
    """Notes turns that events do not tell, as `schedule.marked`. Who calls it holds the schedule's lock, or is alone.

    Args:
        log: of the schedule: type, lane and facts of an event.
    """

    def __init__(self, log: Callable[[str, str, Attrs], None]) -> None:
        self._log = log
        self._waiting: set[str] = set()
        self._overtaken: set[str] = set()
        self._passed = Passed()

    def end(self, id: str, *, others: bool) -> None:
        """The end of a call is told before its turn: whoever is handed over before it must not come behind it on the tape.

        Where there are others, one that was handed over may not have told its own end yet, so that this turn is noted apart.
        """
        self.pieces()
        self._waiting.add(id)
        if others:
            self._overtaken.add(id)

    def withdrawn(self, id: str) -> None:
        """The program does not wait for this call any more."""
        self._waiting.discard(id)

    def owed(self, ids: Iterable[str]) -> None:
        """These calls were told by an attempt that died before it handed them over: their turn is still to be noted."""
        self._overtaken.update(ids)

    def waiting(self) -> None:
        """What was told and is not handed over yet has its turn later, if at all; said of each call once."""
        if self._waiting:
            self._log("schedule.marked", "0", {"open": list[Json](sorted(self._waiting))})
            self._overtaken |= self._waiting
            self._waiting.clear()

    def turn(self, id: str) -> None:
        """An input is handed over."""
        self._waiting.discard(id)
        self.waiting()
        if id in self._overtaken:
            self._overtaken.discard(id)
            self._log("schedule.marked", id.rpartition(".")[0], {"turn": id})

    def pieces(self, piece: PieceTurn | None = None) -> None:
        """Which pieces were handed over is said before the next input of another kind is, and when many have come."""
        if piece is not None:
            self._passed.add(piece)
        if self._passed and (piece is None or self._passed.many):
            self._log("schedule.marked", "0", {"pieces": self._passed.take()})
