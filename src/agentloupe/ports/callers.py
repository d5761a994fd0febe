"""The user's line that made a call."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field

__all__ = ["Caller", "caller", "is_users"]

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
