"""Case 23: one inserted step is one difference, whichever side it is on, and spelling is said but is no change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.compare import Comparison
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.comparing import compare, detail
from agentloupe.verbs.exchange import import_file

NAMES = ("a", "b_one_step_more", "c_number_spelling", "d_two_swapped")


@pytest.fixture
def store(shared_case: Callable[[str], Path]) -> Store:
    made = open_url("memory:")
    for name in NAMES:
        import_file(made, shared_case("23") / f"{name}.json")
    return made


def compared(store: Store, left: str, right: str) -> tuple[Comparison, Any]:
    found = compare(left, right, store=store)
    assert isinstance(found, Comparison)
    return found, found.as_json()


def test_a_run_with_itself(store: Store) -> None:
    found, said = compared(store, "a", "a")
    assert found.identical
    assert said["counts"]["unchanged"] == 4
    assert (said["counts"]["added"], said["counts"]["removed"], said["counts"]["changed"]) == (0, 0, 0)
    assert said["first"] is None


def test_one_step_more_is_one_difference(store: Store) -> None:
    found, said = compared(store, "a", "b_one_step_more")
    assert [row.right.name for row in found.rows if row.status == "only_right" and row.right] == ["whoami"]
    counts = said["counts"]
    assert (counts["added"], counts["removed"], counts["changed"], counts["unchanged"]) == (1, 0, 0, 4)
    assert (said["first"]["left_idx"], said["first"]["right_idx"]) == (1, 1)
    assert not found.identical


def test_another_spelling_is_said_and_is_no_change(store: Store) -> None:
    found, said = compared(store, "a", "c_number_spelling")
    assert said["counts"]["changed"] == 0
    assert said["counts"]["unchanged"] == 4
    assert not found.identical
    (noted,) = [row for row in found.rows if row.notes]
    assert noted.notes == ("output: equal values, different spelling",)
    assert noted.left is not None
    assert noted.left.idx == 2
    assert detail(found, noted, store=store)["output"] == []


def test_two_swapped_steps_are_one_move(store: Store) -> None:
    found, said = compared(store, "a", "d_two_swapped")
    counts = said["counts"]
    assert (counts["added"], counts["removed"], counts["changed"], counts["unchanged"]) == (1, 1, 0, 3)
    moved = [row.left or row.right for row in found.rows if row.status in ("only_left", "only_right")]
    assert len({step.input_key for step in moved if step}) == 1


@pytest.mark.parametrize("other", NAMES)
def test_swapping_the_sides_swaps_added_and_removed_and_nothing_else(store: Store, other: str) -> None:
    there, said = compared(store, "a", other)
    back, said_back = compared(store, other, "a")
    swapped = {"only_left": "only_right", "only_right": "only_left"}
    rows = {(row.status, row.left and row.left.idx, row.right and row.right.idx, row.notes) for row in there.rows}
    rows_back = {
        (swapped.get(row.status, row.status), row.right and row.right.idx, row.left and row.left.idx, row.notes)
        for row in back.rows
    }
    assert rows == rows_back
    counts, counts_back = said["counts"], said_back["counts"]
    assert (counts["added"], counts["removed"]) == (counts_back["removed"], counts_back["added"])
    assert (counts["changed"], counts["unchanged"]) == (counts_back["changed"], counts_back["unchanged"])
