"""The chain: every change, gap, swap and foreign event is found at its place."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.words.canonical import canonical
from agentloupe.words.seal import GENESIS, check_chain, link
from tests.unit.values import json_values


def chain(count: int, run_id: str = "r", head: str = GENESIS) -> list:
    links = []
    for sequence in range(1, count + 1):
        envelope: Any = {
            "run_id": run_id,
            "sequence": sequence,
            "type": "state.changed",
            "attrs": {"n": sequence * 1.5},
        }
        sealed = link(head, envelope)
        links.append((sequence, envelope, head, sealed))
        head = sealed
    return links


def test_the_formula() -> None:
    envelope = {"b": 1, "a": "é"}
    expected = hashlib.sha256(GENESIS.encode() + '{"a":"é","b":1}'.encode()).hexdigest()
    assert link(GENESIS, envelope) == expected
    assert link(GENESIS, {**envelope, "prev_hash": "x", "hash": "y"}) == expected
    assert envelope == {"b": 1, "a": "é"}


@given(st.dictionaries(st.text(max_size=4), json_values(max_leaves=4), max_size=4))
def test_the_formula_for_any_envelope(envelope) -> None:
    inside = {k: v for k, v in envelope.items() if k not in ("hash", "prev_hash")}
    assert link("ab", envelope) == hashlib.sha256(b"ab" + canonical(inside)).hexdigest()


def test_a_whole_chain_has_no_fault() -> None:
    assert check_chain(chain(5)) is None
    assert check_chain([]) is None
    assert check_chain(chain(5), run_id="r") is None
    links = chain(5)
    assert check_chain(links[2:], first=3, head=links[1][3]) is None


def fault(links, **known):
    found = check_chain(links, **known)
    return None if found is None else (found.sequence, found.reason)


def test_every_kind_of_fault_at_its_place() -> None:
    links = chain(5)
    assert fault([*links[:2], *links[3:]]) == (4, "gap")
    assert fault([*links[:2], links[1], *links[2:]]) == (2, "gap")
    assert fault(links[1:]) == (2, "gap")
    assert fault([links[1], links[0], *links[2:]]) == (2, "gap")
    assert fault(links, run_id="other") == (1, "run_id")
    third = links[2]
    edited: Any = (3, {**third[1], "attrs": {"n": 0}}, third[2], third[3])
    assert fault([*links[:2], edited, *links[3:]]) == (3, "hash")
    renumbered = (3, {**third[1], "sequence": 4}, third[2], third[3])
    assert fault([*links[:2], renumbered, *links[3:]]) == (3, "sequence")
    foreign = chain(5, "s")[2]
    assert fault([*links[:2], foreign, *links[3:]]) == (3, "run_id")
    resealed = (3, edited[1], third[2], link(third[2], edited[1]))
    assert fault([*links[:2], resealed, *links[3:]]) == (4, "prev_hash")
    assert fault([(1, links[0][1], "f" * 64, links[0][3])]) == (1, "prev_hash")


def test_a_fault_says_what_was_expected() -> None:
    links = chain(2)
    found = check_chain([(1, {**links[0][1], "x": 1}, GENESIS, links[0][3])])
    assert found is not None
    assert found.expected == link(GENESIS, {**links[0][1], "x": 1})
    assert found.actual == links[0][3]


def test_an_envelope_that_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError):
        link(GENESIS, {"a": (1,)})  # type: ignore[dict-item]
