"""The store in memory: the same shape and the same answers as on disk, for tests and for looking into a file once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentloupe.ports.ids import new_event_id
from agentloupe.ports.pack import Body, needs
from agentloupe.ports.protocols import Durability, Fold, NewFold, RunWriter, Size
from agentloupe.ports.recording import GetBodies, Recording
from agentloupe.ports.schedule import plain
from agentloupe.store.outbox import MemoryOutbox
from agentloupe.store.owners import alive, check_gone
from agentloupe.store.queries import FORKED, LISTED, FacetKey, facets_of_run, facets_of_steps, matches
from agentloupe.store.sealing import seal_drafts, whole_chain
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import Corrupt, OwnerAlive, RunNotFound, StoreError
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.run import Owner, Run, RunFilter, without_values
from agentloupe.words.seal import GENESIS, check_chain
from agentloupe.words.step import Step

__all__ = ["MemoryStore"]

_ENDLESS = frozenset({"running", "waiting"})


@dataclass(slots=True)
class _Kept:
    """One run."""

    number: int
    owner: Owner | None
    epoch: int
    new_fold: NewFold
    fold: Fold
    events: list[Event] = field(default_factory=list[Event])
    run: Run | None = None
    steps: dict[int, Step] = field(default_factory=dict[int, Step])
    bodies: set[str] = field(default_factory=set[str])
    tags: tuple[str, ...] | None = None
    elsewhere: bool = False
    lacks_values: bool = False

    @property
    def head(self) -> Head:
        return Head(self.events[-1].sequence, self.events[-1].hash) if self.events else Head(0, GENESIS)

    def facets(self) -> set[FacetKey]:
        return facets_of_steps(self.steps.values())

    def shown(self) -> Run | None:
        """The run's row as it is read."""
        if self.run is None:
            return None
        run = replace(self.run, events=self.head.sequence, head=self.head.hash, owner=self.owner)
        if run.status == "running" and (self.owner is None or not alive(self.owner)):
            run = replace(run, status="interrupted")
        if self.lacks_values:
            run = without_values(run)
        if self.elsewhere and self.run.status in _ENDLESS:
            run = replace(run, elsewhere=True)
        return run if self.tags is None else replace(run, tags=self.tags)


_NONE: frozenset[FacetKey] = frozenset()


class MemoryStore:
    """Implements `ports.Store`. Grouped events are written at once."""

    def __init__(self) -> None:
        self.url = "memory:"
        self._identity = new_event_id()
        self._runs: dict[str, _Kept] = {}
        self._bodies: dict[str, bytes] = {}
        self.outbox = MemoryOutbox()
        self._lock = plain.RLock()
        self._started = 0
        self._closed = False

    def start(self, run_id: str, new_fold: NewFold, *, owner: Owner, share: str | None = None) -> RunWriter:
        """See `ports.Store.start`."""
        with self._lock:
            self._check_open()
            if share is not None:
                self._kept(share)
            if run_id in self._runs:
                raise StoreError(f"run {run_id} exists already", hint="another id is needed", reason="exists")
            kept = _Kept(self._next(), owner, owner.epoch, new_fold, new_fold(run_id))
            self._runs[run_id] = kept
        return _MemoryWriter(run_id, owner, lambda drafts, bodies: self._append(run_id, owner, drafts, bodies), kept)

    def take_over(
        self, run_id: str, new_fold: NewFold, *, owner: Owner, force: bool = False, ended: bool = False
    ) -> RunWriter:
        """See `ports.Store.take_over`."""
        with self._lock:
            self._check_open()
            kept = self._kept(run_id)
            status = kept.run.status if kept.run else "running"
            if kept.run is not None and kept.run.erased:
                raise StoreError(f"the bodies of run {run_id} were deleted", reason="erased")
            if status in _ENDLESS:
                check_gone(run_id, kept.owner, force=force)
            elif not ended:
                raise StoreError(f"run {run_id} has ended ({status})", reason="ended")
            mine = replace(owner, epoch=kept.epoch + 1)
            kept.owner, kept.epoch, kept.elsewhere = mine, mine.epoch, False
        return _MemoryWriter(run_id, mine, lambda drafts, bodies: self._append(run_id, mine, drafts, bodies), kept)

    def _next(self) -> int:
        self._started += 1
        return self._started

    def _append(self, run_id: str, owner: Owner, drafts: Sequence[Draft], bodies: Sequence[Body]) -> None:
        with self._lock:
            self._check_open()
            kept = self._kept(run_id)
            if kept.epoch != owner.epoch:
                raise OwnerAlive(f"run {run_id} was taken over by another owner; nothing was written")
            sealed = seal_drafts(run_id, kept.head, drafts)
            self._bodies.update((body.digest, body.data) for body in bodies)
            kept.events.extend(sealed.events)
            self._link(kept, [*(b.digest for b in bodies), *(d for draft in drafts for d in draft.digests())])
            _fold(kept, sealed.events)
            self.outbox.put(sealed.events)

    def _link(self, kept: _Kept, digests: Iterable[str]) -> None:
        todo = list(digests)
        while todo:
            digest = todo.pop()
            if digest not in kept.bodies and digest in self._bodies:
                kept.bodies.add(digest)
                todo.extend(needs(self._bodies[digest]))

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", reason="closed")

    def _kept(self, run_id: str) -> _Kept:
        kept = self._runs.get(run_id)
        if kept is None:
            raise RunNotFound(f"no run {run_id}", hint="`agentloupe list` shows what there is")
        return kept

    def recording(self, run_id: str) -> Recording:
        """See `ports.Store.recording`."""
        with self._lock:
            kept = self._kept(run_id)
            return Recording(run_id, tuple(kept.events), self.get, run_id, kept.head)

    def holds(self, run_id: str) -> bool:
        """See `ports.Store.holds`."""
        found = self.recording(run_id)
        links = (
            (event.sequence, event.envelope(event.run_id, event.sequence), event.prev_hash, event.hash)
            for event in found.events
        )
        last = found.events[-1] if found.events else None
        whole = last is not None and Head(last.sequence, last.hash) == found.head
        return whole and check_chain(links, run_id=run_id) is None

    def identity(self) -> str:
        """See `ports.Store.identity`."""
        return self._identity

    def heads(self) -> dict[str, Head]:
        """See `ports.Store.heads`."""
        with self._lock:
            return {run_id: kept.head for run_id, kept in self._runs.items() if kept.events}

    def get(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """See `ports.Store.get`."""
        with self._lock:
            found = {digest: self._bodies[digest] for digest in digests if digest in self._bodies}
        for digest, data in found.items():
            if digest_bytes(data) != digest:
                raise Corrupt(f"body {digest[:12]} is damaged", reason="body")
        return found

    def run(self, run_id: str) -> Run | None:
        """See `ports.Store.run`."""
        with self._lock:
            return self._runs[run_id].shown() if run_id in self._runs else None

    def runs(self, wanted: RunFilter | None = None) -> list[Run]:
        """See `ports.Store.runs`."""
        wanted = wanted or RunFilter()
        last = None if wanted.limit is None else wanted.offset + wanted.limit
        return self._wanted(wanted)[wanted.offset : last]

    def _wanted(self, wanted: RunFilter) -> list[Run]:
        with self._lock:
            shown = [(kept.shown(), kept) for kept in self._runs.values()]
            parents = {run.parent_run_id for run, _ in shown if run is not None}
            found = [
                (run, kept)
                for run, kept in shown
                if run is not None and matches(run, kept.facets() | ({FORKED} if run.id in parents else _NONE), wanted)
            ]
        if wanted.order == "family":
            _sort_by_family(found, {run.id: (run, kept) for run, kept in shown if run is not None})
        else:
            found.sort(key=_began, reverse=True)
        return [run for run, _ in found]

    def count(self, wanted: RunFilter | None = None, *, most: int | None = None) -> int:
        """See `ports.Store.count`."""
        found = len(self._wanted(wanted or RunFilter()))
        return found if most is None else min(found, most)

    def facets(self, name: str, limit: int = 50) -> list[tuple[str, int]]:
        """See `ports.Store.facets`."""
        kind = LISTED[name]
        with self._lock:
            shown = [(kept.shown(), kept) for kept in self._runs.values()]
        parents = {run.parent_run_id for run, _ in shown if run is not None}
        counts: Counter[str] = Counter()
        for run, kept in shown:
            if run is None:
                continue
            have = kept.facets() | facets_of_run(run) | ({FORKED} if run.id in parents else _NONE)
            counts.update(value for facet, value in have if facet is kind)
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]

    def steps(self, run_id: str, *, first: int = 0, limit: int | None = None) -> list[Step]:
        """See `ports.Store.steps`."""
        with self._lock:
            steps = self._kept(run_id).steps
            chosen = [steps[idx] for idx in sorted(steps) if idx >= first]
        return chosen if limit is None else chosen[:limit]

    def events(self, run_id: str, *, first: int = 1, limit: int | None = None) -> list[Event]:
        """See `ports.Store.events`."""
        with self._lock:
            start = max(first, 1) - 1
            return self._kept(run_id).events[start : None if limit is None else start + limit]

    def tags(self, run_id: str, tags: Sequence[str]) -> None:
        """See `ports.Store.tags`."""
        with self._lock:
            self._kept(run_id).tags = tuple(dict.fromkeys(tags))

    def insert(
        self, run_id: str, events: Sequence[Event], get: GetBodies, new_fold: NewFold, *, elsewhere: bool = False
    ) -> None:
        """See `ports.Store.insert`."""
        head = whole_chain(run_id, events).head
        with self._lock:
            self._check_open()
            if run_id in self._runs:
                if self._runs[run_id].head == head:
                    return
                raise StoreError(
                    f"run {run_id} exists already, with other events",
                    hint="delete it, or import under another id",
                    reason="exists",
                )
            kept = _Kept(
                self._next(), None, max(e.owner_epoch for e in events), new_fold, new_fold(run_id), list(events)
            )
            kept.elsewhere = elsewhere
            whole = self._take_bodies(events, get)
            self._runs[run_id] = kept
            self._link(kept, [d for event in events for d in event.digests()])
            _fold(kept, events)
            if kept.run is not None and kept.run.erased:
                kept.steps.clear()
            else:
                kept.lacks_values = not whole

    def _take_bodies(self, events: Sequence[Event], get: GetBodies) -> bool:
        """Whether all that is named was there."""
        seen: set[str] = set()
        todo = {d for event in events for d in event.digests()}
        whole = True
        while todo:
            found = get(list(todo))
            seen |= todo
            self._bodies.update(found)
            whole = whole and len(found) == len(todo)
            todo = {ref for data in found.values() for ref in needs(data)} - seen
        return whole

    def rebuild(self, run_id: str, new_fold: NewFold) -> list[str]:
        """See `ports.Store.rebuild`. Nothing can differ here, but the fold."""
        with self._lock:
            kept = self._kept(run_id)
            before_run, before_steps = kept.run, kept.steps
            kept.fold, kept.run, kept.steps = new_fold(run_id), None, {}
            _fold(kept, kept.events)
            if kept.run is not None and kept.run.erased:
                kept.steps.clear()
            differs = [] if kept.run == before_run else ["run: differs"]
            idxs = sorted(before_steps.keys() | kept.steps.keys())
            return differs + [f"step {i}: differs" for i in idxs if before_steps.get(i) != kept.steps.get(i)]

    def erase(self, run_id: str, drafts: Sequence[Draft]) -> int:
        """See `ports.Store.erase`."""
        with self._lock:
            kept = self._kept(run_id)
            status = kept.run.status if kept.run else "running"
            if status in _ENDLESS and kept.owner is not None and alive(kept.owner):
                raise OwnerAlive(f"run {run_id} is still running (process {kept.owner.pid})", hint="end it first")
            sealed = seal_drafts(run_id, kept.head, drafts)
            kept.events.extend(sealed.events)
            _fold(kept, sealed.events)
            self.outbox.put(sealed.events)
            kept.epoch += 1
            kept.owner = None
            kept.steps.clear()
            kept.bodies.clear()
            return self._remove_orphans()[0]

    def gc(self) -> tuple[int, int]:
        """See `ports.Store.gc`."""
        with self._lock:
            for run_id, kept in list(self._runs.items()):
                if not kept.events and (kept.owner is None or not alive(kept.owner)):
                    del self._runs[run_id]
            return self._remove_orphans()

    def _remove_orphans(self) -> tuple[int, int]:
        orphans = self._orphans()
        freed = sum(len(self._bodies.pop(digest)) for digest in orphans)
        return len(orphans), freed

    def _orphans(self) -> set[str]:
        needed: set[str] = set()
        return self._bodies.keys() - needed.union(*(kept.bodies for kept in self._runs.values()))

    def check(self) -> list[str]:
        """See `ports.Store.check`."""
        with self._lock:
            lost = [(run_id, kept.bodies - self._bodies.keys()) for run_id, kept in self._runs.items()]
        return [f"run {run_id}: a body that it needs is not there" for run_id, missing in lost if missing]

    def size(self) -> Size:
        """See `ports.Store.size`."""
        with self._lock:
            whole = sum(map(len, self._bodies.values()))
            return Size(
                url=self.url,
                runs=len(self._runs),
                events=sum(len(kept.events) for kept in self._runs.values()),
                bodies=len(self._bodies),
                bodies_stored=whole,
                bodies_whole=whole,
                file_bytes=0,
                orphans=len(self._orphans()),
                messages=self.outbox.count(),
            )

    def close(self) -> None:
        """See `ports.Store.close`."""
        with self._lock:
            for kept in self._runs.values():
                _give_up(kept)
            self._closed = True


def _began(pair: tuple[Run, _Kept]) -> tuple[str, int]:
    return pair[0].started_at, pair[1].number


def _sort_by_family(found: list[tuple[Run, _Kept]], known: Mapping[str, tuple[Run, _Kept]]) -> None:
    """Sorts in place; see `RunFilter.order`."""

    def first(run: Run) -> tuple[Run, _Kept]:
        seen = {run.id}
        at = known[run.id]
        while (above := known.get(at[0].parent_run_id or "")) is not None and above[0].id not in seen:
            seen.add(above[0].id)
            at = above
        return at

    found.sort(key=lambda pair: (first(pair[0])[0].id != pair[0].id, _began(pair)))
    found.sort(key=lambda pair: _began(first(pair[0])), reverse=True)


def _fold(kept: _Kept, events: Iterable[Event]) -> None:
    for event in events:
        kept.fold.add(event)
    delta = kept.fold.take()
    kept.run = delta.run
    kept.steps.update((step.idx, step) for step in delta.steps)


def _give_up(kept: _Kept) -> None:
    if kept.run is None or kept.run.status in _ENDLESS:
        kept.owner = None


class _MemoryWriter:
    """Implements `ports.RunWriter`."""

    def __init__(
        self, run_id: str, owner: Owner, append: Callable[[Sequence[Draft], Sequence[Body]], None], kept: _Kept
    ) -> None:
        self.run_id = run_id
        self.owner = owner
        self._append = append
        self._kept = kept
        self._closed = False

    @property
    def head(self) -> Head:
        """See `ports.RunWriter.head`."""
        return self._kept.head

    def append(self, drafts: Sequence[Draft], bodies: Sequence[Body] = (), durability: Durability = "commit") -> None:
        """See `ports.RunWriter.append`."""
        if self._closed:
            raise StoreError(f"run {self.run_id} was given up by this writer", reason="closed")
        self._append(drafts, bodies)

    def offer(self, drafts: Sequence[Draft], bodies: Sequence[Body] = ()) -> bool:
        """See `ports.RunWriter.offer`. Memory takes everything at once."""
        self.append(drafts, bodies)
        return True

    def remind(self, collect: Callable[[], None]) -> None:
        """Nothing is lost by waiting: memory goes with the process."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """See `ports.RunWriter.close`."""
        if not self._closed:
            self._closed = True
            if self._kept.epoch == self.owner.epoch:
                _give_up(self._kept)
