"""What a schedule deals with: inputs, the strands that they are for, and who is told of it."""

from __future__ import annotations

import threading
import time
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Protocol

from agentloupe.ports.schedule.lanes import Lane
from agentloupe.words.call import Attrs

__all__ = ["STUCK_AFTER", "Coming", "Item", "Keeper", "Mark", "Mode", "PieceTurn", "Strand"]

Mode = Literal["exact", "no_baton", "off"]
"""`exact`; `no_baton`: threads run as they like, loops are gated; `off`: nothing is waited for."""

Mark = Literal["tight", "guess", "no_lane", "ambiguous"]
"""Why an order is not proven: an input was handed over although the program was busy; a thread was taken to be stuck and
others went on; code without a place of its own in the schedule; equal calls of such code with different results."""


class PieceTurn(NamedTuple):
    """A piece of a streamed answer, where it is an input: its call, and its number among the call's pieces, from 1 on."""

    call_id: str
    number: int

    @property
    def id(self) -> str:
        """The name of its turn."""
        return f"{self.call_id}+{self.number}"


STUCK_AFTER: Final = 5.0
"""Seconds after which a replay that does not move is stopped."""


class Keeper(Protocol):
    """What a schedule tells its run. Called in any thread; never raises."""

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """An event of the schedule: `timer.fired`, `task.joined`, `task.cancelled`, `schedule.marked`.

        Not called for what is handed over in the order of a tape, which has it already.
        """
        ...

    def stands_still(self, awaited: str | None) -> None:
        """The program makes no move, and `awaited` is what the order waits for: a call, a timer, a lane."""
        ...

    def cancelled(self, id: str) -> None:
        """The program cancelled an input which the order has as handed over."""
        ...


class Coming(Protocol):
    """A work item that a worker is about to take."""

    def give_up(self) -> None:
        """It was not taken: others go on."""
        ...


class Strand:
    """A thread while it runs code of the program. With the baton, only the strand that holds it runs."""

    __slots__ = ("blocked", "called", "ended", "expired", "ident", "inner", "joiners", "lane", "lost", "native", "turn")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.turn = allocate_lock()
        self.turn.acquire()
        self.blocked = False
        self.called = False
        self.expired = False
        self.lost = False
        self.ended = False
        self.inner = False
        self.joiners: list[Strand] = []
        self.ident = self.native = 0

    def here(self) -> None:
        """This thread runs it."""
        self.ident, self.native = threading.get_ident(), threading.get_native_id()


def _never() -> bool:
    return False


class Item:
    """An input on its way to the program.

    Args:
        id: of the call or the timer.
        deliver: hands it over; called in the loop's thread where it is for a loop.
        loop: the loop it is for; `None` where a thread is to be woken.
        dead: whether the program has given it up meanwhile.
        lane: of the timer, which is logged when it fires; `None` for calls, whose boundary writes their end.
        piece: of a piece of a stream: which call's, and its number.
    """

    __slots__ = ("dead", "deliver", "id", "lane", "loop", "passes", "piece", "since")

    def __init__(
        self,
        id: str,
        deliver: Callable[[], object],
        loop: Any = None,
        *,
        dead: Callable[[], bool] = _never,
        lane: str | None = None,
        piece: PieceTurn | None = None,
    ) -> None:
        self.id = id
        self.deliver = deliver
        self.loop = loop
        self.dead = dead
        self.lane = lane
        self.piece = piece
        self.since = time.monotonic()
        self.passes = 0
