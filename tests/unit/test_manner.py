"""The plain loop goes on in the hand of the agent that was recorded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.manner import PLAIN, Manner, learn_manner, manner_from_json
from agentloupe.words.canonical import Json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


def history(*results: tuple[dict[str, Json], str], content: bool = True) -> dict[str, Json]:
    messages: list[Json] = [{"role": "user", "content": "go"}]
    for at, (arguments, text) in enumerate(results):
        call: Json = {
            "id": f"c{at}",
            "type": "function",
            "function": {"name": "look", "arguments": json.dumps(arguments)},
        }
        asked: dict[str, Json] = {"role": "assistant", "tool_calls": [call]}
        messages.append({**asked, "content": None} if content else asked)
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": text})
    return {"messages": messages}


@pytest.mark.parametrize("write", [json.dumps, lambda v: json.dumps(v, ensure_ascii=False)])
def test_the_spelling_of_an_agent_is_kept_for_results_it_never_wrote(write: object) -> None:
    assert callable(write)
    manner = learn_manner([history(({"k": 1}, str(write({"v": 1.0, "city": "Köln"}))))])
    assert manner.result("look", {"k": 2}, {"v": 2.0, "city": "Malmö"}) == write({"v": 2.0, "city": "Malmö"})


def test_results_written_in_their_own_way_come_back_to_the_letter() -> None:
    odd = '{"b": 2,\n "a": 1}'
    manner = learn_manner([history(({"k": 1}, odd), ({"k": 2}, '{"x": 1}'), ({"k": 3}, '{"y": 1}'))])
    assert manner.result("look", {"k": 1}, {"a": 1, "b": 2}) == odd
    assert manner.result("look", {"k": 1}, {"a": 9}) == '{"a": 9}', "another value is not given the old text"
    assert manner.result("look", {"k": 9}, {"a": 1, "b": 2}) == '{"a": 1, "b": 2}'


def test_texts_stay_texts() -> None:
    manner = learn_manner([history(({"k": 1}, "17 degrees"))])
    assert manner == PLAIN
    assert manner.result("look", {"k": 1}, "17 degrees") == "17 degrees"


@pytest.mark.parametrize(
    ("message", "nulls", "sent"),
    [
        ({"content": None, "refusal": None}, "content", {"content": None}),
        ({"content": None, "refusal": None}, "kept", {"content": None, "refusal": None}),
        ({"content": None, "refusal": None}, "dropped", {}),
    ],
)
def test_null_members_of_an_assistant_message(message: dict[str, Json], nulls: str, sent: dict[str, Json]) -> None:
    assert manner_from_json({"nulls": nulls}).message(message) == sent


def test_nulls_are_learnt_from_messages_that_ask_for_tools() -> None:
    assert learn_manner([history(({"k": 1}, "x"), content=False)]).nulls == "dropped"
    assert learn_manner([history(({"k": 1}, "x"))]).nulls == "content"
    whole = history(({"k": 1}, "x"))
    messages = whole["messages"]
    assert isinstance(messages, list)
    asked = messages[1]
    assert isinstance(asked, dict)
    messages[1] = {**asked, "refusal": None}
    assert learn_manner([whole]).nulls == "kept"


def test_nothing_to_see_is_plain() -> None:
    assert learn_manner([]) == PLAIN
    assert learn_manner([None, {}, {"messages": "x"}, {"messages": [1, None, {"role": "assistant"}]}]) == PLAIN
    assert manner_from_json(None) == PLAIN
    assert manner_from_json({"nulls": 3, "spelling": "loud", "texts": [1]}) == PLAIN


def test_an_error_stays_readable_and_alone() -> None:
    assert PLAIN.error("Kö") == '{"error":"Kö"}'
    assert Manner(spelling="escaped").error("Kö") == '{"error": "Kö"}'


@given(st.lists(st.tuples(OBJECTS, OBJECTS), max_size=4), st.sampled_from([None, 2]))
def test_what_was_written_is_written_again(results: list[tuple[dict[str, Json], dict[str, Json]]], indent: int) -> None:
    written = [(arguments, json.dumps(value, indent=indent)) for arguments, value in results]
    manner = learn_manner([history(*written)])
    assert manner_from_json(manner.as_json()) == manner
    for (arguments, value), (_, text) in zip(results, written, strict=True):
        again = manner.result("look", arguments, value)
        assert again == text or json.loads(again) == value
        if sum(one == arguments for one, _ in results) == 1:
            assert again == text
