"""The Merkle tree of RFC 6962: its known vectors, and proofs that hold for what is there and for nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.words.merkle import leaf_hash, path_of, root_by_path, root_of

LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
"""Of the first 0, 1, 2 ... leaves: the vectors of the reference implementation of certificate transparency."""

hashes = st.lists(st.binary(max_size=8).map(leaf_hash), min_size=1, max_size=70)


@pytest.mark.parametrize("size", range(len(ROOTS)))
def test_known_roots(size: int) -> None:
    assert root_of([leaf_hash(bytes.fromhex(one)) for one in LEAVES[:size]]).hex() == ROOTS[size]


@given(hashes, st.data())
def test_every_leaf_has_a_path_to_the_root(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    path = path_of(leaves, index)
    assert len(path) <= (len(leaves) - 1).bit_length()
    assert root_by_path(leaves[index], index, len(leaves), path) == root_of(leaves)


@given(hashes, st.data())
def test_a_path_leads_nowhere_else(leaves: list[bytes], data: st.DataObject) -> None:
    """Another leaf, another place, another size, one neighbour more or less: none of them reaches the root."""
    index = data.draw(st.integers(0, len(leaves) - 1))
    path, root, size = path_of(leaves, index), root_of(leaves), len(leaves)
    assert root_by_path(leaf_hash(b"something else"), index, size, path) != root
    assert root_by_path(leaves[index], index, size, [*path, leaves[0]]) != root
    assert root_by_path(leaves[index], size, size, path) is None
    assert root_by_path(leaves[index], -1, size, path) is None
    if path:
        assert root_by_path(leaves[index], index, size, path[:-1]) != root
        wrong = data.draw(st.integers(0, len(path) - 1))
        forged = [*path[:wrong], leaf_hash(path[wrong]), *path[wrong + 1 :]]
        assert root_by_path(leaves[index], index, size, forged) != root


def test_there_is_no_path_of_no_leaf() -> None:
    with pytest.raises(IndexError):
        path_of([leaf_hash(b"")], 1)
    with pytest.raises(IndexError):
        path_of([], 0)
