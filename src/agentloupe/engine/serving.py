"""What a replay reads while it runs: the bodies in the order of the tape, and how far the program has come in a lane."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from agentloupe.engine.tape import RecordedCall, Tape
from agentloupe.ports.pack import MARKS, unpack
from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import Json, digest_bytes, loads
from agentloupe.words.errors import Corrupt

__all__ = ["Bodies", "LaneCursor", "cursor_of"]

_BATCH: Final = 256
_SIGN: Final = ord("$")  # all of them have it; one byte is found quickest by its number
_MARKS: Final = tuple(b'{"%s":' % mark.encode() for mark in MARKS)
"""A body without any of these is the plain text of its value."""


class Bodies:
    """A recording's bodies, read in batches in the order of the tape, each checked against its digest."""

    def __init__(self, recording: Recording, order: Sequence[str]) -> None:
        self._recording = recording
        self._order = order
        self._given = 0
        self._window: dict[str, bytes] = {}

    def value(self, name: str) -> Json:
        """The value behind a digest, made anew.

        Raises:
            Damaged: it is not there. Corrupt: its bytes do not fit, or it is not what a recorder writes.
        """
        if name not in self._window:
            # A program that agrees asks in the order of the tape: the next ones are read along.
            ahead = self._order[self._given : self._given + _BATCH]
            self._window = self._sound(list(dict.fromkeys((name, *ahead))))
        self._given += 1
        plain = self._window.get(name)
        try:
            if plain is not None and (_SIGN not in plain or not any(mark in plain for mark in _MARKS)):
                return loads(plain)
            return unpack(name, self._get)
        except KeyError:
            return self._recording.body(name)  # says what is missing
        except ValueError as wrong:
            raise Corrupt(f"{self._recording.origin}: body {name[:12]}: {wrong}", reason="body") from wrong

    def _get(self, names: Sequence[str]) -> Mapping[str, bytes]:
        absent = [name for name in names if name not in self._window]
        if absent:
            self._window.update(self._checked(absent))
        return self._window

    def _sound(self, names: Sequence[str]) -> dict[str, bytes]:
        """Those that are there and whole; what is wrong with another one is said when its turn comes."""
        try:
            found = self._recording.get(names)
        except Corrupt:
            return {}
        return {name: data for name, data in found.items() if digest_bytes(data) == name}

    def _checked(self, names: Sequence[str]) -> dict[str, bytes]:
        found = dict(self._recording.get(names))
        for name, data in found.items():
            if digest_bytes(data) != name:
                raise Corrupt(f"{self._recording.origin}: body {name[:12]} does not fit its digest", reason="body")
        return found


class LaneCursor:
    """The calls of one lane and how far the program has come."""

    __slots__ = ("at", "calls", "keys", "taken")

    def __init__(self, calls: Sequence[RecordedCall]) -> None:
        self.calls = calls
        self.at = 0
        self.taken: set[int] = set()
        self.keys: dict[str, list[int]] | None = None

    def next(self) -> RecordedCall | None:
        """The call whose turn it is."""
        while self.at in self.taken:
            self.taken.discard(self.at)
            self.at += 1
        return self.calls[self.at] if self.at < len(self.calls) else None

    def found(self, key: str, key_of_call: Callable[[RecordedCall], str]) -> RecordedCall | None:
        """The call that a program of this lane makes next; `key` is that of the call which it makes."""
        del key, key_of_call
        return self.next()

    def take(self, call: RecordedCall) -> None:
        """A call was answered, or left out on purpose."""
        if self.at < len(self.calls) and self.calls[self.at] is call:
            self.at += 1
        else:
            self.taken.add(next(i for i in range(self.at, len(self.calls)) if self.calls[i] is call))

    def left(self) -> list[RecordedCall]:
        """Calls that nobody asked for yet."""
        return [call for i, call in enumerate(self.calls[self.at :], self.at) if i not in self.taken]

    def later(self, key: str, key_of_call: Callable[[RecordedCall], str]) -> RecordedCall | None:
        """The next unused call of this key behind the one whose turn it is. Makes its index at the first question."""
        if self.keys is None:
            self.keys = {}
            for i, call in enumerate(self.calls):
                self.keys.setdefault(key_of_call(call), []).append(i)
        return next(
            (self.calls[i] for i in self.keys.get(key, ()) if i > self.at and i not in self.taken),
            None,
        )


class _LooseCursor(LaneCursor):
    """A lane with calls that had no place of their own: those are found by what they are, whenever they come.

    Args:
        placeless: their ids.
        ambiguous: is told when one of several equal calls with different results is given away, in recorded order.
    """

    __slots__ = ("_ambiguous", "_placeless")

    def __init__(self, calls: Sequence[RecordedCall], placeless: frozenset[str], ambiguous: Callable[[], None]) -> None:
        super().__init__(calls)
        self._placeless = placeless
        self._ambiguous = ambiguous

    def found(self, key: str, key_of_call: Callable[[RecordedCall], str]) -> RecordedCall | None:
        """The next call with a place, if it is that; else the first without one that is."""
        left = self.left()
        placed = next((call for call in left if call.call_id not in self._placeless), None)
        loose = [call for call in left if call.call_id in self._placeless and key_of_call(call) == key]
        if placed is not None and key_of_call(placed) == key and (not loose or placed.first_seq < loose[0].first_seq):
            return placed
        if len({(call.status, call.output_digest) for call in loose}) > 1:
            self._ambiguous()
        return loose[0] if loose else placed or self.next()


def cursor_of(tape: Tape, path: str, ambiguous: Callable[[], None]) -> LaneCursor:
    """The calls of a lane that a program makes itself."""
    calls = [call for call in tape.lane(path) if not call.inner and not call.mark]
    if tape.placeless.isdisjoint(call.call_id for call in calls):
        return LaneCursor(calls)
    return _LooseCursor(calls, tape.placeless, ambiguous)
