"""Runs whose process was killed while it changed the world."""

from __future__ import annotations

from typing import Any

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.memory import MemoryStore
from tests.tapes import record_in, sequence_of

__all__ = ["killed", "shop"]


@loupe.tool(effect="write")
def charge(amount: int) -> dict[str, Any]:
    return {"charge": f"ch_{amount}"}


@loupe.agent
def shop(*amounts: int) -> int:
    return sum(len(charge(amount=amount)) for amount in amounts)


def killed(store: Store, *amounts: int) -> str:
    """A run whose process was killed while it charged the last amount; its id."""
    whole = record_in(MemoryStore(), shop, *amounts)
    events = whole.events[: sequence_of(whole, "tool.started", "charge", len(amounts) - 1)]
    store.insert(whole.run_id, events, whole.get, Projector)
    return whole.run_id
