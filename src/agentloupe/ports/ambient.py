"""What surrounds a call: the current boundary, the logical place of the caller, and the recorder's own time and ids.

This is the only module (beside the recorder) that reads the wall clock and makes ids. Ids come from the operating
system, never from `random`, so that a seeded application draws the same numbers with and without Loupe.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from agentloupe.ports.protocols import Boundary, Opener, Perform, Serve
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.forks import watch
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.surroundings import Home, Surroundings, entered, here, left, outside, set_home
from agentloupe.words.call import NO_TURN, Call, Kind
from agentloupe.words.canonical import Json

__all__ = [
    "End",
    "Lane",
    "Place",
    "acall",
    "ain_turn",
    "aserved",
    "aturn",
    "away",
    "beside",
    "call",
    "caller",
    "cancels",
    "current",
    "in_run",
    "in_turn",
    "inside",
    "install",
    "is_users",
    "monotonic_ms",
    "new_event_id",
    "new_run_id",
    "new_span_id",
    "new_trace_id",
    "note",
    "now",
    "of_a_run",
    "opener",
    "opening_here",
    "opening_with",
    "outside",
    "performed",
    "performing",
    "place",
    "ran_off",
    "random_base32",
    "random_hex",
    "served",
    "span",
    "waits",
]

T = TypeVar("T")

# --- time and ids -----------------------------------------------------------------------------------------------------


def now() -> str:
    """The time: UTC, ISO 8601 with microseconds and `Z`."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    of, text = _second[0]
    if of != seconds:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second[0] = seconds, text
    return f"{text}.{rest // 1000:06d}Z"


_second: list[tuple[int, str]] = [(-1, "")]
"""The last second that was asked for, and its text: both in one, so that several threads may use it."""


def monotonic_ms() -> float:
    """A clock for durations, in milliseconds."""
    return time.perf_counter_ns() / 1e6


class _Pool(threading.local):
    """Random bytes of the operating system, fetched many at a time, since each system call costs more than an event."""

    BYTES = 4096

    def __init__(self) -> None:
        self.bytes = b""
        self.at = 0
        self.forks = 0

    def take(self, count: int) -> bytes:
        start, end = self.at, self.at + count
        if end > len(self.bytes) or self.forks != _forks[0]:
            self.bytes, self.forks = os.urandom(max(count, self.BYTES)), _forks[0]
            start, end = 0, count
        self.at = end
        return self.bytes[start:end]


_pool = _Pool()
_forks = [0]


def _forked() -> None:
    """In a forked child: what is left in the pool is the parent's too."""
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def new_event_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then chance from the operating system."""
    chance = _pool.take(10).hex()
    time_ms = f"{time.time_ns() // 1_000_000:012x}"
    variant = _VARIANT[chance[3]]
    return f"{time_ms[:8]}-{time_ms[8:]}-7{chance[:3]}-{variant}{chance[4:7]}-{chance[7:19]}"


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def random_hex(digits: int) -> str:
    """That many random hex digits."""
    return _pool.take((digits + 1) // 2).hex()[:digits]


def random_base32(digits: int) -> str:
    """That many random digits of Crockford's base 32, lower case."""
    return "".join("0123456789abcdefghjkmnpqrstvwxyz"[byte & 31] for byte in _pool.take(digits))


def new_trace_id() -> str:
    """A W3C trace id: 32 hex digits."""
    return random_hex(32)


def new_span_id() -> str:
    """A W3C span id: 16 hex digits."""
    return random_hex(16)


def new_run_id(agent: str) -> str:
    """`<agent>-<yymmdd>-<6 base32>`; characters that a shell or a file name would mind become `-`."""
    safe = "".join(c if c.isalnum() or c in "_." else "-" for c in agent).strip("-.") or "run"
    return f"{safe[:48]}-{datetime.now(UTC):%y%m%d}-{random_base32(6)}"


# --- place: lanes and spans -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands: fixed when the call is made, before anything is awaited."""

    lane: str
    n: int
    span_id: str
    parent_span_id: str | None

    @property
    def call_id(self) -> str:
        """Unique in its run: the lane and the number of the call in it."""
        return f"{self.lane}.{self.n}"


_strays: list[Boundary] = []


def current() -> Boundary | None:
    """The boundary of the run that this code belongs to, if any; while `catching_strays`, never nothing."""
    there = here()
    if there is not None:
        return there.boundary
    return _strays[-1] if _strays else None


@contextmanager
def catching_strays(boundary: Boundary) -> Generator[None]:
    """While inside, calls of code that belongs to no run go to this boundary, in the whole process.

    Such code is a thread that lost its context, or what a program does before its run: in a replay it must not reach
    the world.
    """
    _strays.append(boundary)
    try:
        yield
    finally:
        _strays.remove(boundary)


def in_run() -> bool:
    """Whether this code belongs to a run, so that an agent that starts here is a span of it.

    A boundary whose attribute `implicit` is true stands for a whole script: agents in it still start runs of their own.
    """
    there = here()
    return there is not None and not getattr(there.boundary, "implicit", False)


@contextmanager
def inside(boundary: Boundary, *, lane: Lane | None = None, span_id: str | None = None) -> Generator[None]:
    """Makes `boundary` the current one; its schedule, if it has one, begins here."""
    hooked = install()
    lane = lane or Lane("0", thread=threading.get_ident())
    schedule: Schedule | None = getattr(boundary, "schedule", None)
    if hooked and schedule is not None:
        _hooks().begin(schedule, lane)
    if schedule is not None:
        watch(boundary)
    token = entered(Surroundings(boundary, lane, span_id))
    try:
        yield
    finally:
        left(token)


def install() -> bool:
    """Puts the hooks in place with the first run; whether loops can be gated in this Python."""
    from agentloupe.ports.schedule import threads

    hooked: bool = _hooks().install()
    threads.install()
    return hooked


@functools.cache
def _hooks() -> Any:
    """The hooks into asyncio, which is imported when the first run begins."""
    from agentloupe.ports.schedule import hooks

    return hooks


@contextmanager
def span(span_id: str) -> Generator[None]:
    """Calls made inside belong to this span (a nested agent)."""
    there = here()
    if there is None:
        yield
        return
    token = entered(replace(there, span_id=span_id))
    try:
        yield
    finally:
        left(token)


def place() -> Place:
    """The place of the next call of this lane. Boundaries ask once per `decide`."""
    there = here()
    if there is None:
        raise RuntimeError("no boundary here")
    lane = there.lane
    n = lane.calls
    lane.calls = n + 1
    return Place(lane.path, n, new_span_id(), there.span_id)


def note(name: str, value: Json) -> None:
    """Adds a structural fact to the call being performed: lists grow by `value`, anything else is replaced.

    Names that end in `[]` are lists (`tries[]`). Does nothing outside a call.
    """
    there = here()
    if there is None or there.performing is None:
        return
    facts = there.performing.facts
    if name.endswith("[]"):
        grown = facts.setdefault(name[:-2], [])
        cast("list[Json]", grown).append(value)
    else:
        facts[name] = value


def performing() -> Perform | None:
    """The call being performed around this code, with its facts; `None` outside of one."""
    there = here()
    return there.performing if there else None


# --- code that a run has to do with, and that is no part of it ----------------------------------------------------------
#
# It must not go unnoticed: a recording says that it lacks it, a replay and a fork refuse it.


class _Away:
    """The boundary of such code: its calls are told to the run, which may refuse them, and are performed as they are."""

    implicit = True

    def __init__(self, run: Boundary) -> None:
        self.run = run

    def decide(self, call: Call) -> Perform:
        """Tells the run of the call."""
        _tell(self.run, f"{call.kind} {call.name}", inner=False)
        return Perform()

    def finished(self, perform: Perform, value: object) -> object:
        """The value."""
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Nothing to do."""


def _tell(run: Boundary, what: str, *, inner: bool) -> None:
    tell = getattr(run, "ran_off", None)
    if tell is not None:
        tell(what, inner)


def ran_off(what: str) -> None:
    """Tells the run that this code belongs to, if any, of something that will be no part of it."""
    there = here()
    if there is None or there.boundary is None:
        return
    if isinstance(there.boundary, _Away):
        _tell(there.boundary.run, what, inner=False)
    elif in_run():
        _tell(there.boundary, what, inner=there.inner)


def away(run: Boundary) -> Boundary:
    """The boundary of code that is no part of this run, and tells it of its calls."""
    return _Away(run)


def of_a_run() -> bool:
    """Whether this code belongs to a run, or is told to one."""
    return here() is not None


@contextmanager
def beside(boundary: Boundary) -> Generator[None]:
    """Code inside is no part of the run, which is told of its calls; so are threads that it starts, and empty contexts."""
    install()
    there = Surroundings(_Away(boundary), Lane("0", thread=threading.get_ident()), None)
    before = set_home(Home(there))
    token = entered(there)
    try:
        yield
    finally:
        left(token)
        set_home(before)


# --- who opens sessions -----------------------------------------------------------------------------------------------

_opener: ContextVar[Opener | None] = ContextVar("agentloupe_opener", default=None)
_process_opener: list[Opener] = []


def opener() -> Opener | None:
    """Who decides what the start of an agent means here; `None` means: record."""
    return _opener.get() or (_process_opener[-1] if _process_opener else None)


def opening_here() -> bool:
    """Whether who opens sessions was chosen in this very context."""
    return _opener.get() is not None


@contextmanager
def opening_with(chosen: Opener, *, process_wide: bool = False) -> Generator[None]:
    """Agents that start inside are opened by `chosen`; process-wide for a child that replays or forks a script."""
    if process_wide:
        _process_opener.append(chosen)
        try:
            yield
        finally:
            _process_opener.remove(chosen)
        return
    token = _opener.set(chosen)
    try:
        yield
    finally:
        _opener.reset(token)


# --- the two drivers --------------------------------------------------------------------------------------------------
#
# They do the waiting, boundaries are quick. An outcome is handed over when it is its turn; see `schedule.core`.


@contextmanager
def performed(perform: Perform, kind: Kind = "other") -> Generator[None]:
    """The real thing behind a call is done inside; calls made there are its inner calls. For drivers of calls."""
    token = _begin(perform, kind)
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


def _begin(perform: Perform, kind: Kind) -> Token[Surroundings | None]:
    """Calls made while a call is performed are its inner calls, in a lane of their own below it, until it is reset."""
    there = here()
    if there is None:
        return entered(None)
    inner = kind != "agent" or there.inner  # a nested agent is run again, call by call
    at = perform.token
    if isinstance(at, _HasPlace):
        lane = Lane(f"{at.place.call_id}~", at.inner_calls, thread=threading.get_ident())
        return entered(Surroundings(there.boundary, lane, at.place.span_id, perform, inner, there.home))
    return entered(Surroundings(there.boundary, there.lane, there.span_id, perform, inner, there.home))


def waits(request: Call) -> Schedule | None:
    """The schedule whose turns this call takes, if any. Plain reads and the program's own work take none."""
    if request.kind in NO_TURN or "unseen" in request.attrs:
        return None
    there = here()
    return there.schedule if there is not None else None


def _regain(boundary: Boundary) -> None:
    """A thread that others were let past waits until it is its turn again."""
    schedule: Schedule | None = getattr(boundary, "schedule", None)
    if schedule is not None and schedule.baton and (there := here()) is not None and not there.inner:
        schedule.regain_here()


def _given(answer: Serve) -> Any:
    if answer.handed is not None:
        answer.handed(False)
    if answer.error is not None:
        raise answer.error
    return answer.value


class End:
    """The end of a call that was performed: told to the boundary when it is its turn. For drivers of calls.

    The outcome of a write is told at once, so that it is durable; if others were handed over meanwhile, its turn is
    told apart.
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
        if self.error is not None:
            self.boundary.failed(self.perform, self.error)
        else:
            self.value = self.boundary.finished(self.perform, self.value)

    def turn(self) -> None:
        """Waits in a thread."""
        schedule, call_id = cast("Schedule", self.schedule), cast("str", self.call_id)
        if self.request.effect == "write" and schedule.contended:
            before = schedule.handed
            self.tell()
            schedule.turn(call_id)
            self._overtaken(before)
            return
        try:
            schedule.turn(call_id)
        finally:
            self.tell()

    async def aturn(self, cancels: int) -> None:
        """Waits in a task. Raises `CancelledError` when the program cancels it there: then its outcome is lost."""
        schedule, call_id = cast("Schedule", self.schedule), cast("str", self.call_id)
        if cancels:
            self.perform.facts["cancels"] = cancels
        cancelled = bool(cancels) or (self.error is not None and not isinstance(self.error, Exception))
        before = schedule.handed
        early = self.request.effect == "write"
        if early:
            self.tell()
        try:
            lost = await aturn(schedule, call_id, cancelled=cancelled)
        finally:
            if not early:
                self.tell()
        if lost is not None:
            schedule.log("task.cancelled", call_id.rpartition(".")[0], {"call": call_id})
            raise lost
        if early:
            self._overtaken(before)

    def _overtaken(self, before: int) -> None:
        schedule, call_id = cast("Schedule", self.schedule), cast("str", self.call_id)
        if schedule.handed - before > 1:
            schedule.log("schedule.marked", call_id.rpartition(".")[0], {"turn": call_id})


def call(request: Call, perform: Callable[[], T]) -> T:
    """Sends one call through the current boundary, or straight to the world where there is none."""
    boundary = current()
    if boundary is None:
        return perform()
    _regain(boundary)
    decision = boundary.decide(request)
    schedule = waits(request)
    if isinstance(decision, Serve):
        return cast("T", served(decision, schedule))
    return cast("T", in_turn(End(boundary, request, decision, schedule), perform))


async def acall(request: Call, perform: Callable[[], Awaitable[T]]) -> T:
    """Async twin of `call`."""
    boundary = current()
    if boundary is None:
        return await perform()
    decision = boundary.decide(request)
    schedule = waits(request)
    if isinstance(decision, Serve):
        return cast("T", await aserved(decision, schedule))
    return cast("T", await ain_turn(End(boundary, request, decision, schedule), perform))


def in_turn(end: End, perform: Callable[[], object]) -> object:
    """Performs a call and hands its end over in its turn; returns what the boundary made of it. For drivers of calls."""
    if end.schedule is not None:
        end.schedule.away()
    token = _begin(end.perform, end.request.kind)
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
        raise
    if end.waits:
        end.turn()
    else:
        end.tell()
    return end.value


async def ain_turn(end: End, perform: Callable[[], Awaitable[object]]) -> object:
    """Async twin of `in_turn`."""
    cancels = _hooks().Cancels() if end.waits else None
    token = _begin(end.perform, end.request.kind)
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
    return _hooks().Cancels()


async def aturn(schedule: Schedule, id: str, *, cancelled: bool) -> BaseException | None:
    """Waits for the turn of an input in a task; see `schedule.turns.turn`. For drivers of calls."""
    return await _hooks().turn(schedule, id, cancelled=cancelled)


# --- the caller's line ------------------------------------------------------------------------------------------------

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass(frozen=True, slots=True)
class Caller:
    """A line of the user's code."""

    file: str
    line: int
    function: str = field(default="")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def is_users(file: str) -> bool:
    """Whether a source file is the user's own: neither Loupe's nor an installed library's."""
    foreign = file.startswith((_OWN, "<")) or "site-packages" in file or f"{os.sep}lib{os.sep}python" in file
    return not foreign


def caller() -> Caller | None:
    """The innermost frame that is neither Loupe's nor an installed library's: the user's line that made the call."""
    frame = inspect.currentframe()
    fallback: Caller | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and not file.startswith("<"):
            found = Caller(file, frame.f_lineno, frame.f_code.co_qualname)
            if is_users(file):
                return found
            fallback = fallback or found
        frame = frame.f_back
    return fallback
