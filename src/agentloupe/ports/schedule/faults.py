"""A fault of the schedule is not the program's: a recording goes on without one, and says so."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from agentloupe.ports.schedule.core import Schedule

__all__ = ["given_up", "survives"]

Method = TypeVar("Method", bound=Callable[..., Any])

_log = logging.getLogger("agentloupe")


def survives(method: Method) -> Method:
    """A method of a schedule that is asked by the program's own functions: where it fails, the schedule is given up."""

    @functools.wraps(method)
    def survived(self: Schedule, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as fault:
            if not given_up(self, fault):
                raise
            return None

    return cast("Method", survived)


def given_up(schedule: Schedule, fault: Exception) -> bool:
    """Lets go of a run whose inputs come from the world. `False` where an order is to be followed, or the run is stopped."""
    if schedule.follows or schedule.halted:
        return False
    with schedule.lock:  # two threads may meet the same fault at once: it is said once
        first, schedule.failed = not (schedule.closed or schedule.failed), True
    if first:
        with suppress(Exception):
            schedule.mark("guess", {"why": f"the schedule failed ({type(fault).__name__})"})
        _log.warning("the order of what happens is not recorded any more (%s); the agent goes on", type(fault).__name__)
        schedule.close()
    return True
