"""Which types the events of runs have, kept for a while: a page filters a long log by type and pages through what is left."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentloupe.ports.protocols import Store
from agentloupe.server.kept import Kept
from agentloupe.words.event import EVENT_TYPES
from agentloupe.words.run import Run

__all__ = ["EventTypes", "TypesReader"]

_NAMES = sorted(EVENT_TYPES)
_CODES = {name: code for code, name in enumerate(_NAMES)}
_AT_ONCE = 2000
_EVENTS = 2_000_000
"""Events whose types are kept, over all runs: two bytes each."""


@dataclass(frozen=True, slots=True)
class EventTypes:
    """The types of a run's events.

    Attributes:
        codes: the number of each event's type, in order of sequence.
        head: hash of the last of these events.
    """

    codes: array[int]
    head: str | None

    def counts(self) -> list[tuple[str, int]]:
        """Types that occur, the most frequent first."""
        found = Counter(self.codes)
        return [(_NAMES[code], count) for code, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))]

    def sequences(self, kinds: Sequence[str]) -> list[int]:
        """Numbers of the events of some types, in order; types that no event has find none."""
        wanted = {_CODES[kind] for kind in kinds if kind in _CODES}
        return [at for at, code in enumerate(self.codes, 1) if code in wanted]


class TypesReader:
    """Reads the types of a run's events once, and of a run that goes on only those of its new events. Safe with threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = Kept[EventTypes](_EVENTS)

    def of(self, run: Run) -> EventTypes:
        """The types of a run's events. Raises `Corrupt`, `VersionUnknown`."""
        version = (run.events, run.head)
        found = self._kept.get(run.id, version)
        if found is None:
            found = self._kept.put(run.id, version, self._read(run, self._kept.last(run.id)), run.events + 1)
        return found

    def _read(self, run: Run, before: EventTypes | None) -> EventTypes:
        codes, head = (array("H"), None) if before is None else (before.codes[:], before.head)
        while True:
            some = self._store.events(run.id, first=len(codes) + 1, limit=_AT_ONCE)
            if codes and some and some[0].prev_hash != head:
                codes, head = array("H"), None  # another run has this name now
                continue
            codes.extend(_CODES[event.type] for event in some)
            head = some[-1].hash if some else head
            if len(some) < _AT_ONCE:
                return EventTypes(codes, head)
