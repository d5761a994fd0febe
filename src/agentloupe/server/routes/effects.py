"""Effects whose end nobody saw: a list over all runs, those of one run, and a person's word of what became of one."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.server.context import Here, RunId
from agentloupe.server.reply import reply
from agentloupe.server.schemas import effects as schemas
from agentloupe.verbs.effects import OpenEffect, open_effects, settle_effect
from agentloupe.words.errors import UsageError
from agentloupe.words.run import RunFilter

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["effects"])

_COUNTED: Final = 10_000
"""Runs with open effects that are counted one by one."""


@router.get("/effects", response_model=schemas.OpenEffects)
def list_effects(
    here: Here,
    limit: Annotated[
        int, Query(ge=1, le=200, description="At least so many; the list stops at the end of a run.")
    ] = 50,
    cursor: Annotated[str | None, Query(max_length=20, pattern="^[0-9]+$", description="Of the page before.")] = None,
) -> Response:
    """Writes that were begun and of which nobody has noted what became of them, newest run first."""
    found = open_effects(here.store, limit=limit, cursor=cursor)
    runs = here.store.count(RunFilter(open_effects=True), most=_COUNTED)
    return reply({"items": _told(found.items), "cursor": found.cursor, "runs": runs})


@router.get("/runs/{run_id}/effects", response_model=schemas.OpenEffects)
def effects_of_run(here: Here, run_id: RunId) -> Response:
    """The open effects of one run, in order."""
    found = open_effects(here.store, here.reader.run(run_id).id)
    return reply({"items": _told(found.items), "cursor": None, "runs": 1 if found.items else 0})


@router.post("/runs/{run_id}/effects", response_model=schemas.Settled)
def settle(here: Here, run_id: RunId, body: schemas.SettleBody) -> Response:
    """Says what became of an open effect: one durable event of the run, with who and why; `resume` goes on from it.

    Refused (409) while the run's process lives (`owner_alive`), and where somebody has said so already (`settled`).
    """
    given = body.model_fields_set
    if body.outcome == "failed" and "result" in given and not isinstance(body.result, str):
        raise UsageError("the result of a failed effect is the text of its error", reason="result")
    done = settle_effect(
        here.reader.run(run_id).id,
        body.call_id,
        body.outcome,
        why=body.why,
        by=body.by,
        result=body.result,
        external_id=body.external_id,
        store=here.store,
    )
    return reply({name: getattr(done, name) for name in type(done).__dataclass_fields__})


def _told(items: tuple[OpenEffect, ...]) -> list[dict[str, Any]]:
    return [effect.as_json() for effect in items]
