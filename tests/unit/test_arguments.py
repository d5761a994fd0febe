"""Arguments of tool calls: strict, kept raw, never guessed at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.words.arguments import parse_arguments
from agentloupe.words.canonical import dumps
from tests.unit.values import ANY_TEXT, json_values, same


@pytest.mark.parametrize("raw", [None, "", " \t\r\n", "null", "\nnull ", "{}", {}])
def test_no_arguments(raw) -> None:
    found = parse_arguments(raw)
    assert (found.raw, found.parsed, found.error) == (raw, {}, None)


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        ('{"a":1,"a":2}', "not strict JSON: duplicate key at character 7 (line 1, column 8)"),
        ('{"x":NaN}', "not strict JSON: NaN is not JSON at character 5 (line 1, column 6)"),
        ('{"x":1e999}', "not strict JSON: a number out of range at character 5 (line 1, column 6)"),
        ('{"a":', "not strict JSON: the text ends too early at character 5 (line 1, column 6)"),
        ("  [1]", "not an object but a list at character 2"),
        ("17", "not an object but a bare value at character 0"),
        ('"Oslo"', "not an object but a JSON string at character 0"),
        ('"{\\"a\\":1}"', "not an object but a JSON string that holds an object (encoded twice) at character 0"),
    ],
)
def test_errors_say_where_and_hold_no_payload(raw, error) -> None:
    found = parse_arguments(raw)
    assert (found.raw, found.parsed, found.error) == (raw, None, error)


@given(st.dictionaries(ANY_TEXT, json_values(max_leaves=5), max_size=4))
def test_an_object_is_read_exactly(arguments) -> None:
    raw = dumps(arguments).decode()
    found = parse_arguments(raw)
    assert found.raw == raw
    assert same(found.parsed, arguments)
    assert same(parse_arguments(arguments).parsed, arguments)


@given(st.text() | st.text(alphabet='{}[]":,\\ 01nulNaN', max_size=15))
def test_never_raises_and_either_parses_or_says_why(raw) -> None:
    found = parse_arguments(raw)
    assert found.raw == raw
    assert (found.parsed is None) == (found.error is not None)
