"""Answers that are rebuilt the short way equal those that the SDK builds, whatever a provider sends."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from agentloupe.providers.openai_answer import decoded, encoded, with_request_id
from agentloupe.words.jsontext import parsed
from tests.answers import ANSWER, same

ODD: list[Any] = [None, True, 0, 1.0, 1.5, -3, 2**70, "", "1", "x", [], [None], [{}], {}, {"a": 1}, "\udc00"]


TEXTS = [
    *(b"123456789012345678901234567890", b"-9223372036854775809", b"18446744073709551615", b"[1e400, -1e400, 1e-400]"),
    *(
        b"[NaN, Infinity]",
        b'"\\ud800"',
        b'{"a": 1, "b": 2, "a": 3}',
        b"[-0, -0.0, 1E2, 1.0]",
        b"\xef\xbb\xbf[1]",
        b'"\xff"',
    ),
    *('{"a": "\u4e2d"}'.encode("utf-16"), b"", b"[1,]", b"text", b' {"a" : [ ] }\n'),
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_json_of_an_answer_is_what_the_client_library_reads(text: bytes) -> None:
    import httpx2

    def read(reader: Any) -> str:
        try:
            return repr(reader(httpx2.Response(200, content=text)))
        except ValueError:
            return "no JSON"

    assert read(lambda response: parsed(response.content)) == read(lambda response: response.json())


def _read(reader: Any, text: bytes | str) -> str:
    try:
        return repr(reader(text))
    except ValueError:
        return "no JSON"


_NUMBERS = st.floats() | st.integers() | st.integers(10**17, 10**21).map(lambda n: -n)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
)


@pytest.mark.many
@given(
    value=_VALUES, ascii_only=st.booleans(), cut=st.integers(0, 40), more=st.sampled_from(["", " ", "0", "]", "\x00"])
)
def test_a_text_is_parsed_as_python_parses_it(value: Any, ascii_only: bool, cut: int, more: str) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    for one in (text, text[:cut] + more):
        assert _read(parsed, one) == _read(json.loads, one)
        data = one.encode("utf-8", "surrogatepass")
        assert _read(parsed, data) == _read(json.loads, data)


@pytest.fixture(scope="module")
def client() -> Any:
    with openai.OpenAI(
        api_key="k", base_url="http://127.0.0.1:1", http_client=openai.DefaultHttpxClient(verify=False)
    ) as made:
        yield made


def _changed(seed: int) -> dict[str, Any]:
    """A usual answer with some members taken out, replaced or added, anywhere."""
    chance = random.Random(seed)
    answer: Any = copy.deepcopy(ANSWER)
    for _ in range(chance.randint(0, 3)):
        node = answer
        while True:
            names: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not names:
                break
            name = chance.choice(names)
            if isinstance(node[name], dict | list) and node[name] and chance.random() < 0.7:
                node = node[name]
                continue
            how = chance.randrange(3)
            if how == 0:
                del node[name]
            elif how == 1:
                node[name] = chance.choice(ODD)
            elif isinstance(node, dict):
                node[f"new{chance.randrange(3)}"] = chance.choice(ODD)
            break
    return answer


def _built(client: Any, answer: Any) -> Any:
    """As the SDK makes it of these bytes."""
    return client._process_response_data(data=json.loads(json.dumps(answer)), cast_to=ChatCompletion, response=None)


@given(seed=st.integers(0, 2**40))
def test_any_answer_is_rebuilt_as_the_sdk_builds_it(client: Any, seed: int) -> None:
    answer = _changed(seed)
    expected = _built(client, answer)
    made = decoded(answer, client)
    same(expected, made)
    assert made == expected
    assert encoded(made, None) == encoded(expected, None)


def test_the_usual_answer_takes_the_short_way(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _built(client, ANSWER)
    monkeypatch.setattr(client, "_process_response_data", None)
    same(expected, decoded(ANSWER, client))


def test_an_object_without_its_response_says_what_it_holds(client: Any) -> None:
    assert encoded(_built(client, ANSWER), None) == ANSWER


def test_a_request_id_is_put_on_answers_only(client: Any) -> None:
    made: Any = with_request_id(_built(client, ANSWER), {"request_id": "req_1"})
    assert made._request_id == "req_1"
    assert "_request_id" not in made.to_dict()
    assert with_request_id("text", {"request_id": "req_1"}) == "text"
