"""`agentloupe size`: how much there is."""

from __future__ import annotations

from dataclasses import asdict

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, bytes_text, number_of


def command(as_json: AsJson = False, db: Database = None, debug: Debug = False) -> None:
    """Say how many runs, events and bodies there are, and how much space they take.

    Example: agentloupe size
    """
    out = Output(as_json)
    with opened(db) as store:
        size = store.size()
    if as_json:
        out.document(asdict(size))
        return
    out.line(size.url)
    out.line(f"{number_of(size.runs, 'run')}, {number_of(size.events, 'event')}, {number_of(size.bodies, 'body')}")
    shared = f" ({bytes_text(size.bodies_whole)} before compression)" if size.bodies_whole else ""
    out.line(f"bodies {bytes_text(size.bodies_stored)}{shared}, file {bytes_text(size.file_bytes)}")
    if size.messages:
        out.line(f"{number_of(size.messages, 'message')} wait in the outbox: agentloupe effects publish delivers them")
    if size.orphans:
        out.line(f"{number_of(size.orphans, 'body')} belong to no run: agentloupe gc removes them")
