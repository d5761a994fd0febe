"""Ends runs in the name of processes that were told to end and had to be killed."""

from __future__ import annotations

from agentloupe.engine.project import Projector
from agentloupe.engine.settling import Settler
from agentloupe.engine.tape import read_tape
from agentloupe.ports.protocols import Store
from agentloupe.store.owners import this_process
from agentloupe.verbs.lookups import note_unseen
from agentloupe.verbs.replaying import rules_in
from agentloupe.words.errors import Cancelled

__all__ = ["end_cancelled"]

_OPEN = frozenset({"running", "waiting", "interrupted"})


def end_cancelled(store: Store, run_id: str, error: Cancelled) -> None:
    """Ends a run as cancelled whose process is gone; an effect that was going on becomes `unknown`.

    Nothing is done where the run has ended, or was never begun.

    Raises:
        OwnerAlive: its process lives.
        Damaged, StoreError: it cannot be read or written.
    """
    row = store.run(run_id)
    if row is None or row.status not in _OPEN:
        return
    writer = store.take_over(run_id, Projector, owner=this_process())
    try:
        tape = note_unseen(store, writer, read_tape(store.recording(run_id)))
        if tape.finished is None:
            ended = Settler(tape, writer.owner.epoch, rules_in(tape)).cancelled(error)
            writer.append(ended.drafts, ended.bodies, ended.durability)
    finally:
        writer.close()
