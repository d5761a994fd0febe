"""Guarded edits of a JSON request: a path, an operation, and the original value that the edit is meant for.

An edit is made for one request and applied to it and to later ones. It applies where the original value at its path
equals the one it was made for, so a request of somebody else (a sub-agent's prompt) is left alone. Nothing is changed in
place: what an edit does not touch is the same object before and after.

Paths are written `messages[0].content`; a name that holds a dot, a bracket or a quote is written `["a.b"]`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias, cast

from agentloupe.words.canonical import Json
from agentloupe.words.errors import UsageError

__all__ = [
    "ABSENT",
    "Absent",
    "Edit",
    "Op",
    "Path",
    "apply_edits",
    "nearest",
    "parse_path",
    "same",
    "show_path",
    "value_at",
]

Path: TypeAlias = tuple[str | int, ...]
Op = Literal["set", "insert", "remove"]


class Absent(Enum):
    """There is no value here; not the same as null."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT


@dataclass(frozen=True, slots=True)
class Edit:
    """One change.

    Attributes:
        path: where, in the request as it was recorded.
        op: `set` a value (also where there is none yet), `insert` into a list before the index, `remove`.
        value: the new value; null for `remove`.
        guard: path of the value that must be equal for the edit to apply (the edited value itself, or its neighbour).
        was: the value at the guard in the request that the edit was made for.
    """

    path: Path
    op: Op
    value: Json
    guard: Path
    was: Json | Absent

    def fits(self, request: Json) -> bool:
        """Whether the request holds, at the guarded place, what the edit was made for."""
        return same(value_at(request, self.guard), self.was) and _reachable(request, self.path, self.op)

    def as_json(self) -> dict[str, Json]:
        """`{path, op, value}`, as it is recorded on a fork."""
        return {"path": show_path(self.path), "op": self.op, "value": self.value}


def apply_edits(
    request: Mapping[str, Json], edits: Sequence[Edit], seen: Json | Absent = ABSENT
) -> tuple[dict[str, Json], tuple[Edit, ...]]:
    """The request with every edit that fits it, and those edits.

    `seen` is what the guards look at where that is not the request itself (the request without its secrets).

    All guards are looked at before anything is changed. Sets come first, then inserts and removals from the back, so
    that every index means the recorded list.
    """
    whole: Json = dict(request)
    fitting = [edit for edit in edits if edit.fits(whole if isinstance(seen, Absent) else seen)]
    for edit in sorted(fitting, key=_turn):
        whole = _changed(whole, edit.path, edit)
    return cast("dict[str, Json]", whole), tuple(fitting)


def _reachable(value: Json | Absent, path: Path, op: Op) -> bool:
    """Whether the edit can be made: lists are long enough; objects are objects, or not there yet."""
    for depth, part in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(part, int):
            if not isinstance(value, list) or part >= len(value) + (last and op == "insert"):
                return False
        elif value is ABSENT:
            return op != "remove" and not any(isinstance(p, int) for p in path[depth:])
        elif not isinstance(value, dict) or (last and op == "remove" and part not in value):
            return False
        if not last:
            value = value_at(value, (part,))
    return True


def _turn(edit: Edit) -> tuple[int, int, int]:
    last = edit.path[-1]
    if edit.op == "set" or not isinstance(last, int):
        return (0, 0, 0)
    return (1, -last, 0 if edit.op == "remove" else 1)


def _changed(value: Json, path: Path, edit: Edit) -> Json:
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        items = list(cast("list[Json]", value))
        if rest:
            items[head] = _changed(items[head], rest, edit)
        elif edit.op == "insert":
            items.insert(head, edit.value)
        elif edit.op == "remove":
            del items[head]
        else:
            items[head] = edit.value
        return items
    members = dict(cast("dict[str, Json]", value))
    if rest:
        members[head] = _changed(members.get(head, {}), rest, edit)
    elif edit.op == "remove":
        del members[head]
    else:
        members[head] = edit.value
    return members


def value_at(value: Json | Absent, path: Path) -> Json | Absent:
    """The value at a path, or `ABSENT`."""
    for part in path:
        if isinstance(part, int):
            if not isinstance(value, list) or not 0 <= part < len(value):
                return ABSENT
            value = value[part]
        else:
            if not isinstance(value, dict) or part not in value:
                return ABSENT
            value = value[part]
    return value


def same(a: Json | Absent, b: Json | Absent) -> bool:
    """Equality of JSON values: numbers by value, booleans are no numbers, keys in any order."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(item, b[name]) for name, item in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    return a == b


# --- paths as text ----------------------------------------------------------------------------------------------------

_PART = re.compile(r"""(?:^|\.)([^.\[\]"]+)|\[(\d{1,9})\]|\[("(?:[^"\\]|\\.)*")\]""")
_PLAIN_NAME = re.compile(r"""[^.\[\]"]+""")


def parse_path(text: str) -> Path:
    """Reads `messages[0].content` or `metadata["a.b"]`.

    Raises:
        UsageError: not a path; names the place.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            break
        name, index, quoted = found.groups()
        parts.append(int(index) if index is not None else name if name is not None else _unquoted(quoted))
        at = found.end()
    if not parts or at < len(text) or isinstance(parts[0], int):
        raise UsageError(f"not a path: {text!r}, at character {at}", hint="paths look like messages[0].content")
    return tuple(parts)


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError as wrong:
        raise UsageError(f"not a quoted name: {text}") from wrong


def show_path(path: Path) -> str:
    """The path as text; `parse_path` reads it back."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif _PLAIN_NAME.fullmatch(part):
            shown += f".{part}" if shown else part
        else:
            shown += f"[{json.dumps(part, ensure_ascii=False)}]"
    return shown


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like this one, if any looks like it."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return close[0] if close else None
