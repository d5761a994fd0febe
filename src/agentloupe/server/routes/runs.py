"""Runs: lists of them, one of them, its relatives; tags and deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.engine.views.documents import plain
from agentloupe.ports.recording import Recording
from agentloupe.server.context import Context, First, Here, RunId
from agentloupe.server.documents import page, run_document, run_short
from agentloupe.server.jobs import command_for, replay_badge
from agentloupe.server.reply import reply
from agentloupe.server.schemas import runs as schemas
from agentloupe.verbs.choosing import chosen_runs
from agentloupe.verbs.deleting import delete_run
from agentloupe.words.errors import Damaged, VersionUnknown
from agentloupe.words.jsontext import Json
from agentloupe.words.run import Coverage, Run, RunFilter, RunOrder, RunStatus

__all__ = ["router"]

router = APIRouter(prefix="/api/runs", tags=["runs"])

_RELATIVES = 50
_VALUES = 50
_COUNTED = 10_000
"""Runs that are counted one by one; `capped` says where there are more."""
_GENERATIONS = 100

Text = Annotated[str | None, Query(max_length=500)]
Moment = Annotated[str | None, Query(max_length=40, description="ISO 8601; UTC unless it has an offset.")]


@router.get("", response_model=schemas.RunPage)
def list_runs(
    here: Here,
    status: Annotated[RunStatus | None, Query()] = None,
    agent: Text = None,
    tool: Text = None,
    tag: Text = None,
    error: Annotated[str | None, Query(max_length=500, description="Class of an error that happened in it.")] = None,
    task: Text = None,
    trace: Text = None,
    parent: Text = None,
    model: Text = None,
    coverage: Annotated[Coverage | None, Query()] = None,
    misses: Annotated[bool, Query(description="Only forks that had a miss.")] = False,
    forks: Annotated[bool, Query(description="Only runs that forks were made of.")] = False,
    roots: Annotated[bool, Query(description="Only runs that are no forks.")] = False,
    since: Moment = None,
    until: Moment = None,
    q: Annotated[str | None, Query(max_length=500, description="Beginning of an id, or a part of a name.")] = None,
    sort: Annotated[
        RunOrder, Query(description="`family`: each run with the forks of it and of those, the first run first.")
    ] = "newest",
    facets: Annotated[bool, Query(description="With values to filter by.")] = False,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Runs, newest first or by family; every filter that is set must match."""
    wanted = chosen_runs(
        status=status,
        agent=agent,
        tool=tool,
        tag=tag,
        error=error,
        task_id=task,
        trace_id=trace,
        parent_run_id=parent,
        model=model,
        coverage=coverage,
        missed=misses,
        forked=forks,
        roots=roots,
        since=since,
        until=until,
        text=q,
        order=sort,
        offset=first,
        limit=limit,
    )
    found = here.reader.priced(here.store.runs(wanted))
    items = [run_document(here, run) for run in found]
    total = max(here.store.count(wanted, most=_COUNTED), first + len(items))
    capped = total >= _COUNTED and len(items) == limit
    return reply(page(items, total, first, capped=capped, facets=_facets(here) if facets else None))


def _facets(here: Context) -> dict[str, Any]:
    names = {"agents": "agent", "models": "model", "tools": "tool", "tags": "tag", "statuses": "status"}
    return {
        title: [{"value": value, "count": count} for value, count in here.store.facets(name, _VALUES)]
        for title, name in names.items()
    }


@router.get("/{run_id}", response_model=schemas.RunDetail)
def one_run(here: Here, run_id: RunId) -> Response:
    """One run, with where it comes from and what came of it."""
    opened = here.reader.open(run_id)
    run = opened.run
    kept = sum(1 for step in opened.steps if step.source == "recorded")
    first = here.store.events(run_id, limit=1)
    recording = Recording(run_id, tuple(first), here.store.get, f"run {run_id}")
    more = {
        "lineage": _lineage(here, run),
        "snapshot": _told(recording, "snapshot"),
        "snapshot_digest": first[0].bodies.get("snapshot") if first else None,
        "changes": _listed(_told(recording, "overrides")),
        "whole": _totals(run.total_input_tokens, run.total_output_tokens, run.cost),
        "new": _totals(run.new_input_tokens, run.new_output_tokens, run.new_cost),
        "verdict": here.verdicts.get(run_id, (run.events, run.head)),
        "newer": _newer(here, run),
        "kept_steps": kept,
        "worker_command": command_for(here, run),
    }
    document: dict[str, Any] = {**run_document(here, run), **more}
    document["badges"]["replay"] = replay_badge(here, run.id)
    return reply(document)


def _newer(here: Context, run: Run) -> str | None:
    """Why this version cannot read the last event of a run; `None` where it can."""
    try:
        here.store.events(run.id, first=run.events, limit=1)
    except VersionUnknown as newer:
        return newer.message
    except Damaged:
        return None  # it is told by a check
    return None


def _totals(input_tokens: int | None, output_tokens: int | None, cost: object) -> dict[str, Any]:
    return {"input_tokens": input_tokens, "output_tokens": output_tokens, "cost": plain(cost)}


def _told(recording: Recording, name: str) -> Json:
    """A body of the run's first event; `None` where it is not there any more."""
    return recording.body_if_there(recording.events[0].bodies.get(name)) if recording.events else None


def _listed(value: Json) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _lineage(here: Context, run: Run) -> dict[str, Any]:
    ancestors: list[Run] = []
    at = run.parent_run_id
    seen = {run.id}
    while at is not None and at not in seen and len(ancestors) < _GENERATIONS:
        seen.add(at)
        above = here.store.run(at)
        if above is None:
            break
        ancestors.append(above)
        at = above.parent_run_id
    siblings: list[Run] = []
    if run.parent_run_id is not None:
        others = here.store.runs(RunFilter(parent_run_id=run.parent_run_id, limit=1000))
        siblings = [one for one in others if one.id != run.id and one.forked_from_step == run.forked_from_step]
    children = here.store.runs(RunFilter(parent_run_id=run.id, limit=_RELATIVES))
    return {
        "ancestors": [run_short(one) for one in ancestors],
        "children": _relatives(children, here.store.count(RunFilter(parent_run_id=run.id))),
        "siblings": _relatives(siblings, len(siblings)),
    }


def _relatives(runs: Sequence[Run], total: int) -> dict[str, Any]:
    return {"items": [run_short(one) for one in runs[:_RELATIVES]], "total": total}


@router.delete("/{run_id}", status_code=204)
def delete(here: Here, run_id: RunId) -> Response:
    """Deletes what a run said; its events stay as evidence. Forks of it keep what they need."""
    delete_run(here.store, here.reader.run(run_id).id)
    return Response(status_code=204)


@router.post("/{run_id}/tags", response_model=schemas.Run)
def set_tags(here: Here, run_id: RunId, body: schemas.Tags) -> Response:
    """Sets the tags of a run."""
    here.store.tags(here.reader.run(run_id).id, body.tags)
    return reply(run_document(here, here.reader.open(run_id).run))
