"""Objects of classes that can be found again: enums, dataclasses, named tuples, subclasses of what is written in C.

They are made by the `__new__` of the C type under them and get the state they had: no `__init__`, no validation and no
property of theirs runs.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from agentloupe.ports.codecs.classes import class_wire, find_class, type_name
from agentloupe.ports.codecs.missing import attributes_if_recorded
from agentloupe.ports.codecs.scalars import harmless
from agentloupe.ports.codecs.walk import CannotRecord, Codec, Inner, Value, add_codec, attributes, items, only
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["add_codecs", "bare", "family", "set_state", "state_of", "written_class"]


def written_class(cls: type) -> Json:
    """A class as JSON. Raises `CannotRecord` when nobody could find it again."""
    wire = class_wire(cls)
    if wire is None:
        raise CannotRecord
    return wire


def family(wire: Json, base: type | None, what: str) -> type:
    """A class that must be of a family. Raises `NotRebuildable`."""
    cls = find_class(wire)
    if base is not None and not issubclass(cls, base):
        raise NotRebuildable(f"the class {type_name(cls)} is no {what} here")
    return cls


def bare(cls: type) -> Any:
    """An instance without state: nothing of the class runs."""
    return cast("Any", object).__new__(cls)


# --- state ------------------------------------------------------------------------------------------------------------


def _slots(cls: type) -> Iterable[tuple[str, types.MemberDescriptorType]]:
    """Slots of a class and its bases, as they lie in the classes' dictionaries."""
    for base in cls.__mro__:
        for name, member in base.__dict__.items():
            if isinstance(member, types.MemberDescriptorType) and "__slots__" in base.__dict__:
                yield name, member


def state_of(value: object) -> dict[str, object]:
    """What an object holds in its dictionary and its slots."""
    state: dict[str, object] = {}
    for name, member in _slots(type(value)):
        try:
            state[name] = member.__get__(value, type(value))
        except AttributeError:
            continue  # a slot that was never set
    held: object = getattr(value, "__dict__", None)
    if isinstance(held, dict):
        state.update(cast("dict[str, object]", held))
    state.pop("__orig_class__", None)  # what typing notes of `Box[int](3)`; the class does not know of it
    return state


def set_state(value: object, state: Mapping[str, object]) -> None:
    """Gives an object its state without running any code of its class."""
    members = dict(_slots(type(value)))
    for name, item in state.items():
        if name in members:
            members[name].__set__(value, item)
        else:
            cast("dict[str, object]", value.__dict__)[name] = item


# --- enums, named tuples ----------------------------------------------------------------------------------------------


def _write_enum(value: enum.Enum, inner: Inner) -> Json:
    cls = type(value)
    name: object = value.__dict__.get("_name_")
    if isinstance(name, str) and cls.__members__.get(name) is value:
        return [written_class(cls), name]
    return [written_class(cls), None, inner(cast("object", value.__dict__["_value_"]), "value")]


def _read_enum(wire: Json, value: Value) -> object:
    if isinstance(wire, list) and len(wire) == 2:
        cls, name = only(wire, object, str)
        return cast("type[enum.Enum]", family(cls, enum.Enum, "enum")).__members__[name]
    cls, _, plain = only(wire, object, object, object)
    return family(cls, enum.Enum, "enum")(value(plain))


def _is_namedtuple(value: object) -> bool:
    return issubclass(type(value), tuple) and isinstance(getattr(type(value), "_fields", None), tuple)


def _write_namedtuple(value: Any, inner: Inner) -> Json:
    cls: Any = value.__class__
    items_of = tuple[object, ...].__iter__(value)
    return [written_class(cls), [inner(v, k) for k, v in zip(cls._fields, items_of, strict=True)]]


def _read_namedtuple(wire: Json, value: Value) -> object:
    cls, inside = only(wire, object, list)
    return cast("Any", tuple).__new__(family(cls, tuple, "tuple"), items(inside, value))


# --- dataclasses and what attrs makes ---------------------------------------------------------------------------------


def _fields(cls: Any) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(cls):
        return tuple(f.name for f in dataclasses.fields(cls))
    made_by_attrs: Any = getattr(cls, "__attrs_attrs__", None)
    return None if made_by_attrs is None else tuple(str(a.name) for a in made_by_attrs)


def _write_dataclass(value: object, inner: Inner) -> Json:
    """Class, fields, and the attributes that are no fields, where there are some."""
    inner.may_close_circles()
    cls, state = type(value), state_of(value)
    if not _can_be_made(cls):
        raise CannotRecord
    names = [name for name in _fields(cls) or () if name in state]
    wire: list[Json] = [written_class(cls), {name: inner(state.pop(name), name) for name in names}]
    return [*wire, {name: inner(item, name) for name, item in state.items()}] if state else wire


def _read_dataclass(wire: Json, value: Value) -> object:
    with_more = isinstance(wire, list) and len(wire) == 3
    name, inside, *more = only(wire, object, dict, *((dict,) if with_more else ()))
    cls = family(name, None, "dataclass")
    if _fields(cls) is None:
        raise NotRebuildable(f"the class {type_name(cls)} is no dataclass here")
    made = value.begin(bare(cls))
    set_state(made, attributes(inside, value))
    if more:
        set_state(made, attributes_if_recorded(more[0], value))
    return made


# --- subclasses of builtins -------------------------------------------------------------------------------------------


def _parts(value: Any, kind: Any, names: Sequence[str]) -> list[Any]:
    """Attributes of a C type, whatever the subclass overrides."""
    return [getattr(kind, name).__get__(value) for name in names]


def _moment(value: Any) -> dt.datetime:
    *parts, zone, fold = _parts(value, dt.datetime, ("year", "month", "day", *_CLOCK, "tzinfo", "fold"))
    return dt.datetime(*parts, tzinfo=zone, fold=fold)


def _time(value: Any) -> dt.time:
    *parts, zone, fold = _parts(value, dt.time, (*_CLOCK, "tzinfo", "fold"))
    return dt.time(*parts, tzinfo=zone, fold=fold)


def _day(value: Any) -> dt.date:
    return dt.date(*_parts(value, dt.date, ("year", "month", "day")))


def _span(value: Any) -> dt.timedelta:
    return dt.timedelta(*_parts(value, dt.timedelta, ("days", "seconds", "microseconds")))


_CLOCK = ("hour", "minute", "second", "microsecond")


@dataclasses.dataclass(frozen=True, slots=True)
class _Base:
    """A C type that classes are derived from.

    Attributes:
        kind: the type.
        plain: the plain value in an instance of a subclass, whatever the subclass overrides.
        make: an instance of a subclass from the plain value; runs the type's own `__new__` and nothing else.
    """

    kind: Any
    plain: Callable[[Any], Any]
    make: Callable[[Any, Any], Any]


def _new(kind: Any, plain: Callable[[Any], Any]) -> _Base:
    return _Base(kind, plain, kind.__new__)


def _filled(kind: Any, plain: Callable[[Any], Any], fill: Callable[[Any, Any], object]) -> _Base:
    def make(cls: Any, value: Any) -> Any:
        made = kind.__new__(cls)
        fill(made, value)
        return made

    return _Base(kind, plain, make)


def _deque(value: Any) -> tuple[list[Any], int | None]:
    return list(collections.deque[Any].__iter__(value)), collections.deque.__dict__["maxlen"].__get__(value)


def _default(value: Any) -> tuple[Any, dict[Any, Any]]:
    """Factory and members; a factory that data may not name is left to be unrecordable."""
    factory = collections.defaultdict.__dict__["default_factory"].__get__(value)
    return factory, dict[Any, Any](dict[Any, Any].items(value))


def _fill_deque(made: Any, value: Any) -> None:
    collections.deque[Any].__init__(made, *value)


def _fill_default(made: Any, value: Any) -> None:
    factory, members = value
    collections.defaultdict[Any, Any].__init__(made, factory if harmless(factory) else None, members)


_BASES: dict[str, _Base] = {
    "str": _new(str, str.__str__),
    "int": _new(int, int.__int__),
    "float": _new(float, float.__float__),
    "bytes": _new(bytes, lambda value: bytes.__getitem__(value, slice(None))),
    "bytearray": _filled(bytearray, lambda value: bytearray.__getitem__(value, slice(None)), bytearray.extend),
    "list": _filled(list, lambda value: list[Any](list[Any].__iter__(value)), list[Any].extend),
    "deque": _filled(collections.deque, _deque, _fill_deque),
    "defaultdict": _filled(collections.defaultdict, _default, _fill_default),
    "ordered": _filled(
        collections.OrderedDict,
        lambda value: collections.OrderedDict(collections.OrderedDict[Any, Any].items(value)),
        collections.OrderedDict[Any, Any].update,
    ),
    "dict": _filled(dict, lambda value: dict[Any, Any](dict[Any, Any].items(value)), dict[Any, Any].update),
    "tuple": _new(tuple, lambda value: tuple[Any, ...](tuple[Any, ...].__iter__(value))),
    "set": _filled(set, lambda value: set[Any](set[Any].__iter__(value)), set[Any].update),
    "frozenset": _new(frozenset, lambda value: frozenset[Any](frozenset[Any].__iter__(value))),
    "complex": _new(complex, complex.__complex__),
    "decimal": _new(decimal.Decimal, decimal.Decimal),
    "datetime": _Base(
        dt.datetime,
        _moment,
        lambda cls, v: dt.datetime.__new__(cls, v.year, v.month, v.day, *_clock(v), v.tzinfo, fold=v.fold),
    ),
    "date": _Base(dt.date, _day, lambda cls, v: dt.date.__new__(cls, v.year, v.month, v.day)),
    "time": _Base(dt.time, _time, lambda cls, v: dt.time.__new__(cls, *_clock(v), v.tzinfo, fold=v.fold)),
    "timedelta": _Base(
        dt.timedelta, _span, lambda cls, v: dt.timedelta.__new__(cls, v.days, v.seconds, v.microseconds)
    ),
    "tzinfo": _Base(dt.tzinfo, lambda _: None, lambda cls, _: dt.tzinfo.__new__(cls)),
    "namespace": _Base(types.SimpleNamespace, lambda _: None, lambda cls, _: types.SimpleNamespace.__new__(cls)),
}
"""By name; of two that a class may derive from, the nearer one first."""


_seen_made: weakref.WeakSet[type] = weakref.WeakSet()


def _clock(value: Any) -> tuple[int, int, int, int]:
    return value.hour, value.minute, value.second, value.microsecond


def _base_of(cls: type) -> str | None:
    return next((name for name, base in _BASES.items() if issubclass(cls, base.kind)), None)


@lru_cache(512)
def _can_be_made(cls: type) -> bool:
    """Whether the `__new__` of the C type under a class makes an instance: not where another C type lies between."""
    try:
        bare(cls)
    except TypeError:
        return False
    return True


def _write_sub(value: object, inner: Inner) -> Json:
    base = _base_of(type(value))
    if base is None:
        raise CannotRecord
    wire = written_class(type(value))
    plain = _BASES[base].plain(value)
    if type(value) not in _seen_made:
        _BASES[base].make(type(value), plain)  # fails where it would fail in a replay: another C type lies between
        _seen_made.add(type(value))
    made: list[Json] = [wire, base, inner(plain, base)]
    state = state_of(value)
    return [*made, {name: inner(item, name) for name, item in state.items()}] if state else made


def _read_sub(wire: Json, value: Value) -> object:
    with_state = isinstance(wire, list) and len(wire) == 4
    name, base, inside, *state = only(wire, object, str, object, *((dict,) if with_state else ()))
    known = _BASES[base]
    made = known.make(family(name, known.kind, base), value(inside))
    if state:
        set_state(made, attributes(state[0], value))
    return made


def _is_dataclass(value: object) -> bool:
    return _fields(type(value)) is not None and _base_of(type(value)) is None


def add_codecs() -> None:
    """Adds the codecs of this module; subclasses of builtins last, since many of the others are some, too."""
    add_codec(Codec("$enum", lambda value: isinstance(value, enum.Enum), _write_enum, _read_enum))
    add_codec(Codec("$namedtuple", _is_namedtuple, _write_namedtuple, _read_namedtuple))
    add_codec(Codec("$dataclass", _is_dataclass, _write_dataclass, _read_dataclass))
    add_codec(Codec("$sub", lambda value: _base_of(type(value)) is not None, _write_sub, _read_sub))
