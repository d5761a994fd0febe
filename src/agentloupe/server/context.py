"""What routes need: the store with what was read of it, the settings, and what was found out since the server began."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi import Path as Path_

from agentloupe.engine.compare import Comparison
from agentloupe.ports.jobs import Jobs
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings
from agentloupe.server.eventtypes import TypesReader
from agentloupe.server.kept import Kept
from agentloupe.server.metrics import Metrics
from agentloupe.server.reading import Reader
from agentloupe.words.trace import TRACEPARENT, TRACESTATE, TraceContext, read_trace

__all__ = ["CalledFrom", "Context", "First", "Here", "Idx", "RunId"]

_VERDICTS = 10_000
_ROWS = 100_000


@dataclass(slots=True)
class Context:
    """One server.

    Attributes:
        store, reader: where runs are.
        types: which types their events have.
        settings: of the project.
        page: the folder of the built page, if there is one.
        verdicts: of runs that were verified: the document of what was found.
        comparisons: the last ones, by both ids.
        looked_at: of recent runs: whether they have a snapshot, and effects without an outcome.
        metrics: of requests and appends.
        jobs: the table of jobs, where the store has one.
        closing: set when the server is told to stop.
    """

    store: Store
    settings: Settings
    page: Path | None = None
    reader: Reader = field(init=False)
    types: TypesReader = field(init=False)
    verdicts: Kept[Mapping[str, Any]] = field(default_factory=lambda: Kept[Mapping[str, Any]](_VERDICTS))
    comparisons: Kept[Comparison] = field(default_factory=lambda: Kept[Comparison](_ROWS))
    looked_at: Kept[tuple[bool, int]] = field(default_factory=lambda: Kept[tuple[bool, int]](_VERDICTS))
    metrics: Metrics = field(default_factory=Metrics)
    jobs: Jobs | None = None
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.reader = Reader(self.store)
        self.types = TypesReader(self.store)
        if self.jobs is None:
            self.jobs = getattr(self.store, "jobs", None)


def _called_from(request: Request) -> TraceContext | None:
    """What the headers `traceparent` and `tracestate` tell; of several of the first kind none counts."""
    parents = request.headers.getlist(TRACEPARENT)
    return read_trace(parents[0], ",".join(request.headers.getlist(TRACESTATE))) if len(parents) == 1 else None


CalledFrom = Annotated[TraceContext | None, Depends(_called_from)]
"""The place in a trace that a request comes from, as a parameter of a route."""


def _context(request: Request) -> Context:
    return request.app.state.context


Here = Annotated[Context, Depends(_context)]
"""The server, as a parameter of a route."""

RunId = Annotated[str, Path_(max_length=500, description="Exact id of a run.", examples=["weather-260401-k7m2qa"])]
First = Annotated[int, Query(ge=0, le=2**31 - 1, description="Number of the first item, from 0.")]
Idx = Annotated[int, Path_(ge=0, le=2**31 - 1, description="Index of a step.", examples=[3])]
