"""Anchors: signed checkpoints of a store in a file outside of it, written by whoever holds the key, never by a recorder.

make_anchor_key(Path("anchor.key"))                                       # once, in a place that no agent can read
write_anchor(store, Path("anchors.jsonl"), key=Path("anchor.key"))        # now and then
anchors = open_anchors(Path("anchors.jsonl"), Path("anchor.key.pub"))     # and whoever checks: all signatures, all links
verify(store.recording(run_id), signed=anchors.of(run_id))                # fields `anchored`, `anchored_at`, `anchor_sequence`, `key_id`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agentloupe.engine.anchors import Anchors, Next, gone_back, next_line, proof_of, read_anchors, read_proof
from agentloupe.engine.indexed import index_differences
from agentloupe.engine.verify import Verification, said_of, unreadable, verify
from agentloupe.exporters.ledger_folder import write_file
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings
from agentloupe.vault import anchors as anchor_file
from agentloupe.vault.keys import PublicKeys, SigningKey, make_key
from agentloupe.words.errors import Corrupt, Damaged, LoupeError, Refused, StoreReadOnly
from agentloupe.words.event import Head
from agentloupe.words.seal import Fault

__all__ = [
    "StoreVerification",
    "Written",
    "anchors_or_problem",
    "configured_anchors",
    "make_anchor_key",
    "open_anchors",
    "open_proof",
    "verify_store",
    "write_anchor",
    "write_proof",
]

make_anchor_key = make_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A checkpoint that was signed and appended.

    Attributes:
        number, at, key_id: which one, when, by which key.
        runs, changed: runs in the store; those that are new or went on since the checkpoint before.
        digest: of the checkpoint; whoever notes it elsewhere will see when the last lines of the file were dropped.
        mended: a torn line, left by a write that was interrupted, was taken away first.
    """

    number: int
    at: str
    key_id: str
    runs: int
    changed: int
    digest: str
    mended: bool


def write_anchor(store: Store, to: Path, *, key: Path, public_key: Path | None = None) -> Written:
    """Signs where all runs of the store end now, and appends that to an anchor file; makes the file where there is none.

    Args:
        store: what is signed. It is not written to, but for the id that it gets the first time.
        to: the anchor file.
        key: the private key.
        public_key: further keys that lines of the file are signed with, where the key was changed.

    Raises:
        Corrupt: the file is not whole (see `engine.anchors.read_anchors`), or the store went back behind its last anchor: a
            run is gone or shorter or another one; `reason` is that of the fault.
        Refused: the anchors are of another store (reason `other_store`).
        NotFound, ConfigError, LoupeError: a key cannot be read, or the file not written.
    """
    signer = SigningKey.read(key)
    trust = signer.public() if public_key is None else signer.public() | PublicKeys.read(public_key)
    made: list[Next] = []
    torn = to.exists() and anchor_file.whole_lines(anchor_file.read(to))[1]

    def line(lines: list[bytes]) -> bytes:
        before = read_anchors(lines, trust, str(to))
        mine = store.identity()
        if before.last is not None and before.store != mine:
            raise Refused(
                f"{to} holds anchors of another store", hint="each store has a file of its own", reason="other_store"
            )
        heads = store.heads()
        _not_gone_back(store, before, heads)
        made.append(next_line(before, heads, store=mine, at=ambient.now(), signer=signer))
        return made[-1].line

    anchor_file.append(to, line)
    done, changed, _ = made[-1]
    return Written(
        number=done.number,
        at=done.at,
        key_id=done.key_id,
        runs=done.runs,
        changed=changed,
        digest=done.digest(),
        mended=torn,
    )


def _not_gone_back(store: Store, before: Anchors, heads: dict[str, Head]) -> None:
    found = gone_back(
        before, heads, lambda run_id, n: next((e.hash for e in store.events(run_id, first=n, limit=1)), "")
    )
    if found is not None:
        run_id, fault = found
        raise Corrupt(
            f"run {run_id}: {said_of(fault)}; the store went back behind its last anchor, and nothing was signed",
            hint="`agentloupe verify --all --anchors` lists all that is wrong; keep this anchor file as evidence",
            reason=fault.reason,
        )


# --- checking ---------------------------------------------------------------------------------------------------------


def open_anchors(anchors: Path, public_key: Path) -> Anchors:
    """Reads an anchor file and proves all of it; a file that did not change meanwhile is read once.

    Raises:
        NotFound: no such file, or no such key. ConfigError: the key is none.
        Corrupt: it is empty (reason `no_anchors`), or see `engine.anchors.read_anchors`; also VersionUnknown.
        LoupeError: the extra `sign` is missing (reason `extra`).
    """
    return _opened(anchors, public_key, _stamp(anchors), _stamp(public_key))


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_size, found.st_mtime_ns


@lru_cache(maxsize=2)
def _opened(anchors: Path, public_key: Path, _one: object, _other: object) -> Anchors:
    trust = PublicKeys.read(public_key)
    lines, torn = anchor_file.whole_lines(anchor_file.read(anchors))
    if not lines:
        raise Corrupt(f"{anchors} holds no anchor", hint="`agentloupe anchor write` signs one", reason="no_anchors")
    return read_anchors(lines, trust, str(anchors), torn=torn)


def anchors_or_problem(settings: Settings, store: Store) -> tuple[Anchors | None, LoupeError | None]:
    """The anchors that the settings name, or why they cannot be used for this store; for reports that go on without them."""
    try:
        anchors = configured_anchors(settings)
        if anchors is not None:
            _must_be_of(store, anchors)
    except LoupeError as wrong:
        return None, wrong
    return anchors, None


def configured_anchors(settings: Settings) -> Anchors | None:
    """The anchors that the settings name; `None` where they name none. Raises like `open_anchors`."""
    if settings.anchors is None or settings.anchor_key is None:
        return None
    return open_anchors(settings.anchors, settings.anchor_key)


@dataclass(frozen=True, slots=True)
class StoreVerification:
    """What was proven of a whole store.

    Attributes:
        results: of every run that has events.
        lost: runs that were signed and are not there any more. A run that was deleted is there: its events stay.
        database: what the database itself found, one line each.
        anchors: what was signed; `None`: nothing was held against anything.
        index: runs of which lists and `show` say something else than their events, with what differs. No evidence is damaged by it.
    """

    results: tuple[Verification, ...]
    lost: tuple[tuple[str, Fault], ...]
    database: tuple[str, ...]
    anchors: Anchors | None
    index: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def bad(self) -> list[Verification]:
        """Runs that are damaged."""
        return [result for result in self.results if not result.ok]

    @property
    def ok(self) -> bool:
        """Nothing that was looked at is wrong."""
        return not (self.bad or self.lost or self.database)

    def counts(self) -> dict[str, int]:
        """How many runs are `anchored`; of those, how many went on since (`grown`) or were `deleted`; how many are `not_yet`."""
        good = [result for result in self.results if result.anchored]
        return {
            "anchored": len(good),
            "grown": sum(result.anchor_sequence != result.events for result in good),
            "deleted": sum(result.erased for result in good),
            "not_yet": sum(result.ok and not result.anchored for result in self.results),
        }


def verify_store(
    store: Store,
    anchors: Anchors | None = None,
    *,
    bodies: bool = True,
    progress: Callable[[int], AbstractContextManager[Callable[[], None]]] | None = None,
) -> StoreVerification:
    """Checks every run of a store, and the database itself.

    Args:
        store: what is checked.
        anchors: what was signed.
        bodies: check all bodies too, not only events.
        progress: is told how many runs there are, and calls are made of what it yields, one for each.

    Raises:
        Corrupt: the anchors are of another store (reason `other_store`).
    """
    if anchors is not None:
        _must_be_of(store, anchors)
    faults = store.check()
    names = list(store.heads())
    results: list[Verification] = []
    index: list[tuple[str, tuple[str, ...]]] = []
    with nullcontext(lambda: None) if progress is None else progress(len(names)) as one_more:
        for name in names:
            try:
                signed = () if anchors is None else anchors.of(name)
                recording = store.recording(name)
                result = verify(recording, bodies=bodies, signed=signed)
                if result.ok and (differ := index_differences(store, recording)):
                    index.append((name, differ))
                results.append(result)
            except Damaged as wrong:
                results.append(unreadable(name, wrong))
            one_more()
    lost = () if anchors is None else tuple(_lost(anchors, set(names)))
    return StoreVerification(tuple(results), lost, tuple(faults), anchors, tuple(index))


def _must_be_of(store: Store, anchors: Anchors) -> None:
    if _identity(store) != anchors.store:
        hint = "another database, or one that was put in the place of the right one"
        raise Corrupt(f"{store.url} is not the store whose runs were signed", hint=hint, reason="other_store")


def _identity(store: Store) -> str | None:
    try:
        return store.identity()
    except StoreReadOnly:
        return None  # nobody ever asked for its id, so nothing was signed of it


def _lost(anchors: Anchors, there: set[str]) -> Iterator[tuple[str, Fault]]:
    for run_id, known in anchors.runs.items():
        if run_id not in there:
            said = f"sequence {known[-1].head.sequence} was signed at {known[-1].at}"
            yield run_id, Fault(0, "lost", said, "no such run")


# --- one run alone ----------------------------------------------------------------------------------------------------


def write_proof(anchors: Path, public_key: Path, run_id: str, output: Path) -> int:
    """Writes the proof of one run: what somebody needs who has the run and the public key, and nothing else. Returns its bytes.

    Raises:
        RunNotFound: no checkpoint names the run. Refused: the output is there already (reason `exists`).
        Also what `open_anchors` raises. LoupeError: it cannot be written.
    """
    if output.exists():
        raise Refused(f"{output} is there already", hint="name another file", reason="exists")
    lines, _ = anchor_file.whole_lines(anchor_file.read(anchors))
    proof = proof_of(lines, open_anchors(anchors, public_key), run_id)
    write_file(output, proof)
    return len(proof)


def open_proof(proof: Path, public_key: Path) -> Anchors:
    """Reads the proof of one run. Raises like `open_anchors`."""
    return read_proof(anchor_file.read(proof), PublicKeys.read(public_key), str(proof))
