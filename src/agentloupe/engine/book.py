"""The book of one run: what a recorder has to say goes to the store, or waits until the store works again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

from agentloupe.ports import ambient
from agentloupe.ports.protocols import RunWriter
from agentloupe.ports.scribe import Entry, entries

__all__ = ["Book"]

_HELD_ENTRIES, _HELD_BYTES = 1_000, 32_000_000
_WAITING, _AT_ONCE = 1024, 64
"""Entries that may wait; whoever goes beyond writes them. So many are made at a time beside the program."""
_BEFORE_DROPPED = 16 * _WAITING
"""Entries that may wait where values are dropped beyond: a burst of reads is no slow store."""
_NO_WAIT = nullcontext()
_RETRY_MS = 2_000.0
_PATIENCE = 10.0
"""A store that takes its time to fail (one that somebody else has locked) is asked again after so many times that time."""


@dataclass(slots=True)
class _Gap:
    """Values of one name that are not kept, one after the other; made into an entry when it is written."""

    made: Callable[[int], Entry]
    count: int = 0

    def __call__(self) -> Entry:
        return self.made(self.count)


class Book:
    """Appends to a run's writer, and holds back what could not be written until the store works again.

    Args:
        writer: the run's only writer.
        lock: held by whoever appends.
        drops: where so many entries wait that whoever adds one would wait for the store, values of reads are not kept.
        on_disk: around a write that waits for the disk.

    Attributes:
        failed: the first error of the store.
        dropped: events that could be neither stored nor held back.
        values_dropped: values that were not kept, since what waits was full.
        sequence: number of the last event that was appended, also where it is held back: it will get that number.

    What is stored is always a whole beginning of the run: once something had to be dropped, nothing but the end follows.
    """

    def __init__(
        self,
        writer: RunWriter,
        lock: AbstractContextManager[object],
        on_disk: Callable[[], AbstractContextManager[object]] = nullcontext,
        *,
        drops: bool = False,
    ) -> None:
        self.writer = writer
        self._drops = drops
        self._bound = _BEFORE_DROPPED if drops else _WAITING
        self._lock = lock
        self._on_disk = on_disk
        self._waiting: list[Entry | Callable[[], Entry]] = []
        self._gaps: dict[tuple[str, str], _Gap] = {}
        self._reminded = False
        self.failed: BaseException | None = None
        self.dropped = 0
        self.values_dropped = 0
        self.sequence = writer.head.sequence
        self._held: list[Entry] = []
        self._bytes = 0
        self._retry_at = 0.0
        self._closed = False

    def append(self, entry: Entry, *, hold: bool = True, last: bool = False) -> bool:
        """Appends an entry after everything that is held. `False`: it is not stored (yet)."""
        if self._waiting and hold:
            entry = entries([*self._made(), entry])
        elif self._waiting:
            self._append(entries(self._made()))  # apart: it stays where the entry is refused
        return self._append(entry, hold=hold, last=last)

    def wait(self, entry: Entry | Callable[[], Entry]) -> bool:
        """Has an entry written with whatever is appended next, or soon. One that is to be made is made then, and must not raise.

        Returns `False`: it is not stored yet.
        """
        if self._closed:
            self.dropped += 1
            return False
        self._gaps.clear()  # what is not kept from here on stands behind this entry
        self._add(entry, self._bound)
        return False

    def drops(self) -> bool:
        """Whether the value of a read is not kept now. The lock is held."""
        while self._drops and len(self._waiting) >= self._bound:
            if not self._offered():
                return True
        return False

    def drop(self, name: tuple[str, str], made: Callable[[int], Entry]) -> None:
        """Counts a value that is not kept. The lock is held.

        Those of one name that come one after the other get one entry: `made` makes it from their number, and must not raise.
        """
        self.values_dropped += 1
        gap = self._gaps.get(name)
        if gap is None:
            gap = self._gaps[name] = _Gap(made)
            self._add(gap, 2 * self._bound)
        gap.count += 1

    def _add(self, entry: Entry | Callable[[], Entry], most: int) -> None:
        if len(self._waiting) >= most:
            self.append(Entry())
        self._waiting.append(entry)
        if not self._reminded:
            self._reminded = True
            self.writer.remind(self.write_waiting)

    def write_waiting(self) -> None:
        """Writes what waits, some at a time. Takes the lock, and does not keep the program from it while the store is slow."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._reminded = False
                    return
                if self._offered():
                    continue
            began = ambient.monotonic_ms()
            try:
                self.writer.flush()
            except Exception as fault:  # noqa: BLE001  # see `_append`
                self._met(fault, began)
            with self._lock:
                if self._waiting and not self._offered():
                    self._append(entries(self._made(_AT_ONCE)))

    def _offered(self) -> bool:
        """Hands the first entries of those that wait to the store, if it takes them at once. The lock is held."""
        some = self._made(_AT_ONCE)
        entry = entries(some)
        if not (self._held or self.dropped or self._closed):
            with suppress(Exception):  # whatever a store raises, the append below meets it
                if self.writer.offer(entry.drafts, entry.bodies):
                    self.sequence += len(entry.drafts)
                    return True
                self._waiting[:0] = some
                return False
        self._append(entry)
        return True

    def _made(self, most: int | None = None) -> list[Entry]:
        """The first entries of those that wait, or all of them, taken from them."""
        taken, self._waiting = self._waiting[:most], [] if most is None else self._waiting[most:]
        return [one if isinstance(one, Entry) else one() for one in taken]

    def _append(self, entry: Entry, *, hold: bool = True, last: bool = False) -> bool:
        if self._closed or (self.dropped and not last):
            self.dropped += len(entry.drafts)
            return False
        urgent = last or not hold
        if not urgent and ambient.monotonic_ms() < self._retry_at:
            return self._hold(entry)
        whole = entries([*self._held, entry]) if self._held else entry
        began = ambient.monotonic_ms()
        try:
            with self._on_disk() if whole.durability == "full" else _NO_WAIT:
                self.writer.append(whole.drafts, whole.bodies, whole.durability)
        except Exception as fault:  # noqa: BLE001  # whatever a store raises, the agent goes on
            self._met(fault, began)
            return self._hold(entry) if hold else False
        self._held, self._bytes, self._retry_at = [], 0, 0.0
        self.sequence += len(entry.drafts)
        return True

    def _met(self, fault: Exception, began: float) -> None:
        """Notes that the store has failed, and when it is asked again."""
        self.failed = self.failed or fault
        now = ambient.monotonic_ms()
        self._retry_at = now + max(_RETRY_MS, _PATIENCE * (now - began))

    def _hold(self, entry: Entry) -> bool:
        """Whether the entry will be written if the store comes back."""
        self._bytes += sum(len(body.data) for body in entry.bodies)
        if len(self._held) >= _HELD_ENTRIES or self._bytes > _HELD_BYTES:
            self.dropped += len(entry.drafts)
            return False
        self._held.append(entry)
        self.sequence += len(entry.drafts)
        return True

    def remind(self, collect: Callable[[], None]) -> None:
        """Has `collect` called soon; see `ports.RunWriter.remind`."""
        if not self._closed:
            self.writer.remind(collect)

    def check(self) -> None:
        """Writes what waits and what is grouped, to know before the end whether it can be written. Takes the lock."""
        try:
            self.write_waiting()
            self.writer.flush()
        except Exception as fault:  # noqa: BLE001  # see append
            self.failed = self.failed or fault

    def close(self) -> None:
        """Gives the run up. Never raises."""
        if self._closed:
            return
        self._closed = True
        try:
            self.writer.close()
        except Exception as fault:  # noqa: BLE001  # see append
            self.failed = self.failed or fault
