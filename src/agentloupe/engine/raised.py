"""What an exception says of the call that it ended."""

from __future__ import annotations

from typing import cast

from agentloupe.words.call import OutcomeStatus
from agentloupe.words.effects import OutcomeUnknown
from agentloupe.words.errors import Cancelled

__all__ = ["error_name", "says_nothing", "status_of"]


def error_name(error: BaseException) -> str:
    """The class of an exception as headers name it: bare for built-in ones, else with its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def status_of(error: BaseException) -> OutcomeStatus:
    """`cancelled` for what stops code from outside (Ctrl-C, a cancelled task or fork, a closed generator), else `error`."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit | Cancelled):
        return "cancelled"
    return "cancelled" if type(error).__name__ == "CancelledError" and not isinstance(error, Exception) else "error"


def says_nothing(error: BaseException) -> bool:
    """Whether what a writing tool raised leaves open what happened: it was stopped in the middle, or ran out of time.

    What is no `Exception` is not for the tool to answer with: it stops programs from outside, whoever defined it.

    A timeout of any library is known by its class's name; taking one too many for unknown costs a question, one too few an
    effect done twice. So a group of errors (of a `TaskGroup`) leaves it open when one of them does.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(map(says_nothing, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    if not isinstance(error, Exception) or status_of(error) == "cancelled" or isinstance(error, OutcomeUnknown):
        return True
    names = [kind.__name__ for kind in type(error).__mro__]
    return "CancelledError" in names or any("Timeout" in name for name in names)
