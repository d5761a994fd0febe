"""The two walks over a value: to JSON and back. What a type looks like is known by the codecs that are registered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, NamedTuple, TypeVar, cast

from agentloupe.ports.codecs.classes import type_name
from agentloupe.ports.codecs.tags import tag_of
from agentloupe.words.canonical import Json
from agentloupe.words.errors import LoupeError, NotRebuildable

__all__ = [
    "DEPTH",
    "LEAVES",
    "CircularDecoder",
    "Codec",
    "Decoder",
    "Encoder",
    "Inner",
    "Lost",
    "Path",
    "Value",
    "add_codec",
    "add_exact",
]

_SHOWN = 20  # parts of a path that are told
DEPTH = 200
"""Levels of a value that are recorded; what lies deeper is unrecordable (objects earlier, when the stack ends first)."""

Path = tuple["Path", object] | None
"""Where a value stands: (place of what holds it, key or index)."""

_TYPES = 2000
Made = TypeVar("Made")
LEAVES = frozenset({str, int, bool, type(None)})


class Lost(NamedTuple):
    """A value that could not be recorded: where it stands (`$.order.connection`) and its type."""

    path: str
    type: str


class Inner:
    """Encodes the parts of the value at hand."""

    __slots__ = ("_depth", "_encoder", "_path")

    def __init__(self, encoder: Encoder, path: Path, depth: int) -> None:
        self._encoder = encoder
        self._path = path
        self._depth = depth

    def __call__(self, part: object, key: object) -> Json:
        """The part as JSON. `key`: where it stands in the value."""
        return self._encoder.value(part, (self._path, key), self._depth)

    def lose(self, value: object) -> None:
        """Lists the value itself as one that cannot be rebuilt, though it is written."""
        self._encoder.lose(value, self._path)

    def may_close_circles(self) -> None:
        """Says that parts of the value at hand may lead back to it: its reader hands it out (`begin`) before it reads them."""
        self._encoder.closers.add(self._depth)


class CannotRecord(Exception):
    """A codec cannot record this value. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class Codec:
    """What a family of types looks like as JSON.

    Attributes:
        tag: the tag that this codec writes and reads.
        takes: whether a value belongs to the family.
        write: value -> what stands behind the tag; `None` when this one cannot be written.
        read: the reverse.
    """

    tag: str
    takes: Callable[[object], bool]
    write: Callable[[Any, Inner], Json]
    read: Callable[[Json, Value], object]


_exact: dict[type, Codec] = {}
_families: list[Codec] = []
_found: dict[type, Codec] = {}  # what was asked before; bounded
_readers: dict[str, Callable[[Json, Value], object]] = {}


def add_exact(
    cls: type, tag: str, write: Callable[[Any, Inner], Json], read: Callable[[Json, Value], object] | None = None
) -> None:
    """A codec for values of exactly this class. Without `read` another codec of the same tag reads it."""
    _found.clear()
    _exact[cls] = Codec(tag, lambda value: type(value) is cls, write, read or _unread)
    if read is not None:
        _readers[tag] = read


def add_codec(codec: Codec) -> None:
    """A codec for a family of types, asked in the order of adding, after the exact ones. `takes` looks at types only."""
    _found.clear()
    _families.append(codec)
    _readers[codec.tag] = codec.read


def add_reader(tag: str, read: Callable[[Json, Value], object]) -> None:
    """A reader for a tag that several codecs write."""
    _readers[tag] = read


def _unread(_: Json, __: Value) -> object:
    raise NotRebuildable("this tag is not read")


def _codec_for(value: object) -> Codec | None:
    codec = _exact.get(type(value)) or next((c for c in _families if c.takes(value)), None)
    if codec is not None:
        if len(_found) >= _TYPES:
            _found.clear()
        _found[type(value)] = codec
    return codec


# --- to JSON ----------------------------------------------------------------------------------------------------------


class Encoder:
    """One walk over a value. Never raises an `Exception`; what cannot be recorded is listed in `lost`."""

    def __init__(self) -> None:
        self.lost: list[Lost] = []
        self.closers: set[int] = set()  # depths of what is being walked and may be met again inside of itself
        self._open: dict[int, int] = {}  # depths of what is being walked, by id

    def value(self, value: object, path: Path = None, depth: int = 0) -> Json:
        """A value as JSON."""
        kind = type(value)
        if kind in LEAVES:
            return cast("Json", value)
        if kind is float:
            return self._float(cast("float", value))
        try:
            if kind is dict and (flat := _flat(cast("dict[object, object]", value))) is not None:
                return flat
            return self._deep(value, kind, path, depth)
        except CannotRecord:
            return self.lose(value, path)
        except Exception:  # noqa: BLE001  # a user's property, __str__ or a change from another thread: not our failure
            return self.lose(value, path)

    def _deep(self, value: object, kind: type, path: Path, depth: int) -> Json:
        """A value with others inside."""
        if id(value) in self._open:
            return self._circle(value, path, depth)
        if depth >= DEPTH:
            return self.lose(value, path, f" below {DEPTH} levels")
        self._open[id(value)] = depth + 1
        try:
            if kind is dict:
                self.closers.add(depth + 1)
                return self._dict(cast("dict[object, object]", value), path, depth + 1)
            if kind is list:
                self.closers.add(depth + 1)
                return self._list(cast("list[object]", value), path, depth + 1)
            if kind is tuple:  # here and not with the others: they nest, and every frame counts
                return {"$tuple": self._list(cast("tuple[object, ...]", value), path, depth + 1)}
            return self._other(value, path, depth + 1)
        finally:
            del self._open[id(value)]
            self.closers.discard(depth + 1)

    def _circle(self, value: object, path: Path, depth: int) -> Json:
        """A value inside of itself: so many levels up, if it can be rebuilt that way."""
        there = self._open[id(value)]
        return {"$up": depth - there} if there in self.closers else self.lose(value, path)

    def _float(self, value: float) -> Json:
        if isfinite(value):
            return value
        return {"$float": "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"}

    def _dict(self, value: dict[object, object], path: Path, depth: int) -> Json:
        made: dict[str, Json] = {}
        for key, item in value.items():
            if type(key) is not str:
                return self._pairs(value, path, depth)
            kind = type(item)
            made[key] = cast("Json", item) if kind in LEAVES else self.value(item, (path, key), depth)
        if len(made) == 1 and tag_of(made) is not None:
            return {"$dict": [[key, item] for key, item in made.items()]}
        return made

    def _pairs(self, value: dict[object, object], path: Path, depth: int) -> Json:
        pairs: list[Json] = [
            [self.value(key, (path, "(key)"), depth), self.value(item, (path, key), depth)]
            for key, item in value.items()
        ]
        return {"$dict": pairs}

    def _list(self, value: Sequence[object], path: Path, depth: int) -> Json:
        made: list[Json] = []
        for i, item in enumerate(value):
            kind = type(item)
            made.append(cast("Json", item) if kind in LEAVES else self.value(item, (path, i), depth))
        return made

    def _other(self, value: object, path: Path, depth: int) -> Json:
        codec = _found.get(type(value)) or _codec_for(value)
        if codec is None:
            return self.lose(value, path)
        return {codec.tag: codec.write(value, Inner(self, path, depth))}

    def lose(self, value: object, path: Path, why: str = "") -> Json:
        """What stands for a value that cannot be recorded; it is listed."""
        lost = Lost(_path_text(path), type_name(type(value)) + why)
        self.lost.append(lost)
        return {"$unrecordable": {"type": lost.type, "path": lost.path}}


def _flat(value: dict[object, object]) -> dict[str, Json] | None:
    """A copy of a dict that holds nothing but text, numbers, booleans and nothing; `None` for any other."""
    made: dict[str, Json] = {}
    for key, item in value.items():
        if type(key) is not str or type(item) not in LEAVES:
            return None
        made[key] = cast("Json", item)
    return None if len(made) == 1 and tag_of(made) is not None else made


def _path_text(path: Path) -> str:
    parts: list[str] = []
    while path is not None:
        path, key = path
        parts.append(
            f"[{key}]" if isinstance(key, int) else f".{key}" if type(key) is str else f"[{type(key).__name__}]"
        )
    parts.reverse()
    if len(parts) > _SHOWN:
        parts[_SHOWN // 2 : -_SHOWN // 2] = [f"…({len(parts) - _SHOWN} more)…"]
    return "$" + "".join(parts)


# --- back -------------------------------------------------------------------------------------------------------------


class Circular(Exception):
    """There are circles in what is read: `CircularDecoder` can read it. Never leaves this package."""


class Decoder:
    """One walk back. Every container is made anew. Codecs read the parts of a value by calling it."""

    def begin(self, made: Made) -> Made:
        """Takes an object that has no state yet, so that its parts may lead back to it; returns it."""
        return made

    def __call__(self, wire: Json) -> object:
        """The same as `value`: how codecs ask for the parts of what they read."""
        return self.value(wire)

    def value(self, wire: Json) -> object:
        """A value from JSON. Raises `NotRebuildable`."""
        if type(wire) is dict:
            tag = tag_of(wire) if len(wire) == 1 else None
            if tag == "$tuple" and type(inside := wire[tag]) is list:
                return tuple([v if type(v) in LEAVES else self.value(v) for v in inside])
            if tag is not None:
                return self._tagged(tag, wire[tag])
            return {k: v if type(v) in LEAVES else self.value(v) for k, v in wire.items()}
        if type(wire) is list:
            return [v if type(v) in LEAVES else self.value(v) for v in wire]
        return wire

    def _tagged(self, tag: str, inside: Json) -> object:
        read = _readers.get(tag)
        if read is None:
            raise NotRebuildable(f"nothing here reads {tag}")
        try:
            return read(inside, self)
        except (LoupeError, Circular):
            raise
        except Exception as error:
            raise NotRebuildable(f"a recorded {tag} cannot be rebuilt ({type(error).__name__})") from error


Value = Decoder
"""Decodes the parts of a value."""


class CircularDecoder(Decoder):
    """A walk back that knows what it is inside of; slower, and for values that are met again inside of themselves."""

    def __init__(self) -> None:
        self._around: list[object] = []

    def begin(self, made: Made) -> Made:
        """See `Decoder.begin`."""
        self._around[-1] = made
        return made

    def value(self, wire: Json) -> object:
        """A value from JSON. Raises `NotRebuildable`."""
        if not isinstance(wire, dict | list):
            return wire
        tag = tag_of(wire) if isinstance(wire, dict) else None
        if tag == "$up" and isinstance(wire, dict):
            return self._found(wire[tag])
        self._around.append(_UNMADE)
        try:
            return self._inside(wire, tag)
        finally:
            self._around.pop()

    def _inside(self, wire: dict[str, Json] | list[Json], tag: str | None) -> object:
        if isinstance(wire, list):
            made = self.begin(list[object]())
            made.extend(self.value(item) for item in wire)
            return made
        if tag == "$tuple":
            return tuple(items(wire[tag], self))
        if tag is None or tag == "$dict":
            known = self.begin(dict[object, object]())
            known.update(wire.items() if tag is None else ())
            for key in known:
                known[key] = self.value(wire[cast("str", key)])
            known.update(pairs(wire[tag], self) if tag is not None else ())
            return known
        return self._tagged(tag, wire[tag])

    def _found(self, up: Json) -> object:
        there = self._around[-1 - up] if isinstance(up, int) and 0 <= up < len(self._around) else _UNMADE
        if there is _UNMADE:
            raise NotRebuildable("a recorded value leads back to something that is not there")
        return there


_UNMADE = object()


def read_up(_: Json, __: Value) -> object:
    """A place further up: only the decoder of circles knows it."""
    raise Circular


add_reader("$up", read_up)


def only(wire: Json, *shape: type) -> list[Any]:
    """The members of a list of exactly this shape (`object`: anything). Raises `NotRebuildable`."""
    if isinstance(wire, list) and len(wire) == len(shape):
        members: list[Any] = list(wire)
        if all(isinstance(m, t) for m, t in zip(members, shape, strict=True)):
            return members
    raise NotRebuildable("a recorded value does not have the shape of its tag")


def pairs(wire: Json, value: Value) -> list[tuple[Any, Any]]:
    """Keys and values of `[[key, value], ...]`, decoded."""
    if not isinstance(wire, list):
        raise NotRebuildable("a recorded mapping is no list of pairs")
    return [(value(key), value(item)) for key, item in (only(pair, object, object) for pair in wire)]


def attributes(wire: Json, value: Value) -> dict[str, Any]:
    """Attributes by name, decoded."""
    if not isinstance(wire, dict):
        raise NotRebuildable("recorded attributes are no object")
    return {name: value(item) for name, item in wire.items()}


def items(wire: Json, value: Value) -> list[Any]:
    """Items of a list, decoded."""
    if not isinstance(wire, list):
        raise NotRebuildable("recorded items are no list")
    return [value(item) for item in wire]
