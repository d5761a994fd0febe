"""Values of the standard library that are met now and then: addresses, patterns, views of memory, records of the system."""

from __future__ import annotations

import re
import types
from typing import Any, cast

from agentloupe.ports.codecs.classes import find_class
from agentloupe.ports.codecs.objects import bare, family, set_state, state_of, written_class
from agentloupe.ports.codecs.scalars import bytes_of, bytes_wire, text_of
from agentloupe.ports.codecs.walk import (
    CannotRecord,
    Codec,
    Inner,
    Value,
    add_codec,
    add_exact,
    attributes,
    items,
    only,
    pairs,
)
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["add_codecs"]

_CONSTANTS: dict[str, object] = {"Ellipsis": ..., "NotImplemented": NotImplemented}

# --- internet addresses: the module is never imported here ----------------------------------------------------------------

_ADDRESSES = frozenset({"IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network", "IPv4Interface", "IPv6Interface"})


def _is_address(value: object) -> bool:
    cls = type(value)
    return cls.__module__ == "ipaddress" and cls.__name__ in _ADDRESSES


def _read_address(wire: Json, _: Value) -> object:
    name, text = only(wire, str, str)
    if name not in _ADDRESSES:
        raise NotRebuildable("a recorded address is of a kind that this version does not know")
    return find_class(f"ipaddress:{name}")(text)


# --- patterns, slices, memory -------------------------------------------------------------------------------------------


def _write_pattern(value: re.Pattern[Any], inner: Inner) -> Json:
    return [inner(value.pattern, "pattern"), value.flags]


def _read_pattern(wire: Json, value: Value) -> object:
    pattern, flags = only(wire, object, int)
    text = value(pattern)
    if not isinstance(text, str | bytes):
        raise NotRebuildable("a recorded pattern is no text")
    return re.compile(text, flags)


def _write_slice(value: slice, inner: Inner) -> Json:
    return [inner(value.start, "start"), inner(value.stop, "stop"), inner(value.step, "step")]


def _write_memory(value: memoryview, _: Inner) -> Json:
    if value.format != "B" or value.ndim != 1:
        raise CannotRecord
    return [bytes_wire(bytes(value)), value.readonly]


def _read_memory(wire: Json, _: Value) -> memoryview:
    content, readonly = only(wire, object, bool)
    plain = bytes_of(content)
    return memoryview(plain if readonly else bytearray(plain))


def _is_array(value: object) -> bool:
    cls = type(value)
    return cls.__module__ == "array" and cls.__name__ == "array"


def _write_array(value: Any, inner: Inner) -> Json:
    return [value.typecode, [inner(item, i) for i, item in enumerate(value)]]


def _read_array(wire: Json, value: Value) -> object:
    typecode, inside = only(wire, str, list)
    return find_class("array:array")(typecode, items(inside, value))


def _write_proxy(value: types.MappingProxyType[object, object], inner: Inner) -> Json:
    return [[inner(key, "(key)"), inner(item, key)] for key, item in value.items()]


# --- records of the system (`time.struct_time`, `os.stat_result`) ---------------------------------------------------------


def _is_record(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(type(cast("object", value)).__dict__.get("n_sequence_fields"), int)


def _write_record(value: Any, inner: Inner) -> Json:
    _, (shown, more) = cast("tuple[object, tuple[object, dict[str, object]]]", value.__reduce__())
    return [written_class(value.__class__), inner(shown, "fields"), {name: inner(v, name) for name, v in more.items()}]


def _read_record(wire: Json, value: Value) -> object:
    name, shown, more = only(wire, object, object, dict)
    cls: Any = family(name, tuple, "tuple")
    if "n_sequence_fields" not in cls.__dict__:
        raise NotRebuildable("a recorded record of the system is none here")
    return cls(value(shown), attributes(more, value))


# --- classes of the standard library that are written in Python, and subclasses of them ------------------------------------

_PURE = frozenset(
    {
        *("collections:UserDict", "collections:UserList", "collections:UserString", "collections:ChainMap"),
        *("fractions:Fraction", "uuid:UUID", "string:Template", "argparse:Namespace", "subprocess:CompletedProcess"),
        *(f"ipaddress:{name}" for name in _ADDRESSES),
    }
)
"""Their state is all that they are."""


def _is_pure(cls: type) -> bool:
    return any(f"{base.__module__}:{base.__qualname__}" in _PURE for base in cls.__mro__)


def write_state(value: object, inner: Inner) -> Json:
    """An object by its class and its attributes."""
    inner.may_close_circles()
    return [written_class(type(value)), {name: inner(item, name) for name, item in state_of(value).items()}]


def _read_object(wire: Json, value: Value) -> object:
    name, state = only(wire, object, dict)
    cls = family(name, None, "class")
    if not _is_pure(cls):
        raise NotRebuildable("an object of a class was recorded that is not rebuilt by its attributes")
    made = value.begin(bare(cls))
    set_state(made, attributes(state, value))
    return made


def add_codecs() -> None:
    """Adds the codecs of this module."""
    for name, constant in _CONSTANTS.items():
        add_exact(type(constant), "$constant", lambda _, __, name=name: name, lambda wire, _: _CONSTANTS[text_of(wire)])
    add_exact(re.Pattern, "$pattern", _write_pattern, _read_pattern)
    add_exact(slice, "$slice", _write_slice, lambda wire, value: slice(*map(value, only(wire, object, object, object))))
    add_exact(memoryview, "$memoryview", _write_memory, _read_memory)
    add_exact(
        types.MappingProxyType,
        "$mappingproxy",
        _write_proxy,
        lambda wire, value: types.MappingProxyType(dict(pairs(wire, value))),
    )
    add_codec(Codec("$array", _is_array, _write_array, _read_array))
    add_codec(Codec("$address", _is_address, lambda v, _: [type(v).__name__, str(v)], _read_address))
    add_codec(Codec("$record", _is_record, _write_record, _read_record))
    add_codec(Codec("$object", lambda value: _is_pure(type(value)), write_state, _read_object))
