"""Case 08: what counts as the same arguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from agentloupe.words.canonical import digest, dumps, key_of, loads


def test_keys_are_equal_exactly_where_the_case_says_so(shared_case: Callable[[str], Path]) -> None:
    pairs = json.loads((shared_case("08") / "vectors.json").read_text("utf-8"))
    assert len(pairs) == 16
    wrong: list[str] = []
    for pair in pairs:
        a, b = loads(pair["a"]), loads(pair["b"])
        told = {
            "text and text": key_of("tool", "f", pair["a"]) == key_of("tool", "f", pair["b"]),
            "value and value": key_of("tool", "f", a) == key_of("tool", "f", b),
            "text and value": key_of("tool", "f", pair["a"]) == key_of("tool", "f", b),
            "request": key_of("llm", "m", {"messages": [a]}) == key_of("llm", "m", {"messages": [b]}),
            "digest": digest(a) == digest(b),
        }
        wrong += [f"{pair['why']}: {how}" for how, same in told.items() if same is not pair["same"]]
    assert wrong == []


def test_the_stored_text_is_not_rewritten(shared_case: Callable[[str], Path]) -> None:
    for pair in json.loads((shared_case("08") / "vectors.json").read_text("utf-8")):
        for text in (pair["a"], pair["b"]):
            value = {"arguments": text}
            key_of("tool", "f", text)
            assert loads(dumps(value)) == value
