"""The two drivers: they send a call through the boundary, perform it where that says so, and hand its outcome over.

They do the waiting, boundaries are quick. An outcome is handed over when it is its turn; see `schedule.core`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import Token
from typing import Any, TypeVar, cast

from agentloupe.ports.ids import monotonic_ms
from agentloupe.ports.places import Place, current, hooks
from agentloupe.ports.protocols import Boundary, Perform, Serve
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.schedule.parts import PieceTurn
from agentloupe.ports.surroundings import Surroundings, deeper, here, left, with_prompt
from agentloupe.words.call import NO_TURN, Call, Kind

__all__ = [
    "End",
    "HasPlace",
    "acall",
    "ain_turn",
    "apiece",
    "aserved",
    "aturn",
    "call",
    "cancels",
    "in_turn",
    "performed",
    "served",
    "until_cancelled",
    "waits",
]

T = TypeVar("T")


@contextmanager
def performed(perform: Perform, kind: Kind = "other") -> Generator[None]:
    """The real thing behind a call is done inside; calls made there are its inner calls. For drivers of calls."""
    token = _begin(perform, kind, here())
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator that is thrown away is ended in any context
            left(token)


class _HasPlace:
    """Base for a boundary's tokens, so that inner calls find their place.

    Attributes:
        place: of the call.
        inner_calls: how many inner calls it has had already (in an attempt that was killed while it was performed).
    """

    __slots__ = ("place",)
    place: Place
    inner_calls: int = 0


HasPlace = _HasPlace


def _begin(perform: Perform, kind: Kind, there: Surroundings | None) -> Token[Surroundings | None]:
    """Calls made while a call is performed are its inner calls, in a lane of their own below it, until it is reset."""
    if there is None:
        return deeper(None)
    inner = kind != "agent" or there.inner  # a nested agent is run again, call by call
    at = perform.token
    if isinstance(at, _HasPlace):
        lane = Lane(f"{at.place.call_id}~", at.inner_calls, thread=threading.get_ident())
        return deeper(Surroundings(there.boundary, lane, at.place.span_id, perform, inner, there.home))
    return deeper(Surroundings(there.boundary, there.lane, there.span_id, perform, inner, there.home))


def waits(request: Call) -> Schedule | None:
    """The schedule whose turns this call takes, if any. Plain reads and the program's own work take none."""
    return _turns_of(request, here())


def _turns_of(request: Call, there: Surroundings | None) -> Schedule | None:
    if there is None or request.kind in NO_TURN or "unseen" in request.attrs:
        return None
    return there.schedule


def _regain(there: Surroundings | None) -> None:
    """A thread that others were let past waits until it is its turn again."""
    schedule = there.schedule if there is not None else None
    if schedule is not None and schedule.baton:
        schedule.regain_here()


def _given(answer: Serve) -> Any:
    if answer.handed is not None:
        answer.handed(False)
    if answer.error is not None:
        raise answer.error
    return answer.value


class End:
    """The end of a call that was performed: told to the boundary when it is its turn. For drivers of calls.

    The outcome of a write is told at once, so that it is durable; if others were handed over meanwhile, the schedule tells
    its turn apart.
    """

    __slots__ = ("boundary", "call_id", "error", "perform", "request", "schedule", "value")

    def __init__(self, boundary: Boundary, request: Call, perform: Perform, schedule: Schedule | None) -> None:
        self.boundary = boundary
        self.request = request
        self.perform = perform
        self.schedule = schedule
        self.value: Any = None
        self.error: BaseException | None = None
        token = perform.token
        self.call_id = token.place.call_id if isinstance(token, _HasPlace) else None

    @property
    def waits(self) -> bool:
        """Whether it has a turn: what stops the program from outside has none."""
        error = self.error
        stops = error is not None and not isinstance(error, Exception) and type(error).__name__ != "CancelledError"
        return self.schedule is not None and self.call_id is not None and not stops

    def tell(self) -> None:
        """Tells the boundary."""
        self.perform.ended = monotonic_ms()
        # It knows the frames that know this: a circle would keep its response for long.
        error, self.error = self.error, None
        if error is not None:
            self.boundary.failed(self.perform, error)
        else:
            self.value = self.boundary.finished(self.perform, self.value)

    def turn(self) -> None:
        """Waits in a thread."""
        schedule, call_id = self.schedule, self.call_id
        if schedule is None or call_id is None:  # see `waits`
            return self.tell()
        if self.request.effect == "write" and schedule.contended:
            schedule.tells(call_id)
            self.tell()
            return schedule.turn(call_id)
        try:
            schedule.turn(call_id)
        finally:
            self.tell()
        return None

    async def aturn(self, cancels: int) -> None:
        """Waits in a task. Raises `CancelledError` when the program cancels it there: then its outcome is lost."""
        schedule, call_id = cast("Schedule", self.schedule), cast("str", self.call_id)
        if cancels:
            self.perform.facts["cancels"] = cancels
        cancelled = bool(cancels) or (self.error is not None and not isinstance(self.error, Exception))
        early = self.request.effect == "write"
        if early:
            schedule.tells(call_id)
            self.tell()
        try:
            lost = await aturn(schedule, call_id, cancelled=cancelled)
        finally:
            if not early:
                self.tell()
        if lost is not None:
            schedule.log("task.cancelled", call_id.rpartition(".")[0], {"call": call_id})
            raise lost


def call(request: Call, perform: Callable[[], T]) -> T:
    """Sends one call through the current boundary, or straight to the world where there is none."""
    there = here()
    boundary = current() if there is None else there.boundary
    if boundary is None:
        return perform()
    _regain(there)
    request = with_prompt(request)
    decision = boundary.decide(request)
    schedule = _turns_of(request, there)
    if isinstance(decision, Serve):
        return cast("T", served(decision, schedule))
    return cast("T", _in_turn(End(boundary, request, decision, schedule), perform, there))


async def acall(request: Call, perform: Callable[[], Awaitable[T]]) -> T:
    """Async twin of `call`."""
    there = here()
    boundary = current() if there is None else there.boundary
    if boundary is None:
        return await perform()
    request = with_prompt(request)
    decision = boundary.decide(request)
    schedule = _turns_of(request, there)
    if isinstance(decision, Serve):
        return cast("T", await aserved(decision, schedule))
    return cast("T", await _ain_turn(End(boundary, request, decision, schedule), perform, there))


def in_turn(end: End, perform: Callable[[], object]) -> object:
    """Performs a call and hands its end over in its turn; returns what the boundary made of it. For drivers of calls."""
    return _in_turn(end, perform, here())


def _in_turn(end: End, perform: Callable[[], object], there: Surroundings | None) -> object:
    if end.schedule is not None and end.schedule.baton:
        end.schedule.away()
    token = _begin(end.perform, end.request.kind, there)
    try:
        try:
            end.value = end.perform.instead() if end.perform.instead else perform()
        finally:
            left(token)
    except BaseException as error:
        end.error = error
        if end.waits:
            end.turn()
        else:
            end.tell()
            if end.schedule is not None:
                end.schedule.stopped_in_call()
        raise
    if end.waits:
        end.turn()
    else:
        end.tell()
    return end.value


async def ain_turn(end: End, perform: Callable[[], Awaitable[object]]) -> object:
    """Async twin of `in_turn`."""
    return await _ain_turn(end, perform, here())


async def _ain_turn(end: End, perform: Callable[[], Awaitable[object]], there: Surroundings | None) -> object:
    cancels = hooks().Cancels() if end.waits else None
    token = _begin(end.perform, end.request.kind, there)
    try:
        try:
            value = end.perform.instead() if end.perform.instead else await perform()
            end.value = await value if inspect.isawaitable(value) else value
        finally:
            left(token)
    except BaseException as error:
        end.error = error
        if cancels is not None and end.waits:
            await end.aturn(cancels.count())
        else:
            end.tell()
        raise
    if cancels is not None:
        await end.aturn(cancels.count())
    else:
        end.tell()
    return end.value


def served(answer: Serve, schedule: Schedule | None) -> object:
    """Hands over an answer that nothing was performed for, in its turn. For drivers of calls."""
    if schedule is not None and answer.call_id is not None:
        schedule.started(answer.call_id)
        schedule.turn(answer.call_id)
    return _given(answer)


async def aserved(answer: Serve, schedule: Schedule | None) -> object:
    """Async twin of `served`."""
    if schedule is None or answer.call_id is None:
        return _given(answer)
    schedule.started(answer.call_id)
    lost = await aturn(schedule, answer.call_id, cancelled=answer.cancels > 0)
    if lost is None:
        return _given(answer)
    if answer.handed is not None:
        answer.handed(True)
    schedule.log("task.cancelled", answer.call_id.rpartition(".")[0], {"call": answer.call_id})
    raise lost


def cancels() -> Any:
    """Counts how often the program cancels the running task from here on. For drivers of calls."""
    return hooks().Cancels()


async def aturn(schedule: Schedule, id: str, *, cancelled: bool) -> BaseException | None:
    """Waits for the turn of an input in a task; see `schedule.turns.turn`. For drivers of calls."""
    return await hooks().turn(schedule, id, cancelled=cancelled)


async def apiece(schedule: Schedule, piece: PieceTurn, *, cancelled: bool) -> BaseException | None:
    """The same for a piece of a stream, if it has a turn. For drivers of calls."""
    return await hooks().piece_turn(schedule, piece, cancelled=cancelled)


async def until_cancelled() -> BaseException | None:
    """Waits until the program cancels the running task, as it did on the tape; returns the cancel. For drivers of calls."""
    there = here()
    cancel: BaseException | None = await hooks().until_cancelled(None if there is None else there.schedule)
    return cancel
