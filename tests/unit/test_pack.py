"""Bodies: everything comes back, and space grows with what is new."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentloupe.ports import pack
from agentloupe.ports.pack import APART, Body, Packed, Packer, needs, unpack
from agentloupe.words.canonical import digest_bytes, dumps, key_of
from tests.unit.values import json_values, same


class Shelf:
    """Keeps bodies, checks them, and counts how often and for what it is asked."""

    def __init__(self) -> None:
        self.bodies: dict[str, Body] = {}
        self.rounds = 0

    def put(self, packed: Packed) -> str:
        for body in packed.bodies:
            assert body.digest == digest_bytes(body.data)
            assert body.digest not in self.bodies, "a body was given out twice"
            assert needs(body.data) == body.refs
            self.bodies[body.digest] = body
        assert packed.digest in self.bodies
        for body in packed.bodies:
            assert all(ref in self.bodies for ref in body.refs)
        return packed.digest

    def get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        self.rounds += 1
        assert len(set(digests)) == len(digests)
        return {d: self.bodies[d].data for d in digests if d in self.bodies}

    @property
    def size(self) -> int:
        return sum(len(body.data) for body in self.bodies.values())

    def reachable(self, digest: str) -> set[str]:
        found: set[str] = set()
        todo = [digest]
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo.extend(self.bodies[name].refs)
        return found


LONG = st.sampled_from(["long " * 600, "other " * 900, "é" * 1500, "\x00" * 700])
VALUES = json_values(max_leaves=8) | json_values(LONG | st.none() | st.integers(), max_leaves=8)


@given(st.lists(VALUES, max_size=4), st.booleans())
@example([{"$ref": "a" * 64}, {"$esc": {"$ref": 1}}, {"$list": {"base": None}}], False)
@example([{"a": {"$ref": "x" * 3000}}, {"$esc": {"$esc": ["y" * 3000, {"$ref": "f" * 64}]}}], False)
@example([{"$list": {"base": "f" * 64, "near": [], "parts": []}, "b": 1}, [{"$ref": "f" * 64, "title": "x"}]], False)
@example([{"messages": ["x" * 600, {"$ref": "f" * 64}, {"$list": 1}], "$ref": 1}], True)
def test_any_value_comes_back(values, shared) -> None:
    shelf, packer = Shelf(), Packer()
    told = [(shelf.put(packer.pack(value, shared_lists=shared)), value) for value in values]
    for digest, value in told:
        assert same(unpack(digest, shelf.get), value)


MESSAGE = st.builds(
    lambda role, content, extra: {"role": role, "content": content, **extra},
    st.sampled_from(["user", "assistant"]),
    st.text(max_size=3) | st.none() | LONG | st.integers().map(lambda n: f"{n} " + "words " * 60),
    st.dictionaries(st.sampled_from(["$ref", "n", "x"]), json_values(max_leaves=2), max_size=1),
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 99), st.lists(MESSAGE, max_size=3)),
        st.tuples(st.just("replace"), st.integers(0, 99), st.lists(MESSAGE, min_size=1, max_size=1)),
        st.tuples(st.just("drop"), st.integers(0, 99), st.just([])),
        st.tuples(st.just("cut"), st.integers(0, 99), st.just([])),
        st.tuples(st.just("swap"), st.integers(0, 99), st.just([])),
        st.tuples(st.just("double"), st.integers(0, 99), st.just([])),
        st.tuples(st.just("other agent"), st.integers(0, 99), st.lists(MESSAGE, max_size=3)),
    ),
    max_size=14,
)


def edited(messages: list, what: str, at: int, new: list) -> list:
    i = at % (len(messages) + 1)
    match what:
        case "append":
            return messages + new
        case "replace":
            return messages[:i] + new + messages[i + 1 :]
        case "drop":
            return messages[:i] + messages[i + 1 :]
        case "cut":
            return messages[:i]
        case "swap":
            return messages[i:] + messages[:i]
        case "double":
            return messages + messages[:i]
        case _:
            return messages[:1] + new


@given(st.lists(MESSAGE, max_size=5), EDITS, st.integers(1, 3))
def test_lists_are_told_alike_where_all_that_are_known_are_looked_through(messages, edits, remember) -> None:
    def told() -> list[Packed]:
        packer, now = Packer(remember), messages
        packed: list[Packed] = []
        for what, at, new in [("append", 0, []), *edits]:
            now = edited(now, what, at, new)
            packed.append(packer.request({"model": "m", "messages": now})[0])
        return packed

    with patch.object(pack._Known, "may_share", lambda *_: True):
        slowly = told()
    assert told() == slowly


@given(st.lists(MESSAGE, max_size=5), EDITS, st.integers(1, 3))
def test_any_history_of_edits_comes_back(messages, edits, remember) -> None:
    shelf, packer = Shelf(), Packer(remember)
    told = []
    for what, at, new in [("append", 0, []), *edits]:
        messages = edited(messages, what, at, new)
        request: Any = {"model": "m", "messages": messages, "temperature": 0.0, "tools": [{"name": "long tool " * 80}]}
        whole, key = packer.request(request)
        assert key == key_of("llm", "chat m", request)
        told.append((shelf.put(whole), request))
    for digest, request in told:
        back = unpack(digest, shelf.get)
        assert same(back, request)
        assert _no_part_is_shared(back)


REQUESTS = st.dictionaries(
    st.sampled_from(["messages", "input", "tools", "model", "seed", "a name", "\U0001f600", "\uffff"]),
    VALUES,
    max_size=5,
)


@given(st.lists(REQUESTS, max_size=4))
@example(
    [
        {"messages": [1.0, 1e21, -0.0]},
        {"messages": [1, 10**21, 0]},
        {"temperature": float("nan")},
        {"temperature": None},
    ]
)
@example([{"$ref": "f" * 64, "messages": ["x" * 600]}, {"messages": [None, float("inf")] * 200, "n": 2**70}])
def test_a_request_has_the_same_key_packed_or_not(requests) -> None:
    packer = Packer()
    for request in [*requests, *requests]:
        assert packer.request(request)[1] == key_of("llm", "", request)


def _no_part_is_shared(value: Any) -> bool:
    seen: set[int] = set()
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list):
            if id(item) in seen:
                return False
            seen.add(id(item))
            todo.extend(item.values() if isinstance(item, dict) else item)
    return True


# ---------------------------------------------------------------- space

CHANCE = random.Random(5)


def message(size: int = 400) -> dict[str, Any]:
    return {"role": "user", "content": CHANCE.randbytes(size // 2).hex()}


def growing(steps: int, *, size: int = 400, by: int = 1) -> list[list[dict[str, Any]]]:
    history = [message(800)]
    lists = []
    for _ in range(steps):
        history = [*history, *(message(size) for _ in range(by))]
        lists.append(history)
    return lists


def packed(lists: list[list[dict[str, Any]]], **kept: Any) -> tuple[Shelf, list[str], float]:
    """Everything packed; with the bytes a step costs above the text of its distinct messages."""
    shelf, packer = Shelf(), Packer(**kept)
    requests: list[Any] = [{"model": "m", "temperature": 0.2, "messages": m} for m in lists]
    digests = [shelf.put(packer.pack(request, shared_lists=True)) for request in requests]
    for at in {0, len(lists) // 2, len(lists) - 1}:
        assert unpack(digests[at], shelf.get) == requests[at]
    text = sum(len(t) for t in {dumps(m) for messages in lists for m in messages})
    return shelf, digests, (shelf.size - text) / len(lists)


def windows(lists: list) -> list:
    return [[messages[0], *messages[-20:]] for messages in lists]


def middle_edits(lists: list) -> list:
    out, shift = [], {}
    for step, messages in enumerate(lists):
        if step % 3 == 2:
            shift[len(messages) // 2] = message()
        out.append([shift.get(i, m) for i, m in enumerate(messages)])
    return out


def alternating(lists: list) -> list:
    others = [lists[0][0]]
    out = []
    for messages in lists[::2]:
        others = [*others, message()]
        out += [messages, others]
    return out


SHAPES = {
    "growing": lambda lists: lists,
    "sliding window": windows,
    "edited in the middle": middle_edits,
    "two agents by turns": alternating,
    "system prompt anew each time": lambda lists: [[message(200), *m] for m in lists],
    "volatile last message": lambda lists: [[*m, message(200)] for m in lists],
    "sent again unchanged": lambda lists: [m for m in lists for _ in (1, 2)],
    "cut back now and then": lambda lists: [m if i % 10 else m[: len(m) // 2] for i, m in enumerate(lists)],
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_three_hundred_steps_cost_their_new_text_and_little_more(shape) -> None:
    _, _, above = packed(shape(growing(300)))
    assert above < 400


def test_a_long_message_is_stored_once_whatever_it_stands_in() -> None:
    document = "page " * 2000
    shelf, packer = Shelf(), Packer()
    for n in range(30):
        shelf.put(packer.pack({"messages": [{"n": n}, {"role": "tool", "content": document}]}, shared_lists=True))
        shelf.put(packer.pack({"result": {"text": document, "n": n}}))
    assert shelf.size < len(document) + 30 * 400


def test_short_values_have_one_body() -> None:
    assert len(Packer().pack({"a": ["x" * 500, {"b": "y" * 500}]}).bodies) == 1
    assert len(Packer().pack("x" * 100_000).bodies) == 1
    assert Packer().pack({"a": 1.0, "b": []}).bodies == [
        Body(digest_bytes(b'{"a":1.0,"b":[]}'), b'{"a":1.0,"b":[]}', ())
    ]


def test_packing_again_gives_the_same_digest_and_no_body() -> None:
    packer = Packer()
    values: list[Any] = [{"a": "x" * 5000}, [1, 2], None]
    for value in values:
        first = packer.pack(value)
        assert packer.pack(value) == Packed(first.digest, [])
        assert Packer().pack(value) == first


def test_nothing_refers_to_what_was_not_given_out() -> None:
    shelf, packer = Shelf(), Packer()
    messages: list[Any] = [message(3000) for _ in range(4)]
    with pytest.raises(TypeError):
        packer.pack({"messages": messages, "later": [(1,)]}, shared_lists=True)  # type: ignore[dict-item]
    digest = shelf.put(packer.pack({"messages": messages}, shared_lists=True))
    assert unpack(digest, shelf.get) == {"messages": messages}
    lost = packer.pack({"messages": [*messages, message(3000)]}, shared_lists=True)
    packer.forget()
    shelf = Shelf()
    digest = shelf.put(packer.pack({"messages": [*messages, message()]}, shared_lists=True))
    assert lost.digest not in shelf.bodies
    assert len(unpack(digest, shelf.get)["messages"]) == 5  # type: ignore[index,call-overload,arg-type]


def test_a_value_that_is_edited_after_packing_does_not_change_what_is_known() -> None:
    shelf, packer = Shelf(), Packer()
    messages: list[Any] = [message() for _ in range(5)]
    first = shelf.put(packer.pack({"messages": messages}, shared_lists=True))
    before = dumps(messages)
    messages[2]["content"] = "another text"
    messages.append(message())
    second = shelf.put(packer.pack({"messages": messages}, shared_lists=True))
    assert dumps(unpack(first, shelf.get)) == b'{"messages":%s}' % before
    assert unpack(second, shelf.get) == {"messages": messages}


# ---------------------------------------------------------------- reading back


def test_a_request_of_five_hundred_messages_is_read_in_a_few_rounds() -> None:
    lists = growing(250, by=2)
    shelf, digests, _ = packed(lists)
    shelf.rounds = 0
    unpack(digests[-1], shelf.get)
    assert shelf.rounds <= 15
    assert len(shelf.reachable(digests[-1])) <= 260  # with the request itself and the first list


def test_a_chain_of_five_thousand_bodies_is_read() -> None:
    shelf, packer = Shelf(), Packer()
    messages: list[Any] = [message(800)]
    digest = ""
    for n in range(5000):
        messages.append(n)
        digest = shelf.put(packer.pack({"messages": messages}, shared_lists=True))
    assert len(shelf.reachable(digest)) == 5001
    shelf.rounds = 0
    assert unpack(digest, shelf.get) == {"messages": messages}
    assert shelf.rounds <= 22


def test_what_a_body_names_is_all_that_is_needed() -> None:
    shelf, digests, _ = packed(middle_edits(growing(40, size=3000)))
    whole = shelf.bodies
    shelf.bodies = {d: whole[d] for d in shelf.reachable(digests[-1])}
    assert len(shelf.bodies) < len(whole)
    unpack(digests[-1], shelf.get)


@pytest.mark.parametrize("which", [0, 1, 7, 23])
def test_a_missing_body_is_named(which) -> None:
    shelf, digests, _ = packed(growing(40, size=3000))
    gone = sorted(shelf.reachable(digests[-1]))[which]
    del shelf.bodies[gone]
    with pytest.raises(KeyError) as told:
        unpack(digests[-1], shelf.get)
    assert told.value.args == (gone,)


def test_deep_values_come_back() -> None:
    deep: Any = "x" * 3000
    for _ in range(300):
        deep = {"$ref": [deep]}
    shelf = Shelf()
    assert dumps(unpack(shelf.put(Packer().pack(deep)), shelf.get)) == dumps(deep)


# ---------------------------------------------------------------- a fork continues its parent's lists


def test_an_adopted_request_is_shared_with() -> None:
    lists = growing(60, size=600)
    shelf, digests, _ = packed(lists)
    stored = shelf.size
    packer = Packer()
    request: Any = packer.adopt(digests[-1], shelf.get)
    assert request["messages"] == lists[-1]
    for n in range(5):
        request = {**request, "messages": [*request["messages"], message(600)]}
        whole, key = packer.request(request)
        assert key == key_of("llm", "chat m", request)
        digest = shelf.put(whole)
        assert unpack(digest, shelf.get) == request
        assert shelf.size - stored < (n + 1) * 1100
    edited_system: Any = {**request, "messages": [{"role": "system", "content": "Z"}, *request["messages"][1:]]}
    before = shelf.size
    assert unpack(shelf.put(packer.pack(edited_system, shared_lists=True)), shelf.get) == edited_system
    assert shelf.size - before < 500


@pytest.mark.parametrize("value", [None, [1], {"messages": "text"}, {"messages": []}, {"messages": [{"a": 1}]}])
def test_anything_can_be_adopted(value) -> None:
    shelf = Shelf()
    digest = shelf.put(Packer().pack(value, shared_lists=True))
    packer = Packer()
    assert packer.adopt(digest, shelf.get) == value
    assert packer.pack(value, shared_lists=True) == Packed(digest, [])


# ---------------------------------------------------------------- bodies that no packer wrote


def foreign(*texts: str) -> tuple[str, Shelf]:
    """Bodies by hand, `%0` and so on naming earlier ones; with the digest of the last."""
    shelf, names = Shelf(), []
    for text in texts:
        for i, name in enumerate(names):
            text = text.replace(f"%{i}", name)
        names.append(digest_bytes(text.encode()))
        shelf.bodies[names[-1]] = Body(names[-1], text.encode(), ())
    return names[-1], shelf


@pytest.mark.parametrize(
    "texts",
    [
        ["not json"],
        ['{"a":1,"a":2}'],
        ["[1]", '{"$ref":"%0"}'],
        ["[1]", '{"$list":{"base":"%0","near":[],"parts":[[0,2],[]]}}'],
        ["[1,2]", '{"$list":{"base":"%0","near":[],"parts":[[0,1],[],[0,1],[]]}}'],
        ["[1,2]", '{"$list":{"base":"%0","near":[],"parts":[[0,1]]}}'],
        ["[1,2]", '{"$list":{"base":"%0","near":[],"parts":[["0",1],[]]}}'],
        ["[1,2]", '{"$list":{"base":"%0","near":[],"parts":[7,[]]}}'],
        ["[1,2]", '{"$list":{"base":"%0","near":[],"parts":[[0,1],"text"]}}'],
        ["[1,2]", '{"$list":{"base":"%0","near":[7],"parts":[[0,1],{}]}}'],
        ['{"a":1}', '{"$list":{"base":"%0","near":[],"parts":[[0,1],[]]}}'],
        ['{"$list":{"base":null}}'],
        ['{"a":{"$list":{"base":null}}}'],
        ['{"a":{"$esc":5}}'],
    ],
)
def test_what_no_packer_writes_is_a_value_error(texts) -> None:
    digest, shelf = foreign(*texts)
    with pytest.raises(ValueError):
        unpack(digest, shelf.get)


def test_a_reference_to_nothing_is_a_missing_body() -> None:
    digest, shelf = foreign('[{"$ref":"%s"}]' % ("0" * 64))
    with pytest.raises(KeyError):
        unpack(digest, shelf.get)


def test_a_small_file_cannot_name_an_endless_value(monkeypatch) -> None:
    monkeypatch.setattr("agentloupe.ports.pack._UNPACK_BYTES", 1_000_000)
    texts = ['"%s"' % ("x" * 100)]
    texts += [f'[{{"$ref":"%{i}"}},{{"$ref":"%{i}"}}]' for i in range(9)]
    digest, shelf = foreign(*texts)
    assert len(dumps(unpack(digest, shelf.get))) > 50_000
    texts.append('[{"$ref":"%9"},{"$ref":"%9"}]')
    for _ in range(8):
        texts = [*texts[:1], *(t.replace("{", "[{", 1).replace("}", "}]", 1) for t in texts[1:])]
    shelf.bodies.clear()
    monkeypatch.setattr("agentloupe.ports.pack._UNPACK_BYTES", 50_000)
    digest, shelf = foreign(*texts)
    with pytest.raises(ValueError, match="larger than"):
        unpack(digest, shelf.get)


def test_circles_end(monkeypatch) -> None:
    monkeypatch.setattr("agentloupe.ports.pack._UNPACK_BYTES", 100_000)
    name = "a" * 64
    for text in ('[{"$ref":"%s"}]' % name, '{"$list":{"base":"%s","near":[],"parts":[[0,0],[]]}}' % name):  # noqa: UP031
        with pytest.raises(ValueError, match="larger than"):
            unpack(name, lambda digests, text=text: dict.fromkeys(digests, text.encode()))


def test_what_is_no_json_is_refused_with_its_path() -> None:
    with pytest.raises(TypeError, match=r"\$\.a\[0\]"):
        Packer().pack({"a": [(1,)]})  # type: ignore[dict-item]
    assert APART > 0
