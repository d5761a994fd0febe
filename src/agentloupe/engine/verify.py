"""Whether a recording is whole: numbers, run, chain, and every body that its events name.

A chain proves that nothing between its first and its last event was changed, left out or swapped. It does not prove that
its tail is there, nor that nobody made all of it anew: for that its end must be known from elsewhere, as a number and hash
that somebody noted, or as anchors that somebody signed. What was proven and what was not is always said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agentloupe import __version__
from agentloupe.engine.anchors import Anchoring, against
from agentloupe.engine.covering import coverage_of, snapshot_of
from agentloupe.ports.pack import needs
from agentloupe.ports.recording import Recording
from agentloupe.words.errors import Corrupt, Damaged
from agentloupe.words.event import Event, Head
from agentloupe.words.keeping import keeps_digests, only_digests
from agentloupe.words.run import Coverage, coverage_left
from agentloupe.words.seal import GENESIS, Fault, check_chain, link_bytes

__all__ = ["Verification", "said_of", "unreadable", "verify"]

_AT_ONCE, _BYTES_AT_ONCE = 400, 1_000_000
"""Bodies that are looked at together: so many, and about so many bytes. More would be fresh memory each time, which is slow."""
_LIST = 20
"""Faults of bodies that a report lists at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was proven of a recording.

    Attributes:
        ok: nothing that was looked at is wrong. Read it together with `notes`.
        origin, run_id: what was looked at.
        events: how many events there are; linked: how many of them are linked without a fault.
        bodies_checked: bodies whose bytes fit their digest; bodies_missing: those that are not there.
        fault: the first fault, or `None`; `more` holds further faults of bodies (at most 20).
        ended: the run has its `run.finished`.
        erased: its bodies were removed, and an event says so.
        anchored: the run is what an anchor from elsewhere says that it was, up to `anchor_sequence`.
        anchored_at, key_id: when that was signed, and by which key; `None` where nothing signed says so.
        anchor_sequence: number of the last event that an anchor knows.
        coverage: of the run; `limited_replay` when bodies are gone.
        snapshot: digest of the snapshot that it began with, or `None`.
        proves: what was proven, one line each.
        notes: what was not proven, one line each.
        reader: version that did this.
    """

    ok: bool
    origin: str
    run_id: str
    events: int
    linked: int
    bodies_checked: int
    bodies_missing: int
    fault: Fault | None
    more: tuple[Fault, ...]
    ended: bool
    erased: bool
    anchored: bool
    anchored_at: str | None
    anchor_sequence: int | None
    key_id: str | None
    coverage: Coverage
    snapshot: str | None
    proves: tuple[str, ...]
    notes: tuple[str, ...]
    reader: str

    @property
    def head(self) -> str:
        """One line: what was proven, and what was not; never the bare word valid."""
        if self.fault is not None:
            return "; ".join((f"damaged: {said_of(self.fault)}", *self.proves))
        return "; ".join((*self.proves, *self.notes))


def verify(
    recording: Recording, *, bodies: bool = True, anchor: Head | None = None, signed: Sequence[Anchoring] = ()
) -> Verification:
    """Checks a recording. Reads only.

    Args:
        recording: what to check.
        bodies: check all bodies too, not only events.
        anchor: number and hash of the last event, as somebody noted them.
        signed: how the run stood when it was signed, oldest first, see `engine.anchors`.

    Raises:
        VersionUnknown, StoreError: only what reading the bodies raises; damage is never raised but told.
    """
    events = recording.events
    fault = _chain_fault(recording) or _end_fault(recording, anchor, signed) or _cause_fault(events)
    erased = any(event.type == "run.erased" for event in events)
    coverage = coverage_of(events)
    checked = _Bodies(recording, excused=erased or coverage == "lossy")
    if bodies:
        checked.run()
    fault = fault or (checked.faults[0] if checked.faults else None)
    ended = any(event.type == "run.finished" for event in events)
    linked = _linked(events, fault)
    known = _known(events, linked, signed)
    at = known.head if known is not None else anchor if fault is None else None
    return Verification(
        ok=fault is None,
        origin=recording.origin,
        run_id=recording.run_id,
        events=len(events),
        linked=linked,
        bodies_checked=checked.good,
        bodies_missing=checked.missing,
        fault=fault,
        more=tuple(f for f in checked.faults[:_LIST] if f is not fault),
        ended=ended,
        erased=erased,
        anchored=at is not None and fault is None,
        anchored_at=known.at if known else None,
        anchor_sequence=at.sequence if at else None,
        key_id=known.key_id if known else None,
        coverage=coverage_left(coverage, erased=erased, missing=bool(checked.missing)),
        snapshot=snapshot_of(events),
        proves=tuple(_proves(linked, known)),
        notes=tuple(_notes(recording, at, checked, ended=ended, erased=erased, bodies=bodies)),
        reader=f"agentloupe {__version__}",
    )


def unreadable(run_id: str, wrong: Damaged) -> Verification:
    """What is to be said of a run whose events cannot even be read."""
    nothing = verify(Recording(run_id, (), lambda _: {}, run_id), bodies=False)
    return replace(nothing, fault=Fault(0, "unreadable", "events that can be read", wrong.message), notes=())


def _chain_fault(recording: Recording) -> Fault | None:
    if not recording.events:
        return Fault(0, "empty", "at least one event", "no events")
    if _whole_texts(recording):
        return None
    links = (
        (event.sequence, event.envelope(event.run_id, event.sequence), event.prev_hash, event.hash)
        for event in recording.events
    )
    return check_chain(links, run_id=recording.run_id)


def _whole_texts(recording: Recording) -> bool:
    """Whether the texts that the events were read from are one whole chain: quick, but does not say where it is not."""
    events, texts = recording.events, recording.texts
    if texts is None or texts.of is not events or len(texts.sealed) != len(events):
        return False
    before, run_id = GENESIS, recording.run_id
    for expected, (event, text) in enumerate(zip(events, texts.sealed, strict=True), 1):
        if event.sequence != expected or event.run_id != run_id or event.prev_hash != before:
            return False
        before = link_bytes(before, text)
        if event.hash != before:
            return False
    return True


def _cause_fault(events: Sequence[Event]) -> Fault | None:
    """Whether every cause lies before its effect."""
    for event in events:
        cause = event.parent_seq
        if cause is not None and not 0 < cause < event.sequence:
            return Fault(event.sequence, "cause", "an earlier event", str(cause))
    return None


def _known(events: Sequence[Event], linked: int, signed: Sequence[Anchoring]) -> Anchoring | None:
    """The last time at which the run was signed as what it is, among its events that are linked without a fault."""
    for one in reversed(signed):
        if one.head.sequence <= linked and events[one.head.sequence - 1].hash == one.head.hash:
            return one
    return None


_BESIDE = frozenset({"body", "body_missing", "cause", "end", "cut", "relinked", "reused"})
"""Faults that leave the links as they are."""


def _end_fault(recording: Recording, anchor: Head | None, signed: Sequence[Anchoring]) -> Fault | None:
    """Whether the end is where an anchor, or the place it lies in, says that it is."""
    events = recording.events
    fault = against(events, signed)
    if fault is not None:
        return fault
    last = Head(events[-1].sequence, events[-1].hash) if events else Head(0, GENESIS)
    for said in (anchor, recording.head):
        if said is None:
            continue
        if said.sequence > last.sequence:
            return Fault(last.sequence, "end", f"{said.sequence} events", f"{last.sequence} events")
        if said is anchor and said.sequence < last.sequence:
            at = events[said.sequence - 1] if said.sequence > 0 else None
            if at is not None and at.hash == said.hash:
                continue  # it has grown since
        if said != last:
            return Fault(last.sequence, "end", said.hash, last.hash)
    return None


def _linked(events: Sequence[Event], fault: Fault | None) -> int:
    """Up to which event everything is linked."""
    if fault is None or fault.reason in _BESIDE:
        return events[-1].sequence if events else 0
    return max(fault.sequence - 1, 0) if fault.reason != "gap" else int(fault.expected) - 1


class _Bodies:
    """Looks at every body that the events name and at every body that those need, some at a time."""

    def __init__(self, recording: Recording, *, excused: bool) -> None:
        self.recording = recording
        self.excused = excused  # the events themselves say that bodies are gone
        self.good = 0
        self.missing = 0
        self.faults: list[Fault] = []
        self._named_by: dict[str, int] = {}
        self._todo: list[str] = []
        self._at_once = 20

    def run(self) -> None:
        for event in self.recording.events:
            self._want(event.digests(), event.sequence)
            if len(self._todo) >= self._at_once:
                self._some()
        while self._todo:
            self._some()
        self.faults.sort(key=lambda fault: fault.sequence)

    def _want(self, digests: Sequence[str], sequence: int) -> None:
        for digest in digests:
            if digest not in self._named_by:
                self._named_by[digest] = sequence
                self._todo.append(digest)

    def _some(self) -> None:
        some, self._todo = self._todo[: self._at_once], self._todo[self._at_once :]
        try:
            found = self.recording.get(some)
        except Corrupt:
            found = {digest: data for digest in some for data in self._one(digest)}
            some = [digest for digest in some if digest in found]
        mean = sum(map(len, found.values())) // max(len(found), 1)
        self._at_once = max(1, min(_AT_ONCE, _BYTES_AT_ONCE // max(mean, 1)))
        for digest in some:
            data = found.get(digest)
            if data is None:
                self._not_there(digest)
            else:
                self.good += 1
                self._want(needs(data), self._named_by[digest])

    def _one(self, digest: str) -> Iterator[bytes]:
        """One body alone, to find the damaged one."""
        try:
            found = self.recording.get([digest])
        except Corrupt:
            self._add(Fault(self._named_by[digest], "body", digest, "other bytes"))
            return
        if digest in found:
            yield found[digest]
        else:
            self._not_there(digest)

    def _not_there(self, digest: str) -> None:
        self.missing += 1
        if not self.excused:
            self._add(Fault(self._named_by[digest], "body_missing", digest, "nothing"))

    def _add(self, fault: Fault) -> None:
        if len(self.faults) < _LIST:
            self.faults.append(fault)


def _proves(linked: int, known: Anchoring | None) -> Iterator[str]:
    yield f"links whole to sequence {linked}" if linked else "nothing is linked"
    if known is not None:
        yield (
            f"events 1 to {known.head.sequence} are those that were signed at {known.at} by key {known.key_id[:12]}"
            f" (checkpoint {known.number})"
        )


def _notes(
    recording: Recording, anchor: Head | None, checked: _Bodies, *, ended: bool, erased: bool, bodies: bool
) -> Iterator[str]:
    if not ended:
        yield "no run.finished: the run is still going on, or was interrupted, or its tail was cut"
    if anchor is None:
        known = "only the file itself says where it ends" if recording.head else "nothing says where it ends"
        yield f"end not anchored ({known})"
    elif recording.events and anchor.sequence < recording.events[-1].sequence:
        yield f"anchored to sequence {anchor.sequence} only: nothing is proven about the end behind it"
    if keeps_digests(recording.events):
        yield f"{only_digests(recording.events)}: there are no bodies of them to check"
    if erased:
        yield "bodies were removed (run.erased): limited_replay"
    elif checked.missing:
        yield f"{checked.missing} bodies are not there"
    if not bodies:
        yield "bodies not looked at"


def said_of(fault: Fault) -> str:
    """A fault in words, for a line of text."""
    where = f"sequence {fault.sequence}"
    known: dict[str, str] = {
        "gap": f"a gap before {where}: {fault.expected} was expected",
        "sequence": f"{where} says that it is {fault.actual}",
        "run_id": f"{where} belongs to run {fault.actual}",
        "prev_hash": f"{where} does not point at the event before it",
        "hash": f"{where} is not what was sealed",
        "cause": f"{where} is said to be caused by {fault.actual}, which is no earlier event",
        "end": f"the end is not where it was: {fault.expected} expected, {fault.actual} found",
        "empty": "there are no events",
        "cut": f"its tail was cut behind {where}: {fault.expected} was signed",
        "relinked": f"{where} is not the event that was signed: it, or one before it, was changed and the chain made anew",
        "reused": f"its id was used again: {fault.actual}, {fault.expected}, is another one",
        "lost": f"the run is gone: {fault.expected}",
        "unreadable": fault.actual,
        "body": f"body {fault.expected[:12]} named by {where} does not fit its digest",
        "body_missing": f"body {fault.expected[:12]} named by {where} is not there",
    }
    return known[fault.reason]
