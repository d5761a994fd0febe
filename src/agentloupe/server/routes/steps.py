"""Headers of a run's steps."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.server.context import First, Here, RunId
from agentloupe.server.documents import page, step_documents
from agentloupe.server.reply import reply
from agentloupe.server.schemas.steps import StepPage
from agentloupe.words.call import Kind
from agentloupe.words.step import Step

__all__ = ["router"]

router = APIRouter(prefix="/api/runs/{run_id}", tags=["steps"])


@router.get("/steps", response_model=StepPage)
def list_steps(
    here: Here,
    run_id: RunId,
    kind: Annotated[Kind | None, Query()] = None,
    errors: Annotated[bool, Query(description="Only steps that failed.")] = False,
    misses: Annotated[bool, Query(description="Only misses.")] = False,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> Response:
    """Headers of steps in order; `first` counts those that match."""
    opened = here.reader.open(run_id)
    found = [step for step in opened.steps if _matches(step, kind, errors=errors, misses=misses)]
    return reply(page(step_documents(opened, found[first : first + limit]), len(found), first))


def _matches(step: Step, kind: Kind | None, *, errors: bool, misses: bool) -> bool:
    if kind is not None and step.kind != kind:
        return False
    if errors and step.error_class is None and step.status in {"ok", "open"}:
        return False
    return not misses or step.source == "miss"
