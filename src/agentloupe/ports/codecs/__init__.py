"""Values to JSON and back, with the type they had.

`encode` never fails: what cannot be recorded is marked and listed. `decode` never runs code that data names: classes are
found among those that are loaded, or were registered; nothing is imported, no `__init__` runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar, cast

from agentloupe.ports.codecs import arrays, exceptions, http, models, objects, requests_http, scalars, values
from agentloupe.ports.codecs.classes import type_name
from agentloupe.ports.codecs.exceptions import error_line
from agentloupe.ports.codecs.missing import attributes_if_recorded
from agentloupe.ports.codecs.reading import decode_for_reading
from agentloupe.ports.codecs.tags import TAGS
from agentloupe.ports.codecs.walk import (
    DEPTH,
    LEAVES,
    Circular,
    CircularDecoder,
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
from agentloupe.words.errors import NotRebuildable, UsageError

__all__ = ["DEPTH", "TAGS", "Encoded", "Lost", "decode", "decode_for_reading", "encode", "error_line", "register_type"]

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
    try:
        walk = Encoder()
        wire = walk.value(value)
    except Exception:  # noqa: BLE001  # a fault of a codec is not the agent's
        lost = Lost("$", type_name(kind))
        return Encoded({"$unrecordable": lost._asdict()}, (lost,))
    return Encoded(wire, tuple(walk.lost))


def decode(wire: Json) -> object:
    """The value that was encoded, with its types; containers are new.

    Raises:
        NotRebuildable: a class is not loaded here, a part was unrecordable, or the wire is not what `encode` writes.
    """
    try:
        try:
            return Decoder().value(wire)
        except Circular:
            return CircularDecoder().value(wire)
    except RecursionError:
        raise NotRebuildable("a recorded value is nested too deep to be rebuilt here") from None


@dataclass(frozen=True, slots=True)
class _Known:
    """A registered type; without `from_json` it is rebuilt by its attributes."""

    cls: type
    from_json: Callable[[Any], Any] | None


_registered: dict[str, _Known] = {}


def register_type(
    cls: type[T],
    name: str | None = None,
    to_json: Callable[[T], object] | None = None,
    from_json: Callable[[Any], T] | None = None,
) -> type[T]:
    """Teaches Loupe a type: values of exactly this class are recorded, and come back in replays and forks.

    With a class alone, its attributes are what is recorded, and no code of the class runs when it is rebuilt. It may be
    used as a decorator. Give the two functions where attributes do not say what a value is (an array, a handle).

    Args:
        cls: the class.
        name: a stable name under which values are stored; it must be registered again before they are read. Default:
            the class's module and name.
        to_json: makes something that can be recorded (it may hold other recordable values).
        from_json: the reverse.

    Returns:
        The class.

    Raises:
        UsageError: only one of the two functions is given, or another class has the name.
    """
    if (to_json is None) is not (from_json is None):
        raise UsageError(f"{type_name(cls)}: give to_json and from_json, or neither")
    known = type_name(cls) if name is None else name
    there = _registered.get(known)
    if there is not None and type_name(there.cls) != type_name(cls):
        raise UsageError(f"the name {known!r} is taken by {type_name(there.cls)}", hint="register it by another name")

    def write(value: T, inner: Inner) -> Json:
        if to_json is not None:
            return [known, inner(to_json(value), known)]
        inner.may_close_circles()
        return [known, {part: inner(item, part) for part, item in objects.state_of(value).items()}]

    _registered[known] = _Known(cls, from_json)
    add_exact(cls, "$custom", write)
    return cls


def _read_custom(wire: Json, value: Value) -> object:
    name, inside = only(wire, str, object)
    known = _registered.get(name)
    if known is None and name in (arrays.ARRAY, arrays.NUMBER):
        return arrays.read(name, inside, value)
    if known is None:
        raise NotRebuildable(f"the type {name} is not registered here", hint="call agentloupe.register_type first")
    if known.from_json is not None:
        return known.from_json(value(inside))
    made = value.begin(objects.bare(known.cls))
    objects.set_state(made, attributes_if_recorded(inside, value))
    return made


def _read_unrecordable(wire: Json, _: Value) -> object:
    kind = wire.get("type") if isinstance(wire, dict) else None
    path = wire.get("path") if isinstance(wire, dict) else None
    raise NotRebuildable(f"a value of type {kind} at {path} was not recordable")


add_reader("$unrecordable", _read_unrecordable)
for _codecs in (
    arrays,
    scalars,
    models,
    exceptions,
    http,
    requests_http,
    values,
    objects,
):  # the last takes what looks like a builtin
    _codecs.add_codecs()
add_reader("$custom", _read_custom)  # also what `arrays` writes
