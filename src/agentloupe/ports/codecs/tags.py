"""The tags: objects with one member whose key begins with `$` stand for values that JSON does not have.

| tag | value |
| --- | --- |
| `{"$float": "NaN"}` | also `Infinity`, `-Infinity` |
| `{"$tuple": [...]}`, `$set`, `$frozenset` (in canonical order), `$deque` (items, maxlen) | containers |
| `{"$dict": [[key, value], ...]}` | a dict with keys that are no text, or one that looks like a tag; in order |
| `$ordered` (items), `$defaultdict` (factory, items), `$namespace` (attributes) | relatives of dict |
| `$bytes`, `$bytearray` (`{"utf-8": text}`, or base64), `$complex` (two floats), `$range`, `$decimal`, `$fraction`, `$uuid`, `$path` | scalars |
| `$datetime`, `$date`, `$time` (ISO 8601), `$timedelta` (days, seconds, microseconds), `$timezone`, `$zoneinfo` | time |
| `$address`, `$pattern` (text, flags), `$slice`, `$array` (type code, items), `$memoryview` (bytes, read-only), `$mappingproxy`, `$constant` | more of the standard library |
| `$record` (class, fields, more) | a record of the system: `time.struct_time`, `os.stat_result` |
| `$type` (class) | a class used as a value |
| `$enum` (class, name) | a member; (class, null, value) for combined flags |
| `$namedtuple` (class, items), `$dataclass` (class, fields, other attributes), `$model` (class, fields, more), `$sub` (class, base, value, attributes), `$object` (class, attributes) | objects of known classes |
| `$secret` (class) | a secret of pydantic: its value is never recorded |
| `$pydantic_zone` (seconds) | the zone of a moment that pydantic has read |
| `$pydantic_url` (class, kind, text), `$faults` (title, faults, mode, hidden) | a URL of pydantic, a `ValidationError` |
| `$exception` | class, args, attrs, state, message, cause, context, notes, members |
| `$http_request`, `$http_response`, `$http_value` (library, class, value) | of httpx or httpx2; values also of yarl and multidict |
| `$requests_request`, `$requests_response` | of requests |
| `$custom` (name, value) | a registered type; `numpy.array` and `numpy.number` (type, shape, items) |
| `$up` (levels) | the value itself, met again inside of itself, so many levels further out (0: what holds this) |
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
        *("$address", "$pattern", "$slice", "$array", "$memoryview", "$mappingproxy", "$constant", "$record"),
        *(
            "$object",
            "$secret",
            "$pydantic_url",
            "$pydantic_zone",
            "$faults",
            "$requests_request",
            "$requests_response",
        ),
        *("$exception", "$http_request", "$http_response", "$http_value", "$custom", "$up", "$unrecordable"),
    }
)
"""All tags. An object with one member of another name is a plain object, also when the name begins with `$`."""


def tag_of(wire: Mapping[str, object]) -> str | None:
    """The tag of an object, or `None` for a plain one."""
    if len(wire) != 1:
        return None
    key = next(iter(wire))
    return key if key in TAGS else None
