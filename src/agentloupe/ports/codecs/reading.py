"""Recorded values for people: plain JSON without tags. A view; nothing can be rebuilt from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from agentloupe.ports.codecs.exceptions import error_line
from agentloupe.ports.codecs.tags import tag_of
from agentloupe.ports.codecs.walk import Decoder
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import NotRebuildable

__all__ = ["decode_for_reading"]


def decode_for_reading(wire: Json) -> Json:
    """A wire as plain JSON: a tuple is a list, a model its fields, a time its text, an exception one line.

    Never raises; what it does not know how to show stays as it is.
    """
    try:
        return _shown(wire)
    except RecursionError:
        return wire


def _shown(wire: Json) -> Json:
    if isinstance(wire, dict):
        tag = tag_of(wire)
        show = None if tag is None else _SHOW.get(tag)
        if tag is None or show is None:
            return {name: _shown(item) for name, item in wire.items()}
        try:
            return show(wire[tag])
        except (TypeError, ValueError, LookupError, AttributeError, NotRebuildable):  # a wire that nobody writes
            return wire
    return [_shown(item) for item in wire] if isinstance(wire, list) else wire


def _second(inside: Json) -> Json:
    return _shown(cast("list[Json]", inside)[1])


def _first(inside: Json) -> Json:
    return _shown(cast("list[Json]", inside)[0])


def _pairs(inside: Json) -> Json:
    return {_key(key): _shown(item) for key, item in cast("list[tuple[Json, Json]]", inside)}


def _key(wire: Json) -> str:
    shown = _shown(wire)
    return shown if isinstance(shown, str) else dumps(shown).decode()


def _enum(inside: Json) -> Json:
    cls, name, *value = cast("list[Json]", inside)
    return name if name is not None else _shown(value[0]) if value else cls


def _model(inside: Json) -> Json:
    _, fields, more = cast("list[dict[str, Json]]", inside)
    extra = more.get("extra")
    return _shown({**fields, **extra} if isinstance(extra, dict) else fields)


def _request(inside: Json) -> Json:
    wire = cast("dict[str, Json]", inside)
    return f"{wire['method']} {wire['url']}"


def _lost(inside: Json) -> Json:
    return f"(not recordable: {cast('dict[str, Json]', inside)['type']})"


def _bytes(inside: Json) -> Json:
    return inside.get("utf-8") if isinstance(inside, dict) else inside


def _as_text(inside: Json) -> Json:
    return inside if isinstance(inside, str) else _first(inside)


def _told(tag: str) -> Callable[[Json], Json]:
    """Small values that Python tells well itself."""
    return lambda inside: str(Decoder().value({tag: inside}))


_SHOW: dict[str, Callable[[Json], Json]] = {
    **dict.fromkeys(("$tuple", "$set", "$frozenset", "$namespace"), _shown),
    **dict.fromkeys(("$datetime", "$time"), _as_text),
    **dict.fromkeys(("$float", "$decimal", "$uuid", "$date", "$zoneinfo", "$type"), lambda inside: inside),
    **dict.fromkeys(("$path", "$namedtuple", "$dataclass", "$custom"), _second),
    **dict.fromkeys(("$bytes", "$bytearray"), _bytes),
    **{tag: _told(tag) for tag in ("$timedelta", "$timezone", "$range", "$complex", "$fraction")},
    **dict.fromkeys(("$address", "$array", "$record", "$object"), _second),
    **dict.fromkeys(("$pydantic_url", "$http_value"), lambda inside: _shown(cast("list[Json]", inside)[2])),
    "$pattern": _first,
    "$slice": _shown,
    "$memoryview": lambda inside: _bytes(cast("list[Json]", inside)[0]),
    "$mappingproxy": _pairs,
    "$constant": lambda inside: inside,
    "$secret": lambda _: "[removed:secret]",
    "$faults": lambda inside: f"ValidationError: {cast('list[Json]', inside)[0]}",
    "$requests_request": _request,
    "$requests_response": lambda inside: f"HTTP {cast('dict[str, Json]', inside)['status']}",
    "$up": lambda _: "(the value around this one)",
    "$deque": _first,
    "$dict": _pairs,
    "$ordered": _pairs,
    "$defaultdict": lambda inside: _pairs(cast("list[Json]", inside)[1]),
    "$enum": _enum,
    "$model": _model,
    "$sub": lambda inside: _shown(cast("list[Json]", inside)[2]),
    "$exception": lambda inside: error_line({"$exception": inside}),
    "$http_request": _request,
    "$http_response": lambda inside: f"HTTP {cast('dict[str, Json]', inside)['status']}",
    "$unrecordable": _lost,
}
