"""Bodies: values as stored bytes, in space that grows with what is new.

A body is the exact text of a value (`jsontext.dumps`), named by its SHA-256, in which three marks can stand for parts:

| mark | stands for |
| --- | --- |
| `{"$ref": digest}` | the value of another body: whatever is longer than `APART` bytes is stored once, apart |
| `{"$list": {"base": digest, "near": [digest ...], "parts": [[start, stop], [item ...], ...]}}` | a list, told by what it shares with the list of another body: ranges of that list and new items by turns |
| `{"$esc": {...}}` | a user's object that looks like one of these marks |

`$list` stands only at the top of a body. A growing context is a chain of them; `near` names bodies further down the
chain, so that a chain of n bodies is fetched in some 3 log4(n) rounds. Digests of bodies prove bytes; equal values
may be told in different ways, so values are compared by `canonical.digest`, never by the digest of their bodies.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from agentloupe.words.canonical import (
    SHARED_LISTS,
    Json,
    ListHash,
    both_forms,
    canonical,
    canonicals,
    digest_bytes,
    dumps,
    hashed,
    key_of,
    loads,
    request_key,
)
from agentloupe.words.jsontext import Begun, Known, begun, quoted, trusted

__all__ = ["APART", "MARKS", "Body", "Look", "Packed", "Packer", "needs", "unpack"]

APART: Final = 2048
"""Bytes of text above which a value inside another one gets a body of its own."""

MARKS: Final = ("$ref", "$list", "$esc")
"""First keys of objects that mean something in a body."""

_LEVELS = 8  # how deep inside a value others are looked at; what lies deeper stays with what holds it
_SMALL_LIST = 512  # a shorter list stays inside the request
_LONG_CHAIN = 256  # or as many bodies as the list has items: then a list is told whole again
_REMEMBER_BYTES = 64_000_000
_RESTS = 100
_FEW = 8
_END = 64  # bytes by which a text is looked for at first: a long one takes long to prepare a search for
_UNPACK_BYTES = 1 << 30  # of text read for one value: a small hostile file can name much

_MARK = re.compile(rb'\{"\$(?:ref|list|esc)":')
_REF = re.compile(rb'\{"\$ref":"([0-9a-f]{64})"\}')
_SIGN = ord("$")
"""All marks have it; one byte is found twenty times as fast by its number as in a text of its own."""
_LIST = b'{"$list":{'
_MARKED = b'{"$ref":"'
_LISTS = frozenset(SHARED_LISTS)


class Body(NamedTuple):
    """Bytes to store.

    Attributes:
        digest: SHA-256 of `data`, 64 hex digits.
        data: the text, UTF-8.
        refs: digests of the bodies that are needed to read this one (the next ones; they may need others).
    """

    digest: str
    data: bytes
    refs: tuple[str, ...]


class Packed(NamedTuple):
    """A packed value: the digest of its body, and the bodies that this packer has not given out before."""

    digest: str
    bodies: list[Body]


class _Link(NamedTuple):
    """A body in a chain of lists. `take`: it is the first so many items of `base`, then its own; -1: something else."""

    digest: str
    base: _Link | None
    take: int
    depth: int


class _Whole(NamedTuple):
    """A list that is to be packed, with its hash."""

    items: list[Json]
    text: bytes
    nulls: bool
    hash: ListHash


class _Known(Known):
    """A list that was packed before.

    Attributes:
        link: its body.
        mark: what stands for it in a request.
        looked_at: whether whoever packs looked at all of it; not where it was taken over.
    """

    __slots__ = ("_at", "_hex", "_texts", "hash", "link", "looked_at", "mark")

    def __init__(self, whole: _Whole, link: _Link, texts: list[bytes] | None = None) -> None:
        super().__init__(whole.text, len(whole.items), whole.nulls)
        self.link = link
        self.looked_at = True
        self.mark = b'{"$ref":"%s"}' % link.digest.encode()
        self.hash = whole.hash
        self._hex = ""
        self._texts = texts
        self._at: dict[bytes, list[int]] | None = None

    @property
    def hex(self) -> str:
        """Digest of the list, for matching keys."""
        if not self._hex:
            self._hex = self.hash.hexdigest()
        return self._hex

    @property
    def texts(self) -> list[bytes]:
        """Each item's text. Only lists that are no continuation need it."""
        if self._texts is None:
            self._texts = [dumps(item) for item in cast("list[Json]", loads(self.inside + b"]"))]
        return self._texts

    def may_share(self, texts: list[bytes]) -> bool:
        """Whether one of a few texts may stand in this list; quicker than `at`, which splits it. Many are not looked for."""
        return self._at is not None or len(texts) > _FEW or any(text[-_END:] in self.inside for text in texts)

    @property
    def at(self) -> dict[bytes, list[int]]:
        """Where each text stands."""
        if self._at is None:
            self._at = {}
            for i, text in enumerate(self.texts):
                self._at.setdefault(text, []).append(i)
        return self._at


class _Rest(NamedTuple):
    """A request without its lists: its canonical form, and what stands for each member, with its name."""

    canonical: bytes
    parts: Mapping[str, bytes]


_Begun = tuple[list[Json], Begun[_Known]]


class Look(NamedTuple):
    """How a request goes on from earlier ones, see `Packer.look`.

    Attributes:
        value: the request.
        lists: its `SHARED_LISTS`, each with the known list that it begins with.
        rest: what it says beside them.
        text: the text of the rest; `None` where it has to be made with care.
        known: how the same rest was told before.
    """

    value: dict[str, Json]
    lists: Mapping[str, _Begun]
    rest: dict[str, Json]
    text: bytes | None
    known: _Rest | None

    def news(self) -> Iterator[tuple[list[Json], int]]:
        """The lists that say something new, and how many of their items an earlier list began with."""
        for items, found in self.lists.values():
            first = found.known.count if found.known is not None and found.known.looked_at else 0
            if first < len(items):
                yield items, first


class Packer:
    """Packs the values of one run. Remembers what it gave out, so its bodies must all be stored. Not thread-safe."""

    def __init__(self, remember: int = 8) -> None:
        """`remember`: how many different lists of each name are kept to share with (agents that take turns)."""
        self._remember = remember
        self._given: set[str] = set()
        self._known: dict[str, list[_Known]] = {}
        self._rests: dict[bytes, _Rest] = {}
        self._new: list[Body] = []
        self._longest = 0

    def pack(self, value: Json, *, shared_lists: bool = False, text: bytes | None = None) -> Packed:
        """Packs a value. With `shared_lists` its `SHARED_LISTS` are told by what they share with earlier ones.

        `text`: the value's own (`dumps`), where the caller has made it already.

        Raises:
            TypeError: not JSON; the message names the path. ValueError: nested too deep.
        """
        if shared_lists and isinstance(value, dict) and not _is_mark(value):
            return self.request(value)[0]
        self._new = []
        try:
            digest = self._body(self._inner(value, dumps(value) if text is None else text, _LEVELS))
        except Exception:
            self._take_back(self._known)
            raise
        return Packed(digest, self._new)

    def request(self, value: dict[str, Json]) -> tuple[Packed, str]:
        """Packs a model request, its `SHARED_LISTS` told by what they share with earlier ones; with its matching key.

        The key is that of `canonical.key_of`: both need to know how a list goes on, and look once. Raises like `pack`.
        """
        return self.tell(self.look(value))

    def look(self, value: dict[str, Json]) -> Look:
        """How a model request goes on from earlier ones. Nothing is made yet, so that what is new can be looked at first."""
        lists: dict[str, _Begun] = {}
        rest: dict[str, Json] = {}
        members = cast("dict[str, Any]", value)
        for name, item in members.items():
            if name in _LISTS and item.__class__ is list:
                items: list[Json] = item
                lists[name] = items, begun(items, self._known.get(name, ()))
            else:
                rest[name] = item
        text = trusted(rest)
        return Look(value, lists, rest, text, None if text is None else self._rests.get(text))

    def tell(self, look: Look) -> tuple[Packed, str]:
        """See `request`. No other request may have been packed since `look`."""
        value = look.value
        if _is_mark(value):
            return self.pack(value), key_of("llm", "", value)
        self._new = []
        known = dict(self._known)
        try:
            rest = look.known or self._rest(look)
            parts = dict(rest.parts)
            digests: dict[str, str] = {}
            for name, (items, found) in look.lists.items():
                text, digests[name] = self._list(name, items, found)
                parts[name] = b"%s:%s" % (_name(name), text)
            inside = b",".join([parts[name] for name in value]) if look.lists else b",".join(parts.values())
            digest = self._body(b"{%s}" % inside)
        except Exception:
            self._take_back(known)
            raise
        return Packed(digest, self._new), request_key(rest.canonical, digests)

    def _take_back(self, known: dict[str, list[_Known]]) -> None:
        """What was made on the way to an error is not given out, so nothing may refer to it later."""
        self._given.difference_update(body.digest for body in self._new)
        self._known = known
        self._rests.clear()

    def forget(self) -> None:
        """Starts anew, after bodies that were given out could not be stored: nothing refers to them any more."""
        self._given.clear()
        self._known.clear()
        self._rests.clear()

    def adopt(self, digest: str, get: Callable[[Sequence[str]], Mapping[str, bytes]]) -> Json:
        """Takes over a packed value of another packer (a fork's parent): later lists share with its lists.

        Returns the value. Raises like `unpack`. Its bodies count as given out.
        """
        bodies = _fetch(digest, get)
        value = bodies.value(digest)
        texts = bodies.texts
        self._given.update(texts)
        root = loads(texts[digest])
        if isinstance(root, dict) and isinstance(value, dict):
            for name in SHARED_LISTS:
                mark, items = root.get(name), value.get(name)
                if isinstance(mark, dict) and isinstance(items, list) and isinstance(of := mark.get("$ref"), str):
                    whole = _Whole(items, dumps(items), nulls=True, hash=hashed(map(canonical, items)))
                    known = _Known(whole, _chain(of, texts))
                    known.looked_at = False
                    self._put(name, known, None)
        return value

    # --- values ---

    def _body(self, text: bytes, base: str | None = None) -> str:
        digest = digest_bytes(text)
        if digest not in self._given:
            self._given.add(digest)
            found = dict.fromkeys(_references(text)) if _SIGN in text else ()
            self._new.append(Body(digest, text, tuple(found) if base is None else (base, *found)))
        return digest

    def _part(self, value: Json, level: int, text: bytes | None = None, *, escape: bool = True) -> bytes:
        """Text that stands for a value inside a body: itself, or a reference when it is long."""
        text = dumps(value) if text is None else text
        inner = self._inner(value, text, level, escape=escape)
        return b'{"$ref":"%s"}' % self._body(inner).encode() if len(inner) > APART else inner

    def _inner(self, value: Json, text: bytes, level: int, *, escape: bool = True) -> bytes:
        """A value's text in which what is long is a reference. `text` is its plain text."""
        if escape and _SIGN in text and _MARK.search(text):
            value = _escaped(value)
            text = dumps(value)
        if len(text) <= APART or level == 0:
            return text
        if isinstance(value, dict):
            return b"{%s}" % b",".join(
                b"%s:%s" % (quoted(k).encode(), self._part(v, level - 1, escape=False)) for k, v in value.items()
            )
        if isinstance(value, list):
            return b"[%s]" % b",".join(self._part(v, level - 1, escape=False) for v in value)
        return text

    # --- lists that grow ---

    def _rest(self, look: Look) -> _Rest:
        """A request without its lists that is new; most requests of a run have the same one."""
        sorted_text, text = both_forms(look.rest)
        known = _Rest(
            sorted_text,
            {name: b"%s:%s" % (_name(name), self._part(item, _LEVELS)) for name, item in look.rest.items()},
        )
        if len(self._rests) >= _RESTS:
            self._rests.clear()
        if look.text == text and len(text) <= APART:
            self._rests[text] = known
        return known

    def _list(self, name: str, items: list[Json], found: Begun[_Known]) -> tuple[bytes, str]:
        """What stands for a list in its request, and the list's digest."""
        text, before, nulls = found
        known = self._known.get(name, [])
        if text is None:
            text = dumps(items)
        if before is not None and before.count == len(items):
            if len(text) <= _SMALL_LIST:
                return self._inner(items, text, _LEVELS), before.hex
            made = before
        else:
            new = items if before is None else items[before.count :]
            own = text[1:-1] if before is None else text[len(before.inside) + (before.count > 0) : -1]
            state = hashed(canonicals(new, own), None if before is None else before.hash)
            if len(text) <= _SMALL_LIST:
                return self._inner(items, text, _LEVELS), state.hexdigest()
            whole = _Whole(items, text, nulls, state)
            if before is None or _goes_on(before, items, known):
                made, before = self._by_difference(whole, known)
            else:
                made = self._continue(before, before.count, self._parts_of(new, own), whole)
        self._put(name, made, before)
        return made.mark, made.hex

    def _parts_of(self, items: list[Json], text: bytes) -> bytes:
        """What stands for some items inside a body, with commas between them. `text`: their plain text, the same way."""
        if len(text) <= APART and not (_SIGN in text and _MARK.search(text)):
            return text
        return b",".join(self._part(item, _LEVELS) for item in items)

    def _put(self, name: str, made: _Known, instead_of: _Known | None) -> None:
        """Puts a list in front of those that are remembered; the oldest go when there are too many."""
        known = self._known.get(name, ())
        if known and known[0] is made:
            return
        kept = [made, *[k for k in known if k is not instead_of]][: self._remember]
        self._longest = max(self._longest, len(made.inside))
        if self._longest * self._remember > _REMEMBER_BYTES:
            while len(kept) > 1 and sum(len(k.inside) for k in kept) > _REMEMBER_BYTES:
                kept.pop()
        self._known[name] = kept

    def _continue(
        self, before: _Known, take: int, new: bytes, whole: _Whole, texts: list[bytes] | None = None
    ) -> _Known:
        """A list that is the beginning of a known one, then new items (what stands for them, with commas)."""
        base = before.link
        while base.base is not None and base.take >= take:
            base = base.base  # the items that are kept were there before: a shorter chain says the same
        return _Known(whole, self._told(base, take, b"[0,%d],[%s]" % (take, new)), texts)

    def _told(self, base: _Link, take: int, parts: bytes) -> _Link:
        depth = base.depth + 1
        near = b",".join([b'"%s"' % link.digest.encode() for link in _near(base, depth)]) if depth % 4 == 0 else b""
        text = b'{"$list":{"base":"%s","near":[%s],"parts":[%s]}}' % (base.digest.encode(), near, parts)
        return _Link(self._body(text, base.digest), base, take, depth)

    def _anew(self, whole: _Whole, texts: list[bytes]) -> _Known:
        parts = [self._part(item, _LEVELS, text) for item, text in zip(whole.items, texts, strict=True)]
        return _Known(whole, _Link(self._body(b"[%s]" % b",".join(parts)), None, -1, 0), texts)

    def _by_difference(self, whole: _Whole, known: list[_Known]) -> tuple[_Known, _Known | None]:
        """A list that is no continuation: an edited history, a window, another agent. With the list it replaces."""
        items = whole.items
        texts = [dumps(item) for item in items]
        mine = set(texts)
        known = [k for k in known if k.may_share(texts)]
        best = max(known, key=lambda k: sum(len(t) for t in mine & k.at.keys()), default=None)
        shared = 0 if best is None else sum(len(t) for t in mine & best.at.keys())
        if best is None or shared < APART // 8:
            return self._anew(whole, texts), None
        replaced = best if 4 * shared >= 3 * len(best.inside) else None  # less: another agent, or a cut; keep both
        runs = list(_runs(best, texts))
        if len(runs) == 1 and runs[0][0] == 0:
            take = runs[0][1]
            new = (self._part(v, _LEVELS, t) for v, t in zip(items[take:], texts[take:], strict=True))
            return self._continue(best, take, b",".join(new), whole, texts), replaced
        if best.link.depth >= max(_LONG_CHAIN, len(items)):
            return self._anew(whole, texts), replaced
        return _Known(whole, self._told(best.link, -1, self._parts(runs, items, texts)), texts), replaced

    def _parts(self, runs: list[tuple[int, int, int]], items: list[Json], texts: list[bytes]) -> bytes:
        told: list[bytes] = []
        done = 0
        for start, stop, new in runs:
            done += stop - start
            own = (self._part(items[i], _LEVELS, texts[i]) for i in range(done, done + new))
            told.append(b"[%d,%d],[%s]" % (start, stop, b",".join(own)))
            done += new
        return b",".join(told)


@lru_cache(4096)
def _name(name: str) -> bytes:
    return quoted(name).encode()


def _goes_on(before: _Known, items: list[Json], known: list[_Known]) -> bool:
    """Whether a longer known list goes on after `before` with the very next item, so that it may hold more of them."""
    start = len(before.inside)
    longer = [k for k in known if k.count > before.count and k.inside.startswith(before.inside)]
    return bool(longer) and any(k.inside.startswith(b"," + dumps(items[before.count]), start) for k in longer)


def _runs(base: _Known, texts: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """A list in terms of another: (start, stop, n) is a range of the base, then n items of the list's own.

    Ranges only go forward: no item of the base is used twice, so a small body cannot tell an endless list.
    """
    start = stop = new = 0
    known = base.texts
    for text in texts:
        if new == 0 and stop < len(known) and known[stop] == text:
            stop += 1
            continue
        places = base.at.get(text, ())
        after = bisect_left(places, stop)
        if after == len(places):
            new += 1
            continue
        if stop > start or new:
            yield start, stop, new
        start = places[after]
        stop, new = start + 1, 0
    yield start, stop, new


def _near(base: _Link, depth: int) -> Iterator[_Link]:
    """Bodies further down the chain that this one names: at every 4th, 16th, 64th ... place the next of that order."""
    order = 4
    stride = 1
    link: _Link | None = base
    at = depth - 1
    while depth % order == 0:
        for ahead in range(depth - stride, depth - order - 1, -stride):
            while link is not None and at > ahead:
                link, at = link.base, at - 1
            if link is not None and at < depth - 1:
                yield link
        order, stride = order * 4, order


def _chain(digest: str, texts: Mapping[str, bytes]) -> _Link:
    """The chain of lists that begins at a body."""
    names: list[tuple[str, int]] = []
    while texts[digest].startswith(_LIST):
        told = _told_in(loads(texts[digest]))
        first = cast("list[int]", told.parts[0])
        names.append((digest, first[1] if len(told.parts) == 2 and first[0] == 0 else -1))
        digest = told.base
    link = _Link(digest, None, -1, 0)
    for name, take in reversed(names):
        link = _Link(name, link, take, link.depth + 1)
    return link


# --- marks ------------------------------------------------------------------------------------------------------------


def _is_mark(value: Mapping[str, object]) -> bool:
    """Whether an object is a mark, or a user's that must not be taken for one: its first key decides."""
    return next(iter(value), None) in MARKS


def _escaped(value: Json) -> Json:
    """A copy in which every object that looks like a mark is wrapped."""
    box: list[Json] = [value]
    todo: list[tuple[Any, Any]] = [(box, 0)]  # a copied container, and a key of it whose value is still the original
    while todo:
        holder, key = todo.pop()
        item: Json = holder[key]
        if isinstance(item, dict):
            named = dict(item)
            holder[key] = {"$esc": named} if _is_mark(item) else named
            todo.extend((named, k) for k, v in item.items() if isinstance(v, dict | list))
        elif isinstance(item, list):
            listed = list(item)
            holder[key] = listed
            todo.extend((listed, i) for i, v in enumerate(item) if isinstance(v, dict | list))
    return box[0]


def needs(data: bytes) -> tuple[str, ...]:
    """Digests of the bodies without which stored bytes of another one cannot be read (the next ones only)."""
    found = _references(data)
    if data.startswith(_LIST):
        found.insert(0, _told_in(loads(data)).base)
    return tuple(dict.fromkeys(found))


def _references(text: bytes) -> list[str]:
    if text[:1] == b'"' or _SIGN not in text or _MARKED not in text:
        return []  # a body that is a text holds no mark, whatever it says
    if b'{"$esc":' not in text:
        return [found.decode() for found in _REF.findall(text)]
    return list(_walked(loads(text)))


def _walked(value: Json) -> Iterator[str]:
    """References, where something escaped may look like one."""
    todo: list[Json] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            inner: Iterable[Json] = item.values()
            if _is_mark(item):
                of = item.get("$ref")
                if isinstance(of, str):
                    yield of
                    continue
                escaped = item.get("$esc")
                inner = escaped.values() if isinstance(escaped, dict) else inner
            todo.extend(inner)
        elif isinstance(item, list):
            todo.extend(item)


# --- back -------------------------------------------------------------------------------------------------------------


def unpack(digest: str, get: Callable[[Sequence[str]], Mapping[str, bytes]]) -> Json:
    """The value of a body, every part of it made anew. `get` gives many bodies at once and checks their digests.

    Raises:
        KeyError: a body is missing; its argument is the digest.
        ValueError: a body is not what a packer writes, or the value is larger than 1 GiB of text.
    """
    try:
        return _fetch(digest, get).value(digest)
    except (TypeError, AttributeError) as error:
        raise ValueError("a body is not what a packer writes") from error


def _fetch(digest: str, get: Callable[[Sequence[str]], Mapping[str, bytes]]) -> _Bodies:
    """All bodies that are needed, in rounds; within a round every digest once."""
    bodies = _Bodies()
    wanted: dict[str, bool] = {digest: True}
    while wanted:
        found = get(list(wanted))
        ahead: dict[str, bool] = {}
        for name, needed in wanted.items():
            text = found.get(name)
            if text is not None:
                bodies.add(name, text, ahead)
            elif needed:
                raise KeyError(name)
        wanted = {name: needed for name, needed in ahead.items() if name not in bodies.texts}
    return bodies


class _Told(NamedTuple):
    """What stands behind `$list`."""

    base: str
    near: list[str]
    parts: list[Json]


def _told_in(value: Json) -> _Told:
    node = value.get("$list") if isinstance(value, dict) else None
    if isinstance(node, dict):
        base, near, parts = node.get("base"), node.get("near"), node.get("parts")
        if isinstance(base, str) and isinstance(near, list) and isinstance(parts, list):
            return _Told(base, cast("list[str]", near), parts)
    raise ValueError("a body tells a list in a way that this version does not know")


class _Bodies:
    """Bodies, and how values are put together from them.

    No recursion. Every reference is read anew, so that nothing is shared in a value that was not shared before.
    """

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.fresh: dict[str, Json] = {}  # read, and not given out yet
        self.told: dict[str, _Told] = {}
        self.todo: list[dict[str, Json] | list[Json]] = []
        self.read = 0

    def add(self, digest: str, text: bytes, ahead: dict[str, bool]) -> None:
        """Takes a body; names in `ahead` what else must (True) or will probably (False) be there."""
        self.texts[digest] = text
        value = loads(text)
        if text.startswith(_LIST):
            told = self.told[digest] = _told_in(value)
            for near in told.near:
                ahead.setdefault(near, False)
            ahead[told.base] = True
        else:
            self.fresh[digest] = value
        for reference in _references(text):
            ahead[reference] = True

    def value(self, digest: str) -> Json:
        box: list[Json] = [{"$ref": digest}]
        self.todo.append(box)
        while self.todo:
            self._fill(self.todo.pop())
        return box[0]

    def _fill(self, holder: dict[str, Json] | list[Json]) -> None:
        """Puts values in the place of the marks directly inside a container, and looks into what else is there."""
        if isinstance(holder, dict):
            for name, item in holder.items():
                if isinstance(item, dict | list):
                    holder[name] = self._seen(item)
        else:
            for i, item in enumerate(holder):
                if isinstance(item, dict | list):
                    holder[i] = self._seen(item)

    def _seen(self, item: dict[str, Json] | list[Json]) -> Json:
        if isinstance(item, dict) and _is_mark(item):
            of, escaped = item.get("$ref"), item.get("$esc")
            if isinstance(of, str):
                return self._load(of)
            if not isinstance(escaped, dict):
                raise ValueError("a body holds a mark in a place where none can be")
            item = escaped
        self.todo.append(item)
        return item

    def _load(self, digest: str) -> Json:
        """Reads one body; a chain of lists is read to its end and told from there."""
        chain: list[list[Json]] = []
        marks = 0
        while (told := self.told.pop(digest, None)) is not None or self.texts[digest].startswith(_LIST):
            text = self._text(digest)
            told = told or _told_in(loads(text))
            chain.append(told.parts)
            marks += text.count(b"$") - 1
            digest = told.base
        text = self._text(digest)
        value = self.fresh.pop(digest) if digest in self.fresh else loads(text)
        for parts in reversed(chain):
            value = _apply(parts, value)
        if isinstance(value, dict) and _is_mark(value):
            if "$esc" not in value:
                raise ValueError("a body is nothing but a mark")
            return self._seen(value)
        if isinstance(value, dict | list) and (marks or _SIGN in text):
            self.todo.append(value)
        return value

    def _text(self, digest: str) -> bytes:
        text = self.texts[digest]
        self.read += len(text)
        if self.read > _UNPACK_BYTES:
            raise ValueError("a value larger than 1 GiB")
        return text


def _apply(parts: list[Json], base: Json) -> list[Json]:
    """A list from another one: ranges of that, only forward, and own items by turns."""
    if not isinstance(base, list) or len(parts) % 2:
        raise ValueError("a list is told by something that is no list")
    if len(parts) == 2 and parts[0] == [0, len(base)]:
        base.extend(_own(parts[1]))
        return base
    made: list[Json] = []
    done = 0
    for i in range(0, len(parts), 2):
        start, stop = cast("list[int]", parts[i])
        if not done <= start <= stop <= len(base):
            raise ValueError("a list is told by a range that its base does not have")
        made.extend(base[start:stop])
        made.extend(_own(parts[i + 1]))
        done = stop
    return made


def _own(items: Json) -> list[Json]:
    if not isinstance(items, list):
        raise ValueError("a list is told by something that is no list")  # noqa: TRY004  # data, not a caller's mistake
    return items
