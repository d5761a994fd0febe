"""A run to read: its transcript, its minimap, and what is found in it."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.engine.views.layout import Unit
from agentloupe.engine.views.minimap import columns_of
from agentloupe.engine.views.search import Hit, found_in
from agentloupe.engine.views.transcript import Transcript
from agentloupe.server.asking import nearest_of
from agentloupe.server.context import First, Here, RunId
from agentloupe.server.documents import page
from agentloupe.server.reply import reply
from agentloupe.server.schemas.views import Minimap, Search, TranscriptPage

__all__ = ["router"]

router = APIRouter(prefix="/api/runs/{run_id}", tags=["reading"])

_PATIENCE: Final = 0.4
"""Seconds after which a search answers with what it has."""


@router.get("/transcript", response_model=TranscriptPage)
def transcript(
    here: Here,
    run_id: RunId,
    inside: Annotated[int | None, Query(ge=0, description="The level inside of this step.")] = None,
    fold_kept: Annotated[bool, Query(description="The kept prefix as one card.")] = False,
    around: Annotated[int | None, Query(ge=0, description="A page that has this step; goes over `first`.")] = None,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Cards of one level of a run, in order."""
    opened = here.reader.open(run_id)
    if inside is not None:
        opened.step(inside)
    level, units = opened.layout(inside, fold_kept=fold_kept)
    if around is not None:
        first = max(_card_of(units, around) - limit // 2, 0)
    chosen = list(enumerate(units))[first : first + limit]
    nearest = partial(nearest_of, here, run_id)
    flags = opened.flags_among([unit.steps[0] for _, unit in chosen])
    made = Transcript(opened.bodies(), level, opened.outline, flags, nearest).cards(chosen)
    return reply(page(made, len(units), first))


def _card_of(units: list[Unit], idx: int) -> int:
    """The number of the card that shows a step, or of the last one before it."""
    exact = (at for at, unit in enumerate(units) if unit.card != "question" and any(s.idx == idx for s in unit.steps))
    before = [at for at, unit in enumerate(units) if unit.steps[0].idx <= idx]
    return next(exact, before[-1] if before else 0)


@router.get("/minimap", response_model=Minimap)
def minimap(here: Here, run_id: RunId, columns: Annotated[int, Query(ge=1, le=2000)] = 600) -> Response:
    """The whole run as a few columns; misses, errors, flags and the cut survive any zoom."""
    opened = here.reader.open(run_id)
    forked = opened.run.parent_run_id is not None
    cut = next((s.idx for s in opened.steps if s.source != "recorded" and s.kind != "agent"), None) if forked else None
    found = columns_of(opened.steps, opened.flags(), columns, cut)
    width = -(-len(opened.steps) // columns) if opened.steps else 1
    return reply(
        {"columns": [asdict(column) for column in found], "step_count": len(opened.steps), "width": max(width, 1)}
    )


@router.get("/search", response_model=Search)
def search(
    here: Here,
    run_id: RunId,
    q: Annotated[str, Query(min_length=1, max_length=500)],
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Places where a text stands, from step `first` on; it answers in time, and says where to go on."""
    opened = here.reader.open(run_id)
    until = time.monotonic() + _PATIENCE
    hits: list[Hit] = []
    done = min(first, len(opened.steps))
    for after, found in found_in(opened.bodies(), opened.steps, q, done):
        hits += found
        done = after
        if len(hits) >= limit or time.monotonic() > until:
            break
    of = len(opened.steps)
    more = {"scanned": done, "of": of, "next": done if done < of else None}
    return reply({"items": [asdict(hit) for hit in hits]} | more)
