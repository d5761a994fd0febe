"""Alignment: every step once, in order, and one inserted step is one difference."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine import align as module
from agentloupe.engine.align import ALIKE, EQUAL, RENEWED, Item, Pair, align


def tool(name: str, key: object) -> Item:
    return Item(("tool", name), ("tool", name, key))


def model(answer: object) -> Item:
    return Item("llm", ("llm", answer), flexible=True)


items = st.one_of(
    st.builds(tool, st.sampled_from("ab"), st.integers(0, 2)),
    st.builds(model, st.integers(0, 2)),
)


def worth(left: list[Item], right: list[Item], pairs: list[Pair]) -> int:
    total = 0
    for i, j in pairs:
        if i is None or j is None:
            continue
        one, other = left[i], right[j]
        assert one.family == other.family
        total += EQUAL if one.signature == other.signature else ALIKE if one.flexible else RENEWED
    return total


@given(st.lists(items, max_size=12), st.lists(items, max_size=12))
def test_every_step_of_both_sides_stands_once_and_in_order(left: list[Item], right: list[Item]) -> None:
    pairs = align(left, right)
    assert [i for i, _ in pairs if i is not None] == list(range(len(left)))
    assert [j for _, j in pairs if j is not None] == list(range(len(right)))


def best_by_trying_all(left: list[Item], right: list[Item]) -> int:
    best = 0
    for size in range(min(len(left), len(right)) + 1):
        for rows in itertools.combinations(range(len(left)), size):
            for columns in itertools.combinations(range(len(right)), size):
                pairs: list[Pair] = list(zip(rows, columns, strict=True))
                if all(left[i].family == right[j].family for i, j in zip(rows, columns, strict=True)):
                    best = max(best, worth(left, right, pairs))
    return best


@given(st.lists(items, max_size=5), st.lists(items, max_size=5))
def test_no_other_alignment_is_worth_more(left: list[Item], right: list[Item]) -> None:
    assert worth(left, right, align(left, right)) == best_by_trying_all(left, right)


@given(st.lists(items, max_size=12), st.lists(items, max_size=12))
def test_swapping_the_sides_pairs_as_many_steps(left: list[Item], right: list[Item]) -> None:
    assert worth(left, right, align(left, right)) == worth(right, left, [(i, j) for i, j in align(right, left)])


@given(st.lists(items, max_size=30), st.lists(items, max_size=30))
def test_large_rests_keep_order_too(left: list[Item], right: list[Item]) -> None:
    before = module.EXACT_CELLS
    module.EXACT_CELLS = 4
    try:
        pairs = align(left, right)
    finally:
        module.EXACT_CELLS = before
    assert [i for i, _ in pairs if i is not None] == list(range(len(left)))
    assert [j for _, j in pairs if j is not None] == list(range(len(right)))
    assert all(i is None or j is None or left[i].family == right[j].family for i, j in pairs)


def test_one_inserted_step_is_one_difference() -> None:
    left = [model(0), tool("search", "a"), tool("search", "b"), model(1)]
    right = [model(0), tool("whoami", ""), tool("search", "a"), tool("search", "b"), model(1)]
    assert align(left, right) == [(0, 0), (None, 1), (1, 2), (2, 3), (3, 4)]


def test_two_swapped_steps_are_one_pair_and_not_two_changes() -> None:
    left = [model(0), tool("search", "a"), tool("search", "b"), model(1)]
    right = [model(0), tool("search", "b"), tool("search", "a"), model(1)]
    pairs = align(left, right)
    assert sum(1 for i, j in pairs if i is not None and j is not None) == 3


def test_model_steps_pair_by_place_even_with_other_answers() -> None:
    left = [model("old"), tool("search", "a"), model("end")]
    right = [model("new"), tool("search", "a"), tool("search", "b"), model("other end")]
    assert align(left, right) == [(0, 0), (1, 1), (None, 2), (2, 3)]
