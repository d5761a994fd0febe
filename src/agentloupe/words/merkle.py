"""A Merkle tree over leaves in order: hashing of RFC 6962 (section 2.1), proofs of RFC 9162 (section 2.1.3).

A leaf is hashed behind a byte 0, two nodes behind a byte 1, so that no leaf can be passed off as a node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

__all__ = ["leaf_hash", "path_of", "root_by_path", "root_of"]


def leaf_hash(data: bytes) -> bytes:
    """Hash of a leaf: 32 bytes."""
    return hashlib.sha256(b"\x00" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def _above(level: Sequence[bytes]) -> list[bytes]:
    """The level above: two become one; one that is left over goes up as it is."""
    made = [_node(level[n], level[n + 1]) for n in range(0, len(level) - 1, 2)]
    return [*made, level[-1]] if len(level) % 2 else made


def root_of(leaves: Sequence[bytes]) -> bytes:
    """Root over the hashes of leaves; over none it is the hash of nothing."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    level = leaves
    while len(level) > 1:
        level = _above(level)
    return level[0]


def path_of(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """What has to be known beside one leaf to reach the root: its neighbours, from the bottom up.

    Raises:
        IndexError: there is no such leaf.
    """
    if not 0 <= index < len(leaves):
        raise IndexError(index)
    path: list[bytes] = []
    level = leaves
    while len(level) > 1:
        beside = index ^ 1
        if beside < len(level):
            path.append(level[beside])
        level, index = _above(level), index // 2
    return path


def root_by_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a leaf's path leads to in a tree of `size` leaves; `None` where the path does not fit such a tree.

    The steps are those of RFC 9162, section 2.1.3.2.
    """
    if not 0 <= index < size:
        return None
    at, last, reached = index, size - 1, leaf
    for beside in path:
        if last == 0:
            return None
        if at % 2 or at == last:
            reached = _node(beside, reached)
            while not at % 2 and at:
                at, last = at // 2, last // 2
        else:
            reached = _node(reached, beside)
        at, last = at // 2, last // 2
    return reached if last == 0 else None
