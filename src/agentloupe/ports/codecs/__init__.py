"""Values to JSON and back, with the type they had.

`encode` never fails: what cannot be recorded is marked and listed. `decode` never runs code that data names: classes are
found among those that are loaded, or were registered; nothing is imported, no `__init__` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar, cast

from agentloupe.ports.codecs import exceptions, http, objects, scalars
from agentloupe.ports.codecs.exceptions import error_line
from agentloupe.ports.codecs.reading import decode_for_reading
from agentloupe.ports.codecs.tags import TAGS
from agentloupe.ports.codecs.walk import (
    DEPTH,
    LEAVES,
    Decoder,
    Encoder,
    Inner,
    Lost,
    Value,
    add_exact,
    add_reader,
    only,
)
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["DEPTH", "TAGS", "Encoded", "Lost", "decode", "decode_for_reading", "encode", "error_line", "register"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as JSON.

    Attributes:
        wire: the value; a copy, so later edits of the value change nothing. Holds no non-finite float.
        unrecordable: what could not be recorded; empty when the value comes back whole.
    """

    wire: Json
    unrecordable: tuple[Lost, ...]


def encode(value: object) -> Encoded:
    """A value as JSON. Never raises: parts that cannot be recorded become `{"$unrecordable": ...}` and are listed."""
    kind = type(value)
    if kind in LEAVES or (kind is float and isfinite(cast("float", value))):
        return Encoded(cast("Json", value), ())
    walk = Encoder()
    wire = walk.value(value)
    return Encoded(wire, tuple(walk.lost))


def decode(wire: Json) -> object:
    """The value that was encoded, with its types; containers are new.

    Raises:
        NotRebuildable: a class is not loaded here, a part was unrecordable, or the wire is not what `encode` writes.
    """
    try:
        return Decoder().value(wire)
    except RecursionError:
        raise NotRebuildable("a recorded value is nested too deep to be rebuilt here") from None


_registered: dict[str, Callable[[Any], object]] = {}


def register(cls: type[T], name: str, to_json: Callable[[T], object], from_json: Callable[[Any], T]) -> None:
    """Teaches Loupe a type: values of exactly this class are recorded as what `to_json` makes of them.

    Args:
        cls: the class.
        name: a stable name under which values are stored; it must be registered again before they are read.
        to_json: makes something that can be recorded (it may hold other recordable values).
        from_json: the reverse.
    """

    def write(value: T, inner: Inner) -> Json:
        return [name, inner(to_json(value), name)]

    _registered[name] = from_json
    add_exact(cls, "$custom", write)


def _read_custom(wire: Json, value: Value) -> object:
    name, inside = only(wire, str, object)
    make = _registered.get(name)
    if make is None:
        raise NotRebuildable(
            f"the type {name} is not registered here", hint="call agentloupe.ports.codecs.register first"
        )
    return make(value(inside))


def _read_unrecordable(wire: Json, _: Value) -> object:
    kind = wire.get("type") if isinstance(wire, dict) else None
    path = wire.get("path") if isinstance(wire, dict) else None
    raise NotRebuildable(f"a value of type {kind} at {path} was not recordable")


add_reader("$custom", _read_custom)
add_reader("$unrecordable", _read_unrecordable)
for _codecs in (scalars, exceptions, http, objects):  # in this order: the last takes what looks like a builtin
    _codecs.add_codecs()
