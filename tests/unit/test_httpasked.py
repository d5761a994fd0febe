"""What an HTTP request says: equal where it means the same, different where anything else differs."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.privacy import Rules, scrub
from agentloupe.providers.httpasked import body_asked, query_asked, query_in_order, query_text
from agentloupe.words.jsontext import Json

NAMES = st.text(st.characters(categories=("Ll", "Lu", "Nd"), max_codepoint=0x7F), min_size=1, max_size=8)


def form(boundary: bytes, *parts: bytes) -> tuple[bytes, str]:
    whole = b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts)
    return whole + b"--" + boundary + b"--\r\n", f"multipart/form-data; boundary={boundary.decode()}"


@given(st.dictionaries(NAMES, st.binary(max_size=30), min_size=1, max_size=4), st.data())
def test_a_form_is_its_parts_and_not_its_boundary(parts: dict[str, bytes], data: st.DataObject) -> None:
    def sent(parts: dict[str, bytes]) -> httpx.Request:
        files = {name: (f"{name}.bin", content) for name, content in parts.items()}
        return httpx.Request("POST", "http://x.test/", files=files)

    def asked(request: httpx.Request) -> object:
        return body_asked(request.read(), request.headers["content-type"])

    first, again = sent(parts), sent(parts)
    assert first.headers["content-type"] != again.headers["content-type"]
    assert asked(first) == asked(again)
    changed = {**parts, data.draw(st.sampled_from(sorted(parts))): b"something else of thirty-one bytes"}
    assert asked(first) != asked(sent(changed))


@pytest.mark.parametrize(
    "piece",
    [
        b'content-disposition: form-data; name="a"',  # no empty line
        b"content-disposition: form-data\r\n\r\nx",  # no name
        b"no header\r\n\r\nx",
        b"\r\n\r\nx",
    ],
)
def test_what_is_no_whole_form_is_kept_as_it_is(piece: bytes) -> None:
    content, kind = form(b"b", piece)
    assert body_asked(content, kind) == {"text": content.decode()}
    whole, kind = form(b"b", b'content-disposition: form-data; name="a"\r\n\r\nx')
    assert body_asked(whole, kind) == {"multipart": [{"a": "x"}]}
    assert body_asked(whole[:-8], kind) == {"text": whole[:-8].decode()}
    assert body_asked(b"before\r\n" + whole, kind) == {"text": "before\r\n" + whole.decode()}
    assert body_asked(whole, "multipart/mixed; boundary=b") == {"text": whole.decode()}


def test_json_is_compared_by_value_and_what_only_looks_like_it_as_text() -> None:
    assert body_asked(b'{"b": 1, "a": [2]}', "application/json") == {"json": {"a": [2], "b": 1}}
    for odd in (b'{"a": 1, "a": 2}', b'{"a": NaN}', b"{not json"):
        assert body_asked(odd, "application/json") == {"text": odd.decode()}
    assert body_asked(b"\xff", "") == {"base64": "/w=="}
    assert body_asked(b"", "") == {"text": ""}


def test_the_order_of_parameters_does_not_matter_that_of_one_name_does() -> None:
    assert query_in_order("b=1&a=2&a=1") == query_in_order("a=2&b=1&a=1") == "?a=2&a=1&b=1"
    assert query_in_order("a=1&a=2") != query_in_order("a=2&a=1")
    assert query_in_order("") == ""


@given(st.lists(st.tuples(NAMES, st.text(max_size=5)), max_size=5))
def test_a_query_comes_back_with_the_same_meaning(pairs: list[tuple[str, str]]) -> None:
    try:
        query = query_text(dict(pairs))
    except UnicodeEncodeError:
        return  # lone surrogates are no text of a URL
    assert query_asked(query) == dict(pairs)


def test_secrets_of_queries_and_forms_are_found_by_their_names() -> None:
    content, kind = form(b"b", b'content-disposition: form-data; name="password"\r\n\r\nhunter2-hunter2')
    asked: Json = {
        "query": query_in_order("page=2&sig=0123456789abcdefg&api_key=LOUPE-CANARY-1"),
        "body": body_asked(content, kind),
    }
    clean = str(scrub(asked, Rules()).value)
    for secret in ("hunter2", "0123456789", "CANARY"):
        assert secret not in clean
    assert "page=2" in clean
