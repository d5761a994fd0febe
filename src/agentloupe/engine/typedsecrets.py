"""What is removed of a value with a type (see `codecs.tags`) that stands under a secret name: what it says, and not what it is.

A program that got a settings model with a `SecretStr` in it gets one again in a replay. Parts that say what a value is are
kept only where they look like it, so that nothing passes that merely has the form of a tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from agentloupe.words.canonical import Json

__all__ = ["without_what_it_says"]

_CLASS: Final = re.compile(r"[A-Za-z_][\w.]{0,300}:[A-Za-z_][\w.<>]{0,300}")
_MEMBER: Final = re.compile(r"[A-Za-z_]\w{0,100}")
_MOMENT: Final = re.compile(r"[0-9T:.+Z-]{1,40}|[A-Z][A-Za-z_]{1,30}(/[A-Z][A-Za-z_+0-9-]{0,40}){0,2}")
_ITEMS: Final = frozenset({"$tuple", "$set", "$frozenset"})
_PAIRS: Final = frozenset({"$dict", "$ordered"})
_BYTES: Final = frozenset({"$bytes", "$bytearray"})
_CLASSES: Final = frozenset({"$secret", "$type"})
_TIMES: Final = frozenset({"$datetime", "$date", "$time", "$timedelta", "$timezone", "$zoneinfo", "$pydantic_zone"})
_OBJECTS: Final[Mapping[str, int]] = {"$namedtuple": 1, "$dataclass": 1, "$model": 1, "$object": 1, "$sub": 2}
"""How many parts of each say what it is."""


def without_what_it_says(tag: str, inside: Json, remove: Callable[[Json], Json]) -> Json | None:
    """The inside of a tagged value after removal; `None` where all of the value is to be replaced by a placeholder.

    Args:
        tag: of the value.
        inside: what stands under the tag.
        remove: removes all that is a text or a number from a part.
    """
    if tag in _ITEMS:
        return remove(inside)
    if tag in _PAIRS:
        return _pairs(inside, remove)
    if tag in _BYTES:
        said = remove(inside["utf-8"] if isinstance(inside, dict) and "utf-8" in inside else inside)
        return {"utf-8": said}
    if tag in _OBJECTS and isinstance(inside, list):
        return _object(tag, inside, remove)
    if tag == "$exception" and isinstance(inside, dict) and _is_class(inside.get("class")):
        return {name: part if name == "class" else remove(part) for name, part in inside.items()}
    says_nothing = (
        (tag in _CLASSES and _is_class(inside))
        or (tag in _TIMES and _is_moment(inside))
        or (tag == "$enum" and _is_member(inside))
    )
    return inside if says_nothing else None


def _pairs(inside: Json, remove: Callable[[Json], Json]) -> Json | None:
    if not isinstance(inside, list):
        return None
    made: list[Json] = []
    for pair in inside:
        if not isinstance(pair, list) or len(pair) != 2:
            return None
        key = remove(pair[0]) if isinstance(pair[0], (dict, list)) else pair[0]  # as names of plain objects are
        made.append([key, remove(pair[1])])
    return made


def _object(tag: str, inside: list[Json], remove: Callable[[Json], Json]) -> Json | None:
    what = inside[: _OBJECTS[tag]]
    if not what or not _is_class(what[0]) or not all(isinstance(part, str) and part.isalpha() for part in what[1:]):
        return None
    made = [*what, *(remove(part) for part in inside[len(what) :])]
    more, was = made[-1], inside[-1]
    if tag == "$model" and isinstance(more, dict) and isinstance(was, dict) and "set" in was:
        more["set"] = was["set"]  # names of fields
    return made


def _is_class(wire: Json) -> bool:
    """`"module:Name"`, or `{"generic": [class, [argument ...]]}`."""
    if isinstance(wire, dict):
        generic = wire.get("generic")
        return len(wire) == 1 and isinstance(generic, list) and bool(generic) and all(map(_is_argument, generic))
    return isinstance(wire, str) and _CLASS.fullmatch(wire) is not None


def _is_argument(wire: Json) -> bool:
    return all(map(_is_argument, wire)) if isinstance(wire, list) else wire is None or _is_class(wire)


def _is_member(wire: Json) -> bool:
    if not isinstance(wire, list) or not wire or not _is_class(wire[0]):
        return False
    if len(wire) == 2:
        return isinstance(wire[1], str) and _MEMBER.fullmatch(wire[1]) is not None
    return len(wire) == 3 and isinstance(wire[2], int)


def _is_moment(wire: Json) -> bool:
    if isinstance(wire, dict):
        return all(map(_is_moment, wire.values()))
    if isinstance(wire, list):
        return all(map(_is_moment, wire))
    return not isinstance(wire, str) or _MOMENT.fullmatch(wire) is not None
