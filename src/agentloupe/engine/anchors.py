"""Anchors: what was signed about the runs of a store, read strictly, and what a store or a recording is held against.

    anchors = read_anchors(lines, trust, "anchors.jsonl")     # every signature, every link; raises at the first fault
    fault = against(recording.events, anchors.of(run_id))     # the first place where the run is not what was signed
    line = next_line(anchors, heads, ...).line                # the next checkpoint

Each line holds only the leaves that changed, so the file grows with what happened, and alone can name a run that is gone. A
proof (`proof_of`) holds one leaf and its path to the root, so that one run can be checked without the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from agentloupe.ports.signing import Signer, Trust
from agentloupe.words.canonical import Json, canonical, loads
from agentloupe.words.checkpoint import (
    FIRST,
    Checkpoint,
    Leaf,
    hash_of_leaf,
    leaf_of,
    leaves_digest,
    root_over,
)
from agentloupe.words.errors import Corrupt, RunNotFound, VersionUnknown
from agentloupe.words.event import Event, Head
from agentloupe.words.merkle import path_of, root_by_path
from agentloupe.words.seal import Fault

__all__ = [
    "Anchoring",
    "Anchors",
    "Next",
    "against",
    "gone_back",
    "next_line",
    "proof_of",
    "read_anchors",
    "read_proof",
]

_LONGEST_PATH = 64
"""Neighbours in a proof at most: a tree of 2**64 leaves has no more."""


class Anchoring(NamedTuple):
    """A run as it stood when somebody signed it: its end, when, by which key, under which number."""

    head: Head
    at: str
    key_id: str
    number: int


@dataclass(slots=True)
class Anchors:
    """What was signed, once all signatures and links are proven.

    Attributes:
        store: id of the store.
        last: the last checkpoint; `None` before the first.
        runs: each run's ends at the checkpoints at which it had changed, oldest first.
        whole: every run of the store is here; false for the proof of a single one.
        torn: a line behind the last one was begun, and is no anchor.
    """

    store: str = ""
    last: Checkpoint | None = None
    runs: dict[str, list[Anchoring]] = field(default_factory=dict[str, list[Anchoring]])
    whole: bool = True
    torn: bool = False

    def of(self, run_id: str) -> Sequence[Anchoring]:
        """How a run stood, oldest first; empty when it is in no checkpoint."""
        return self.runs.get(run_id, ())

    def heads(self) -> dict[str, Head]:
        """Where each run ended at the last checkpoint."""
        return {run_id: known[-1].head for run_id, known in self.runs.items()}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_anchors(lines: Iterable[bytes], trust: Trust, origin: str, *, torn: bool = False) -> Anchors:
    """Reads an anchor file, and proves all of it.

    Args:
        lines: its lines, without their breaks.
        trust: whose signatures count.
        origin: name of the file, for messages.
        torn: something stands behind the last line.

    Raises:
        Corrupt: the first fault, with its line. `reason`: `anchor_line` (it cannot be understood), `key` (signed by a key
            that is not trusted), `signature` (not what was signed), `order` (a line is missing before it, or comes twice, or
            elsewhere), `store` (of another store), `leaves` (not those that were signed), `root` (all leaves together do
            not give the root that was signed).
        VersionUnknown: it is newer than this reader.
    """
    anchors = Anchors(torn=torn)
    for number, line in enumerate(lines, 1):
        where = f"{origin}: line {number}"
        document = _document(line, where, ("leaves",))
        checkpoint = _proven(document, trust, where)
        _in_its_place(checkpoint, anchors.last, where)
        _take(anchors, checkpoint, _leaves(document["leaves"], checkpoint, where), where)
    if anchors.last is not None and root_over(anchors.heads()) != anchors.last.root:
        raise Corrupt(f"{origin}: the runs do not give the Merkle root that was signed", reason="root")
    return anchors


def _document(text: bytes, where: str, more: Sequence[str]) -> dict[str, Json]:
    try:
        value = loads(text)
    except ValueError as wrong:
        raise Corrupt(f"{where}: not strict JSON", reason="anchor_line") from wrong
    if not isinstance(value, dict) or value.keys() != {"checkpoint", "signature", *more}:
        raise Corrupt(f"{where}: no anchor", reason="anchor_line")
    return value


def _proven(document: Mapping[str, Json], trust: Trust, where: str) -> Checkpoint:
    """The checkpoint of a document, if a trusted key signed it."""
    try:
        checkpoint = Checkpoint.of(document["checkpoint"])
        signature = _bytes_of(document["signature"], 64)
    except OverflowError as newer:
        raise VersionUnknown(f"{where}: checkpoint of version {newer} is newer than this reader") from newer
    except (ValueError, TypeError) as wrong:
        raise Corrupt(f"{where}: no anchor", reason="anchor_line") from wrong
    if not trust.holds(checkpoint.key_id):
        hint = "give the public key that belongs to these anchors; a file may hold several, the old and the new one"
        raise Corrupt(f"{where}: signed by another key ({checkpoint.key_id[:12]})", reason="key", hint=hint)
    if not trust.signed(checkpoint.key_id, checkpoint.signed_bytes(), signature):
        raise Corrupt(f"{where}: the signature does not fit: this is not what was signed", reason="signature")
    return checkpoint


def _bytes_of(value: Json, count: int) -> bytes:
    """So many bytes, from lower hex digits and nothing else. Raises `ValueError`."""
    if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * count}}}", value):
        raise ValueError(f"no {count} bytes in hex digits")
    return bytes.fromhex(value)


def _in_its_place(checkpoint: Checkpoint, last: Checkpoint | None, where: str) -> None:
    number, previous = (last.number, last.digest()) if last else (0, FIRST)
    if (checkpoint.number, checkpoint.previous) != (number + 1, previous):
        said = f"{where}: checkpoint {checkpoint.number} does not follow checkpoint {number}"
        raise Corrupt(said, hint="a line was left out, repeated or moved", reason="order")
    if last is not None and checkpoint.store != last.store:
        raise Corrupt(f"{where}: of another store than the line before", reason="store")


def _leaves(listed: Json, checkpoint: Checkpoint, where: str) -> list[Leaf]:
    try:
        if not isinstance(listed, list):
            raise TypeError("no list")
        leaves = [leaf_of(one) for one in listed]
    except (ValueError, TypeError) as wrong:
        raise Corrupt(f"{where}: no anchor: {wrong}", reason="anchor_line") from wrong
    if leaves_digest(leaves) != checkpoint.changed:
        raise Corrupt(f"{where}: its leaves are not those that were signed", reason="leaves")
    return leaves


def _take(anchors: Anchors, checkpoint: Checkpoint, leaves: Iterable[Leaf], where: str) -> None:
    for run_id, head in leaves:
        known = anchors.runs.setdefault(run_id, [])
        if known and known[-1].head.sequence >= head.sequence:
            raise Corrupt(f"{where}: run {run_id} goes back behind an earlier anchor", reason="leaves")
        known.append(Anchoring(head, checkpoint.at, checkpoint.key_id, checkpoint.number))
    if len(anchors.runs) != checkpoint.runs:
        raise Corrupt(f"{where}: {checkpoint.runs} runs were signed, {len(anchors.runs)} are named", reason="leaves")
    anchors.store, anchors.last = checkpoint.store, checkpoint


# --- one run alone ----------------------------------------------------------------------------------------------------


def proof_of(lines: Sequence[bytes], anchors: Anchors, run_id: str) -> bytes:
    """The proof of one run: the last checkpoint, the run's leaf, its path to the root. Ends with a line break.

    Args:
        lines: those of the anchor file, which `anchors` was read from.
        anchors: all that was signed.
        run_id: the run.

    Raises:
        RunNotFound: no checkpoint has the run.
    """
    heads = anchors.heads()
    if run_id not in heads:
        raise RunNotFound(f"no anchor names run {run_id}", hint="`agentloupe anchor write` signs what is there now")
    signed = cast("dict[str, Json]", loads(lines[-1]))
    names = sorted(heads)
    index = names.index(run_id)
    path = path_of([hash_of_leaf(Leaf(name, heads[name])) for name in names], index)
    return (
        canonical(
            {
                "checkpoint": signed["checkpoint"],
                "signature": signed["signature"],
                "leaf": Leaf(run_id, heads[run_id]).as_json(),
                "index": index,
                "path": [beside.hex() for beside in path],
            }
        )
        + b"\n"
    )


def read_proof(data: bytes, trust: Trust, origin: str) -> Anchors:
    """Reads the proof of one run, and proves it.

    Raises:
        Corrupt: see `read_anchors`; `root`: the path does not lead to the root that was signed.
        VersionUnknown: it is newer than this reader.
    """
    document = _document(data, origin, ("leaf", "index", "path"))
    checkpoint = _proven(document, trust, origin)
    index, path = document["index"], document["path"]
    try:
        leaf = leaf_of(document["leaf"])
        if type(index) is not int or not isinstance(path, list) or len(path) > _LONGEST_PATH:
            raise TypeError("no path")
        beside = [_bytes_of(one, 32) for one in path]
    except (ValueError, TypeError) as wrong:
        raise Corrupt(f"{origin}: no proof", reason="anchor_line") from wrong
    reached = root_by_path(hash_of_leaf(leaf), index, checkpoint.runs, beside)
    if reached is None or reached.hex() != checkpoint.root:
        raise Corrupt(f"{origin}: the run is not part of what was signed", reason="root")
    one = Anchoring(leaf.head, checkpoint.at, checkpoint.key_id, checkpoint.number)
    return Anchors(checkpoint.store, checkpoint, {leaf.run_id: [one]}, whole=False)


# --- holding a run against them ---------------------------------------------------------------------------------------


def against(events: Sequence[Event], known: Iterable[Anchoring]) -> Fault | None:
    """The first moment at which a run was signed as something else than it is now. Its events are numbered without gaps."""
    last = len(events)
    for head, at, _, number in known:
        said = f"sequence {head.sequence}, as checkpoint {number} of {at} has it"
        if not last:
            return Fault(0, "empty", said, "no events")
        now = events[head.sequence - 1].hash if head.sequence <= last else None
        if now == head.hash:
            continue
        if events[0].recorded_at > at:
            return Fault(1, "reused", said, f"a run that began at {events[0].recorded_at}")
        return (
            Fault(last, "cut", said, f"{last} events")
            if now is None
            else Fault(head.sequence, "relinked", head.hash, now)
        )
    return None


def gone_back(
    anchors: Anchors, heads: Mapping[str, Head], hash_at: Callable[[str, int], str]
) -> tuple[str, Fault] | None:
    """The first run that does not go on from its last anchor, and how. Looks only at runs that changed.

    Args:
        anchors: what was signed before.
        heads: where the runs of the store end now.
        hash_at: hash of an event of a run.
    """
    for run_id, head in anchors.heads().items():
        now = heads.get(run_id)
        if now == head:
            continue
        said = f"sequence {head.sequence}, as it was signed"
        if now is None:
            return run_id, Fault(0, "lost", said, "no such run")
        if now.sequence < head.sequence:
            return run_id, Fault(now.sequence, "cut", said, f"{now.sequence} events")
        at = now.hash if now.sequence == head.sequence else hash_at(run_id, head.sequence)
        if at != head.hash:
            return run_id, Fault(head.sequence, "relinked", head.hash, at)
    return None


# --- writing ----------------------------------------------------------------------------------------------------------


class Next(NamedTuple):
    """A checkpoint that was signed, how many runs changed, and the line for the anchor file, without its break."""

    checkpoint: Checkpoint
    changed: int
    line: bytes


def next_line(anchors: Anchors, heads: Mapping[str, Head], *, store: str, at: str, signer: Signer) -> Next:
    """Signs where all runs end now; the line holds what changed since the last checkpoint.

    Args:
        anchors: what was signed before; `gone_back` found nothing.
        heads: where all runs of the store end now.
        store: id of the store.
        at: the time.
        signer: who signs.
    """
    before, last = anchors.heads(), anchors.last
    changed = [Leaf(run_id, heads[run_id]) for run_id in sorted(heads) if before.get(run_id) != heads[run_id]]
    checkpoint = Checkpoint(
        store=store,
        number=last.number + 1 if last else 1,
        at=at,
        runs=len(heads),
        root=root_over(heads),
        changed=leaves_digest(changed),
        previous=last.digest() if last else FIRST,
        key_id=signer.key_id,
    )
    line = canonical(
        {
            "checkpoint": checkpoint.document(),
            "signature": signer.sign(checkpoint.signed_bytes()).hex(),
            "leaves": [leaf.as_json() for leaf in changed],
        }
    )
    return Next(checkpoint, len(changed), line)
