"""Which pieces of streams were handed to the program since the last input of another kind, as it is written down."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, cast

from agentloupe.ports.schedule.parts import PieceTurn
from agentloupe.words.canonical import Json

__all__ = ["Passed", "passed_in"]

_MANY: Final = 500
"""So many entries are written at once, at the latest."""


class Passed:
    """Pieces in the order in which they were handed over: those of one stream that follow each other are one entry."""

    def __init__(self) -> None:
        self._entries: list[list[Any]] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._entries)

    @property
    def many(self) -> bool:
        """Whether they are to be written now."""
        return len(self._entries) >= _MANY

    def add(self, piece: PieceTurn) -> None:
        """One more was handed over."""
        last = self._entries[-1] if self._entries else None
        if last is not None and last[0] == piece.call_id and last[2] == piece.number - 1:
            last[2] = piece.number
        else:
            self._entries.append([piece.call_id, piece.number, piece.number])

    def take(self) -> Json:
        """All of them, as `[call, first, last]`; there are none then."""
        entries, self._entries = self._entries, []
        return cast("Json", entries)


def passed_in(wire: Json) -> Generator[PieceTurn]:
    """The pieces that were written down; what is no such entry says nothing."""
    for entry in wire if isinstance(wire, list) else ():
        match entry:
            case [str() as call_id, int() as first, int() as last] if 0 < first <= last:
                yield from (PieceTurn(call_id, number) for number in range(first, last + 1))
            case _:
                pass
