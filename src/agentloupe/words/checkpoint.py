"""A checkpoint: what somebody who is not the writer signs about one moment of a store.

It says which store, when, how many runs, and one Merkle root over where each run ended; what is new since the checkpoint
before, as a digest; and the digest of that checkpoint. `{"checkpoint", "signature", "leaves"}` is one line of an anchor file,
`{"checkpoint", "signature", "leaf", "index", "path"}` the proof of a single run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, cast

from agentloupe.words.canonical import Json, canonical, digest, digest_bytes
from agentloupe.words.event import Head
from agentloupe.words.merkle import leaf_hash, root_of

__all__ = [
    "ANCHOR_CONTEXT",
    "CHECKPOINT_VERSION",
    "FIRST",
    "LEDGER_CONTEXT",
    "Checkpoint",
    "Leaf",
    "hash_of_leaf",
    "leaf_of",
    "leaves_digest",
    "root_over",
]

CHECKPOINT_VERSION: Final = 1
ANCHOR_CONTEXT: Final = b"agentloupe anchor 1\n"
"""Stands before what is signed, so that a signature made for another purpose is none here."""
LEDGER_CONTEXT: Final = b"agentloupe ledger 1\n"
"""The same for the checkpoint of a ledger."""
FIRST: Final = "0" * 64
"""`previous` of the first checkpoint."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST = 1 << 63


class Leaf(NamedTuple):
    """Where a run ended: its id, and number and hash of its last event."""

    run_id: str
    head: Head

    def as_json(self) -> list[Json]:
        """As it stands in a file: `[run id, sequence, hash]`; read by `leaf_of`."""
        return [self.run_id, self.head.sequence, self.head.hash]


def hash_of_leaf(leaf: Leaf) -> bytes:
    """Hash of a leaf, over its canonical form."""
    return leaf_hash(canonical(leaf.as_json()))


def root_over(heads: Mapping[str, Head]) -> str:
    """The Merkle root over the ends of runs, sorted by the code points of their ids: 64 hex digits."""
    return root_of([hash_of_leaf(Leaf(run_id, heads[run_id])) for run_id in sorted(heads)]).hex()


def leaves_digest(leaves: Iterable[Leaf]) -> str:
    """One digest of leaves in their order."""
    return digest([leaf.as_json() for leaf in leaves])


def leaf_of(value: Json) -> Leaf:
    """A leaf as it stands in a file. Raises `ValueError`: it is none."""
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("a leaf is no list of three")
    run_id, sequence, head = value
    if not isinstance(run_id, str) or not run_id or not isinstance(head, str) or not _DIGEST.fullmatch(head):
        raise ValueError("a leaf lacks a run id, or a hash")
    if type(sequence) is not int or not 0 < sequence < _LARGEST:
        raise ValueError("a leaf lacks a sequence")
    return Leaf(run_id, Head(sequence, head))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The statement that is signed.

    Attributes:
        store: id of the store, see `ports.Store.identity`.
        number: 1, 2, 3 ... in its anchor file.
        at: when it was made, UTC.
        runs: how many runs there were.
        root: Merkle root over their ends.
        changed: digest of the leaves that are new or other than before.
        previous: digest of the checkpoint before, `FIRST` for the first one.
        key_id: SHA-256 of the public key that it is signed by.
    """

    store: str
    number: int
    at: str
    runs: int
    root: str
    changed: str
    previous: str
    key_id: str
    schema_version: int = CHECKPOINT_VERSION

    def document(self) -> dict[str, Json]:
        """Its members, as JSON."""
        return asdict(self)

    def signed_bytes(self) -> bytes:
        """What the signature is over."""
        return ANCHOR_CONTEXT + canonical(self.document())

    def digest(self) -> str:
        """What the next checkpoint calls `previous`."""
        return digest_bytes(canonical(self.document()))

    @classmethod
    def of(cls, value: Json) -> Checkpoint:
        """A checkpoint as it stands in a file.

        Raises:
            ValueError, TypeError: it is none: a member is missing, unknown, or of a wrong type.
            OverflowError: it is of a newer version.
        """
        if not isinstance(value, dict):
            raise TypeError("a checkpoint is no object")
        version = value.get("schema_version")
        if type(version) is int and version > CHECKPOINT_VERSION:
            raise OverflowError(version)
        if value.keys() != set(cls.__dataclass_fields__) or version != CHECKPOINT_VERSION:
            raise ValueError("a checkpoint lacks a member, or has one that nobody knows")
        texts: Sequence[str] = ("store", "at", "root", "changed", "previous", "key_id")
        counts: Sequence[str] = ("number", "runs", "schema_version")
        if not all(isinstance(value[name], str) for name in texts):
            raise ValueError("a member of the checkpoint is no text")
        if not all(type(n := value[name]) is int and 0 <= n < _LARGEST for name in counts):
            raise ValueError("a member of the checkpoint is no number")
        return cls(**cast("dict[str, object]", value))  # type: ignore[arg-type]  # looked at above
