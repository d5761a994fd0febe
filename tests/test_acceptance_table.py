"""The acceptance table claims nothing that is not there: what it names as proof exists."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.support import ROOT

TABLE = ROOT / "docs" / "internals" / "acceptance.md"
STATES = {"open", "part", "met"}
_CELL = re.compile(r"(?<!\\)\|")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::([\w:]+))?`")


def rows() -> list[tuple[int, str, str, str]]:
    """Line number, requirement, where shown and state of every row that is no heading."""
    found: list[tuple[int, str, str, str]] = []
    for number, line in enumerate(TABLE.read_text("utf-8").splitlines(), 1):
        if line.startswith("|") and not line.startswith(("| requirement", "| ---")):
            cells = [cell.strip() for cell in _CELL.split(line)[1:-1]]
            assert len(cells) == 3, f"{TABLE.name}:{number} has {len(cells)} columns, not 3"
            found.append((number, *cells))  # pyright: ignore[reportArgumentType]  # the assert above counts them
    return found


@cache
def names_in(file: str) -> frozenset[str]:
    """Functions and classes that a test file defines, methods as `Class::method`."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}::{n.name}" for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def missing(where: str) -> list[str]:
    """Tests that a cell names and that do not exist."""
    return [
        f"{file}::{name}" if name else file
        for file, name in _TEST.findall(where)
        if not (ROOT / file).is_file() or (name and name not in names_in(file))
    ]


def test_every_row_has_a_known_state_and_no_claim_stands_without_proof() -> None:
    faults = [
        f"{TABLE.name}:{number} {what[:60]!r}: state {state!r}" + ("" if where else " without a proof")
        for number, what, where, state in rows()
        if state not in STATES or (state != "open" and not where)
    ]
    assert not faults, "\n".join(faults)


def test_every_named_test_exists() -> None:
    faults = [f"{TABLE.name}:{number}: {name}" for number, _, where, _ in rows() for name in missing(where)]
    assert not faults, "\n".join(faults)


def test_no_requirement_is_listed_twice_in_a_section() -> None:
    sections = TABLE.read_text("utf-8").split("\n## ")[1:]
    assert len(sections) > 5
    for section in sections:
        what = [_CELL.split(line)[1].strip() for line in section.splitlines() if line.startswith("| ")]
        assert len(what) == len(set(what)), f"twice in {section.splitlines()[0]!r}"


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        ("`tests/test_acceptance_table.py::test_every_named_test_exists`", 0),
        ("`tests/test_acceptance_table.py`", 0),
        ("`tests/test_acceptance_table.py::test_nowhere`", 1),
        ("`tests/nowhere.py`, `make bench`", 1),
    ],
)
def test_a_missing_proof_is_found(cell: str, count: int) -> None:
    assert len(missing(cell)) == count
