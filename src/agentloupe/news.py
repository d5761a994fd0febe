"""What was new in each model request of a run, beside the requests before it: found in the packed bodies, never unpacked.

A request of a growing context is stored as "the list before it, then these items" (see `pack`). Lists are kept here as
paths in one tree in which equal beginnings are one path, so every list costs as much as it adds, and two lists are equal
exactly when they end at one node, however they were packed. New in a request is

- in each growing list (messages ...) what follows the longest earlier request of the run that it continues; where it
  continues none (an edited history, a window), the items that the request before it does not have;
- every other member (tools, model, temperature ...) that is not the same as in the request before it.

Items are compared by canonical form; one that is stored apart (longer than `pack.APART`) by its exact text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from agentloupe.canonical import SHARED_LISTS, Json, canonical, digest_parts, loads
from agentloupe.recording import GetBodies
from agentloupe.step import Step

__all__ = ["News"]

GROWING = ("messages", "input", "contents")
"""Lists that a conversation is appended to."""

_AT_ONCE = 2000


class _Node:
    """The end of a list: its last item, and the list without it."""

    __slots__ = ("asked", "before", "depth", "following", "item", "text")

    def __init__(self, before: _Node | None, item: bytes) -> None:
        self.before = before
        self.item = item
        self.depth: int = before.depth + 1 if before is not None else 0
        self.following: dict[bytes, _Node] = {}
        self.asked = False  # a request of the run ended here
        self.text: bytes | None = None

    def then(self, item: bytes) -> _Node:
        """The list with one item more."""
        node = self.following.get(item)
        if node is None:
            node = self.following[item] = _Node(self, item)
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

    def items(self) -> list[bytes]:
        """All items in order."""
        return [node.item for node in self.back()][::-1]

    def whole(self) -> bytes:
        """All items as one text, put together once."""
        if self.text is None:
            self.text = b"".join(b"%s\n" % item for item in self.items())
        return self.text


class News:
    """What was new in the model requests of one run. Reads nothing before it is asked.

    Args:
        steps: the run's steps in order; others than model steps are passed over.
        get: the bodies of the run.
    """

    def __init__(self, steps: Sequence[Step], get: GetBodies) -> None:
        self._steps = [step for step in steps if step.kind == "llm" and step.input_digest is not None]
        self._get = get
        self._root = _Node(None, b"")
        self._nodes: dict[str, _Node] = {}
        self._texts: dict[str, bytes] = {}
        self._said: dict[int, str | None] | None = None

    def __call__(self, step: Step) -> str | None:
        """Equal for two steps (also of two runs) exactly when the same was new; `None` when it is not known."""
        if self._said is None:
            self._said = self._read()
        return self._said.get(step.idx)

    def _read(self) -> dict[int, str | None]:
        requests = self._requests()
        self._fetch_lists(requests.values())
        said: dict[int, str | None] = {}
        before: dict[str, _Node] = {}
        rest: dict[str, bytes] = {}
        for step in self._steps:
            request = requests.get(cast("str", step.input_digest))
            try:
                said[step.idx] = None if request is None else digest_parts(self._new(request, before, rest))
            except (KeyError, ValueError, TypeError):
                said[step.idx] = None  # a body is not there, or is not what a packer writes: verify says so
        self._nodes, self._texts = {}, {}
        return said

    # --- bodies

    def _requests(self) -> dict[str, dict[str, Json]]:
        """The requests' bodies, each with its own text only."""
        found: dict[str, dict[str, Json]] = {}
        wanted = dict.fromkeys(cast("str", step.input_digest) for step in self._steps)
        for digest, text in self._bodies(wanted).items():
            value = loads(text)
            if isinstance(value, dict):
                found[digest] = value
        return found

    def _bodies(self, wanted: Iterable[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        digests = list(wanted)
        for start in range(0, len(digests), _AT_ONCE):
            found.update(self._get(digests[start : start + _AT_ONCE]))
        return found

    def _fetch_lists(self, requests: Iterable[Mapping[str, Json]]) -> None:
        """The bodies of the lists, and those by which they are told."""
        named = (_reference(request.get(name)) for request in requests for name in SHARED_LISTS)
        wanted = dict.fromkeys(digest for digest in named if digest is not None)
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
        whole: list[bytes] | None = None
        node = self._root
        for i in range(0, len(pairs), 2):
            start, stop = pairs[i]
            if node is self._root and start == 0:
                node = base.first(stop)
            elif stop > start:
                whole = base.items() if whole is None else whole
                for item in whole[start:stop]:
                    node = node.then(item)
            node = self._appended(node, cast("list[Json]", parts[i + 1]))
        return node

    @staticmethod
    def _appended(node: _Node, items: list[Json]) -> _Node:
        for item in items:
            node = node.then(canonical(item))
        return node

    # --- news

    def _new(self, request: Mapping[str, Json], before: dict[str, _Node], rest: dict[str, bytes]) -> list[bytes]:
        """What is new in one request, as lines; takes it into account for the next one."""
        lines: list[bytes] = []
        now: dict[str, bytes] = {}
        for name, value in request.items():
            node = self._list(value) if name in SHARED_LISTS else None
            if node is not None and name in GROWING:
                lines += [b"%s %s\n" % (name.encode(), item) for item in self._added(node, before.get(name))]
                before[name] = node
            else:
                now[name] = canonical(value) if node is None else node.whole()
        changed = [name for name in sorted(now) if rest.get(name) != now[name]]
        lines += [b"set %s %s\n" % (name.encode("utf-8", "surrogatepass"), now[name]) for name in changed]
        lines += [b"unset %s\n" % name.encode("utf-8", "surrogatepass") for name in sorted(rest.keys() - now.keys())]
        rest.clear()
        rest.update(now)
        return lines

    @staticmethod
    def _added(node: _Node, previous: _Node | None) -> list[bytes]:
        added: list[bytes] = []
        for at in node.back():
            if at.asked:
                break
            added.append(at.item)
        else:
            if previous is not None:
                there = Counter(previous.items())
                added = [item for item in reversed(node.items()) if _is_new(item, there)]
        node.asked = True
        return added[::-1]


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
    if not text.startswith(b'{"$list":'):
        return None
    value = cast("dict[str, dict[str, Json]]", loads(text))["$list"]
    base = value.get("base")
    return base if isinstance(base, str) else None
