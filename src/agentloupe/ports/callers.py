"""The user's line that made a call."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from types import CodeType

from agentloupe.ports.surroundings import Home, here

__all__ = ["HARMLESS", "Caller", "asker", "caller", "is_own", "is_users", "made_here"]

_STDLIB = os.path.dirname(os.__file__)
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

HARMLESS = frozenset(os.path.join(_STDLIB, *parts) for parts in (("platform.py",), ("uuid.py",), ("ctypes", "util.py")))
"""Parts of the standard library that ask small system programs about the machine, and can do without an answer."""
_PASSED_THROUGH = frozenset(
    {
        *(os.path.join(_STDLIB, name) for name in ("subprocess.py", "os.py")),
        *(
            os.path.join(_OWN, *parts)
            for parts in (("ports", "callers.py"), ("ports", "schedule", "forks.py"), ("engine", "guard.py"))
        ),
    }
)
_STEPS = os.path.join("asyncio", "events.py")


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
    """The innermost frame that is neither Loupe's nor an installed library's: the user's line that made the call.

    A call that is handed to a task, a thread or a pool has none: then the line that did so, where a replay has seen that.
    """
    frame = inspect.currentframe()
    there = here()
    maker = there.lane.made_at if there is not None else None
    fallback: Caller | None = None
    while frame is not None and not (maker is not None and _begins_a_step(frame.f_code)):
        file = frame.f_code.co_filename
        if not file.startswith(_OWN) and not file.startswith("<"):
            found = Caller(file, frame.f_lineno, frame.f_code.co_qualname)
            if is_users(file):
                return found
            fallback = fallback or found
        frame = frame.f_back
    return maker if isinstance(maker, Caller) else fallback


def _begins_a_step(code: CodeType) -> bool:
    """Below this frame is the loop, and what runs it; the task was made elsewhere."""
    return code.co_name == "_run" and code.co_filename.endswith(_STEPS)


def asker() -> str:
    """The file whose code asks for a process: not the standard library's that starts it, nor a hook of Loupe's."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename in _PASSED_THROUGH:
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def is_own(file: str) -> bool:
    """Whether a source file is Loupe's."""
    return file.startswith(_OWN)


def made_here(home: Home) -> Home:
    """A task, a thread or a work item that is made by the running code: a replay, which names lines, remembers where."""
    schedule = home.root.schedule
    if schedule is not None and schedule.follows:
        home.root.lane.made_at = caller()
    return home
