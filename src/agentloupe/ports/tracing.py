"""The trace that this code was called in from outside, and the one that it passes on. See `words.trace` for the headers."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agentloupe.ports.surroundings import here
from agentloupe.words.trace import TraceContext, read_trace

__all__ = ["arrived", "arrived_at_process", "arriving", "of_environment", "passed_on", "trace_here"]

_arrived: ContextVar[TraceContext | None] = ContextVar("agentloupe_trace", default=None)
_process: list[TraceContext] = []


def of_environment(variables: Mapping[str, str]) -> TraceContext | None:
    """What the variables `TRACEPARENT` and `TRACESTATE` tell."""
    return read_trace(variables.get("TRACEPARENT"), variables.get("TRACESTATE"))


@contextmanager
def arriving(context: TraceContext | None) -> Generator[None]:
    """Runs that begin inside belong to this trace; with `None` nothing changes."""
    token = _arrived.set(context or _arrived.get())
    try:
        yield
    finally:
        _arrived.reset(token)


def arrived_at_process(context: TraceContext | None) -> None:
    """Runs of this process belong to this trace, where nothing nearer says otherwise."""
    _process[:] = [context] if context is not None else []


def arrived() -> TraceContext | None:
    """The trace that a run which begins here belongs to.

    What was said for this code (`arriving`), else the current span of OpenTelemetry where the program uses its API, else
    what was said for the process.
    """
    return _arrived.get() or _of_opentelemetry() or (_process[0] if _process else None)


def _of_opentelemetry() -> TraceContext | None:
    """The current span of OpenTelemetry; never imports it, since a program without it loaded has no span."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    try:
        span = api.get_current_span().get_span_context()
        parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
        return read_trace(parent, span.trace_state.to_header())
    except Exception:  # noqa: BLE001  # another program's API: a run without its trace is still a run
        return None


def trace_here() -> TraceContext | None:
    """The trace of the run that this code belongs to, at the span around it; `None` outside of any run."""
    there = here()
    if there is None:
        return None
    root: TraceContext | None = getattr(there.boundary, "trace", None)
    return root if root is None or there.span_id is None else root.at(there.span_id)


def passed_on() -> Mapping[str, str]:
    """The headers to send with a request to a model: none unless the run's settings say so."""
    there = here()
    if there is None or not getattr(there.boundary, "passes_trace_on", False):
        return {}
    found = trace_here()
    return {} if found is None else found.headers
