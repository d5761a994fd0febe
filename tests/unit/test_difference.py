"""What differs is shown so that one sees it, with the likely cause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine import difference as d
from agentloupe.engine.edits import show_path
from agentloupe.words.canonical import Json, digest

TEXT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]}


def _request(user: str, system: str = "Be brief.", **more: Json) -> Json:
    return {
        "model": "m",
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        **more,
    }


def _hints(a: Json, b: Json, kind: str = "llm") -> tuple[str, ...]:
    changes, _ = d.changes_between(a, b)
    return d.hints_for(kind, changes, a)


@pytest.mark.parametrize(
    ("a", "b", "hint"),
    [
        ("café", "cafe\u0301", d.UNICODE),
        ("a b", "a\u00a0b", "U+00A0 NO-BREAK SPACE"),
        ("a\nb", "a\r\nb", d.LINES),
        ("a \nb", "a\nb", d.LINES),
        ("Tags: refund, late, vip", "Tags: vip, refund, late", d.ORDER),
        ("Today is 2026-03-02.", "Today is 2026-04-11.", d.CLOCK),
        ("Now is 2026-12-01 13:35:31.153203.", "Now is 2026-12-01 13:35:34.791258.", d.CLOCK),
        ("2026-12-01T13:35:31Z", "2026-12-01T13:35:34Z", d.CLOCK),
        ("at 08:15:01", "at 21:15:01", d.CLOCK),
        ("at 08:15:01.25", "at 08:15:01.75", d.CLOCK),
        ("ts=1767225600", "ts=1767225999", d.CLOCK),
        ("Monday", "Friday", d.CLOCK),
        ("Case 0f8fad5b-d9cb-469f-a165-70867728950e.", "Case 7c9e6679-7425-40de-944b-e07fc1f90ae7.", d.IDS),
        ("call_ai_e0224083af14476a8c29addde6f11729", "call_ai_8f042e5b09b2408ba6d4ea943f3923ee", d.IDS),
        ("p=0.7364712141640124", "p=0.5692038748222122", d.CHANCE),
        ("<Tool object at 0x7f3a2c>", "<Tool object at 0x7f9b10>", d.ADDRESSES),
        ("in /tmp/abc1/x", "in /tmp/zzz2/x", d.TEMPORARY),
        (
            'Traceback (most recent call last):\n  File "/tmp/abc1/x.py", line 3',
            'Traceback (most recent call last):\n  File "/tmp/zzz2/x.py", line 7',
            d.TRACEBACK,
        ),
        ("key [removed:api_key]", "key sk-abc", d.REDACTION),
    ],
)
def test_a_hint_where_one_is_known(a: str, b: str, hint: str) -> None:
    for first, second in ((a, b), (b, a)):
        assert any(hint in found for found in _hints(_request(first), _request(second)))


def test_a_list_in_another_order() -> None:
    assert _hints({"ids": ["b", "a"]}, {"ids": ["a", "b"]}, "tool") == (d.ORDER,)
    assert d.ORDER in _hints({"ids": [["b", 1], ["a", 2]]}, {"ids": [["a", 2], ["b", 1]]}, "tool")


def test_where_in_a_request_when_nothing_else_is_known() -> None:
    assert "system prompt" in _hints(_request("x"), _request("x", "Be kind."))[0]
    assert "a message differs" in _hints(_request("x"), _request("y"))[0]
    assert "parameter" in _hints(_request("x", temperature=0), _request("x", temperature=1))[0]
    assert "tools offered" in _hints(_request("x", tools=[1]), _request("x", tools=[2]))[0]
    assert _hints({"city": "Oslo"}, {"city": "Rome"}, "tool") == ()


def test_what_cannot_be_seen_is_written_out() -> None:
    assert d.inline_diff("a b", "a\u00a0b") == "[-a b-]{+a\\u00a0b+}"
    assert "\\u0301" in d.inline_diff("café", "cafe\u0301")
    assert "\\u001b[31m" in d.inline_diff("x", "\x1b[31mred")


def test_the_middle_of_a_long_text() -> None:
    a, b = "a" * 500 + " 2026-01-01 " + "b" * 500, "a" * 500 + " 2027-01-01 " + "b" * 500
    line = d.inline_diff(a, b)
    assert "[-2026-01-01-]{+2027-01-01+}" in line
    assert len(line) < 140
    record = d.changes_between({"t": a}, {"t": b})[0][0].as_json()
    assert record["path"] == "t"
    assert len(str(record["expected"])) < 400


def test_an_inserted_message_is_one_change() -> None:
    before: list[Json] = [{"role": "user", "content": str(i)} for i in range(6)]
    after: list[Json] = [*before[:2], {"role": "user", "content": "new"}, *before[2:]]
    changes, more = d.changes_between({"messages": before}, {"messages": after})
    assert not more
    assert [(show_path(c.path), c.what) for c in changes] == [("messages[2]", "added")]


def test_at_most_so_many() -> None:
    changes, more = d.changes_between({str(i): i for i in range(50)}, {str(i): -1 for i in range(50)})
    assert (len(changes), more) == (20, True)


def test_numbers_and_booleans() -> None:
    assert d.changes_between(1, 1.0) == ((), False)
    assert d.changes_between(True, 1)[0] != ()
    assert d.changes_between({"n": None}, {})[0][0].what == "removed"


_json: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)


@given(_json, _json)
def test_there_is_a_change_exactly_where_values_differ(a: Json, b: Json) -> None:
    changes, _ = d.changes_between(a, b)
    assert (changes == ()) == (digest(a) == digest(b))
    for change in changes:
        assert change.as_json()["change"] in ("changed", "added", "removed")


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_shown_text_obeys_no_terminal(a: str, b: str) -> None:
    shown = d.inline_diff(a, b)
    assert all(c in "\n\t" or (ord(c) >= 32 and ord(c) not in range(0x7F, 0xA0)) for c in shown)
