"""What was new in each model request of a run, beside the requests before it: found in the packed bodies, never unpacked.

A request of a growing context is stored as "the list before it, then these items" (see `pack`). Lists are kept here as
paths in one tree in which equal beginnings are one path, so every list costs as much as it adds, and two lists are equal
exactly when they end at one node, however they were packed. New in a request is

- in each growing list (messages ...) what follows the longest earlier request of the run that it continues; where it
  continues none (an edited history, a window), the items that the request before it does not have;
- every other member (tools, model, temperature ...) that is not the same as in the request before it.

Items are compared by canonical form without the ids that every call gets anew; one that is stored apart (longer than `pack.APART`) by its exact text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from agentloupe.ports.recording import GetBodies
from agentloupe.words.canonical import SHARED_LISTS, Json, canonical, loads
from agentloupe.words.jsontext import quick_text
from agentloupe.words.step import Step

__all__ = ["Fresh", "News", "same_value", "without_ids"]

GROWING = ("messages", "input", "contents")
"""Lists that a conversation is appended to."""

_GROWS = re.compile(rb'"(messages|input|contents)":\{"\$ref":"([0-9a-f]{64})"\}')
"""As a packer writes it. Inside of a text its quotes would be escaped."""
_AT_ONCE = 2000
_TOLD = b'{"$list":{"base":"'  # as a packer writes it; then the digest


class _Node:
    """The end of a list: its last item, and the list without it."""

    __slots__ = ("asked", "before", "depth", "following", "item", "text", "value")

    def __init__(self, before: _Node | None, item: bytes, value: Json) -> None:
        self.before = before
        self.item = item
        self.value = value
        self.depth: int = before.depth + 1 if before is not None else 0
        self.following: dict[bytes, _Node] | None = None  # most have one list after them, or none
        self.asked = False  # a request of the run ended here
        self.text: bytes | None = None

    def then(self, item: bytes, value: Json) -> _Node:
        """The list with one item more: its text and its value."""
        following = self.following
        if following is None:
            following = self.following = {}
        node = following.get(item)
        if node is None:
            node = following[item] = _Node(self, item, value)
        return node

    def first(self, count: int) -> _Node:
        """The list's beginning of that many items."""
        node = self
        while node.depth > count and node.before is not None:
            node = node.before
        if node.depth != count:
            raise ValueError("a list is told by a range that its base does not have")
        return node

    def back(self) -> Iterator[_Node]:
        """The nodes from the end to the first item."""
        node = self
        while node.before is not None:
            yield node
            node = node.before

    def items(self) -> list[_Node]:
        """The nodes of all items in order."""
        return [*self.back()][::-1]

    def values(self) -> Json:
        """The list itself."""
        return [node.value for node in self.items()]

    def whole(self) -> bytes:
        """All items as one text, put together once."""
        if self.text is None:
            self.text = b"\n".join(node.item for node in self.items())
        return self.text


class _Shape(NamedTuple):
    """A request without the one growing list that it refers to: which, and the text before and behind it."""

    name: str
    before: bytes
    behind: bytes


class _Request(NamedTuple):
    """A request's body: its members, which requests of one shape share, but for the list that `its_list` names."""

    members: Mapping[str, Json]
    shape: _Shape | None
    its_list: str

    def whole(self) -> Mapping[str, Json]:
        """All members, its own list among them."""
        return self.members if self.shape is None else {**self.members, self.shape.name: {"$ref": self.its_list}}


def _shape_of(text: bytes) -> tuple[_Shape | None, str]:
    """What a request is beside its list, and the list; `None` where it refers to none or to several."""
    found = _GROWS.search(text)
    if found is None or _GROWS.search(text, found.end()) is not None:
        return None, ""
    return _Shape(found[1].decode(), text[: found.start()], text[found.end() :]), found[2].decode()


class Fresh:
    """What was new in one request: members that were set or unset, and items of growing lists. Equal when the same was new."""

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[str, Json]]) -> None:
        self._parts = parts

    @property
    def parts(self) -> list[tuple[str, Json]]:
        """Names and values, items of growing lists without the ids of calls; by name."""
        return [(part[0], _compared(part)) for part in self._parts]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fresh) or len(self._parts) != len(other._parts):
            return False
        return all(
            one[0] == two[0] and same_value(_compared(one), _compared(two))
            for one, two in zip(self._parts, other._parts, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # compared, never looked up


def _compared(part: tuple[str, Json]) -> Json:
    """What counts of a part: an item of a growing list has ids of calls, which every call gets anew."""
    name, value = part
    return without_ids(value) if name in GROWING else value


def _by_name(part: tuple[str, Json]) -> str:
    return part[0]


class News:
    """What was new in the model requests of one run. Reads nothing before it is asked.

    Args:
        steps: the run's steps in order; others than model steps are passed over.
        get: the bodies of the run.
    """

    def __init__(self, steps: Sequence[Step], get: GetBodies) -> None:
        self._steps = [step for step in steps if step.kind == "llm" and step.input_digest is not None]
        self._get = get
        self._root = _Node(None, b"", None)
        self._nodes: dict[str, _Node] = {}
        self._texts: dict[str, bytes] = {}
        self._said: dict[int, Fresh | None] | None = None

    def __call__(self, step: Step) -> Fresh | None:
        """What was new in a step's request; `None` when it is not known."""
        if self._said is None:
            self._said = self._read()
        return self._said.get(step.idx)

    def _read(self) -> dict[int, Fresh | None]:
        requests = self._requests()
        self._fetch_lists(requests.values())
        said: dict[int, Fresh | None] = {}
        before: dict[str, _Node] = {}
        rest: dict[str, bytes] = {}
        shape: _Shape | None = None
        for step in self._steps:
            request = requests.get(cast("str", step.input_digest))
            try:
                if request is None:
                    said[step.idx] = None
                elif request.shape is not None and request.shape == shape:
                    said[step.idx] = self._goes_on(request, before)
                else:
                    said[step.idx] = self._new(request.whole(), before, rest)
                    shape = request.shape
            except (KeyError, ValueError, TypeError):
                said[step.idx], shape = None, None  # a body is not there, or is not a packer's: verify says so
        self._nodes, self._texts = {}, {}
        return said

    # --- bodies

    def _requests(self) -> dict[str, _Request]:
        """The requests' bodies, each with its own text only. Most differ from one before in one list, and are not parsed."""
        found: dict[str, _Request] = {}
        shapes: dict[_Shape, Mapping[str, Json]] = {}
        wanted = dict.fromkeys(cast("str", step.input_digest) for step in self._steps)
        for digest, text in self._bodies(wanted).items():
            shape, its_list = _shape_of(text)
            members = None if shape is None else shapes.get(shape)
            if members is None:
                value = loads(text)
                if not isinstance(value, dict):
                    continue
                members = value
                if shape is None or _reference(members.get(shape.name)) != its_list:
                    shape = None  # one inside of another member
                else:
                    shapes[shape] = members
            found[digest] = _Request(members, shape, its_list)
        return found

    def _bodies(self, wanted: Iterable[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        digests = list(wanted)
        for start in range(0, len(digests), _AT_ONCE):
            found.update(self._get(digests[start : start + _AT_ONCE]))
        return found

    def _fetch_lists(self, requests: Iterable[_Request]) -> None:
        """The bodies of the lists, and those by which they are told."""
        wanted = dict[str, None]()
        seen: set[int] = set()
        for request in requests:
            if request.shape is not None:
                wanted[request.its_list] = None
            if id(request.members) not in seen:
                seen.add(id(request.members))
                named = (_reference(request.members.get(name)) for name in SHARED_LISTS)
                wanted.update(dict.fromkeys(digest for digest in named if digest is not None))
        while wanted:
            found = self._bodies(wanted)
            self._texts.update(found)
            bases = (_base(text) for text in found.values())
            wanted = dict.fromkeys(base for base in bases if base is not None and base not in self._texts)

    # --- lists

    def _list(self, value: Json) -> _Node | None:
        """The node of a request's list; `None` for what is no list."""
        digest = _reference(value)
        if digest is not None:
            return self._told(digest)
        return self._appended(self._root, value) if isinstance(value, list) else None

    def _told(self, digest: str) -> _Node | None:
        """The node of a list that is a body of its own."""
        waiting: list[tuple[str, list[Json]]] = []
        node = self._nodes.get(digest)
        while node is None:
            value = loads(self._texts[digest])
            told = value.get("$list") if isinstance(value, dict) else None
            if not isinstance(told, dict):
                if not isinstance(value, list):
                    return None
                node = self._nodes[digest] = self._appended(self._root, value)
                break
            waiting.append((digest, cast("list[Json]", told["parts"])))
            digest = cast("str", told["base"])
            node = self._nodes.get(digest)
        for name, parts in reversed(waiting):
            node = self._nodes[name] = self._apply(parts, node)
        return node

    def _apply(self, parts: list[Json], base: _Node) -> _Node:
        """A list from another one: ranges of that and own items by turns."""
        pairs = cast("list[list[int]]", parts)
        whole: list[_Node] | None = None
        node = self._root
        for i in range(0, len(pairs), 2):
            start, stop = pairs[i]
            if node is self._root and start == 0:
                node = base.first(stop)
            elif stop > start:
                whole = base.items() if whole is None else whole
                for at in whole[start:stop]:
                    node = node.then(at.item, at.value)
            node = self._appended(node, cast("list[Json]", parts[i + 1]))
        return node

    @staticmethod
    def _appended(node: _Node, items: list[Json]) -> _Node:
        for item in items:
            node = node.then(quick_text(item), item)
        return node

    # --- news

    def _goes_on(self, request: _Request, before: dict[str, _Node]) -> Fresh:
        """What is new in a request that has nothing else than the one before it but its list."""
        name = cast("_Shape", request.shape).name
        node = self._told(request.its_list)
        if node is None:
            raise ValueError("a list is told by something that is none")
        fresh: list[tuple[str, Json]] = [(name, item) for item in self._added(node, before.get(name))]
        before[name] = node
        return Fresh(fresh)

    def _new(self, request: Mapping[str, Json], before: dict[str, _Node], rest: dict[str, bytes]) -> Fresh:
        """What is new in one request; takes it into account for the next one."""
        fresh: list[tuple[str, Json]] = []
        now: dict[str, bytes] = {}
        for name, value in request.items():
            if name in _HOW_IT_COMES:
                continue
            node = self._list(value) if name in SHARED_LISTS else None
            if node is not None and name in GROWING:
                fresh += [(name, item) for item in self._added(node, before.get(name))]
                before[name] = node
                continue
            now[name] = quick_text(value) if node is None else node.whole()
            if rest.get(name) != now[name]:
                fresh.append((f"set {name}", value if node is None else node.values()))
        fresh += [(f"unset {name}", None) for name in rest.keys() - now.keys()]
        rest.clear()
        rest.update(now)
        return Fresh(sorted(fresh, key=_by_name))

    @staticmethod
    def _added(node: _Node, previous: _Node | None) -> list[Json]:
        added: list[Json] = []
        for at in node.back():
            if at.asked:
                break
            added.append(at.value)
        else:
            if previous is not None:
                there = Counter(at.item for at in previous.back())
                fresh = [at for at in node.items() if _is_new(at.item, there)]
                added = [at.value for at in reversed(fresh)]
        node.asked = True
        return added[::-1]


def same_value(one: Json, other: Json) -> bool:
    """Whether two values have one canonical form; quick for what is plainly equal or plainly not."""
    if one is other:
        return True
    if one != other:  # NaN apart, values that Python calls different are different
        return False
    return quick_text(one) == quick_text(other) or canonical(one) == canonical(other)


_HOW_IT_COMES = frozenset({"stream", "stream_options"})
"""Members that say how an answer is to come, not what is asked."""
_ID_NAMES = frozenset({"id", "tool_call_id", "call_id", "tool_use_id", "toolUseId"})
_HOLD_IDS = frozenset({"toolUse", "toolResult"})
"""Members of a part that are objects with an id of a call."""


def without_ids(item: Json) -> Json:
    """A message without the ids of calls: its own, its tool calls' and its content parts'."""
    if not isinstance(item, dict):
        return item
    bare = {name: value for name, value in item.items() if name not in _ID_NAMES}
    for name in ("tool_calls", "content"):
        inner = bare.get(name)
        if isinstance(inner, list):
            bare[name] = [_bare(part) for part in inner]
    return bare


def _bare(part: Json) -> Json:
    if not isinstance(part, dict):
        return part
    return {k: _bare(v) if k in _HOLD_IDS else v for k, v in part.items() if k not in _ID_NAMES}


def _is_new(item: bytes, there: Counter[bytes]) -> bool:
    """Whether the request before does not have an item (once more)."""
    if there[item] > 0:
        there[item] -= 1
        return False
    return True


def _reference(value: Json) -> str | None:
    """The digest that stands for a list, if one does."""
    if isinstance(value, dict) and len(value) == 1:
        digest = value.get("$ref")
        return digest if isinstance(digest, str) else None
    return None


def _base(text: bytes) -> str | None:
    """The list by which another one is told."""
    if not text.startswith(_TOLD):
        return None
    return text[len(_TOLD) : len(_TOLD) + 64].decode("ascii", "replace")
