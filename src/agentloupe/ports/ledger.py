"""What a folder of the ledger form holds, as bytes: read by an importer, judged by the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["LedgerFolder", "no_bodies"]


def no_bodies() -> Iterator[bytes]:
    """The bodies of a folder without any."""
    return iter(())


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """The contents of a folder.

    Attributes:
        origin: where it lies, for messages.
        events: the bytes of `events.jsonl`.
        receipts: bytes by file name.
        budget: the bytes of `budget.json`.
        contract, checkpoint: of those files, or `None` where there are none.
        has_bodies: whether there is a `bodies.jsonl`; `bodies` reads it line by line, without the line breaks.
    """

    origin: str
    events: bytes
    receipts: Mapping[str, bytes]
    budget: bytes
    contract: bytes | None = None
    checkpoint: bytes | None = None
    has_bodies: bool = False
    bodies: Callable[[], Iterator[bytes]] = field(default=no_bodies, repr=False)
