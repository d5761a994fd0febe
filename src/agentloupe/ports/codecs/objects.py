"""Objects of classes that can be found again: enums, dataclasses, pydantic models, named tuples, subclasses of builtins.

They are made by the `__new__` of the C type under them and get the state they had: no `__init__`, no validation and no
property of theirs runs.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from agentloupe.ports.codecs.classes import class_wire, find_class, type_name
from agentloupe.ports.codecs.missing import attributes_if_recorded
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
    state = state_of(value)
    wire = written_class(type(value))
    return [wire, {name: inner(state[name], name) for name in _fields(type(value)) or () if name in state}]


def _read_dataclass(wire: Json, value: Value) -> object:
    name, inside = only(wire, object, dict)
    cls = family(name, None, "dataclass")
    if _fields(cls) is None:
        raise NotRebuildable(f"the class {type_name(cls)} is no dataclass here")
    made = bare(cls)
    set_state(made, attributes(inside, value))
    return made


# --- pydantic ---------------------------------------------------------------------------------------------------------


def _model_base() -> type | None:
    """Pydantic's BaseModel, where something has loaded it."""
    module = sys.modules.get("pydantic.main")
    base = getattr(module, "BaseModel", None)
    return base if isinstance(base, type) else None


def _is_model(value: object) -> bool:
    base = _model_base()
    return base is not None and isinstance(value, base) and hasattr(value, "__pydantic_fields_set__")


def _write_model(value: Any, inner: Inner) -> Json:
    """Class, fields as they are (extra ones apart), and what else pydantic keeps, where it is not the usual."""
    held = cast("dict[str, object]", value.__dict__)
    extra = cast("dict[str, object] | None", value.__pydantic_extra__)
    private = cast("dict[str, object] | None", value.__pydantic_private__)
    fields_set = cast("set[str]", value.__pydantic_fields_set__)
    more: dict[str, Json] = {}
    if extra is not None:
        more["extra"] = {name: inner(item, name) for name, item in extra.items()}
    if private is not None:
        more["private"] = {name: inner(item, name) for name, item in private.items()}
    if fields_set != held.keys():
        more["set"] = [*(n for n in held if n in fields_set), *sorted(n for n in fields_set if n not in held)]
    return [written_class(value.__class__), {name: inner(item, name) for name, item in held.items()}, more]


def _read_model(wire: Json, value: Value) -> object:
    name, inside, more = only(wire, object, dict, dict)
    base = _model_base()
    if base is None:
        raise NotRebuildable("a pydantic model was recorded, and pydantic is not loaded here")
    cls = family(name, base, "pydantic model")
    made = bare(cls)
    fields = attributes(inside, value)
    chosen = more.get("set")
    object.__setattr__(made, "__dict__", fields)
    object.__setattr__(made, "__pydantic_fields_set__", set(fields) if chosen is None else set(items(chosen, value)))
    extra, private = more.get("extra"), more.get("private")
    object.__setattr__(made, "__pydantic_extra__", None if extra is None else attributes(extra, value))
    object.__setattr__(
        made, "__pydantic_private__", None if private is None else attributes_if_recorded(private, value)
    )
    return made


# --- subclasses of builtins -------------------------------------------------------------------------------------------

_Of = Callable[[Any], Any]
_BASES: dict[str, tuple[Any, _Of]] = {
    "str": (str, str.__str__),
    "int": (int, int.__int__),
    "float": (float, float.__float__),
    "bytes": (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    "list": (list, lambda value: list[Any](list[Any].__iter__(value))),
    "dict": (dict, lambda value: dict[Any, Any](dict[Any, Any].items(value))),
    "tuple": (tuple, lambda value: tuple[Any, ...](tuple[Any, ...].__iter__(value))),
    "set": (set, lambda value: set[Any](set[Any].__iter__(value))),
    "frozenset": (frozenset, lambda value: frozenset[Any](frozenset[Any].__iter__(value))),
}
"""C type of a subclass, and the plain value in it, whatever the subclass overrides."""
_FILL: dict[str, Callable[[Any, Any], object]] = {
    "list": list[Any].extend,
    "dict": dict[Any, Any].update,
    "set": set[Any].update,
}


def _base_of(cls: type) -> str | None:
    return next((name for name, (base, _) in _BASES.items() if issubclass(cls, base)), None)


def _write_sub(value: object, inner: Inner) -> Json:
    base = _base_of(type(value))
    if base is None:
        raise CannotRecord
    wire: list[Json] = [written_class(type(value)), base, inner(_BASES[base][1](value), base)]
    state = state_of(value)
    return [*wire, {name: inner(item, name) for name, item in state.items()}] if state else wire


def _read_sub(wire: Json, value: Value) -> object:
    with_state = isinstance(wire, list) and len(wire) == 4
    name, base, inside, *state = only(wire, object, str, object, *((dict,) if with_state else ()))
    kind = _BASES[base][0]
    cls = family(name, kind, base)
    plain = value(inside)
    if base in _FILL:
        made = kind.__new__(cls)
        _FILL[base](made, plain)
    else:
        made = kind.__new__(cls, plain)
    if state:
        set_state(made, attributes(state[0], value))
    return made


def _is_dataclass(value: object) -> bool:
    return _fields(type(value)) is not None and _base_of(type(value)) is None


def add_codecs() -> None:
    """Adds the codecs of this module; subclasses of builtins last, since many of the others are some, too."""
    add_codec(Codec("$enum", lambda value: isinstance(value, enum.Enum), _write_enum, _read_enum))
    add_codec(Codec("$model", _is_model, _write_model, _read_model))
    add_codec(Codec("$namedtuple", _is_namedtuple, _write_namedtuple, _read_namedtuple))
    add_codec(Codec("$dataclass", _is_dataclass, _write_dataclass, _read_dataclass))
    add_codec(Codec("$sub", lambda value: _base_of(type(value)) is not None, _write_sub, _read_sub))
