"""What surrounds a call, under one name: place, drivers, the caller's line, time and ids; and who opens sessions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from agentloupe.ports.callers import Caller, caller, is_users
from agentloupe.ports.drivers import (
    End,
    HasPlace,
    acall,
    ain_turn,
    apiece,
    aserved,
    aturn,
    call,
    cancels,
    in_turn,
    performed,
    served,
    until_cancelled,
    waits,
)
from agentloupe.ports.ids import (
    monotonic_ms,
    new_event_id,
    new_run_id,
    new_span_id,
    new_trace_id,
    now,
    random_base32,
    random_hex,
)
from agentloupe.ports.places import (
    Lane,
    Place,
    away,
    beside,
    catching_strays,
    current,
    in_run,
    inside,
    install,
    note,
    of_a_run,
    performing,
    place,
    ran_off,
    span,
)
from agentloupe.ports.protocols import Opener
from agentloupe.ports.surroundings import outside
from agentloupe.ports.tracing import arrived, arrived_at_process, arriving, passed_on, trace_here

__all__ = [
    "Caller",
    "End",
    "HasPlace",
    "Lane",
    "Place",
    "acall",
    "ain_turn",
    "apiece",
    "arrived",
    "arrived_at_process",
    "arriving",
    "aserved",
    "aturn",
    "away",
    "beside",
    "call",
    "caller",
    "cancels",
    "catching_strays",
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
    "passed_on",
    "performed",
    "performing",
    "place",
    "ran_off",
    "random_base32",
    "random_hex",
    "served",
    "span",
    "trace_here",
    "until_cancelled",
    "waits",
]

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
