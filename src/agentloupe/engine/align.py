"""Sequence alignment of two runs' steps: which step of one answers to which of the other.

Scores, not indexes: one inserted step is one difference. Two steps can be a pair when they are of the same kind and name
(model steps: of the same kind); the alignment with the highest sum of scores wins. Equal prefixes and suffixes are taken
first, then steps whose signature occurs once on both sides and in the same order (patience diff, Bram Cohen; a longest
increasing subsequence), and what lies between is solved exactly by dynamic programming (Needleman and Wunsch 1970) while
it is small; a larger rest without any anchor is paired in order of position. So the work stays near n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Item", "Pair", "align"]

EQUAL = 6
"""Same kind, name and argument key; a model step: with the same answer too."""
ALIKE = 4
"""A model step with another answer: it stands at the same place of the neighbourhood."""
RENEWED = 1
"""Same kind and name, other arguments. Two of them score less than one equal pair, so a swap is not two changes."""
EXACT_CELLS = 40_000
"""Largest rest (left times right) that is solved exactly; a few hundredths of a second of work."""

Pair = tuple[int | None, int | None]
"""Indexes of a left and a right step; `None` where a side has no partner."""


class Item(NamedTuple):
    """What alignment knows of a step.

    Attributes:
        family: steps of different families are never a pair (kind and name; a model step's kind alone).
        signature: equal signatures are the same step (family and argument key; a model step: its answer).
        flexible: pairs of this family fit well even with different signatures (model steps).
    """

    family: Hashable
    signature: Hashable
    flexible: bool = False


def align(left: Sequence[Item], right: Sequence[Item]) -> list[Pair]:
    """Pairs every step of both sides, in order, each exactly once. With the sides swapped the pairs are swapped.

    Where several alignments are worth the same, the choice depends on what the steps are, not on which side is the left one.
    """
    if _comes_first(right, left):
        return [(i, j) for j, i in _aligned(*_numbered(right, left))]
    return _aligned(*_numbered(left, right))


def _comes_first(one: Sequence[Item], other: Sequence[Item]) -> bool:
    """An order of sequences: by their first difference, else by length."""
    for mine, theirs in zip(one, other, strict=False):
        if mine.signature != theirs.signature:
            return repr(mine.signature) < repr(theirs.signature)
    return len(one) < len(other)


def _numbered(left: Sequence[Item], right: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """The items with numbers for their families and signatures, which are long and compared again and again."""
    families: dict[Hashable, int] = {}
    signatures: dict[Hashable, int] = {}
    one, other = (
        [
            Item(families.setdefault(family, len(families)), signatures.setdefault(sign, len(signatures)), flexible)
            for family, sign, flexible in side
        ]
        for side in (left, right)
    )
    return one, other


def _aligned(left: Sequence[Item], right: Sequence[Item]) -> list[Pair]:
    pairs: list[Pair] = []
    todo = [(0, len(left), 0, len(right))]
    while todo:
        low, high, start, end = todo.pop()
        while low < high and start < end and left[low].signature == right[start].signature:
            pairs.append((low, start))
            low, start = low + 1, start + 1
        while low < high and start < end and left[high - 1].signature == right[end - 1].signature:
            high, end = high - 1, end - 1
            pairs.append((high, end))
        if low == high or start == end:
            pairs.extend((i, None) for i in range(low, high))
            pairs.extend((None, j) for j in range(start, end))
        elif high - low == end - start == 1 and left[low].family == right[start].family:
            pairs.append((low, start))
        elif (high - low) * (end - start) <= EXACT_CELLS:
            pairs.extend(_Block(left, right, low, high, start, end).exact())
        else:
            block = _Block(left, right, low, high, start, end)
            anchors = block.anchors()
            if not anchors:
                pairs.extend(block.by_position())
                continue
            edges = [(low - 1, start - 1), *anchors, (high, end)]
            pairs.extend(anchors)
            todo.extend((a + 1, c, b + 1, d) for (a, b), (c, d) in pairwise(edges))
    return _in_order(_without_swaps(pairs, left, right))


def _without_swaps(pairs: list[Pair], left: Sequence[Item], right: Sequence[Item]) -> list[Pair]:
    """Takes pairs of different signatures apart whose both steps stand elsewhere on the other side, without a partner there.

    Two steps of one name that changed places are a move, however far apart they are, and not two changes.
    """
    equal = {i for i, j in pairs if i is not None and j is not None and left[i].signature == right[j].signature}
    here = {left[i].signature for i, _ in pairs if i is not None and i not in equal}
    there = {right[j].signature for i, j in pairs if j is not None and i not in equal}
    kept: list[Pair] = []
    for i, j in pairs:
        if i is None or j is None or i in equal or left[i].flexible:
            kept.append((i, j))
        elif left[i].signature in there and right[j].signature in here:
            kept += [(i, None), (None, j)]
        else:
            kept.append((i, j))
    return kept


@dataclass(frozen=True, slots=True)
class _Block:
    left: Sequence[Item]
    right: Sequence[Item]
    low: int
    high: int
    start: int
    end: int

    def anchors(self) -> list[tuple[int, int]]:
        """Signatures that occur once on each side, kept where both orders agree."""
        here = Counter(self.left[i].signature for i in range(self.low, self.high))
        there = Counter(self.right[j].signature for j in range(self.start, self.end))
        place = {self.right[j].signature: j for j in range(self.start, self.end)}
        candidates = [
            (i, place[self.left[i].signature])
            for i in range(self.low, self.high)
            if here[self.left[i].signature] == 1 and there.get(self.left[i].signature) == 1
        ]
        return _longest_increasing(candidates)

    def exact(self) -> list[Pair]:
        """Needleman-Wunsch: gaps cost nothing, pairs earn their score. Of equal alignments the one that pairs earliest."""
        left, right = self.left[self.low : self.high], self.right[self.start : self.end]
        # best[i][j]: the most that left[i:] and right[j:] can earn
        best = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
        for i in range(len(left) - 1, -1, -1):
            item, below, row = left[i], best[i + 1], best[i]
            for j in range(len(right) - 1, -1, -1):
                kept = max(below[j], row[j + 1])
                other = right[j]
                row[j] = max(kept, below[j + 1] + _score(item, other)) if item.family == other.family else kept
        return self._walk(best, left, right)

    def _walk(self, best: list[list[int]], left: Sequence[Item], right: Sequence[Item]) -> list[Pair]:
        pairs: list[Pair] = []
        i = j = 0
        while i < len(left) and j < len(right):
            score = _score(left[i], right[j])
            if score and best[i][j] == best[i + 1][j + 1] + score:
                pairs.append((self.low + i, self.start + j))
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                pairs.append((self.low + i, None))
                i += 1
            else:
                pairs.append((None, self.start + j))
                j += 1
        pairs.extend((self.low + k, None) for k in range(i, len(left)))
        pairs.extend((None, self.start + k) for k in range(j, len(right)))
        return pairs

    def by_position(self) -> list[Pair]:
        """The last resort for a large rest without anchors: each left step takes the next right step of its family."""
        waiting: dict[Hashable, list[int]] = {}
        for j in range(self.end - 1, self.start - 1, -1):
            waiting.setdefault(self.right[j].family, []).append(j)
        pairs: list[Pair] = []
        reached = self.start - 1
        for i in range(self.low, self.high):
            queue = waiting.get(self.left[i].family, [])
            while queue and queue[-1] <= reached:
                queue.pop()
            if queue and queue[-1] - reached <= 64:
                reached = queue.pop()
                pairs.append((i, reached))
            else:
                pairs.append((i, None))
        taken = {j for _, j in pairs}
        pairs.extend((None, j) for j in range(self.start, self.end) if j not in taken)
        return pairs


def _score(one: Item, other: Item) -> int:
    if one.family != other.family:
        return 0
    if one.signature == other.signature:
        return EQUAL
    return ALIKE if one.flexible else RENEWED


def _longest_increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Longest subsequence whose right indexes increase; `pairs` come in order of their left indexes."""
    tails: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for k, (_, j) in enumerate(pairs):
        rank = bisect_left(tails, j)
        if rank == len(tails):
            tails.append(j)
            at.append(k)
        else:
            tails[rank] = j
            at[rank] = k
        before.append(at[rank - 1] if rank else -1)
    chain: list[tuple[int, int]] = []
    k = at[-1] if at else -1
    while k >= 0:
        chain.append(pairs[k])
        k = before[k]
    return chain[::-1]


def _in_order(pairs: list[Pair]) -> list[Pair]:
    """Pairs in order of both sides; between two pairs the left-only steps come before the right-only ones."""
    partner = {i: j for i, j in pairs if i is not None}
    lonely = sorted(j for i, j in pairs if i is None and j is not None)
    ordered: list[Pair] = []
    k = 0
    for i in sorted(partner):
        j = partner[i]
        if j is not None:
            while k < len(lonely) and lonely[k] < j:
                ordered.append((None, lonely[k]))
                k += 1
        ordered.append((i, j))
    ordered.extend((None, j) for j in lonely[k:])
    return ordered
