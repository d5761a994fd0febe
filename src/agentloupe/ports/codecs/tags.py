"""The tags: objects with one member whose key begins with `$` stand for values that JSON does not have.

| tag | value |
| --- | --- |
| `{"$float": "NaN"}` | also `Infinity`, `-Infinity` |
| `{"$tuple": [...]}`, `$set`, `$frozenset` (in canonical order), `$deque` (items, maxlen) | containers |
| `{"$dict": [[key, value], ...]}` | a dict with keys that are no text, or one that looks like a tag; in order |
| `$ordered` (items), `$defaultdict` (factory, items), `$namespace` (attributes) | relatives of dict |
| `$bytes`, `$bytearray` (`{"utf-8": text}`, or base64), `$complex` (two floats), `$range`, `$decimal`, `$fraction`, `$uuid`, `$path` | scalars |
| `$datetime`, `$date`, `$time` (ISO 8601), `$timedelta` (days, seconds, microseconds), `$timezone`, `$zoneinfo` | time |
| `$type` (class) | a class used as a value |
| `$enum` (class, name) | a member; (class, null, value) for combined flags |
| `$namedtuple` (class, items), `$dataclass` (class, fields), `$model` (class, fields, more), `$sub` (class, base, value, attributes) | objects of known classes |
| `$exception` | class, args, attrs, state, message, cause, context, notes, members |
| `$http_request`, `$http_response` | of httpx or httpx2 |
| `$custom` (name, value) | a registered type |
| `$unrecordable` (type, path) | what could not be recorded |

A class is `"module:Qual.Name"`, or `{"generic": [class, [argument ...]]}` for a parametrised pydantic model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["TAGS", "tag_of"]

TAGS: Final[frozenset[str]] = frozenset(
    {
        *("$float", "$tuple", "$set", "$frozenset", "$deque", "$dict", "$ordered", "$defaultdict", "$namespace"),
        *("$bytes", "$bytearray", "$complex", "$range", "$decimal", "$fraction", "$uuid", "$path"),
        *("$datetime", "$date", "$time", "$timedelta", "$timezone", "$zoneinfo"),
        *("$type", "$enum", "$namedtuple", "$dataclass", "$model", "$sub"),
        *("$exception", "$http_request", "$http_response", "$custom", "$unrecordable"),
    }
)
"""All tags. An object with one member of another name is a plain object, also when the name begins with `$`."""


def tag_of(wire: Mapping[str, object]) -> str | None:
    """The tag of an object, or `None` for a plain one."""
    if len(wire) != 1:
        return None
    key = next(iter(wire))
    return key if key in TAGS else None
