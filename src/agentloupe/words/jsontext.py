"""JSON values and their exact text: what is stored, and how strictly it is read back.

`dumps` keeps what `canonical` gives away: order of keys, floats that stay floats, text as it is. `loads` reads strictly:
duplicate keys, `NaN` and numbers out of range are faults with a position, integers stay exact at any size. Both take the
short way through orjson only where it provably gives the same result. `parsed` reads what others wrote, as `json.loads` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import chain
from math import isfinite, isinf, isnan
from typing import Any, Generic, NamedTuple, Never, TypeAlias, TypeVar, cast

import orjson

__all__ = [
    "MAX_DEPTH",
    "Begun",
    "Json",
    "JsonFault",
    "Known",
    "begun",
    "dumps",
    "int_text",
    "loads",
    "nonfinite_text",
    "parsed",
    "plain",
    "quick_text",
    "quoted",
    "trusted",
    "write",
]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value. Integers have any size; floats may be non-finite (they are written as `{"$float": "NaN"}`)."""

MAX_DEPTH = 1000
"""Levels of lists and objects that are written and read; one more is a `ValueError`, never a `RecursionError`."""

PLAIN: frozenset[type] = frozenset({dict, list, str, int, bool, type(None), float})
"""The types of a JSON value; subclasses are something else."""

_type: Callable[[object], object] = type
_FEW, _FEW_LEVELS = 64, 12
"""Values of one part, and levels, up to which a tree is looked through value by value."""
_ORJSON_DEPTH = 250
_MANY_NODES = 2_000_000


class JsonFault(ValueError):
    """A text is not strict JSON.

    Attributes:
        fault: what is wrong, without any of the text.
        position: where, in characters from 0.
    """

    def __init__(self, fault: str, text: str, position: int) -> None:
        line = text.count("\n", 0, position) + 1
        column = position - (text.rfind("\n", 0, position) + 1) + 1
        super().__init__(f"{fault} at character {position} (line {line}, column {column})")
        self.fault = fault
        self.position = position


# --- looking before writing -------------------------------------------------------------------------------------------


_Floats = Callable[[Iterable[float]], bool]


def plain(value: object, floats: _Floats) -> bool:
    """Whether a tree of lists and dicts (dict keys apart) holds nothing but JSON's own types, exactly.

    `False` too when the tree is deeper or larger than the short way is good for, or when `floats`, asked about the floats
    of each part, says no.
    """
    return _plain_inside((value,), floats, _FEW_LEVELS)


def _plain_inside(items: Collection[Any], floats: _Floats, levels: int) -> bool:
    """One value after another, the quickest for small trees; what is long or lies deep is looked through level by level."""
    if len(items) > _FEW or not levels:
        return _plain_by_level(list(items), floats)
    for item in items:
        kind = _type(item)
        if kind is str or kind is int:
            continue
        if kind is dict or kind is list:
            if not _plain_inside(item.values() if kind is dict else item, floats, levels - 1):
                return False
        elif kind is float:
            if not floats((item,)):
                return False
        elif kind is not bool and item is not None:
            return False
    return True


def _plain_by_level(level: list[object], floats: _Floats) -> bool:
    """The same for large trees, all values of one depth at a time, at the speed of C."""
    nodes = 0
    for _ in range(_ORJSON_DEPTH):
        types = set(map(type, level))
        if not types <= PLAIN or (float in types and not floats([v for v in level if type(v) is float])):
            return False
        if dict not in types and list not in types:
            return True
        level = _below(level, types)
        nodes += len(level)
        if nodes > _MANY_NODES:
            return False
    return False


def _below(level: list[object], types: set[type]) -> list[object]:
    """The values inside the containers of a level."""
    only = len(types) == 1
    dicts: list[object] = []
    lists: list[object] = []
    if dict in types:
        dicts = level if only else _exactly(level, dict)
    if list in types:
        lists = level if only else _exactly(level, list)
    members = chain.from_iterable(map(dict[str, object].values, cast("list[dict[str, object]]", dicts)))
    return [*members, *chain.from_iterable(cast("list[list[object]]", lists))] if lists else list(members)


def _exactly(level: list[object], kind: type) -> list[object]:
    return [v for v in level if type(v) is kind]


def _all_finite(floats: Iterable[float]) -> bool:
    return all(map(isfinite, floats))


# --- writing ----------------------------------------------------------------------------------------------------------


def dumps(value: Json) -> bytes:
    """Exact text for storage, as UTF-8: no spaces, order kept, `1.0` stays `1.0`, integers exact, no needless escapes.

    `loads` gives the same value with the same types back, with two exceptions: a non-finite float is written as the
    object `{"$float": "NaN"}` (`codecs` reads that back), and a high surrogate followed by a low one, which no JSON text
    can tell from one character, comes back as that character. A lone surrogate is written as an escape.

    Raises:
        TypeError: something in it is no JSON value; the message names the path.
        ValueError: nested deeper than `MAX_DEPTH`.
    """
    if type(value) is str or plain(value, _all_finite):
        try:
            return orjson.dumps(value)
        except TypeError:
            pass  # an integer of more than 64 bits, a lone surrogate, a key that is no str: the long way knows
    return write(value, _in_order, _float_text)


def quick_text(value: Json) -> bytes:
    """A text at the speed of C where that is possible, for readers and for comparing; a float that is not finite is `null`."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return dumps(value)  # integers beyond 64 bits, lone surrogates


class Known:
    """A list that was written before: its text without the closing bracket, how many items, whether `null` is in it."""

    __slots__ = ("count", "inside", "nulls")

    def __init__(self, text: bytes, count: int, nulls: bool) -> None:
        self.inside = text[:-1]
        self.count = count
        self.nulls = nulls


K = TypeVar("K", bound=Known)


class Begun(NamedTuple, Generic[K]):
    """What `begun` found: the exact text or `None`, the known list that this one begins with, whether `null` is in it."""

    text: bytes | None
    known: K | None
    nulls: bool


def trusted(value: list[Json] | dict[str, Json]) -> bytes | None:
    """The exact text of a value whose types are known to be those of JSON; `None` where orjson cannot be trusted with it.

    That is where it refuses a value, and where it may have written `null` for a float that JSON does not have.
    """
    try:
        text = orjson.dumps(value, option=_NO_FOREIGN)
    except TypeError:
        return None
    return None if b"null" in text and not plain(value, _all_finite) else text


def begun(items: list[Json], known: Iterable[K]) -> Begun[K]:
    """The exact text of a list, and the longest known list that it begins with (all its items, in order).

    Fast: one pass by orjson, one comparison of memory. The text is `None` where that cannot be exact. Equal text of
    JSON values is an equal value, with one exception: orjson writes a non-finite float as `null`, so lists with `null`
    in them are looked through. Trusts the type otherwise.
    """
    try:
        text = orjson.dumps(items, option=_NO_FOREIGN)
    except TypeError:
        return Begun(None, None, nulls=True)
    found: K | None = None
    longest = 0
    for k in known:
        if k.count > longest and text.startswith(k.inside) and text[len(k.inside)] in b",]":
            found, longest = k, k.count
            if longest == len(items):
                break  # nothing longer can begin it
    start, nulls = (len(found.inside), found.nulls) if found else (0, False)
    nulls = nulls or text.find(b"null", start) >= 0
    if nulls and not plain(items, _all_finite):
        return Begun(None, None, nulls=True)
    return Begun(text, found, nulls)


_NO_FOREIGN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def _in_order(members: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    return members.items()


def _float_text(value: float) -> str:
    return orjson.dumps(value).decode() if isfinite(value) else nonfinite_text(value)


def nonfinite_text(value: float) -> str:
    """The object that stands for a float that JSON does not have."""
    name = "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f'{{"$float":"{name}"}}'


def int_text(value: int) -> str:
    """Decimal digits of an integer of any size (`str` refuses more than some thousands; Decimal does not)."""
    try:
        return str(value)
    except ValueError:
        return str(Decimal(value))


_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def quoted(text: str) -> str:
    """A JSON string with the fewest escapes; lone surrogates as escapes in lower case, pairs joined."""
    try:
        return orjson.dumps(text).decode()
    except TypeError:
        return _SURROGATES.sub(_mend, json.dumps(text, ensure_ascii=False))


def _mend(found: re.Match[str]) -> str:
    units = found.group()
    return units.encode("utf-16", "surrogatepass").decode("utf-16") if len(units) == 2 else f"\\u{ord(units):04x}"


def write(
    value: object,
    members: Callable[[Mapping[str, object]], Iterable[tuple[str, object]]],
    float_text: Callable[[float], str],
) -> bytes:
    """Writes a tree without recursion. `members` orders the members of an object.

    Raises:
        TypeError: something in it is no JSON value; the message names the path.
        ValueError: nested deeper than `MAX_DEPTH`.
    """
    leaves: dict[type, Callable[[object], str]] = {
        **_LEAVES,
        float: cast("Callable[[object], str]", float_text),
    }
    out: list[str] = []
    stack: list[tuple[Iterator[tuple[str, object]], str]] = [(iter((("", value),)), "")]
    while stack:
        inside, end = stack[-1]
        for lead, item in inside:
            out.append(lead)
            leaf = leaves.get(type(item))
            if leaf is not None:
                out.append(leaf(item))
                continue
            opening, deeper = _open(item, value, members)
            out.append(opening)
            stack.append(deeper)
            break
        else:
            out.append(end)
            stack.pop()
        if len(stack) > MAX_DEPTH + 1:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return "".join(out).encode()


_LEAVES: dict[type, Callable[[object], str]] = {
    str: cast("Callable[[object], str]", quoted),
    int: cast("Callable[[object], str]", int_text),
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}


_Members = Callable[[Mapping[str, object]], Iterable[tuple[str, object]]]


def _open(item: object, root: object, members: _Members) -> tuple[str, tuple[Iterator[tuple[str, object]], str]]:
    """The opening bracket of a container, its values each with the text before it, and the closing bracket."""
    if type(item) is list:
        return "[", (_items(cast("list[object]", item)), "]")
    if type(item) is dict:
        inside = cast("dict[str, object]", item)
        if set(map(type, inside)) <= {str}:
            return "{", (_members(members(inside)), "}")
    raise TypeError(_what_is_wrong(root))


def _items(items: list[object]) -> Iterator[tuple[str, object]]:
    lead = ""
    for item in items:
        yield lead, item
        lead = ","


def _members(members: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    comma = ""
    for name, item in members:
        yield f"{comma}{quoted(name)}:", item
        comma = ","


def _what_is_wrong(root: object) -> str:
    """Names the first value that is no JSON, in the order of writing. Paid only on the way to an error."""
    stack: list[tuple[str, object]] = [("$", root)]
    while stack:
        path, value = stack.pop()
        if type(value) is list:
            items = cast("list[object]", value)
            stack.extend((f"{path}[{i}]", items[i]) for i in reversed(range(len(items))))
        elif type(value) is dict:
            inside = cast("dict[object, object]", value)
            odd = next((key for key in inside if type(key) is not str), None)
            if odd is not None:
                return f"{path}: a key of type {type(odd).__qualname__} is no JSON"
            stack.extend((f"{path}.{key}", inside[key]) for key in reversed(inside))
        elif type(value) not in PLAIN:
            return f"{path}: a value of type {type(value).__qualname__} is no JSON"
    return "$: no JSON"


# --- reading ----------------------------------------------------------------------------------------------------------


def loads(data: bytes | str) -> Json:
    """Reads strict JSON (RFC 8259), the inverse of `dumps`: integers exact at any size.

    Raises:
        JsonFault: (a ValueError) not JSON, a duplicate key, `NaN`, a float out of range, deeper than `MAX_DEPTH`.
        UnicodeDecodeError: (a ValueError too) bytes that are not UTF-8.
    """
    try:
        raw = data.encode() if isinstance(data, str) else data
        value: Json = orjson.loads(raw)
        # Written again it is the same text, but for a line break: so no key came twice and no digit of an integer was lost.
        if orjson.dumps(value) == raw.rstrip(b"\n"):
            return value
    except (ValueError, TypeError):
        pass  # not JSON, or beyond what orjson reads or writes: the long way knows
    return _parse(data if isinstance(data, str) else data.decode())


_DIGITS = bytes(ord("9") if chr(byte) in "0123456789" else ord("x") for byte in range(256))
_LARGE = b"9" * 19
"""Integers beyond 64 bits, which orjson reads as floats, have at least so many digits."""


def parsed(text: bytes | str) -> Json:
    """What `json.loads` gives, mostly in a quarter of its time: clients read JSON by that. Raises `ValueError` like that."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if _LARGE not in data.translate(_DIGITS):
        try:
            return cast("Json", orjson.loads(data))
        except ValueError:
            pass  # `NaN`, lone surrogates, another encoding, no JSON
    return cast("Json", json.loads(text))


def _parse(text: str) -> Json:
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_no_twins, parse_int=_int, parse_float=_float, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return _Reader(text).read()  # slower, knows the position of every fault, needs no stack
    # Before Python 3.12 the parser's own recursion had its bound near ours.
    return _Reader(text).read() if text.count("[") + text.count("{") > MAX_DEPTH and _too_deep(value) else value


def _too_deep(value: Json) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        types = set(map(type, level))
        if dict not in types and list not in types:
            return False
        level = _below(level, types)
    return True


def _no_twins(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError
    return made


def _int(digits: str) -> int:
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError
    return value


def _refuse(_: str) -> Never:
    raise ValueError


_STRING = re.compile(r'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"')
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_SPACE = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"-?[A-Za-z]+")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}


class _Reader:
    """A JSON reader without recursion that can say where a text stops being strict JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open: list[dict[str, Json] | list[Json]] = []

    def read(self) -> Json:
        root = self._value()
        while self.open:
            top = self.open[-1]
            if isinstance(top, dict):
                self._member(top)
            else:
                self._item(top)
        if self._peek():
            raise self._fault("text after the value")
        return root

    def _fault(self, what: str, at: int | None = None) -> JsonFault:
        return JsonFault(what, self.text, self.at if at is None else at)

    def _peek(self) -> str:
        """The next character that is no space; empty at the end."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def _more(self, begun: bool, close: str) -> bool:
        """Goes to the next value of the innermost container, or closes it."""
        char = self._peek()
        if char == close:
            self.at += 1
            self.open.pop()
            return False
        if begun:
            if char != ",":
                raise self._fault(f"expected ',' or '{close}'" if char else "the text ends too early")
            self.at += 1
        return True

    def _member(self, top: dict[str, Json]) -> None:
        if not self._more(bool(top), "}"):
            return
        char, at = self._peek(), self.at
        if char != '"':
            raise self._fault("expected a name in double quotes" if char else "the text ends too early")
        name = self._string()
        if name in top:
            raise self._fault("duplicate key", at)
        if self._peek() != ":":
            raise self._fault("expected ':'" if self.at < len(self.text) else "the text ends too early")
        self.at += 1
        top[name] = self._value()

    def _item(self, top: list[Json]) -> None:
        if self._more(bool(top), "]"):
            top.append(self._value())

    def _value(self) -> Json:
        char = self._peek()
        if char == '"':
            return self._string()
        if char in ("{", "["):
            return self._container(char)
        number = _NUMBER.match(self.text, self.at)
        return self._word(char) if number is None else self._number(number)

    def _container(self, char: str) -> Json:
        if len(self.open) >= MAX_DEPTH:
            raise self._fault(f"nested deeper than {MAX_DEPTH} levels")
        made: dict[str, Json] | list[Json] = {} if char == "{" else []
        self.at += 1
        self.open.append(made)
        return made

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if match is None:
            raise self._fault("a string that does not end, or holds a raw control character or a wrong escape")
        self.at = match.end()
        return cast("str", json.loads(match.group()))

    def _number(self, match: re.Match[str]) -> Json:
        whole, fraction, exponent = match.groups()
        if fraction is None and exponent is None:
            self.at = match.end()
            return _int(whole)
        value = float(match.group())
        if isinf(value):
            raise self._fault("a number out of range")
        self.at = match.end()
        return value

    def _word(self, char: str) -> Json:
        if not char:
            raise self._fault("the text ends too early")
        match = _WORD.match(self.text, self.at)
        word = match.group() if match else char
        if word not in _WORDS:
            known = word in ("NaN", "Infinity", "-Infinity")
            raise self._fault(f"{word} is not JSON" if known else "expected a value")
        self.at += len(word)
        return _WORDS[word]
