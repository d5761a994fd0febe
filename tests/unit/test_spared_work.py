"""What a recorded call is spared says the same as the long way."""

from __future__ import annotations

import inspect
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.ports.ambient import Place
from agentloupe.providers.chat import provider_of
from agentloupe.verbs.instrument import _Binder
from agentloupe.words.event import Draft
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
