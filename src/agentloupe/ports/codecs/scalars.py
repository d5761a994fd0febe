"""Values of the standard library: numbers, bytes, containers, time."""

from __future__ import annotations

import base64
import collections
import datetime as dt
import decimal
import fractions
import pathlib
import sys
import types
from typing import Any, cast

from agentloupe.ports.codecs.classes import class_wire, find_class
from agentloupe.ports.codecs.walk import (
    CannotRecord,
    Codec,
    Inner,
    Value,
    add_codec,
    add_exact,
    add_reader,
    attributes,
    items,
    only,
    pairs,
)
from agentloupe.words.canonical import Json, canonical
from agentloupe.words.errors import NotRebuildable

_FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def text_of(wire: Json) -> str:
    """A text. Raises `NotRebuildable` for anything else."""
    if not isinstance(wire, str):
        raise NotRebuildable("a recorded value is no text where it must be")
    return wire


def bytes_wire(value: bytes | bytearray) -> Json:
    """Bytes as JSON: as text where they are UTF-8 (so that people and secret removal can read them), else base64."""
    try:
        return {"utf-8": value.decode()}
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def bytes_of(wire: Json) -> bytes:
    """The reverse of `bytes_wire`."""
    if isinstance(wire, dict):
        return text_of(wire.get("utf-8")).encode()
    return base64.b64decode(text_of(wire), validate=True)


# --- numbers and bytes ------------------------------------------------------------------------------------------------


def _write_bytes(value: bytes | bytearray, _: Inner) -> Json:
    return bytes_wire(value)


def _read_bytes(wire: Json, _: Value) -> bytes:
    return bytes_of(wire)


def _write_complex(value: complex, inner: Inner) -> Json:
    return [inner(value.real, "real"), inner(value.imag, "imag")]


def _read_complex(wire: Json, value: Value) -> complex:
    real, imag = only(wire, object, object)
    return complex(cast("float", value(real)), cast("float", value(imag)))


def _read_range(wire: Json, _: Value) -> range:
    start, stop, step = only(wire, int, int, int)
    return range(start, stop, step)


def _read_fraction(wire: Json, _: Value) -> fractions.Fraction:
    numerator, denominator = only(wire, int, int)
    return fractions.Fraction(numerator, denominator)


# --- UUID: the module is never imported here, a value of the type means that it is loaded ----------------------------------


def _is_uuid(value: object) -> bool:
    module = sys.modules.get("uuid")
    return module is not None and type(value) is module.UUID


def _read_uuid(wire: Json, _: Value) -> object:
    return find_class("uuid:UUID")(text_of(wire))


# --- containers -------------------------------------------------------------------------------------------------------


def _write_items(value: Any, inner: Inner) -> Json:
    return [inner(item, i) for i, item in enumerate(value)]


def _write_set(value: set[object] | frozenset[object], inner: Inner) -> Json:
    return sorted((inner(item, "(item)") for item in value), key=canonical)


def _write_pairs(value: dict[object, object], inner: Inner) -> Json:
    return [[inner(key, "(key)"), inner(item, key)] for key, item in value.items()]


def _read_deque(wire: Json, value: Value) -> collections.deque[object]:
    inside, maxlen = only(wire, list, object)
    return collections.deque(items(inside, value), maxlen)


def harmless(factory: object) -> bool:
    """Whether a default factory is one that data may name: a class of the interpreter or of `collections`."""
    return factory is None or (isinstance(factory, type) and factory.__module__ in ("builtins", "collections"))


def _write_defaultdict(value: collections.defaultdict[object, object], inner: Inner) -> Json:
    if not harmless(value.default_factory):
        raise CannotRecord
    return [inner(value.default_factory, "default_factory"), _write_pairs(value, inner)]


def _read_defaultdict(wire: Json, value: Value) -> object:
    named, inside = only(wire, object, list)
    factory: Any = value(named)
    if not harmless(factory):
        raise NotRebuildable("a recorded defaultdict names a factory that data may not name")
    return collections.defaultdict(factory, pairs(inside, value))


def _write_namespace(value: types.SimpleNamespace, inner: Inner) -> Json:
    return {name: inner(item, name) for name, item in vars(value).items()}


# --- time -------------------------------------------------------------------------------------------------------------


def _write_moment(value: dt.datetime | dt.time, inner: Inner) -> Json:
    """ISO 8601; with the zone apart where its offset alone does not say what it is."""
    zone = value.tzinfo
    if value.fold == 0 and (zone is None or zone is dt.UTC):
        return value.isoformat()
    return [value.replace(tzinfo=None, fold=0).isoformat(), inner(zone, "tzinfo"), value.fold]


def _read_moment(kind: type[dt.datetime | dt.time], wire: Json, value: Value) -> object:
    if isinstance(wire, str):
        return kind.fromisoformat(wire)
    text, zone, fold = only(wire, str, object, int)
    return kind.fromisoformat(text).replace(tzinfo=cast("dt.tzinfo | None", value(zone)), fold=fold)


def _read_timedelta(wire: Json, _: Value) -> dt.timedelta:
    days, seconds, microseconds = only(wire, int, int, int)
    return dt.timedelta(days, seconds, microseconds)


def _write_timezone(value: dt.timezone, _: Inner) -> Json:
    offset, name = value.utcoffset(None), value.tzname(None)
    named = None if name == dt.timezone(offset).tzname(None) else name
    return [offset.days, offset.seconds, offset.microseconds, named]


def _read_timezone(wire: Json, _: Value) -> dt.timezone:
    days, seconds, microseconds, name = only(wire, int, int, int, object)
    offset = dt.timedelta(days, seconds, microseconds)
    if name is None:
        return dt.UTC if not offset else dt.timezone(offset)
    return dt.timezone(offset, text_of(name))


def _is_zoneinfo(value: object) -> bool:
    module = sys.modules.get("zoneinfo")
    return module is not None and type(value) is module.ZoneInfo


def _write_zoneinfo(value: Any, _: Inner) -> Json:
    if value.key is None:
        raise CannotRecord
    return str(value.key)


def _read_zoneinfo(wire: Json, _: Value) -> object:
    import zoneinfo

    return zoneinfo.ZoneInfo(text_of(wire))


# --- paths and classes ------------------------------------------------------------------------------------------------

_PATHS = {
    c.__name__: c for c in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
}


def _read_path(wire: Json, _: Value) -> pathlib.PurePath:
    name, text = only(wire, str, str)
    return _PATHS[name](text)


def _write_class(value: type, _: Inner) -> Json:
    wire = class_wire(value)
    if wire is None:
        raise CannotRecord
    return wire


def add_codecs() -> None:
    """Adds the codecs of this module."""
    add_reader("$float", lambda wire, _: _FLOATS[text_of(wire)])
    add_exact(bytes, "$bytes", _write_bytes, _read_bytes)
    add_exact(bytearray, "$bytearray", _write_bytes, lambda wire, value: bytearray(_read_bytes(wire, value)))
    add_exact(complex, "$complex", _write_complex, _read_complex)
    add_exact(range, "$range", lambda value, _: [value.start, value.stop, value.step], _read_range)
    add_exact(decimal.Decimal, "$decimal", lambda value, _: str(value), lambda wire, _: decimal.Decimal(text_of(wire)))
    add_exact(fractions.Fraction, "$fraction", lambda v, _: [v.numerator, v.denominator], _read_fraction)
    add_codec(Codec("$uuid", _is_uuid, lambda value, _: str(value), _read_uuid))
    add_reader("$tuple", lambda wire, value: tuple(items(wire, value)))
    add_exact(set, "$set", _write_set, lambda wire, value: set(items(wire, value)))
    add_exact(frozenset, "$frozenset", _write_set, lambda wire, value: frozenset(items(wire, value)))
    add_exact(collections.deque, "$deque", lambda v, inner: [_write_items(v, inner), v.maxlen], _read_deque)
    add_reader("$dict", lambda wire, value: dict(pairs(wire, value)))
    add_exact(
        collections.OrderedDict,
        "$ordered",
        _write_pairs,
        lambda wire, value: collections.OrderedDict(pairs(wire, value)),
    )
    add_exact(collections.defaultdict, "$defaultdict", _write_defaultdict, _read_defaultdict)
    add_exact(
        types.SimpleNamespace,
        "$namespace",
        _write_namespace,
        lambda wire, value: types.SimpleNamespace(**attributes(wire, value)),
    )
    add_exact(dt.datetime, "$datetime", _write_moment, lambda wire, value: _read_moment(dt.datetime, wire, value))
    add_exact(dt.time, "$time", _write_moment, lambda wire, value: _read_moment(dt.time, wire, value))
    add_exact(
        dt.date, "$date", lambda value, _: value.isoformat(), lambda wire, _: dt.date.fromisoformat(text_of(wire))
    )
    add_exact(dt.timedelta, "$timedelta", lambda v, _: [v.days, v.seconds, v.microseconds], _read_timedelta)
    add_exact(dt.timezone, "$timezone", _write_timezone, _read_timezone)
    add_codec(Codec("$zoneinfo", _is_zoneinfo, _write_zoneinfo, _read_zoneinfo))
    for path in _PATHS.values():
        add_exact(path, "$path", lambda value, _: [type(value).__name__, str(value)])
    add_reader("$path", _read_path)
    add_codec(Codec("$type", lambda value: isinstance(value, type), _write_class, lambda wire, _: find_class(wire)))
