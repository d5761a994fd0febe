"""`agentloupe gc`: remove bodies that no run needs, and give space back."""

from __future__ import annotations

from agentloupe.cli.common import AsJson, Database, Debug, opened
from agentloupe.cli.output import Output, bytes_text, number_of


def command(as_json: AsJson = False, db: Database = None, debug: Debug = False) -> None:
    """Remove bodies that no run needs any more, and give the space back to the disk.

    Runs and events are not touched. Example: agentloupe gc
    """
    out = Output(as_json)
    with opened(db) as store:
        before = store.size().file_bytes
        bodies, removed = store.gc()
        after = store.size().file_bytes
    if as_json:
        out.document({"bodies": bodies, "bytes": removed, "file_bytes_before": before, "file_bytes_after": after})
        return
    out.line(
        f"{number_of(bodies, 'body')} removed ({bytes_text(removed)}); the file went from {bytes_text(before)} to {bytes_text(after)}"
    )
