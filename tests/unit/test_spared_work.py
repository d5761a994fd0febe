"""What a recorded call is spared says the same as the long way."""

from __future__ import annotations

import inspect
import re
import time
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.ports import ambient, surroundings
from agentloupe.ports.ambient import Place
from agentloupe.ports.pack import Packer
from agentloupe.ports.protocols import Perform
from agentloupe.providers.chat import provider_of
from agentloupe.verbs.instrument import _Binder
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json, canonical
from agentloupe.words.event import Draft
from agentloupe.words.jsontext import dumps, write
from agentloupe.words.toolcalls import asked_tools


def _two(a: int, b: int) -> None: ...
def _defaults(a: int, b: int = 2, c: int = 3) -> None: ...
def _named(a: int, *, b: int = 2) -> None: ...
def _rest(a: int, *more: int, **named: int) -> None: ...
def _method(self: object, a: int, b: int = 2) -> None: ...
def _first(a: int, /, b: int = 2) -> None: ...


@pytest.mark.many
@given(
    function=st.sampled_from([_two, _defaults, _named, _rest, _method, _first]),
    args=st.lists(st.integers(), max_size=5),
    kwargs=st.dictionaries(st.sampled_from("abc"), st.integers()),
)
def test_arguments_have_the_names_that_the_signature_gives_them(
    function: Any, args: list[int], kwargs: dict[str, int]
) -> None:
    bound = _Binder(function, None)(tuple(args), kwargs)
    try:
        named = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except TypeError:
        assert bound in ({"args": args, "kwargs": kwargs}, kwargs)  # by name alone what is missing shows by itself
        return
    named.update(named.pop("named", {}))
    named.pop("self", None)
    if bound != kwargs or args:
        assert bound == named
        assert list(bound) == list(named)


@given(lane=st.text(), n=st.integers(min_value=0), cause=st.none() | st.integers())
def test_a_place_keeps_the_id_of_its_call(lane: str, n: int, cause: int | None) -> None:
    place = Place(lane, n, "s", None)
    assert place.call_id == f"{lane}.{n}"
    moved = place._replace(cause=cause, parent_span_id="p")
    assert type(moved) is Place
    assert moved == Place(lane, n, "s", "p", cause)
    assert moved.call_id == place.call_id


@pytest.mark.parametrize(
    "address",
    [
        "https://api.openai.com/v1",
        "https://eu.api.openai.com:443/v1/",
        "https://mine.openai.azure.com/openai",
        "http://user:word@Models.Example:8080/v1",
        "http://[::1]:11434/v1",
        "https://b\u00fccher.example/v1",
        "/v1",
        "",
    ],
)
def test_a_provider_is_the_same_by_a_url_and_by_its_text(address: str) -> None:
    url = httpx2.URL(address)
    assert provider_of(url) == provider_of(str(url))


@given(
    given=st.none() | st.text(min_size=1),
    output=st.none() | st.text(min_size=1),
    bodies=st.dictionaries(st.text(), st.text(min_size=1), max_size=3),
)
def test_an_event_names_all_its_digests_in_order(given: str | None, output: str | None, bodies: dict[str, str]) -> None:
    draft = Draft(
        type="call.finished", event_id="e", recorded_at="t", input_digest=given, output_digest=output, bodies=bodies
    )
    assert draft.digests() == tuple(digest for digest in (given, output, *bodies.values()) if digest is not None)


def test_tools_are_found_in_each_member_of_an_answer() -> None:
    chat = {"choices": [{"message": {"tool_calls": [{"id": "1", "function": {"name": "a", "arguments": "{}"}}]}}]}
    response = {"output": [{"type": "function_call", "call_id": "2", "name": "b", "arguments": "{}"}]}
    message = {"content": [{"type": "tool_use", "id": "3", "name": "c", "input": {}}]}
    for answer, names in (
        (chat, ["a"]),
        (response, ["b"]),
        (message, ["c"]),
        ({**chat, **response, **message}, ["a", "b", "c"]),
        ({}, []),
        (None, []),
        (["output"], []),
    ):
        assert [asked.name for asked in asked_tools(answer)] == names  # type: ignore[arg-type]


# --- values are looked through one by one, or level by level ----------------------------------------------------------


def _long(value: Any, items: int) -> Any:
    return [*range(items - 1), value]


def _deep(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = {"in": value} if level % 2 else [value]
    return value


_MANY_OR_DEEP = [
    *((_long, items) for items in (1, 63, 64, 65, 66, 1000)),
    *((_deep, levels) for levels in (1, 11, 12, 13, 14, 249, 260, 270)),
]


@pytest.mark.many
@pytest.mark.parametrize(("shape", "size"), _MANY_OR_DEEP)
@pytest.mark.parametrize(
    "value", ["text", 2**70, 0.1, 1e-7, 1e21, 5.0, None, True, "\ud800", float("nan"), {"b": 1, "a": 2}]
)
def test_however_a_value_is_looked_through_its_text_is_the_same(shape: Any, size: int, value: Any) -> None:
    whole = shape(value, size)
    from agentloupe.words import canonical as forms
    from agentloupe.words import jsontext

    assert dumps(whole) == write(whole, jsontext._in_order, jsontext._float_text)
    assert canonical(whole) == write(whole, forms._sorted_members, forms._float_text)


class _Text(str):
    __slots__ = ()


@pytest.mark.many
@pytest.mark.parametrize(("shape", "size"), _MANY_OR_DEEP)
@pytest.mark.parametrize("value", [(1,), {1}, _Text("x"), object(), {1: 2}])
def test_what_is_no_json_is_found_wherever_it_lies(shape: Any, size: int, value: Any) -> None:
    for form in (dumps, canonical):
        with pytest.raises(TypeError, match="no JSON"):
            form(shape(value, size))


# --- made once --------------------------------------------------------------------------------------------------------


@pytest.mark.many
@given(
    value=st.recursive(
        st.none() | st.text() | st.integers() | st.floats(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_a_text_that_was_made_already_packs_to_the_same_bodies(value: Json) -> None:
    assert Packer().pack(value, text=dumps(value)) == Packer().pack(value)


def test_ids_of_one_moment_have_the_form_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 0x0123_4567_89AB
    monkeypatch.setattr(time, "time_ns", lambda: at * 1_000_000)
    ids = [ambient.new_event_id() for _ in range(1000)]
    assert len(set(ids)) == len(ids)
    form = re.compile(r"01234567-89ab-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
    assert all(map(form.fullmatch, ids))
    monkeypatch.setattr(time, "time_ns", lambda: (at + 1) * 1_000_000)
    assert ambient.new_event_id().startswith("01234567-89ac-7")


class _LetsPass:
    def decide(self, call: Call) -> Perform:
        ambient.place()
        return Perform()

    def finished(self, perform: Perform, value: object) -> object:
        return value

    def failed(self, perform: Perform, error: BaseException) -> None: ...


def test_a_call_asks_where_it_stands_once_and_for_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Call(kind="other", name="x", input=None, encode=lambda v: None, decode=lambda v: v)
    with ambient.inside(_LetsPass()):
        asked: list[None] = []
        before = surroundings._home_here[0]
        monkeypatch.setattr(surroundings, "_home_here", [lambda: asked.append(None) or before()])
        assert ambient.call(request, lambda: 5) == 5
    assert len(asked) == 2
