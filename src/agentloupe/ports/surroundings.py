"""Where code stands: the run it belongs to, its lane, the span and the call around it.

A context variable carries this along. Two things win over it, since contexts travel: in a task what the task was made with
(`create_task(..., context=...)` may bring any context), and in a thread what the thread was started with (`to_thread`
brings the context of its caller).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar, Token
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from agentloupe.ports.schedule.lanes import Lane
from agentloupe.words.call import Call
from agentloupe.words.jsontext import Json
from agentloupe.words.prompts import PROMPT

if TYPE_CHECKING:
    from agentloupe.ports.protocols import Boundary, Perform
    from agentloupe.ports.schedule.core import Schedule

__all__ = [
    "Home",
    "Surroundings",
    "deeper",
    "enter_prompt",
    "entered",
    "here",
    "hook",
    "leave_prompt",
    "left",
    "of_context",
    "replaced",
    "set_home",
    "with_prompt",
]


class Home:
    """A task or a thread that a run has made, with the surroundings that it was made with.

    Those know it by `number`: if they held it, the circle would keep what they hold (a call, its response) until garbage is
    collected.
    """

    __slots__ = ("number", "prompt", "root")

    def __init__(self, root: Surroundings) -> None:
        self.number = next(_numbers)
        self.prompt = _prompt_here()
        root.home = self.number
        self.root = root


@dataclass(slots=True, eq=False)
class Surroundings:
    """What code knows of where it stands.

    Attributes:
        boundary: of the run; `None` for code that was put outside of any.
        lane: the path that counts its calls.
        span_id: the span around it.
        performing: the call that is being performed around it.
        inner: whether it is done on behalf of a call that a replay serves whole: nothing in here is asked for again, it
            has no lane of its own, and the schedule does not wait for it.
        home: number of the task or thread in which these surroundings hold; `None` where the run did not make it.
    """

    boundary: Boundary | None
    lane: Lane
    span_id: str | None
    performing: Perform | None = None
    inner: bool = False
    home: int | None = None

    @property
    def schedule(self) -> Schedule | None:
        """The schedule that this code keeps to; `None` where there is none, and on behalf of a call."""
        return None if self.inner else getattr(self.boundary, "schedule", None)

    def child(self, tag: str, *, thread: int | None = None) -> Home:
        """The home of a task, a work item or a thread that this code makes."""
        return self.at(self.lane.child(tag, thread=thread))

    def at(self, lane: Lane) -> Home:
        """The same on a lane of its own."""
        return Home(Surroundings(self.boundary, lane, self.span_id, self.performing, self.inner))


_numbers: Final = count()
_current: Final[ContextVar[Surroundings | None]] = ContextVar("agentloupe", default=None)


_prompt: Final[ContextVar[_Prompt | None]] = ContextVar("agentloupe_prompt", default=None)


class _Threads(threading.local):
    home: Home | None = None


_threads = _Threads()


def _thread_home() -> Home | None:
    return _threads.home


_home_here: list[Callable[[], Home | None]] = [_thread_home]


def hook(home_here: Callable[[], Home | None]) -> None:
    """From now on `home_here` tells which home the running code is in (it knows tasks as well as threads)."""
    _home_here[0] = home_here


def set_home(home: Home | None) -> Home | None:
    """This thread is that one's from now on; returns what it was before."""
    before = _threads.home
    _threads.home = home
    return before


def thread_home() -> Home | None:
    """What this thread was started with."""
    return _threads.home


def here() -> Surroundings | None:
    """Where the running code stands; `None` outside of any run."""
    found = _current.get()
    home = _home_here[0]()
    if home is not None and (found is None or _at_home_elsewhere(found, home)):
        found = home.root
    return found if found is not None and found.boundary is not None else None


def of_context(context: Context, home: Home | None) -> Surroundings | None:
    """Where code will stand that runs in a context, in a task or thread of that home; with a boundary of `None` outside."""
    found = context.get(_current)
    return home.root if home is not None and (found is None or _at_home_elsewhere(found, home)) else found


def _at_home_elsewhere(found: Surroundings, home: Home) -> bool:
    """Whether a context has come from another task or thread of the same run. One of another run says whose work is done."""
    return found.home != home.number and found.boundary is home.root.boundary


def entered(there: Surroundings | None) -> Token[Surroundings | None]:
    """Code stands there until `left`. What does not come from elsewhere is at home where the running code is."""
    if there is not None and there.home is None:
        home = _home_here[0]()
        there.home = None if home is None else home.number
    return _current.set(there)


def deeper(there: Surroundings | None) -> Token[Surroundings | None]:
    """`entered`, for what was made from where the code stands (`here`) and so is at home as that is."""
    return _current.set(there)


def left(token: Token[Surroundings | None]) -> None:
    """Back to where it was. Code that is closed from elsewhere (a task nobody waits for) takes its context with it."""
    try:  # noqa: SIM105  # at every call: `suppress` takes as long as the reset itself
        _current.reset(token)
    except ValueError:
        pass


# --- prompt templates -------------------------------------------------------------------------------------------------


class _Prompt(NamedTuple):
    """What was said of the template, inside of what else."""

    said: Mapping[str, Json]
    outer: _Prompt | None


def _prompt_here() -> _Prompt | None:
    """The innermost one; a thread that was begun inside of one has no context of its maker's."""
    found = _prompt.get()
    if found is not None:
        return found
    home = _home_here[0]()
    return None if home is None else home.prompt


def enter_prompt(said: Mapping[str, Json]) -> None:
    """Model calls are made from this template until `leave_prompt`."""
    _prompt.set(_Prompt(said, _prompt.get()))


def leave_prompt() -> None:
    """Back to the template around it. No token is kept, so that one object may be entered again inside, and beside, itself."""
    innermost = _prompt.get()
    _prompt.set(None if innermost is None else innermost.outer)


def with_prompt(request: Call) -> Call:
    """A call to a model with the template that it is made from, where one was said."""
    found = _prompt_here() if request.kind == "llm" else None
    return request if found is None else replace(request, attrs={**request.attrs, PROMPT: dict(found.said)})


@contextmanager
def replaced(there: Surroundings | None) -> Generator[None]:
    """Contexts that are copied inside begin there; for code that makes tasks and callbacks on behalf of others."""
    token = _current.set(there)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def outside() -> Generator[None]:
    """Code inside belongs to no run."""
    token = entered(Surroundings(None, Lane(""), None))
    try:
        yield
    finally:
        _current.reset(token)
