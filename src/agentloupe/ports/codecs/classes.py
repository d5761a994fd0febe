"""Classes by name, and names by class. Nothing is ever imported because data names it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache, reduce
from pathlib import PurePath
from types import GenericAlias, ModuleType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["class_wire", "find_class", "name_of", "type_name"]


def type_name(cls: type) -> str:
    """`module.Qual.Name`, for messages."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def name_of(cls: type) -> str | None:
    """`module:Qual.Name` by which `find_class` finds exactly this class again, or `None` (a class made in a function).

    A class of the script that runs is named by the script (`weather:City`), so that the name is the same when the
    script is a module of another program.
    """
    if cls is type(None):
        return "types:NoneType"
    module = _script() if cls.__module__ == "__main__" else cls.__module__
    name = f"{module}:{cls.__qualname__}"
    return name if cls in _candidates(name) else None


def class_wire(cls: type) -> Json:
    """A class as JSON (see `tags`), or `None` when it cannot be found again by its name."""
    made_from = cast("dict[str, Any]", getattr(cls, "__pydantic_generic_metadata__", None) or {})
    origin = made_from.get("origin")
    if not isinstance(origin, type):
        return name_of(cls)
    outer = name_of(origin)
    return None if outer is None else {"generic": [outer, [_argument_wire(a) for a in made_from["args"]]]}


_FORMS: Mapping[str, object] = {"Any": Any, "...": ..., "None": type(None)}


def _argument_wire(argument: object) -> Json:
    """What a generic class is made with: a class, a type variable, `list[int]`, `int | None`, `Literal["a"]`."""
    if isinstance(argument, TypeVar):
        return {"typevar": f"{argument.__module__}:{argument.__name__}"}
    for form, known in _FORMS.items():
        if argument is known:
            return {"form": form}
    origin = get_origin(argument)
    if origin is None:
        return class_wire(argument) if isinstance(argument, type) else None
    if origin is Literal:
        plain: list[Json] = [item for item in get_args(argument) if isinstance(item, str | int | bool | None)]
        return {"literal": plain} if len(plain) == len(get_args(argument)) else None
    inside = [_argument_wire(item) for item in get_args(argument)]
    outer = class_wire(origin) if isinstance(origin, type) and origin is not UnionType else None
    if None in inside or (outer is None and origin not in (Union, UnionType)):
        return None
    if outer is not None:
        return {"alias": [outer, inside]}
    return {"or" if origin is UnionType else "union": inside}


def find_class(wire: Json) -> type:
    """The loaded class that a wire names.

    Raises:
        NotRebuildable: no such class is loaded here.
    """
    if isinstance(wire, str):
        for found in _candidates(wire):
            return found
        module = wire.partition(":")[0]
        hint = f"the module {module} has no such class" if module in sys.modules else f"import {module} before"
        raise NotRebuildable(f"the class {wire} is not loaded here", hint=hint)
    if isinstance(wire, dict) and isinstance(pair := wire.get("generic"), list) and len(pair) == 2:
        return _parametrised(find_class(pair[0]), pair[1])
    raise NotRebuildable("a class is named in a way that this version does not know")


def _parametrised(origin: type, arguments: Json) -> type:
    """A parametrised pydantic model; the bare one where an argument is no class that can be found."""
    if not hasattr(origin, "__pydantic_generic_metadata__"):
        raise NotRebuildable(f"the class {type_name(origin)} takes no parameters")
    found = tuple(_argument(a) for a in arguments) if isinstance(arguments, list) else ()
    if not found or None in found:
        return origin
    made: object = cast("Any", origin)[found]
    return made if isinstance(made, type) else origin


def _argument(wire: Json) -> object:
    """A class, a type variable or another expression of types; `None` where there is none."""
    try:
        if not isinstance(wire, dict) or len(wire) != 1 or "generic" in wire:
            return find_class(wire)
        ((kind, inside),) = wire.items()
        return _expression(kind, inside)
    except NotRebuildable:
        return None


def _expression(kind: str, inside: Json) -> object:
    """The reverse of `_argument_wire` for what is no class."""
    if kind == "typevar" and isinstance(inside, str):
        module, _, variable = inside.partition(":")
        found = vars(sys.modules[module]).get(variable) if module in sys.modules else None
        return found if isinstance(found, TypeVar) else None
    if kind == "form" and isinstance(inside, str):
        return _FORMS.get(inside)
    if not isinstance(inside, list):
        return None
    if kind == "literal":
        return Literal[tuple(inside)]
    parts = inside[1] if kind == "alias" and len(inside) == 2 else inside if kind in ("union", "or") else None
    found = tuple(_argument(part) for part in parts) if isinstance(parts, list) else (None,)
    if None in found:
        return None
    if kind == "alias":
        return GenericAlias(find_class(inside[0]), found)
    return reduce(lambda a, b: a | b, cast("tuple[Any, ...]", found)) if kind == "or" else Union[found]  # noqa: UP007  # of a tuple


def _candidates(name: str) -> list[type]:
    """Loaded classes of this name: in the script that runs, and in the module.

    Looks into dictionaries only, so that no module's or class's own look-up code runs.
    """
    module, _, qualified = name.partition(":")
    places: list[ModuleType] = []
    if module in (_script(), "__main__") and "__main__" in sys.modules:
        places.append(sys.modules["__main__"])
    if module in sys.modules:
        places.append(sys.modules[module])
    found = (_inside(place, qualified) for place in places)
    return [cls for cls in found if cls is not None]


def _inside(module: ModuleType, qualified: str) -> type | None:
    inside: object = None
    holder: Mapping[str, object] = getattr(module, "__dict__", {})
    for part in qualified.split("."):
        inside = holder.get(part)
        if not isinstance(inside, type):
            return None
        holder = type.__dict__["__dict__"].__get__(inside)
    return cast("type", inside)


def _script() -> str:
    """The name that the main module would have if it were imported."""
    main = sys.modules.get("__main__")
    known: dict[str, Any] = getattr(main, "__dict__", {})
    spec = known.get("__spec__")
    if spec is not None:
        return str(spec.name)
    file = known.get("__file__")
    return _stem(file) if isinstance(file, str) else "__main__"


@lru_cache(16)
def _stem(file: str) -> str:
    return PurePath(file).stem
