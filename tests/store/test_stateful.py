"""Any interleaving of writers, readers, crashes, exports, imports, deletions and collections keeps what a store promises.

One machine for every store. Owners look as if their process were gone, so that anybody may take a run over at any time, as
after a crash; a crash itself is a copy of the files at that moment, opened anew, while the store of before is left as it is.
"""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentloupe.engine.project import Projector, project
from agentloupe.engine.verify import verify
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.importers.loupe_file import read_text
from agentloupe.ports.protocols import Durability, Store
from agentloupe.ports.scribe import Entry
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.deleting import delete_run
from agentloupe.words.errors import OwnerAlive, StoreError
from tests.store.make import Author, dead_owner

TEXTS = ["a", "the same long text " * 200, "another long text " * 200]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(TEXTS) | st.integers(0, 3) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
    max_leaves=4,
)


@dataclass
class Known:
    """What must be true of one run.

    Attributes:
        kept: ids of events that nothing may take away any more, in order.
        grouped: ids of events behind them that were handed over and promised nothing yet.
        writer: who may write; `None`: the run has ended, was deleted, or its process is gone.
        former: who might before.
    """

    kept: list[str] = field(default_factory=list[str])
    grouped: list[str] = field(default_factory=list[str])
    writer: Tracked | None = None
    former: list[Tracked] = field(default_factory=list["Tracked"])
    ended: bool = False
    erased: bool = False

    def given_up(self) -> None:
        if self.writer is not None:
            self.former.append(self.writer)
            self.writer = None


class Tracked(Author):
    """Writes, and tells what was promised. It keeps the calls of several owners of a run apart."""

    known: Known
    _numbers = count(1)

    def add(self, entry: Entry, durability: Durability | None = None) -> None:
        promised = durability or entry.durability
        self.writer.append(entry.drafts, entry.bodies, promised)
        self.known.grouped += [draft.event_id for draft in entry.drafts]
        if promised != "grouped":
            self.flushed()

    def flushed(self) -> None:
        self.known.kept += self.known.grouped
        self.known.grouped.clear()

    def begin_at(self) -> Tracked:
        self._n = count(1000 * next(Tracked._numbers))
        return self


def where(wanted: Callable[[Known], bool]) -> Any:
    """A rule that is for machines that have such a run."""
    return precondition(lambda self: any(wanted(known) for known in self.runs.values()))


WRITING = where(lambda known: known.writer is not None)


class StoreMachine(RuleBasedStateMachine):
    """What is done to a store, and what must hold after each of it."""

    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="stateful-"))
        self.runs: dict[str, Known] = {}
        self.left: list[Store] = []
        self.numbers = count(1)
        self.messages: list[Any] = []

    @initialize()
    def begin(self) -> None:
        self.store = self.open_first()
        self.start(root=True)

    def open_first(self) -> Store:
        raise NotImplementedError

    def crash(self) -> None:
        """Leaves the store as it is, and goes on with what was on the disk at this moment."""
        raise NotImplementedError

    # --- which runs ---------------------------------------------------------------------------------------------------

    def some(self, data: st.DataObject, wanted: Callable[[Known], bool]) -> tuple[str, Known]:
        found = sorted(run_id for run_id, known in self.runs.items() if wanted(known))
        run_id = data.draw(st.sampled_from(found))
        return run_id, self.runs[run_id]

    def writing(self, data: st.DataObject) -> Tracked:
        writer = self.some(data, lambda known: known.writer is not None)[1].writer
        assert writer is not None
        return writer

    # --- writers ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.runs) < 5)
    @rule(root=st.booleans())
    def start(self, root: bool) -> None:
        run_id = f"run-{next(self.numbers)}"
        known = self.runs[run_id] = Known()
        writer = Tracked(self.store, run_id, owner=dead_owner()).begin_at()
        writer.known = known
        known.writer = writer
        writer.started(root=root)

    @WRITING
    @rule(data=st.data(), value=VALUES, effect=st.sampled_from(["read", "write"]))
    def tool(self, data: st.DataObject, value: Any, effect: Any) -> None:
        writer = self.writing(data)
        writer.tool("look", {"at": value}, value, effect=effect)

    @WRITING
    @rule(data=st.data(), text=st.sampled_from(TEXTS))
    def model(self, data: st.DataObject, text: str) -> None:
        """Conversations grow, and share what they have in common."""
        writer = self.writing(data)
        self.messages.append({"role": "user", "content": text})
        writer.model(self.messages[-8:])

    @WRITING
    @rule(data=st.data())
    def clock(self, data: st.DataObject) -> None:
        writer = self.writing(data)
        writer.clock("grouped")

    @WRITING
    @rule(data=st.data())
    def flush(self, data: st.DataObject) -> None:
        writer = self.writing(data)
        writer.writer.flush()
        writer.flushed()

    @WRITING
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        writer = self.writing(data)
        writer.finished("done")
        writer.known.ended = True
        writer.known.given_up()

    @where(lambda known: not known.ended and not known.erased)
    @rule(data=st.data())
    def take_over(self, data: st.DataObject) -> None:
        """Another owner; who wrote before may not any more, and nothing that he was promised is lost."""
        run_id, known = self.some(data, lambda known: not known.ended and not known.erased)
        before = known.writer
        epoch = self.store.take_over(run_id, Projector, owner=dead_owner())
        known.given_up()
        if before is not None:
            self.look_again(run_id)
        known.writer = Tracked(self.store, run_id, writer=epoch).begin_at()
        known.writer.known = known

    @where(lambda known: bool(known.former))
    @rule(data=st.data())
    def a_former_owner_writes(self, data: st.DataObject) -> None:
        run_id, known = self.some(data, lambda known: bool(known.former))
        before = self.ids(run_id)
        former = data.draw(st.sampled_from(known.former))
        written = known.kept.copy(), known.grouped.copy()
        with pytest.raises((OwnerAlive, StoreError)):
            former.tool("late", {}, "late")
        known.kept, known.grouped = written
        assert self.ids(run_id)[: len(before)] == before
        known.former.remove(former)  # what he still held was told to him; he does not try again

    # --- what happens to the whole ------------------------------------------------------------------------------------

    @rule()
    def process_is_killed(self) -> None:
        self.crash()
        for run_id, known in self.runs.items():
            known.writer = None
            known.former.clear()  # they write into what was left behind
            self.look_again(run_id)

    @where(lambda known: not known.erased and bool(known.kept))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        run_id, known = self.some(data, lambda known: not known.erased and bool(known.kept))
        delete_run(self.store, run_id)
        known.given_up()
        known.erased = True
        self.look_again(run_id)
        assert self.store.recording(run_id).events[-1].type == "run.erased"

    @rule()
    def collect(self) -> None:
        self.store.gc()
        assert self.store.size().orphans == 0
        for run_id, known in list(self.runs.items()):
            if not known.kept and not known.grouped:
                del self.runs[run_id]  # it never wrote anything

    @where(lambda known: bool(known.kept))
    @rule(data=st.data(), memory=st.booleans())
    def there_and_back(self, data: st.DataObject, memory: bool) -> None:
        """A run goes into a file, into another store, and is the same there; taking it over once more changes nothing."""
        recording = self.store.recording(self.some(data, lambda known: bool(known.kept))[0])
        out = io.BytesIO()
        LoupeFileExporter().write(iter([recording]), out)
        read = read_text(_unpacked(out.getvalue()), "file")
        other = open_url("memory:") if memory else open_url(self.folder / f"other-{next(self.numbers)}" / "loupe.db")
        for _ in range(2):
            other.insert(read.run_id, read.events, read.get, Projector)
        again = other.recording(read.run_id)
        assert (again.events, again.head) == (recording.events, recording.head)
        assert other.steps(read.run_id) == self.seen_steps(recording.run_id, recording.events)
        assert other.check() == []
        other.close()

    def seen_steps(self, run_id: str, events: Any) -> list[Any]:
        trace = project(events)
        return [] if trace.run.erased else list(trace.steps)

    @rule(number=st.integers(0, 3), value=VALUES)
    def take_over_a_file(self, number: int, value: Any) -> None:
        """A run of another place, by its id; the same id with other events is refused."""
        run_id = f"foreign-{number}"
        elsewhere = MemoryStore()
        author = Tracked(elsewhere, run_id).begin_at()
        author.known = Known()
        author.started()
        author.tool("look", {}, value)
        author.finished(value)
        recording = elsewhere.recording(run_id)
        if run_id in self.runs:
            with pytest.raises(StoreError) as refused:
                self.store.insert(run_id, recording.events, recording.get, Projector)
            assert refused.value.reason == "exists"
        else:
            self.store.insert(run_id, recording.events, recording.get, Projector)
            self.runs[run_id] = Known(kept=author.known.kept, ended=True)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def ids(self, run_id: str) -> list[str]:
        return [event.event_id for event in self.store.recording(run_id).events]

    def look_again(self, run_id: str) -> None:
        """After an owner is gone: what was promised is there, and of what was not, a beginning."""
        known = self.runs[run_id]
        now = self.ids(run_id)
        assert now[: len(known.kept)] == known.kept
        more = now[len(known.kept) :]
        if known.erased and more and more[-1] not in known.grouped:
            more = more[:-1]  # run.erased
        assert more == known.grouped[: len(more)]
        known.kept, known.grouped = now, []

    @invariant()
    def every_run_is_whole(self) -> None:
        if not hasattr(self, "store"):
            return
        for run_id, known in self.runs.items():
            recording = self.store.recording(run_id)
            ids = [event.event_id for event in recording.events]
            assert ids[: len(known.kept)] == known.kept
            assert ids[len(known.kept) :] == known.grouped[: len(ids) - len(known.kept)]
            assert [event.sequence for event in recording.events] == list(range(1, len(ids) + 1))
            if not ids:
                continue
            found = verify(recording)
            assert found.ok, found.head
            assert found.erased == known.erased
            assert known.erased or found.bodies_missing == 0

    @invariant()
    def the_view_is_the_fold_of_the_events(self) -> None:
        if not hasattr(self, "store"):
            return
        heads = self.store.heads()
        shown = {run.id for run in self.store.runs()}
        for run_id in self.runs:
            events = self.store.recording(run_id).events
            if run_id not in heads or heads[run_id].sequence != len(events):
                continue  # the background writer is about to settle it
            trace, run = project(events), self.store.run(run_id)
            assert run is not None
            status = "interrupted" if trace.run.status == "running" else trace.run.status
            wanted = replace(trace.run, status=run.status if run.erased else status)
            assert replace(run, events=0, head=None, owner=None, coverage=wanted.coverage) == wanted
            assert self.store.steps(run_id) == self.seen_steps(run_id, events)
            assert run_id in shown

    @invariant()
    def the_database_finds_nothing(self) -> None:
        if hasattr(self, "store"):
            assert self.store.check() == []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            for run_id, known in self.runs.items():
                if known.kept:
                    assert self.store.rebuild(run_id, Projector) == []
            self.store.gc()
            assert self.store.size().orphans == 0
        for store in (*self.left, *([self.store] if hasattr(self, "store") else [])):
            with suppress(StoreError, OwnerAlive):  # what a process that was killed still held
                store.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _unpacked(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


class InMemory(StoreMachine):
    """Nothing of it survives a process: a crash only takes the owners away."""

    def open_first(self) -> Store:
        return open_url("memory:")

    def crash(self) -> None:
        for known in self.runs.values():
            known.given_up()


class InSqlite(StoreMachine):
    """One file, and what lies beside it."""

    def open_first(self) -> Store:
        self.path = self.folder / "0" / "loupe.db"
        return open_url(self.path, new_fold=Projector)

    def crash(self) -> None:
        new = self.folder / str(len(self.left) + 1)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as conn:
            conn.execute("BEGIN IMMEDIATE")  # nothing is settled while the files are copied one after another
            shutil.copytree(self.path.parent, new, ignore=shutil.ignore_patterns("*-shm"))
            conn.execute("ROLLBACK")
        self.left.append(self.store)
        self.path = new / "loupe.db"
        self.store = open_url(self.path, new_fold=Projector)

    @rule()
    def another_process_looks(self) -> None:
        """It sees what was settled, and takes nothing away."""
        other = open_url(self.path, read_only=True)
        for run_id, known in self.runs.items():
            ids = [event.event_id for event in other.recording(run_id).events]
            assert ids[: len(known.kept)] == known.kept
        other.close()

    @rule()
    def close_and_open(self) -> None:
        """An orderly end keeps everything that was handed over."""
        with suppress(OwnerAlive):  # of somebody who wrote although the run was another's
            self.store.close()
        self.store = open_url(self.path, new_fold=Projector)
        for run_id, known in self.runs.items():
            if known.writer is not None:
                known.writer.flushed()
                known.given_up()
            known.former.clear()
            assert self.ids(run_id) == known.kept


@pytest.mark.parametrize("machine", [InMemory, InSqlite])
def test_any_interleaving_keeps_what_a_store_promises(machine: type[StoreMachine]) -> None:
    many = os.environ.get("HYPOTHESIS_PROFILE") == "ci"
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100 if many else 10,
            stateful_step_count=40 if many else 25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],  # a loaded machine; young stores
        ),
    )
