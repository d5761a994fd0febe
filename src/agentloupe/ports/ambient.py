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
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from agentloupe.ports.protocols import Boundary, Opener, Perform, Serve
from agentloupe.words.call import Call, Kind
from agentloupe.words.canonical import Json

__all__ = [
    "Lane",
    "Place",
    "acall",
    "away",
    "belonging_to",
    "call",
    "caller",
    "current",
    "in_run",
    "inside",
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
    "span",
]

T = TypeVar("T")

# --- time and ids -----------------------------------------------------------------------------------------------------


def now() -> str:
    """The time: UTC, ISO 8601 with microseconds and `Z`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


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
    chance = int.from_bytes(_pool.take(10), "big")
    value = (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | (chance >> 68) << 64 | 0x2 << 62 | chance & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


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


@dataclass(slots=True)
class Lane:
    """The logical path of the task or thread that makes calls; counts them from 0."""

    path: str
    calls: int = 0


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


@dataclass(slots=True)
class Surroundings:
    """What the current context knows: the boundary, the lane, the span around it, the call being performed.

    `inner`: inside a call that a replay serves whole, so that nothing in here is asked for again.
    """

    boundary: Boundary
    lane: Lane
    span_id: str | None
    performing: Perform | None = None
    inner: bool = False


_surroundings: ContextVar[Surroundings | None] = ContextVar("agentloupe", default=None)


_strays: list[Boundary] = []


def current() -> Boundary | None:
    """The boundary of the run that this code belongs to, if any; while `catching_strays`, never nothing."""
    here = _surroundings.get()
    if here is not None:
        return here.boundary
    return _strays[-1] if _strays else _away()


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
    here = _surroundings.get()
    return here is not None and not getattr(here.boundary, "implicit", False)


@contextmanager
def inside(boundary: Boundary, *, lane: Lane | None = None, span_id: str | None = None) -> Generator[None]:
    """Makes `boundary` the current one."""
    _follow_threads()
    token = _surroundings.set(Surroundings(boundary, lane or Lane("0"), span_id))
    try:
        yield
    finally:
        _surroundings.reset(token)


@contextmanager
def span(span_id: str) -> Generator[None]:
    """Calls made inside belong to this span (a nested agent)."""
    here = _surroundings.get()
    if here is None:
        yield
        return
    token = _surroundings.set(Surroundings(here.boundary, here.lane, span_id, here.performing, here.inner))
    try:
        yield
    finally:
        _surroundings.reset(token)


def place() -> Place:
    """The place of the next call of this lane. Boundaries ask once per `decide`."""
    here = _surroundings.get()
    if here is None:
        raise RuntimeError("no boundary here")
    n = here.lane.calls
    here.lane.calls = n + 1
    return Place(here.lane.path, n, new_span_id(), here.span_id)


def note(name: str, value: Json) -> None:
    """Adds a structural fact to the call being performed: lists grow by `value`, anything else is replaced.

    Names that end in `[]` are lists (`tries[]`). Does nothing outside a call.
    """
    here = _surroundings.get()
    if here is None or here.performing is None:
        return
    facts = here.performing.facts
    if name.endswith("[]"):
        grown = facts.setdefault(name[:-2], [])
        cast("list[Json]", grown).append(value)
    else:
        facts[name] = value


def performing() -> Perform | None:
    """The call being performed around this code, with its facts; `None` outside of one."""
    here = _surroundings.get()
    return here.performing if here else None


@contextmanager
def outside() -> Generator[None]:
    """Code inside belongs to no run."""
    token = _surroundings.set(None)
    try:
        yield
    finally:
        _surroundings.reset(token)


# --- code that left its run behind --------------------------------------------------------------------------------------
#
# A thread that a run starts, and work that it hands to a pool, do not have the run's context. Nothing they do can be put
# into the order of the run's calls; but it must not go unnoticed: a recording says that it lacks them, a fork refuses.

_MARK = "_agentloupe_run"
_following: list[bool] = []


class _Away:
    """The boundary of such code: its calls are told to the run, which may refuse them, and are performed as they are."""

    implicit = True

    def __init__(self, run: Boundary, inner: bool) -> None:
        self.run = run
        self.inner = inner

    def decide(self, call: Call) -> Perform:
        """Tells the run of the call."""
        _tell(self.run, f"{call.kind} {call.name}", self.inner)
        return Perform()

    def finished(self, perform: Perform, value: object) -> object:
        """The value."""
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Nothing to do."""


def _tell(run: Boundary, what: str, inner: bool) -> None:
    tell = getattr(run, "ran_off", None)
    if tell is not None:
        tell(what, inner)


def _away() -> _Away | None:
    """The boundary of code that a run started without its context, while that run is there."""
    marked = threading.current_thread().__dict__.get(_MARK)
    if marked is None:
        return None
    reference, inner = marked
    run: Boundary | None = reference()
    return None if run is None else _Away(run, inner)


def _mark(run: Boundary, inner: bool) -> tuple[Callable[[], Boundary | None], bool]:
    """Threads may live long: they do not keep a recorder alive. What must stop them, a fork or a replay, they keep."""
    return (weakref.ref(run) if getattr(run, "forgettable", False) else lambda: run), inner


def _origin() -> tuple[Boundary, bool] | None:
    """The run that this code belongs to or comes from, and whether it does so from inside of a call."""
    here = _surroundings.get()
    run = _away() if here is None else here.boundary
    if isinstance(run, _Away):
        return run.run, run.inner
    return None if run is None else (run, here is not None and here.inner)


def ran_off(what: str) -> None:
    """Tells the run that this code belongs to or comes from, if any, of something that will be no part of it."""
    found = _origin()
    if found is not None and (_surroundings.get() is None or in_run()):
        _tell(found[0], what, found[1])


def away(run: Boundary) -> Boundary:
    """The boundary of code that left this run behind."""
    return _Away(run, inner=False)


def of_a_run() -> bool:
    """Whether this code belongs to a run, or comes from one."""
    return _origin() is not None


@contextmanager
def belonging_to(boundary: Boundary, *, inner: bool = False) -> Generator[None]:
    """Whatever this thread does inside without a context belongs to that run."""
    _follow_threads()
    marks = threading.current_thread().__dict__
    before = marks.get(_MARK)
    marks[_MARK] = _mark(boundary, inner)
    try:
        yield
    finally:
        if before is None:
            marks.pop(_MARK, None)
        else:
            marks[_MARK] = before


def _follow_threads() -> None:
    """From the first run on, new threads and work items are marked with the run that they come from."""
    if _following:
        return
    _following.append(True)
    from concurrent.futures import ThreadPoolExecutor

    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    @functools.wraps(start)
    def started(self: threading.Thread) -> None:
        found = _origin()
        # A pool's worker outlives the run that happened to need it first: there each work item is marked.
        pooled = getattr(getattr(self, "_target", None), "__module__", "") == "concurrent.futures.thread"
        if found is not None and not pooled:
            self.__dict__[_MARK] = _mark(*found)
        start(self)

    @functools.wraps(submit)
    def submitted(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        found = _origin()
        return submit(self, fn if found is None else _item(fn, *found), *args, **kwargs)

    threading.Thread.start = started
    ThreadPoolExecutor.submit = submitted


def _item(work: Callable[..., Any], run: Boundary, inner: bool) -> Callable[..., Any]:
    """Work for a pool, marked with the run that it comes from."""

    def marked(*args: Any, **kwargs: Any) -> Any:
        with belonging_to(run, inner=inner):
            return work(*args, **kwargs)

    return marked


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


def _begin(boundary: Boundary, perform: Perform, kind: Kind) -> Token[Surroundings | None]:
    """Calls made while a call is performed are its inner calls, in a lane of their own below it, until it is reset."""
    here = _surroundings.get()
    inner = kind != "agent" or (here is not None and here.inner)  # a nested agent is run again, call by call
    return _surroundings.set(_inner(boundary, perform, here, inner))


@contextmanager
def performed(boundary: Boundary, perform: Perform, kind: Kind) -> Generator[None]:
    """The real thing behind a call is done inside; calls made there are its inner calls. For drivers of calls."""
    token = _begin(boundary, perform, kind)
    try:
        yield
    finally:
        _surroundings.reset(token)


def _inner(boundary: Boundary, perform: Perform, here: Surroundings | None, inner: bool) -> Surroundings:
    at = perform.token
    if isinstance(at, _HasPlace):
        return Surroundings(boundary, Lane(f"{at.place.call_id}~"), at.place.span_id, perform, inner)
    lane = here.lane if here else Lane("0")
    return Surroundings(boundary, lane, here.span_id if here else None, perform, inner)


class _HasPlace:
    """Base for a boundary's tokens, so that inner calls find their place."""

    __slots__ = ("place",)
    place: Place


HasPlace = _HasPlace


def call(request: Call, perform: Callable[[], T]) -> T:
    """Sends one call through the current boundary, or straight to the world where there is none."""
    boundary = current()
    if boundary is None:
        return perform()
    turn = boundary.decide(request)
    if isinstance(turn, Serve):
        if turn.error is not None:
            raise turn.error
        return cast("T", turn.value)
    token = _begin(boundary, turn, request.kind)
    try:
        try:
            value = turn.instead() if turn.instead else perform()
        finally:
            _surroundings.reset(token)
    except BaseException as error:
        boundary.failed(turn, error)
        raise
    return cast("T", boundary.finished(turn, value))


async def acall(request: Call, perform: Callable[[], Awaitable[T]]) -> T:
    """Async twin of `call`."""
    boundary = current()
    if boundary is None:
        return await perform()
    turn = boundary.decide(request)
    if isinstance(turn, Serve):
        if turn.error is not None:
            raise turn.error
        return cast("T", turn.value)
    token = _begin(boundary, turn, request.kind)
    try:
        try:
            value = turn.instead() if turn.instead else await perform()
            if inspect.isawaitable(value):
                value = await value
        finally:
            _surroundings.reset(token)
    except BaseException as error:
        boundary.failed(turn, error)
        raise
    return cast("T", boundary.finished(turn, value))


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


def caller() -> Caller | None:
    """The innermost frame that is neither Loupe's nor an installed library's: the user's line that made the call."""
    frame = inspect.currentframe()
    fallback: Caller | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and not file.startswith("<"):
            found = Caller(file, frame.f_lineno, frame.f_code.co_qualname)
            if "site-packages" not in file and f"{os.sep}lib{os.sep}python" not in file:
                return found
            fallback = fallback or found
        frame = frame.f_back
    return fallback
