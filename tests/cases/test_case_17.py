"""Case 17: what a model may put in `arguments` (parsing and keys; the fork has tests of its own)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentloupe.words.arguments import parse_arguments
from agentloupe.words.canonical import dumps, key_of, loads
from tests.unit.values import same


def rows(folder: Path) -> list[Any]:
    found = json.loads((folder / "rows.json").read_text("utf-8"))
    assert len(found) == 13
    return found


def test_every_row_parses_as_the_case_says_and_keeps_its_text(shared_case: Callable[[str], Path]) -> None:
    for row in rows(shared_case("17")):
        found = parse_arguments(row["raw"])
        assert found.raw == row["raw"]
        assert same(found.parsed, row["parsed"]), row["note"]
        assert (found.error is None) is row["may_run_live"], row["note"]
        if found.error is not None:
            assert re.search(r"at character \d+", found.error), row["note"]


def test_positions_point_at_the_fault(shared_case: Callable[[str], Path]) -> None:
    told = {row["raw"]: parse_arguments(row["raw"]).error or "" for row in rows(shared_case("17"))}
    assert "duplicate key at character 7 " in told['{"a":1,"a":2}']
    assert "NaN is not JSON at character 5 " in told['{"x":NaN}']
    assert "-Infinity is not JSON at character 5 " in told['{"x":-Infinity}']
    assert "does not end" in told['{"q":"unfinis']
    assert "at character 5 " in told['{"q":"unfinis']
    assert "encoded twice" in told['"{\\"city\\":\\"Oslo\\"}"']


def test_every_row_has_a_key_of_its_own_but_the_first_four_share_one(shared_case: Callable[[str], Path]) -> None:
    raws = [row["raw"] for row in rows(shared_case("17"))]
    keys = [key_of("tool", "f", raw) for raw in raws]
    assert keys == [key_of("tool", "f", raw) for raw in raws]
    assert len(set(keys[:4])) == 1
    assert len(set(keys)) == len(keys) - 3


def test_stored_lines_are_strict_json(shared_case: Callable[[str], Path]) -> None:
    for row in rows(shared_case("17")):
        found = parse_arguments(row["raw"])
        line: Any = {"raw": found.raw, "parsed": found.parsed, "error": found.error}
        text = dumps(line)
        assert same(loads(text), line)
        assert b"90071992547409931" in text or "9007199" not in row["raw"]
