"""Where code stands: the current boundary, the logical place of the next call, and code that is no part of its run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Self, cast

from agentloupe.ports.ids import new_span_id
from agentloupe.ports.protocols import Boundary, Perform
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.schedule.forks import watch
from agentloupe.ports.schedule.lanes import Lane
from agentloupe.ports.surroundings import Home, Surroundings, entered, here, left, set_home
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json

__all__ = [
    "Lane",
    "Place",
    "away",
    "beside",
    "catching_strays",
    "current",
    "hooks",
    "in_run",
    "inside",
    "install",
    "note",
    "of_a_run",
    "performing",
    "place",
    "ran_off",
    "span",
]


class _Place(NamedTuple):
    lane: str
    n: int
    span_id: str
    parent_span_id: str | None
    cause: int | None
    call_id: str


class Place(_Place):
    """Where a call stands: fixed when the call is made, before anything is awaited.

    `cause`: number of the event that brought the call about (the answer that asked for a tool), where that is known.
    `call_id`: unique in its run, the lane and the number of the call in it; asked for some ten times a call, so it is kept.
    """

    __slots__ = ()

    def __new__(cls, lane: str, n: int, span_id: str, parent_span_id: str | None, cause: int | None = None) -> Self:
        """With `call_id` made of the lane and the number."""
        return _Place.__new__(cls, lane, n, span_id, parent_span_id, cause, f"{lane}.{n}")


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
        hooks().begin(schedule, lane)
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

    hooked: bool = hooks().install()
    threads.install()
    return hooked


@functools.cache
def hooks() -> Any:
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
