"""Arrays and numbers of numpy, by what they hold: numpy is never imported here, a value of it means that it is loaded.

They are stored as registered types are (`$custom`), so that no tag stands for them that older readers do not know. What is
no plain number, text, moment or span (objects, records, long doubles) and subclasses of arrays are left to `register_type`.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from agentloupe.ports.codecs.walk import CannotRecord, Codec, Inner, Value, add_codec, only
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["ARRAY", "NUMBER", "add_codecs", "read"]

ARRAY: Final = "numpy.array"
NUMBER: Final = "numpy.number"
"""The names that values of numpy are stored under."""

_MOMENTS: Final = "mM"
_KINDS: Final = f"biufcUS{_MOMENTS}"
_WIDEST: Final = {"f": 8, "c": 16}
"""Bytes beyond which a Python number does not hold what one of numpy does."""
_PLAIN: Final = f"biuU{_MOMENTS}"
"""Kinds whose items are JSON as they are."""
_MOST: Final = 32 << 20
"""Bytes of an array that is recorded, and that is made again of what a file says."""


def _numpy() -> Any:
    module = sys.modules.get("numpy")
    if module is None:
        raise NotRebuildable("numpy is not loaded here", hint="import it before the recording is read")
    return module


def _takes(value: object) -> bool:
    module: Any = sys.modules.get("numpy")
    if module is None or not hasattr(module, "ndarray"):  # it is being imported
        return False
    return type(value) is module.ndarray or (isinstance(value, module.generic) and type(value).__module__ == "numpy")


def _write(value: Any, inner: Inner) -> Json:
    """Name, and what is needed to make it again: type, shape, items in order."""
    numpy, dtype = _numpy(), value.dtype
    if dtype.kind not in _KINDS or dtype.itemsize > _WIDEST.get(dtype.kind, dtype.itemsize) or value.nbytes > _MOST:
        raise CannotRecord
    flat = numpy.ravel(value)
    name = ARRAY if type(value) is numpy.ndarray else NUMBER
    if dtype.kind in _MOMENTS:
        flat = flat.view(f"{dtype.str[0]}i8")
    items = flat.tolist()
    if dtype.kind not in _PLAIN and not (dtype.kind == "f" and numpy.isfinite(flat).all()):
        items = inner(items, name)
    return [name, [dtype.str, list(value.shape), items]]


def read(name: str, wire: Json, value: Value) -> object:
    """The value that was stored under one of the names."""
    numpy = _numpy()
    kind, shape, held = only(wire, str, list, list)
    if kind[1:2] not in _KINDS:
        raise NotRebuildable("a recorded array is of a kind that nobody writes")
    dtype = numpy.dtype(kind)
    if dtype.itemsize * len(held) > _MOST:
        raise NotRebuildable("a recorded array is larger than any that is written")
    plain = numpy.array(value(held), dtype=f"{kind[0]}i8" if dtype.kind in _MOMENTS else dtype)
    made = (plain.view(dtype) if dtype.kind in _MOMENTS else plain).reshape(
        shape
    )  # a text of no characters has no view
    return made if name == ARRAY else made[()]


def _read(wire: Json, value: Value) -> object:
    name, inside = only(wire, str, object)
    return read(name, inside, value)


def add_codecs() -> None:
    """Adds the codec of this module; its values are read beside those of registered types."""
    add_codec(Codec("$custom", _takes, _write, _read))
