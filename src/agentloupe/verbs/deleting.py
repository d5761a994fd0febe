"""Deleting: bodies go, `run.erased` is appended, events stay and their chain still verifies."""

from __future__ import annotations

from agentloupe.ports.ambient import new_event_id, new_span_id, now
from agentloupe.ports.protocols import Store
from agentloupe.words.event import Draft

__all__ = ["delete_run"]


def delete_run(store: Store, run_id: str, *, why: str = "asked for") -> int:
    """Deletes a run's bodies and its row; returns how many bodies went. Bodies that another run needs are kept.

    Raises:
        RunNotFound: there is no such run.
        OwnerAlive: the run is still being recorded.
    """
    erased = Draft(
        type="run.erased", event_id=new_event_id(), recorded_at=now(), span_id=new_span_id(), attrs={"why": why}
    )
    return store.erase(run_id, [erased])
