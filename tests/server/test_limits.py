"""What is taken in has limits, and what is over one says which setting raises it."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.ports.protocols import Store
from agentloupe.ports.serving import ServerSettings
from agentloupe.server.limits import depth_of
from agentloupe.words.jsontext import dumps
from tests.made import weather_like
from tests.server.serving import TOKEN, client_of, put


def sent(store: Store, content: bytes, settings: ServerSettings, **headers: str) -> Any:
    run = put(store, weather_like())
    client = client_of(store, TOKEN, server=settings)
    return client.post(
        f"/api/runs/{run}/tags", content=content, headers={"content-type": "application/json", **headers}
    )


@pytest.mark.parametrize(
    ("content", "headers", "place"),
    [
        (b'{"tags": ["' + b"x" * 200 + b'"]}', {}, "server.max_body"),
        (b'{"tags": ' + b"[" * 30 + b"]" * 30 + b"}", {}, "server.max_depth"),
        (gzip.compress(b'{"tags": [' + b" " * 90 + b"]}", mtime=0), {"content-encoding": "gzip"}, "server.max_ratio"),
    ],
)
def test_over_a_limit_is_said_with_its_setting(
    store: Store, content: bytes, headers: dict[str, str], place: str
) -> None:
    answer = sent(store, content, ServerSettings(max_body=150, max_depth=20, max_ratio=2), **headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["reason"], error["place"]) == (413, "too_large", place)
    assert f"LOUPE_{place.replace('.', '_').upper()}" in error["hint"]


def test_a_body_that_does_not_say_how_long_it_is_is_counted(store: Store) -> None:
    run = put(store, weather_like())
    client = client_of(store, TOKEN, server=ServerSettings(max_body=100))
    answer = client.post(f"/api/runs/{run}/tags", content=(b" " * 30 for _ in range(5)))
    assert answer.status_code == 413


def test_gzip_is_unpacked(store: Store) -> None:
    answer = sent(
        store, gzip.compress(b'{"tags": ["zipped"]}', mtime=0), ServerSettings(), **{"content-encoding": "gzip"}
    )
    assert answer.json()["tags"] == ["zipped"]


@pytest.mark.parametrize(
    ("content", "coding"),
    [(b"plain", "gzip"), (gzip.compress(b"{}", mtime=0)[:-4], "gzip"), (b"{}", "br"), (b"{}", "zstd")],
)
def test_a_coding_that_cannot_be_read_is_a_wrong_request(store: Store, content: bytes, coding: str) -> None:
    answer = sent(store, content, ServerSettings(), **{"content-encoding": coding})
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "coding")


def test_what_is_no_json_is_said_without_repeating_it(store: Store) -> None:
    answer = sent(store, b'{"tags": sesame', ServerSettings())
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "not_json")
    assert "sesame" not in answer.text


_TREES = st.recursive(
    st.none() | st.text(max_size=8), lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(), t)
)


@given(_TREES)
def test_depth_is_counted_as_a_reader_would(tree: Any) -> None:
    def deep(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max((deep(item) for item in inner), default=0)

    assert depth_of(dumps(tree), 10_000) == deep(tree)
