"""Cancel scopes of anyio: they cancel what is inside of them again in every pass of the loop, until all of it has ended.

What is inside they keep in sets of objects, whose order is that of addresses: in runs it is the order in which it came in.
"""

from __future__ import annotations

import importlib
import math
import sys
from asyncio import events
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from agentloupe.ports.surroundings import here

__all__ = ["cancels_again", "cancels_several", "keep_their_order", "of_a_scope"]

_MODULE: Final = "anyio._backends._asyncio"
_kept: Final[list[type]] = []


class _InOrder:
    """What a scope asks of a set, in the order in which things came in."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Any, None] = {}

    def add(self, item: Any) -> None:
        """As of a set."""
        self._held[item] = None

    def discard(self, item: Any) -> None:
        """As of a set."""
        self._held.pop(item, None)

    def remove(self, item: Any) -> None:
        """As of a set."""
        del self._held[item]

    def __contains__(self, item: object) -> bool:
        return item in self._held

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def keep_their_order() -> None:
    """Scopes that are made from here on cancel in one order, and have their turns. Does nothing where anyio is not loaded, or has another shape."""
    if _kept or "anyio" not in sys.modules:
        return
    with suppress(Exception):
        scope: Any = importlib.import_module(_MODULE).CancelScope
        plain = scope.__init__
        known = {"_tasks", "_child_scopes"} <= {*plain.__code__.co_names}
        if not (known and {"_timeout_handle", "_deadline", "call_at"} <= {*scope._timeout.__code__.co_names}):
            return

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            plain(self, *args, **kwargs)
            if not self._tasks and not self._child_scopes:
                self._tasks, self._child_scopes = _InOrder(), _InOrder()

        scope.__init__ = init
        scope._timeout = _with_its_turn(scope._timeout)
        _kept.append(scope)


def _with_its_turn(plain: Callable[[Any], None]) -> Callable[[Any], None]:
    """`CancelScope._timeout`: a deadline that is over when it is set fires without a timer, which the tape has to tell."""
    from agentloupe.ports.schedule.gate import gate_of

    why = [said for said in cast("Any", plain).__code__.co_consts if said == "deadline exceeded"]  # none in older ones

    def timeout(self: Any) -> None:
        there = here()
        schedule = there.schedule if there is not None else None
        idle = schedule is None or schedule.closed or schedule.halted
        if there is None or schedule is None or idle or self._deadline == math.inf:
            return plain(self)
        loop = events.get_running_loop()
        if gate_of(loop, schedule) is None:
            return plain(self)
        if self._timeout_handle is not None or schedule.over(there.lane, loop.time() >= self._deadline):
            self.cancel(*why)  # its timer has its turn now, or there was nothing to wait for
        else:
            self._timeout_handle = loop.call_at(self._deadline, self._timeout)
        return None

    return timeout


def cancels_again(handle: Any) -> bool:
    """Whether a handle of a loop is such a scope at work."""
    callback = handle._callback
    if getattr(callback, "__name__", None) != "_deliver_cancellation":
        return False
    return type(getattr(callback, "__self__", None)).__module__ == _MODULE


def cancels_several(ready: Iterable[Any]) -> bool:
    """Whether such a scope is at work among the handles of a loop, with more than one task inside."""
    return any(_tasks(handle._callback.__self__) > 1 for handle in list(ready) if cancels_again(handle))


def _tasks(scope: Any) -> int:
    return len(scope._tasks) + sum(map(_tasks, scope._child_scopes))


def of_a_scope(error: BaseException) -> bool:
    """Whether such a scope has cancelled."""
    return bool(error.args) and str(error.args[0]).startswith("Cancelled via cancel scope ")
