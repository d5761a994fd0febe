"""Streams of what changes."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from starlette.responses import Response

from agentloupe.server.context import Here, RunId
from agentloupe.server.streams import RunFeed, stream_of

__all__ = ["EVENTS", "router"]

router = APIRouter(prefix="/api", tags=["streams"])

EVENTS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events, see the route.",
        "content": {"text/event-stream": {}},
    }
}
LastEventId = Annotated[str | None, Header(pattern="^[0-9]{1,15}$", description="The last id that was seen.")]


@router.get("/runs/{run_id}/stream", response_class=Response, responses=EVENTS)
def run_stream(
    here: Here,
    run_id: RunId,
    last_event_id: LastEventId = None,
    since: Annotated[int, Query(ge=0, le=2**53, description="Event number up to which everything is known.")] = 0,
) -> Response:
    """A run as it grows: `run` {run}, `steps` {items: headers}, at last `end` {status}. The id is an event number."""
    run = here.reader.run(run_id)
    return stream_of(here, RunFeed(here, run.id, int(last_event_id) if last_event_id is not None else since))
