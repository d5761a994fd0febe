"""Figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from agentloupe.ports.jobs import JOB_STATUSES
from agentloupe.server.context import Context, Here
from agentloupe.server.metrics import Sample, exposition

__all__ = ["router"]

router = APIRouter(tags=["about"])

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_SAID: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The text format of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/metrics", response_class=Response, responses=_SAID)
def metrics(here: Here) -> Response:
    """Counts and times for Prometheus; no bodies, no names of runs."""
    return Response(exposition([*_of_store(here), *here.metrics.samples()]), media_type=_TEXT)


def _of_store(here: Context) -> Iterator[Sample]:
    for coverage, count in here.store.facets("coverage"):
        yield Sample("loupe_runs", count, {"coverage": coverage})
    for status, count in here.store.facets("status"):
        yield Sample("loupe_runs_by_status", count, {"status": status})
    yield Sample("loupe_runs_with_forks", sum(count for _, count in here.store.facets("forked")))
    if here.jobs is not None:
        for status in JOB_STATUSES:
            yield Sample("loupe_jobs", here.jobs.count(status), {"status": status})
        yield Sample("loupe_queue_depth", here.jobs.count("queued"))
    yield Sample("loupe_runs_with_misses", sum(count for _, count in here.store.facets("missed")))
