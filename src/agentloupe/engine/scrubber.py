"""One set of rules at work on JSON values: the walk, the texts, and what is remembered so that nothing is paid twice."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import orjson

from agentloupe.engine.credentials import (
    ID_LIKE,
    UNTOUCHED,
    Look,
    Shape,
    cookie_text,
    field_rule,
    is_header,
    mark,
    words_of,
)
from agentloupe.engine.rulesets import UNTYPED, shapes_of
from agentloupe.engine.typedsecrets import without_what_it_says
from agentloupe.ports.codecs.tags import tag_of
from agentloupe.words.canonical import SHARED_LISTS
from agentloupe.words.jsontext import Json, dumps, loads

__all__ = ["Found", "Scrubber", "dumps_like", "is_opaque", "shown"]


class _Memo(NamedTuple):
    """A list that was looked at: as it was, and what was removed from its elements, by index."""

    raw: list[Json]
    clean: list[Json]
    dirty: Mapping[int, tuple[str, ...]]


class Found:
    """What one walk removed and withheld: relative paths, completed on the way up."""

    __slots__ = ("removed", "withheld")

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.withheld: list[str] = []


class Scrubber:
    """One rule set at work; see `privacy.Rules` for the arguments. Remembers texts that were clean and long lists, so a request that grows is paid once.

    Caches are bounded and only ever replaced or added to: several threads may use it.
    """

    TEXTS, TEXT_CHARS, LISTS, LONG, DEPTH = 20_000, 16_000_000, 8, 8, 100
    PLANS, PLANNED = 2_000, 30

    def __init__(
        self,
        fields: Sequence[str],
        keep: Sequence[str],
        patterns: Mapping[str, str],
        built_in: str,
    ) -> None:
        self._on = bool(built_in)
        self._typed = built_in not in UNTYPED
        self._own = {_plain(name): name for name in fields}
        self._keep = frozenset(_plain(name) for name in keep)
        self._broken: list[str] = []
        self._shapes = [*shapes_of(built_in), *self._own_shapes(patterns)]
        self._look = Look(self._shapes)
        self._whole = frozenset(mark(shape.rule) for shape in self._shapes if shape.takes_all)
        self._names: dict[str, str | None] = {}
        self._plans: dict[tuple[str, ...], tuple[tuple[str | None, ...], bool, bool]] = {}
        self._clean: set[str] = set()
        self._chars = 0
        self._lists: tuple[_Memo, ...] = ()
        self.lists_by_name = frozenset(name for name in SHARED_LISTS if self.means_something(name))
        """Lists of a request that are treated by their name; none, unless a workspace says so."""

    def _own_shapes(self, patterns: Mapping[str, str]) -> list[Shape]:
        made: list[Shape] = []
        for name, pattern in patterns.items():
            try:
                made.append(Shape(name, ("",), pattern))
            except re.error:
                self._broken.append(name)
        return made

    def scrub(self, value: Json, found: Found) -> Json:
        """The value without credentials; the very same when there were none. What was removed is added to `found`."""
        return self._value(value, found, 0)

    def goes_on_clean(self, items: list[Json], first: int) -> bool:
        """Whether nothing is removed from a list of a request, where that is known of its first elements."""
        return self._elements(items, first, None, Found(), _OF_A_REQUEST) is items

    def text(self, text: str) -> str:
        """A text without credentials; nothing is remembered of it, so that it may be a part that will never come again."""
        if len(text) < _SHORTEST or is_opaque(text):
            return text
        new, failed = self._apply(text, self._look.at(text))
        if failed is not None:
            return mark(f"withheld:{failed}")
        return self._json_text(new, 0) if text[:1] in _JSON_BEGINS else new

    def finds_nothing(self, text: str) -> bool:
        """Whether it is clear at a glance that `text` removes nothing from a text, nor from any part of it."""
        return not (self._look.at(text) or "{" in text or "[" in text or self._broken)

    def means_something(self, name: str) -> bool:
        """Whether what stands under this name is treated by its name, or never looked into."""
        return (self._names[name] if name in self._names else self._rule_of(name)) is not None

    @property
    def any_text(self) -> bool:
        """Whether some shapes may stand anywhere: those of a workspace."""
        return any(shape.needles == ("",) for shape in self._shapes) or bool(self._broken)

    # --- trees --------------------------------------------------------------------------------------------------------

    def _value(self, value: Json, found: Found, depth: int) -> Json:
        if isinstance(value, dict):
            return self._dict(value, found, depth + 1)
        if isinstance(value, list):
            return self._list(value, found, depth + 1)
        if isinstance(value, str):
            return value if value in self._clean else self._text(value, found, depth)
        return value

    def _dict(self, value: dict[str, Json], found: Found, depth: int) -> Json:
        if depth > self.DEPTH:
            return self._deep(value, found)
        changed: dict[str, Json] | None = None
        clean, removed, withheld = self._clean, found.removed, found.withheld
        names = tuple(value)
        rules, long, odd = self._plans.get(names) or self._plan_of(names)
        for name, item, rule in zip(names, value.values(), rules):  # noqa: B905  # a strict zip takes longer
            kind = item.__class__
            if rule is None:
                if kind in _NO_TEXT:
                    continue
                if kind is str and (item in clean or self._passes(item)):  # type: ignore[arg-type]  # it is a str
                    continue
            elif rule is _OPAQUE and kind is str:
                continue
            start = len(removed), len(withheld)
            if rule is None:
                new = self._dict(item, found, depth + 1) if kind is dict else self._value(item, found, depth)  # type: ignore[arg-type]  # it is a dict
            else:
                new = self._named(name, rule, item, value, found, depth)
            if new is not item:
                _complete(found, start, f".{shown(name)}")
                changed = changed if changed is not None else dict(value)
                changed[name] = new
        kept = value if changed is None else changed
        kept = self._keys(kept, found) if long else kept
        return self._header(kept, found) if odd else kept

    def _plan_of(self, names: tuple[str, ...]) -> tuple[tuple[str | None, ...], bool, bool]:
        """What the names of an object's members say: their rules, whether one is long, whether it may be a header.

        The objects of a program have few shapes, so that names are looked at once.
        """
        rules = tuple(self._names[name] if name in self._names else self._rule_of(name) for name in names)
        plan = rules, any(len(name) >= _LONG_NAME for name in names), "value" in names or "module" in names
        if len(self._plans) < self.PLANS and len(names) <= self.PLANNED:
            self._plans[names] = plan
        return plan

    def _named(self, name: str, rule: str, item: Json, siblings: Mapping[str, Json], found: Found, depth: int) -> Json:
        """A value under a name that means something to us."""
        if rule == _OPAQUE and isinstance(item, str):
            return item
        if rule in (_BYTES, _MEDIA) and any(key in siblings for key in _MEDIA_NAMES):
            return item
        if rule == _BYTES and isinstance(item, str):
            return self._bytes(item, found, depth)
        if rule == _MEDIA:
            return self._value(item, found, depth)
        if rule == _PAIRS and isinstance(item, list):
            return self._pairs(item, found, depth)
        if rule in (_OPAQUE, _BYTES, _PAIRS):
            return self._value(item, found, depth)
        if rule == "token" and ("logprob" in siblings or not isinstance(item, str | dict | list)):
            return item
        if isinstance(item, dict) and _is_schema(item):
            return self._value(item, found, depth)
        return self._all(item, rule, found)

    def _pairs(self, pairs: list[Json], found: Found, depth: int) -> Json:
        """Members of a mapping that is stored as `[[name, value], ...]` (see `codecs`)."""
        made: list[Json] = []
        for index, pair in enumerate(pairs):
            start = len(found.removed), len(found.withheld)
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
                one: dict[str, Json] = {pair[0]: pair[1]}
                new = self._dict(one, found, depth)
                members = list(new.items()) if isinstance(new, dict) else []
                made.append(pair if new is one or not members else [members[0][0], members[0][1]])
            else:
                made.append(self._value(pair, found, depth))
            _complete(found, start, f"[{index}]")
        return made if any(new is not old for new, old in zip(made, pairs, strict=True)) else pairs

    def _bytes(self, text: str, found: Found, depth: int) -> str:
        """Bytes in base 64: what they say as text."""
        try:
            inside = base64.b64decode(text, validate=True).decode("latin-1")
        except ValueError:
            return self._text(text, found, depth)
        clean = self._text(inside, found, depth)
        return text if clean is inside else base64.b64encode(clean.encode("latin-1")).decode("ascii")

    def _all(self, item: Json, rule: str, found: Found) -> Json:
        """Everything that is a text or a number below a secret name; yes, no, nothing and empty texts say no secret."""
        if isinstance(item, dict):
            tag = tag_of(item) if self._typed else None
            if tag is not None:
                return self._typed_all(tag, item, rule, found)
            changed: dict[str, Json] = {}
            for name, inner in item.items():
                start = len(found.removed), len(found.withheld)
                changed[name] = self._all(inner, rule, found)
                _complete(found, start, f".{shown(name)}")
            return changed if any(changed[name] is not item[name] for name in item) else item
        if isinstance(item, list):
            made: list[Json] = []
            for index, inner in enumerate(item):
                start = len(found.removed), len(found.withheld)
                made.append(self._all(inner, rule, found))
                _complete(found, start, f"[{index}]")
            return made if any(new is not old for new, old in zip(made, item, strict=True)) else item
        if item is None or isinstance(item, bool) or item == "":
            return item
        text = self._mark(item, rule)
        if text == item:
            return item
        found.removed.append("")
        return text

    def _typed_all(self, tag: str, item: dict[str, Json], rule: str, found: Found) -> Json:
        """A value with a type below a secret name: what it says is removed, and its type stays where it can."""
        inner = Found()
        said = without_what_it_says(tag, item[tag], lambda part: self._all(part, rule, inner))
        if said == item[tag]:
            return item
        found.removed.append("")
        return mark(rule) if said is None else {tag: said}

    def _mark(self, item: Json, rule: str) -> str:
        """What stands for a value under a secret name.

        A replay gives a program what was stored of a secret, under whatever name: a text that is a credential by its own shape
        keeps the mark of that shape under each name, and any other mark becomes that of the name, as the secret itself did.
        """
        if not isinstance(item, str):
            return mark(rule)
        if rule == "cookie" and "=" in item:
            return cookie_text(item)
        shaped, _ = self._apply(item, self._look.at(item))
        return shaped if shaped in self._whole else mark(rule)

    def _list(self, items: list[Json], found: Found, depth: int) -> Json:
        if depth > self.DEPTH:
            return self._deep(items, found)
        if len(items) < (self.LONG if depth > _OF_A_REQUEST else _MORE_THAN_A_PAIR):
            return self._elements(items, 0, None, found, depth)
        known = next((m for m in self._lists if _begins_like(items, m.raw)), None)
        before, marks = len(found.removed), len(found.withheld)
        clean = self._elements(items, len(known.raw) if known else 0, known, found, depth)
        if len(found.withheld) == marks:
            made = cast("list[Json]", clean)
            memo = _Memo(items, made, _by_index(found.removed[before:]))
            self._lists = (memo, *(m for m in self._lists if m is not known))[: self.LISTS]
        return clean

    def _elements(self, items: list[Json], first: int, known: _Memo | None, found: Found, depth: int) -> Json:
        changed: list[Json] | None = None
        if known is not None and known.dirty:
            changed = list(items)
            for index, paths in known.dirty.items():
                changed[index] = known.clean[index]
                found.removed.extend(paths)
        for index in range(first, len(items)):
            item = items[index]
            if item.__class__ in _NO_TEXT or (item.__class__ is str and item in self._clean):
                continue
            start = len(found.removed), len(found.withheld)
            new = self._value(item, found, depth)
            if new is not item:
                _complete(found, start, f"[{index}]")
                changed = changed if changed is not None else list(items)
                changed[index] = new
        return self._header_pair(changed if changed is not None else items, found)

    def _deep(self, value: Json, found: Found) -> Json:
        """Nested too deep to walk: as text, in which removal keeps the structure."""
        text = dumps(value).decode("utf-8", "surrogatepass")
        clean = self._text(text, found, self.DEPTH)
        return value if clean is text else loads(clean)

    def _header(self, value: dict[str, Json], found: Found) -> dict[str, Json]:
        """`{"name": "Authorization", "value": "..."}`, and the body of an HTTP message (see `codecs`)."""
        content = value.get("content")
        if "module" in value and "headers" in value and isinstance(content, str):
            start = len(found.removed), len(found.withheld)
            body = self._bytes(content, found, 0)
            if body is not content:
                _complete(found, start, ".content")
                value = {**value, "content": body}
        name, item = value.get("name", value.get("key")), value.get("value")
        if not isinstance(name, str) or not isinstance(item, str) or not self._on or len(name) > 128:
            return value
        rule = self._rule_of(name)
        if rule is None or rule in _SPECIAL:
            return value
        new = self._all(item, rule, found)
        if new is item:
            return value
        _complete(found, (len(found.removed) - 1, len(found.withheld)), ".value")
        return {**value, "value": new}

    def _header_pair(self, items: list[Json], found: Found) -> list[Json]:
        """`["Authorization", "..."]`, for names of headers only: two words in a list are most often just two words."""
        if len(items) != 2 or not isinstance(items[0], str) or not isinstance(items[1], str):
            return items
        if not self._on or not is_header(items[0]):
            return items
        new = self._all(items[1], self._rule_of(items[0]) or "header", found)
        if new is items[1]:
            return items
        _complete(found, (len(found.removed) - 1, len(found.withheld)), "[1]")
        return [items[0], new]

    def _keys(self, value: dict[str, Json], found: Found) -> dict[str, Json]:
        """Names that are credentials themselves (`{"ghp_...": true}`)."""
        long = [name for name in value if len(name) >= _LONG_NAME and name not in self._clean]
        if not long:
            return value
        renamed = {name: new for name in long if (new := self._text(name, found, self.DEPTH)) is not name}
        return {renamed.get(name, name): item for name, item in value.items()} if renamed else value

    # --- names --------------------------------------------------------------------------------------------------------

    def _rule_of(self, name: str) -> str | None:
        plain = _plain(name)
        if plain in self._own:
            rule: str | None = self._own[plain]
        elif name in _WIRE:
            rule = _WIRE[name]
        elif plain in self._keep or not self._on:
            rule = None
        elif plain in UNTOUCHED or (words_of(name) or ("",))[-1] in ID_LIKE:
            rule = _OPAQUE
        else:
            rule = _FIXED[plain] if plain in _FIXED else field_rule(name)
        if len(self._names) < 20_000 and len(name) <= 128:
            self._names[name] = rule
        return rule

    # --- texts --------------------------------------------------------------------------------------------------------

    def _passes(self, text: str) -> bool:
        """Whether a text is clean at a glance, as most are."""
        if len(text) < _SHORTEST:
            return True
        if text[0] in _JSON_BEGINS or self._broken or self._look.at(text):
            return False
        self._remember(text)
        return True

    def _text(self, text: str, found: Found, depth: int) -> str:
        if len(text) < _SHORTEST or is_opaque(text):
            return text
        may = self._look.at(text)
        if not may and not self._broken and text[0] not in _JSON_BEGINS:
            self._remember(text)
            return text
        new, withheld = self._apply(text, may)
        if withheld is None and depth < self.DEPTH and text[:1] in _JSON_BEGINS:
            new = self._json_text(new, depth)
        if withheld is not None:
            found.withheld.append("")
            found.removed.append("")
            return mark(f"withheld:{withheld}")
        if new == text:
            self._remember(text)
            return text
        found.removed.append("")
        return new

    def _apply(self, text: str, may: int) -> tuple[str, str | None]:
        """The text after the shapes that `may` find something, and the name of the rule that failed, if one did."""
        if self._broken:
            return text, self._broken[0]
        for at, shape in enumerate(self._shapes) if may else ():
            if not may >> at & 1:
                continue
            try:
                new = shape.apply(text)
            except Exception:  # noqa: BLE001  # a rule that fails withholds this text, whatever its fault is
                return text, shape.rule
            if new != text:
                text, may = new, self._look.at(new)
        return text, None

    def _json_text(self, text: str, depth: int) -> str:
        """What names catch in JSON that lies in a text; only the parts that were hit are spelt anew, if it can be."""
        if text.strip()[-1:] not in "}]":
            return text
        try:
            value = orjson.loads(text)
        except ValueError:
            return text
        inner = Found()
        clean = self._value(value, inner, depth + 1)
        if clean is value:
            return text
        return dumps_like(clean, text)

    def _remember(self, text: str) -> None:
        if len(text) > 200_000:
            return
        if len(self._clean) >= self.TEXTS or self._chars > self.TEXT_CHARS:
            self._clean, self._chars = set(), 0
        self._clean.add(text)
        self._chars += len(text)


_NO_TEXT = frozenset({int, float, bool, type(None)})
_SHORTEST = 6
"""Characters that a text has at least in which a shape can be found."""
_JSON_BEGINS = frozenset("{[ \n\t\r")
_LONG_NAME = 20
"""Characters from which on the name of a member may be a credential itself."""
_OF_A_REQUEST = 2
"""Depth of the lists of a request itself: its few tools are the same every time, however short their list is."""
_MORE_THAN_A_PAIR = 3
"""Two texts may be a header with its value; of a list that goes on from them that says nothing, so they are not remembered."""
_OPAQUE = "<opaque>"
_MEDIA = "<media>"
_BYTES = "<bytes>"
_PAIRS = "<pairs>"
_FIXED = {"data": _MEDIA, "headers": _PAIRS, "base64": _BYTES}
_MEDIA_NAMES = ("media_type", "mime_type", "mimeType", "format")
_SPECIAL = frozenset({_OPAQUE, _MEDIA, _BYTES, _PAIRS})
_WIRE = {"$secret": _OPAQUE, "$bytes": _BYTES, "$bytearray": _BYTES, "$dict": _PAIRS, "$ordered": _PAIRS}
"""Forms of `codecs` whose inside is looked at in another way."""
_SCHEMA_WORDS = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"})
_NAME_TO_SHOW = re.compile(r"[A-Za-z_$][\w.$\-]{0,63}")


def _plain(name: str) -> str:
    return "".join(words_of(name))


def shown(name: str) -> str:
    """The name of a member in a path; `*` for one that may be a user's text."""
    return name if _NAME_TO_SHOW.fullmatch(name) else "*"


def _is_schema(value: Mapping[str, Json]) -> bool:
    """Whether an object under a secret name describes a field and does not hold one."""
    return not _SCHEMA_WORDS.isdisjoint(value)


def _complete(found: Found, start: tuple[int, int], lead: str) -> None:
    for paths, begin in ((found.removed, start[0]), (found.withheld, start[1])):
        for index in range(begin, len(paths)):
            paths[index] = lead + paths[index]


def _begins_like(items: list[Json], known: list[Json]) -> bool:
    """Whether a list begins with all elements of a known one: one comparison in C, by identity where texts are shared."""
    return len(known) <= len(items) and items[0] == known[0] and items[: len(known)] == known


def _by_index(paths: list[str]) -> dict[int, tuple[str, ...]]:
    dirty: dict[int, tuple[str, ...]] = {}
    for path in paths:
        index = int(path[1 : path.index("]")])
        dirty[index] = (*dirty.get(index, ()), path)
    return dirty


def dumps_like(value: Json, like: str) -> str:
    """A value as JSON text, spelt as another text is: with spaces or without, in ASCII or not."""
    import json

    spaced = '": ' in like or '", ' in like
    ascii_only = "\\u" in like and like.isascii()
    return json.dumps(value, ensure_ascii=ascii_only, separators=None if spaced else (",", ":"))


def is_opaque(text: str) -> bool:
    """Whether a text holds an image or the like, which is never looked into."""
    return text.startswith("data:") and ";base64," in text[:200]
