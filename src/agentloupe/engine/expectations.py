"""Differences that a fix is meant to make: the file behind `--expect`.

    [
      {"kind": "unconsumed", "name": "notification.send"},
      {"kind": "input_changed", "name": "chat small-1", "place": "messages[0].content", "times": 3}
    ]

A replay passes only if exactly these appear. Each entry stands for `times` differences (1 unless said) of its kind; a
`name`, a `sequence` or a `place` narrows it down. A replay goes on past an expected difference where there is something
to go on with: the recorded answer of the call whose input or name changed, or the call behind one that is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Final, TypeVar, cast, get_args

from agentloupe.engine.edits import Path, parse_path
from agentloupe.engine.privacy import Rules, scrub_text
from agentloupe.engine.report import Divergence, DivergenceKind
from agentloupe.words.canonical import Json
from agentloupe.words.errors import UsageError

__all__ = ["Expectations", "Expected", "read_expected"]

_NEVER: Final = frozenset({"leak", "truncated", "corrupt", "version", "not_rebuildable", "not_as_expected", "missing"})
_RULES: Final = Rules()
_FIELDS: Final = frozenset({"kind", "name", "sequence", "place", "times"})


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected difference.

    Attributes:
        kind: of the difference; damage and leaks cannot be expected.
        name: of the recorded call (of the call made, where nothing was recorded).
        sequence: an event of the recorded call.
        place: path in the input; every change must lie at or below it.
        times: how often.
    """

    kind: DivergenceKind
    name: str | None = None
    sequence: int | None = None
    place: Path | None = None
    times: int = 1

    def fits(self, found: Divergence, sequences: tuple[int, int] | None) -> bool:
        """Whether it describes a difference; `sequences` are the first and last event of the recorded call."""
        side = found.expected or found.actual
        return (
            self.kind == found.kind
            and (self.name is None or (side is not None and side.name == self.name))
            and (self.sequence is None or (sequences is not None and sequences[0] <= self.sequence <= sequences[1]))
            and (self.place is None or _all_below(found, self.place))
        )

    def __str__(self) -> str:
        parts = [self.kind, self.name or "", f"sequence {self.sequence}" if self.sequence is not None else ""]
        return " ".join(part for part in parts if part)


def _all_below(found: Divergence, place: Path) -> bool:
    return bool(found.changes) and not found.more_changes and all(c.path[: len(place)] == place for c in found.changes)


@dataclass(slots=True)
class Expectations:
    """What is still expected."""

    entries: Sequence[Expected] = ()
    _used: dict[int, int] = field(default_factory=dict[int, int])

    def take(self, found: Divergence, sequences: tuple[int, int] | None = None) -> bool:
        """Whether a difference is expected; it then counts as having appeared."""
        for i, entry in enumerate(self.entries):
            if self._used.get(i, 0) < entry.times and entry.fits(found, sequences):
                self._used[i] = self._used.get(i, 0) + 1
                return True
        return False

    def absent(self) -> list[Expected]:
        """Entries that have not appeared as often as they should."""
        return [entry for i, entry in enumerate(self.entries) if self._used.get(i, 0) < entry.times]


def read_expected(source: File | str | Sequence[Mapping[str, Json] | Expected]) -> tuple[Expected, ...]:
    """Reads a file of expected differences, or takes its content.

    Raises:
        UsageError: the file is not there, is no JSON, or an entry is not understood; names the entry.
    """
    if isinstance(source, File | str):
        return _read_file(File(source))
    return tuple(
        entry if isinstance(entry, Expected) else _entry(entry, f"expected difference {i}")
        for i, entry in enumerate(source, 1)
    )


def _read_file(file: File) -> tuple[Expected, ...]:
    try:
        data: object = json.loads(file.read_text("utf-8"))
    except OSError as wrong:
        raise UsageError(f"cannot read {file}: {wrong.strerror}") from wrong
    except ValueError as wrong:
        raise UsageError(f"{file} is not JSON: {wrong}") from wrong
    if not isinstance(data, list):
        raise UsageError(
            f"{file} holds no list of expected differences", hint='[{"kind": "unconsumed", "name": "..."}]'
        )
    return tuple(_entry(entry, f"{file}, entry {i}") for i, entry in enumerate(cast("list[object]", data), 1))


def _entry(entry: object, where: str) -> Expected:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} is not an object")
    fields = cast("Mapping[str, object]", entry)
    unknown = sorted(fields.keys() - _FIELDS)
    kind = fields.get("kind")
    if unknown:
        raise UsageError(
            f"{where} has unknown fields: {scrub_text(', '.join(map(str, unknown)), _RULES)}",
            hint=f"known: {', '.join(sorted(_FIELDS))}",
        )
    if kind not in get_args(DivergenceKind) or kind in _NEVER:
        allowed = [known for known in get_args(DivergenceKind) if known not in _NEVER]
        raise UsageError(f"{where} has the kind {scrub_text(repr(kind), _RULES)}", hint=f"one of {', '.join(allowed)}")
    place, times = _typed(fields, "place", str, where), _typed(fields, "times", int, where)
    if times is not None and times < 1:
        raise UsageError(f"{where}: times is less than 1")
    return Expected(
        kind=cast("DivergenceKind", kind),
        name=_typed(fields, "name", str, where),
        sequence=_typed(fields, "sequence", int, where),
        place=None if place is None else _path(place, where),
        times=times or 1,
    )


def _path(text: str, where: str) -> Path:
    try:
        return parse_path(text)
    except UsageError as wrong:
        raise UsageError(f"{where}: place is no path", hint=wrong.hint) from wrong


_T = TypeVar("_T", str, int)


def _typed(fields: Mapping[str, object], name: str, kind: type[_T], where: str) -> _T | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise UsageError(f"{where}: {name} is not {'a text' if kind is str else 'a whole number'}")
    return value
