"""Figures for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, cast

from fastapi import APIRouter
from starlette.responses import Response

from agentloupe.ports.jobs import JOB_STATUSES
from agentloupe.server.context import Context, Here
from agentloupe.server.metrics import Histogram, Sample, exposition
from agentloupe.words.run import Run, RunFilter

__all__ = ["router"]

router = APIRouter(tags=["about"])

_REPLAYS: Final = 500
_RECENT: Final = 200
_STEPS: Final = 50_000
"""Steps that are looked through for figures of recent runs."""
_POSITIONS: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_SAID: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The text format of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get("/metrics", response_class=Response, responses=_SAID)
def metrics(here: Here) -> Response:
    """Counts and times for Prometheus; no bodies, no names of runs."""
    samples = [*_of_store(here), *_of_replays(here), *_of_recent(here), *here.metrics.samples()]
    return Response(exposition(samples), media_type=_TEXT)


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


def _of_replays(here: Context) -> Iterator[Sample]:
    """What the last replays came to."""
    done = [] if here.jobs is None else here.jobs.jobs("done", kind="replay", limit=_REPLAYS)
    reports = [cast("dict[str, Any]", job.result) for job in done if isinstance(job.result, dict)]
    verdicts = Counter((str(one.get("verdict")), str(one.get("code") or "unknown")) for one in reports)
    for (verdict, code), count in sorted(verdicts.items()):
        yield Sample("loupe_replays", count, {"verdict": verdict, "code": code})
    where = Histogram(_POSITIONS)
    for one in reports:
        if one.get("divergence") and one.get("events"):
            where.add(one["consumed"] / one["events"])
    yield from where.samples("loupe_replay_divergence_position")


def _of_recent(here: Context) -> Iterator[Sample]:
    """Figures of the newest runs, as far as reading them takes no time to speak of."""
    runs: list[Run] = []
    steps = 0
    for run in here.store.runs(RunFilter(limit=_RECENT)):
        steps += run.step_count
        if steps > _STEPS and runs:
            break
        runs.append(run)
    forks = [run for run in runs if run.parent_run_id is not None]
    looked = [_looked_at(here, run) for run in runs]
    known = [run.new_cost for run in here.reader.priced(runs) if run.new_cost is not None]
    yield Sample("loupe_recent_runs", len(runs))
    yield Sample("loupe_recent_runs_without_snapshot", sum(not snapshot for snapshot, _ in looked))
    yield Sample("loupe_recent_effects_without_receipt", sum(unseen for _, unseen in looked))
    yield Sample("loupe_recent_values_dropped", sum(run.values_dropped for run in runs))
    yield Sample("loupe_recent_forks", len(forks))
    yield Sample("loupe_recent_fork_misses", sum(run.counts.miss for run in forks))
    yield Sample("loupe_recent_cost", float(sum(known, Decimal(0))))


def _looked_at(here: Context, run: Run) -> tuple[bool, int]:
    """Whether a run has a snapshot, and how many of its effects began without an outcome that anybody saw."""
    version = (run.events, run.head, run.status)
    kept = here.looked_at.get(run.id, version)
    if kept is not None:
        return kept
    first = here.store.events(run.id, limit=1)
    return here.looked_at.put(run.id, version, (bool(first and first[0].bodies.get("snapshot")), run.open_effects), 1)
