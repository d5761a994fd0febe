r"""The canonical form `loupe-c1`, digests, and the keys by which calls are matched.

With `seal` the only place that hashes or sorts keys. The form is RFC 8785 (JSON Canonicalization Scheme: UTF-8, no
spaces, keys in the order of their UTF-16 code units, fewest escapes) with these outcomes of our own, the same in every
language:

| value | written as |
| --- | --- |
| integer, any size | all its digits |
| float with an integral value | that integer: `1.0` is `1`, `-0.0` is `0`, `1e21` is `1000000000000000000000` |
| other float | as ECMAScript prints it |
| NaN, infinities | the object `{"$float":"NaN"}`, `"Infinity"`, `"-Infinity"` |
| lone surrogate | its escape in lower case, `\udc00`; a high and a low one together are one character |
| text, list, bool, null | as they are: no Unicode normalisation, no conversion between types |

Integrity digests are over exact bytes (`digest_bytes`); matching keys are over canonical values (`key_of`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final, Protocol

import orjson

from agentloupe.words.jsontext import Json, Known, begun, dumps, loads, nonfinite_text, plain, write

__all__ = [
    "FORM",
    "SHARED_LISTS",
    "Json",
    "ListHash",
    "both_forms",
    "canonical",
    "canonicals",
    "digest",
    "digest_bytes",
    "digest_parts",
    "dumps",
    "hashed",
    "key_of",
    "keyed_digest",
    "loads",
    "request_key",
]

FORM: Final = "loupe-c1"
"""Name of the canonical form; another form gets another name."""

SHARED_LISTS: Final = ("messages", "input", "contents", "tools", "system")
"""Top-level lists of a model request that grow or repeat from call to call."""


def canonical(value: Json) -> bytes:
    """The canonical form of a value, as UTF-8.

    Raises:
        TypeError: something in it is no JSON value (a tuple, a subclass of str ...); the message names the path.
        ValueError: nested deeper than `jsontext.MAX_DEPTH`.
    """
    if plain(value, _printed_alike):
        try:
            text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass  # large integers, lone surrogates, keys that are no str: the long way knows
        else:
            if text.isascii() or not _beyond_bmp(text):
                return text
    return write(value, _sorted_members, _float_text)


def _printed_alike(floats: Iterable[float]) -> bool:
    """Whether orjson and ECMAScript print all of these alike: not integral, no exponent; NaN is neither."""
    return all(1e-4 <= abs(f) < 1e16 and not f.is_integer() for f in floats)


def _beyond_bmp(text: bytes) -> bool:
    """Whether UTF-8 text holds characters beyond U+FFFF: only then do byte order and UTF-16 order of keys differ."""
    return any(lead in text for lead in _LEADS)


_LEADS = range(0xF0, 0xF5)
"""First bytes of such characters; one byte is found twenty times as fast by its number as in a text of its own."""


def _sorted_members(members: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    return sorted(members.items(), key=_utf16)


def _utf16(member: tuple[str, object]) -> bytes:
    return member[0].encode("utf-16-be", "surrogatepass")


def _float_text(value: float) -> str:
    """ECMA-262, Number::toString, for floats that are not integral; integral ones as integers."""
    if not isfinite(value):
        return nonfinite_text(value)
    if value.is_integer():
        return str(int(value))
    text = repr(value)
    if "e" not in text:
        return text
    # Not integral, so the exponent is negative: below 1e-4, where ECMAScript changes form only below 1e-6.
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = text.removeprefix("-").partition("e-")
    power = int(exponent)
    if abs(value) < 1e-6:
        return f"{sign}{mantissa}e-{power}"
    return f"{sign}0.{'0' * (power - 1)}{mantissa.replace('.', '')}"


# --- digests ----------------------------------------------------------------------------------------------------------


def digest_bytes(data: bytes) -> str:
    """SHA-256 as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest_parts(parts: Iterable[bytes]) -> str:
    """SHA-256 of all parts one after another, as 64 hex digits; takes them one at a time."""
    running = hashlib.sha256()
    for part in parts:
        running.update(part)
    return running.hexdigest()


def digest(value: Json) -> str:
    """SHA-256 of the canonical form, as 64 hex digits. Raises like `canonical`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def keyed_digest(key: bytes, data: bytes) -> str:
    """HMAC-SHA256 as 64 hex digits: who does not have the key cannot try out what it was made of."""
    return hmac.new(key, data, hashlib.sha256).hexdigest()


# --- matching keys ----------------------------------------------------------------------------------------------------


def key_of(kind: str, name: str, value: Json) -> str:
    """The key by which a call is matched with a recorded one, 64 hex digits.

    - `llm`: `digest(["llm", rest, lists])`, where `lists` holds for each of `SHARED_LISTS` that is a list the SHA-256 of
      its elements' canonical SHA-256 (raw, one after another), and `rest` is the request without them. The name takes
      no part: the model is in the request.
    - `tool`: `digest(["tool", name, arguments])`. Arguments given as one text that is strictly a JSON object are that
      object; nothing, blank text and `null` are `{}`; any other text is itself.
    - other kinds: `digest([kind, name, value])`.

    Raises like `canonical`.
    """
    if kind == "llm" and isinstance(value, dict):
        lists = {k: v for k in SHARED_LISTS if isinstance(v := value.get(k), list)}
        rest: Json = {k: v for k, v in value.items() if k not in lists}
        return digest(["llm", rest, {k: _lists.digest(v) for k, v in lists.items()}])
    if kind == "llm":
        return digest([kind, value])
    return digest([kind, name, _whole_arguments(value) if kind == "tool" else value])


def request_key(rest: bytes, lists: Mapping[str, str]) -> str:
    """The key of a model request whose parts are known: `rest` in canonical form, digests of `lists` (see `hashed`)."""
    return hashlib.sha256(b'["llm",%s,%s]' % (rest, orjson.dumps(lists, option=orjson.OPT_SORT_KEYS))).hexdigest()


def hashed(canonicals: Iterable[bytes], after: ListHash | None = None) -> ListHash:
    """The running hash of a list, from the canonical forms of its items; goes on behind a list that was hashed before."""
    state = hashlib.sha256() if after is None else after.copy()
    for text in canonicals:
        state.update(hashlib.sha256(text).digest())
    return state


def both_forms(value: Json) -> tuple[bytes, bytes]:
    """The canonical form and the exact text (`dumps`) of a value, for one look at it. Raises like `canonical`."""
    if plain(value, _printed_alike):
        try:
            text = orjson.dumps(value)
            sorted_text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            pass
        else:
            if text.isascii() or not _beyond_bmp(text):
                return sorted_text, text
    return canonical(value), dumps(value)


def canonicals(items: list[Json], text: bytes) -> list[bytes]:
    """The canonical form of each of some values, for one look at all of them. `text`: their exact text, however joined.

    Raises like `canonical`.
    """
    if plain(items, _printed_alike) and (text.isascii() or not _beyond_bmp(text)):
        try:
            return [orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in items]
        except TypeError:
            pass
    return [canonical(item) for item in items]


def _whole_arguments(value: Json) -> Json:
    if value is None:
        return {}
    if not isinstance(value, str):
        return value
    text = value.strip(" \t\n\r")
    if not text or text == "null":
        return {}
    if text[0] == "{":
        try:
            return loads(text)
        except ValueError:
            pass
    return value


class ListHash(Protocol):
    """A running SHA-256."""

    def update(self, data: bytes, /) -> None:
        """Takes further bytes."""
        ...

    def copy(self) -> ListHash:
        """One that goes on by itself."""
        ...

    def digest(self) -> bytes:
        """The hash of what was taken so far."""
        ...

    def hexdigest(self) -> str:
        """The same as 64 hex digits."""
        ...


class _Known(Known):
    """A list that was digested before, and the hash so far."""

    __slots__ = ("hash", "hex")

    def __init__(self, text: bytes, count: int, nulls: bool, state: ListHash) -> None:
        super().__init__(text, count, nulls)
        self.hash = state
        self.hex = state.hexdigest()


class _ListDigests:
    """Digests of lists that grow: elements that were seen in the same place before are not digested again.

    Equal text of plain JSON is an equal value, so the texts are compared, at the speed of memory. Bounded in lists and
    bytes. Replaced as a whole, never changed in place: safe to use from several threads.
    """

    LISTS, BYTES, ELEMENTS = 16, 8_000_000, 20_000

    def __init__(self) -> None:
        self.known: tuple[_Known, ...] = ()
        self.elements: dict[bytes, bytes] = {}

    def digest(self, items: list[Json]) -> str:
        """SHA-256 over the elements' canonical SHA-256, as hex."""
        text, before, nulls = begun(items, self.known)
        if text is None or len(text) > self.BYTES:
            return self._extend(hashlib.sha256(), items).hexdigest()
        if before is None:
            state = self._one_by_one(items)
        elif before.count == len(items):
            return before.hex
        else:
            state = self._extend(before.hash.copy(), items[before.count :])
        found = _Known(text, len(items), nulls, state)
        self.known = (found, *(k for k in self.known if k is not before))[: self.LISTS]
        return found.hex

    def _extend(self, state: ListHash, items: Iterable[Json]) -> ListHash:
        for item in items:
            state.update(hashlib.sha256(canonical(item)).digest())
        return state

    def _one_by_one(self, items: list[Json]) -> ListHash:
        """A list that does not begin like a known one: an edited history, a window, another agent's turn."""
        state = hashlib.sha256()
        if len(self.elements) > self.ELEMENTS:
            self.elements = {}
        elements = self.elements
        for item in items:
            text = orjson.dumps(item)
            known = elements.get(text)
            if known is None:
                known = hashlib.sha256(canonical(item)).digest()
                if len(text) < 100_000:
                    elements[text] = known
            state.update(known)
        return state


_lists = _ListDigests()
