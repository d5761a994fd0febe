"""Records of a stream that differ from an earlier one in one text only: most of them do, and need not be read again.

{"index":0,"delta":{"content":"It"}}          read, looked through, and remembered as a shape
{"index":0,"delta":{"content":" rains"}}      the same around the text: the text goes on, nothing else is new
"""

from __future__ import annotations

import re
from typing import NamedTuple

from agentloupe.engine.scrubber import is_opaque
from agentloupe.words.jsontext import loads

__all__ = ["Key", "Part", "Path", "Shapes"]

Path = tuple[str | int, ...]
Key = tuple[object, ...]


class Part(NamedTuple):
    """A text in a record that may be a part of a longer one: which one it goes on with, where it stands, what it says."""

    key: Key
    path: Path
    text: str


class _Shape(NamedTuple):
    """What stands before and behind the text, which goes on with `key` and stands at `path`."""

    before: str
    behind: str
    key: Key
    path: Path


class Shapes:
    """The shapes of one stream. Only for rules that find nothing in a few letters and digits by themselves."""

    KEPT = 4

    def __init__(self) -> None:
        self._known: list[_Shape] = []

    def part_of(self, text: str) -> Part | None:
        """The one text that may be new in a record, if all else in it stood in an earlier one, where nothing was removed."""
        even = _even(text)
        for shape in self._known:
            if even.startswith(shape.before) and even.endswith(shape.behind):
                inside = even[len(shape.before) : len(even) - len(shape.behind)]
                if not inside or _INSIDE.fullmatch(inside) is None:
                    continue
                said = loads(f'"{inside}"') if "\\" in inside else inside
                if isinstance(said, str) and not is_opaque(said):
                    return Part(shape.key, shape.path, said)
        return None

    def learn(self, text: str, part: Part) -> None:
        """Remembers a record of which `part` is the only text that may go on, and in which nothing was to be removed."""
        even, spelt = _even(text), f'"{part.text}"'
        at = even.find(spelt)
        if at < 0 or even.find(spelt, at + 1) >= 0:
            return  # spelt in another way, or twice
        before, behind = even[: at + 1], even[at + len(spelt) - 1 :]
        if behind[1:2] in (",", "}", "]"):  # behind a name stands a colon
            self._known = [_Shape(before, behind, part.key, part.path), *self._known[: self.KEPT - 1]]


_INSIDE = re.compile(r'[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*')
"""What stands between the quotes of a JSON string."""
_PADDING, _NUMBER = '"obfuscation":"', '"sequence_number":'
"""Members that are other in every record. Inside of a string their quotes would be escaped."""
_FEW_CHARACTERS = re.compile(r'[A-Za-z0-9]{0,15}(?=")')
_FEW_DIGITS = re.compile(r"[0-9]{1,15}(?=[,}])")


def _even(text: str) -> str:
    """A record in which such members say nothing, if what they say is too short to hold a secret."""
    return _without(_without(text, _PADDING, _FEW_CHARACTERS), _NUMBER, _FEW_DIGITS)


def _without(text: str, member: str, few: re.Pattern[str]) -> str:
    at = text.find(member)
    said = few.match(text, at + len(member)) if at >= 0 else None
    return text if said is None else text[: said.start()] + text[said.end() :]
