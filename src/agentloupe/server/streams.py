"""What changes, told as it changes: server-sent events whose id is a number in the log, so that nothing is missed or told twice.

A stream of a run tells the run's row and the headers of steps that changed since an event number. A page that lost its
connection sends the last id it saw, to this server or to another one over the same store, and gets exactly the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from agentloupe.server.context import Context
from agentloupe.server.documents import run_document, step_documents
from agentloupe.words.errors import LoupeError
from agentloupe.words.jsontext import quick_text
from agentloupe.words.step import Step

__all__ = ["HEADERS", "RunFeed", "message", "stream_of"]

HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Of a stream: nobody between may hold it back."""

_PAUSE: Final = 0.2
_BEAT: Final = 50
"""Pauses without news after which a comment is sent, so that a dead connection is noticed."""
_AT_ONCE: Final = 500
_OPEN: Final = frozenset({"running", "waiting"})


def message(event: str, document: Any, id: str | int | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" + (f"id: {id}\n" if id is not None else "")
    return head.encode() + b"data: " + quick_text(document) + b"\n\n"


class RunFeed:
    """What is new of a run, each time it is asked."""

    def __init__(self, here: Context, run_id: str, since: int) -> None:
        self._here = here
        self._run_id = run_id
        self._seen: object = None
        self._since = since
        self.ended = False

    def take(self) -> list[bytes]:
        """Messages to send now. Sets `ended` with the last ones."""
        row = self._here.store.run(self._run_id)
        if row is None:
            self.ended = True
            return [message("end", {"status": None}, self._since)]
        now = (row.events, row.status, row.tags)
        if now == self._seen:
            return []
        opened = self._here.reader.open(self._run_id)
        run = opened.run
        changed = [step for step in opened.steps if step.last_seq > self._since]
        told = [message("run", {"run": run_document(self._here, run)})]
        told += [message("steps", {"items": step_documents(opened, part)}) for part in _parts(changed)]
        self._seen, self._since = (run.events, run.status, run.tags), run.events
        # The id stands on the last message only: who lost its connection in between gets all of them again.
        told[-1] = told[-1].replace(b"\ndata: ", f"\nid: {self._since}\ndata: ".encode(), 1)
        if run.status not in _OPEN:
            self.ended = True
            told.append(message("end", {"status": run.status}, self._since))
        return told


def _parts(steps: Sequence[Step]) -> list[Sequence[Step]]:
    return [steps[at : at + _AT_ONCE] for at in range(0, len(steps), _AT_ONCE)]


def stream_of(here: Context, feed: Any) -> StreamingResponse:
    """A stream of what a feed takes, until it has ended, the reader is gone, or the server stops."""
    return StreamingResponse(_told(here, feed), media_type="text/event-stream", headers=HEADERS)


async def _told(here: Context, feed: Any) -> AsyncIterator[bytes]:
    quiet = 0
    while not here.closing.is_set():
        try:
            news = await run_in_threadpool(feed.take)
        except LoupeError as wrong:
            yield message("problem", {"reason": wrong.reason, "message": wrong.message, "hint": wrong.hint})
            return
        for part in news:
            yield part
        if feed.ended:
            return
        quiet = 0 if news else quiet + 1
        if quiet == _BEAT:
            quiet = 0
            yield b": still here\n\n"
        await asyncio.sleep(_PAUSE)
