"""The log of a run, event by event: in parts, by type, of one step, and one event as it was sealed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as Path_
from starlette.responses import Response

from agentloupe.server.context import Context, First, Here, RunId
from agentloupe.server.documents import page
from agentloupe.server.reply import reply
from agentloupe.server.schemas.events import EventDetail, EventPage
from agentloupe.words.errors import NotFound
from agentloupe.words.event import Event, EventType

__all__ = ["router"]

router = APIRouter(prefix="/api/runs/{run_id}/events", tags=["evidence"])

_SHOWN = (
    *("sequence", "type", "event_id", "recorded_at", "call_id", "parent_seq", "name", "source", "lane", "n"),
    *("input_digest", "output_digest", "hash", "prev_hash", "copied_hash"),
)

Types = Annotated[
    list[EventType] | None, Query(alias="type", max_length=50, description="Only events of these types; repeat it.")
]
Sequence_ = Annotated[int, Path_(ge=1, le=2**31 - 1, description="Number of an event, from 1.", examples=[1])]


@router.get("", response_model=EventPage)
def list_events(
    here: Here,
    run_id: RunId,
    step: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only events of this step's call.")] = None,
    kinds: Types = None,
    at: Annotated[
        int | None,
        Query(ge=1, le=2**31 - 1, description="Begin with the first event from this number on; goes over `first`."),
    ] = None,
    types: Annotated[bool, Query(description="With the types that the run's events have.")] = False,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Events in order, without bodies; `first` counts those that match."""
    run = here.reader.run(run_id)
    counted = [{"value": name, "count": n} for name, n in here.types.of(run).counts()] if types else None
    if step is not None:
        mine = [event for event in _of_step(here, run_id, step) if not kinds or event.type in kinds]
        first = first if at is None else bisect_left([event.sequence for event in mine], at)
        found, total = mine[first : first + limit], len(mine)
    elif kinds:
        numbers = here.types.of(run).sequences(kinds)
        first = first if at is None else bisect_left(numbers, at)
        found, total = list(_numbered(here, run_id, numbers[first : first + limit])), len(numbers)
    else:
        first, total = first if at is None else min(at - 1, run.events), run.events
        found = here.store.events(run_id, first=first + 1, limit=limit)
    of_calls = here.reader.open(run_id).of_calls()
    return reply(page([_envelope(event, of_calls) for event in found], total, first, types=counted))


def _of_step(here: Context, run_id: str, idx: int) -> list[Event]:
    """The events of a step's call; of a step that has no call those between its first and its last."""
    step = here.reader.open(run_id).step(idx)
    between = here.store.events(run_id, first=step.first_seq, limit=step.last_seq - step.first_seq + 1)
    return [event for event in between if event.call_id == step.call_id] if step.call_id else between


def _numbered(here: Context, run_id: str, numbers: Sequence[int]) -> Iterator[Event]:
    """Events by their numbers, neighbours read together."""
    at = 0
    while at < len(numbers):
        end = at + 1
        while end < len(numbers) and numbers[end] == numbers[end - 1] + 1:
            end += 1
        yield from here.store.events(run_id, first=numbers[at], limit=end - at)
        at = end


@router.get("/{sequence}", response_model=EventDetail)
def one_event(here: Here, run_id: RunId, sequence: Sequence_) -> Response:
    """An event as it was sealed: all its members; what they name by digest is not in them."""
    run = here.reader.run(run_id)
    found = here.store.events(run_id, first=sequence, limit=1)
    if not found:
        there = f"events are 1 to {run.events}" if run.events else "it has no events"
        raise NotFound(f"{run_id} has no event {sequence}", hint=there, reason="event_not_found")
    (event,) = found
    of_calls = here.reader.open(run_id).of_calls()
    return reply(_envelope(event, of_calls) | {"sealed": event.envelope(run_id, sequence)})


def _envelope(event: Event, of_calls: Mapping[str, int]) -> dict[str, Any]:
    shown = {name: getattr(event, name) for name in _SHOWN}
    step = None if event.call_id is None else of_calls.get(event.call_id)
    return shown | {"step": step, "bodies": dict(event.bodies), "attrs": dict(event.attrs)}
