"""The shape of a run: how deep each step lies, and how many steps lie directly in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agentloupe.words.step import Step

__all__ = ["Outline"]


@dataclass(frozen=True, slots=True)
class Outline:
    """Depth (0 at the top) and number of children of each step, by `idx`."""

    depth: tuple[int, ...]
    children: tuple[int, ...]

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Self:
        """The shape of a run's steps, all of them in order. A parent that is not there counts as none."""
        count = len(steps)
        depth, children = [-1] * count, [0] * count
        for step in steps:
            above = _parent(step, count)
            if above is None:
                depth[step.idx] = 0
                continue
            children[above] += 1
            if depth[above] >= 0:
                depth[step.idx] = depth[above] + 1
                continue
            chain: list[int] = []
            at: int | None = step.idx
            # A parent may come later than its child; a circle, which only damage can make, ends at the chain's length.
            while at is not None and depth[at] < 0 and len(chain) <= count:
                chain.append(at)
                at = _parent(steps[at], count)
            base = -1 if at is None or depth[at] < 0 else depth[at]
            for distance, one in enumerate(reversed(chain), 1):
                depth[one] = base + distance
        return cls(tuple(depth), tuple(children))


def _parent(step: Step, count: int) -> int | None:
    parent = step.parent_idx
    return parent if parent is not None and 0 <= parent < count and parent != step.idx else None
