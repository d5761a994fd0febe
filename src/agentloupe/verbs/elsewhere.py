"""Runs that were taken from a file while they had not ended: they belong to where they came from."""

from __future__ import annotations

from agentloupe.ports.protocols import Store
from agentloupe.words.errors import OwnerAlive
from agentloupe.words.run import Run

__all__ = ["check_here", "warning_of"]


def warning_of(run_id: str) -> str:
    """What is said when such a run is imported."""
    return f"{run_id} has not ended: it may go on where it came from, and is not resumed here (see resume --take-over)"


def check_here(store: Store, run_id: str) -> None:
    """Raises `OwnerAlive` (reason `elsewhere`) for a run that may go on, or be resumed, where it came from.

    Two copies that go on would do the same effects twice, under the same idempotency keys or without any.
    """
    row: Run | None = store.run(run_id)
    if row is not None and row.elsewhere:
        raise OwnerAlive(
            f"run {run_id} was imported before it had ended, and may go on where it came from: both would do its effects",
            hint="resume it there; or, once you know that the original never goes on: "
            f"agentloupe resume {run_id} --take-over, with its code",
            reason="elsewhere",
        )
