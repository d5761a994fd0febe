"""Settling goes on beside the program: whoever appends meanwhile does not wait, and nothing gets lost or comes twice."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.store import bodies as body_rows
from agentloupe.store import recovery, sqlite, writer
from agentloupe.store.owners import this_process
from agentloupe.store.spool import folder_of
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.errors import OwnerAlive, StoreFull
from tests.store.make import Author

PATIENCE = 30.0
"""Seconds after which a thread counts as stuck."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "loupe.db")
    yield opened
    opened.close()


@pytest.fixture
def author(store: SqliteStore) -> Author:
    """A run with one committed call that nobody settles but the test."""
    author = Author(store, "run-1", owner=replace(this_process(), started="long ago")).started(root=True)
    assert isinstance(author.writer, writer.SqliteWriter)
    author.writer._flusher.stop()
    author.tool("first", {"a": 1}, "x" * 300, durability="commit")
    return author


class Held:
    """A settlement that stands still right before its transaction ends, in a thread of its own."""

    def __init__(self, author: Author, monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
        self._there, self._go = threading.Event(), threading.Event()
        self._fails = fails
        self.raised: list[BaseException] = []
        monkeypatch.setattr(writer, "reach", self._reach)
        self._thread = threading.Thread(target=self._settle, args=(author.writer.flush,), daemon=True)
        self._thread.start()
        assert self._there.wait(PATIENCE)

    def _reach(self, point: str) -> None:
        if point == "settle.before_commit" and not self._there.is_set():
            self._there.set()
            assert self._go.wait(PATIENCE)
            if self._fails:
                raise StoreFull("no room", reason="full")

    def _settle(self, flush: Callable[[], None]) -> None:
        try:
            flush()
        except Exception as error:  # whatever it is, the test looks at it
            self.raised.append(error)

    def end(self) -> None:
        self._go.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


def appended(author: Author, name: str) -> None:
    """Appends a call in a thread, which must not wait for anybody."""
    thread = threading.Thread(
        target=author.tool, args=(name, {"b": 2}, "y" * 300), kwargs={"durability": "commit"}, daemon=True
    )
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "an append waits for a settlement"


def tools(store: SqliteStore, run_id: str = "run-1") -> list[str]:
    recording = store.recording(run_id)
    assert verify(recording).ok
    return [event.name or "" for event in recording.events if event.type == "tool.finished"]


def test_who_appends_while_others_settle_does_not_wait(
    store: SqliteStore, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(author, monkeypatch)
    appended(author, "second")
    appended(author, "third")
    held.end()
    assert held.raised == []
    assert tools(store) == ["first", "second", "third"]  # reading settles the rest
    author.tool("fourth", {}, 4)
    author.finished()
    assert tools(store) == ["first", "second", "third", "fourth"]
    assert store.check() == []
    run = store.run("run-1")
    assert run is not None
    assert run.step_count == 5
    assert not folder_of(store.path).exists()


def test_a_process_that_dies_then_has_lost_nothing_and_nothing_counts_twice(
    store: SqliteStore, author: Author, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = Held(author, monkeypatch)
    appended(author, "second")
    during = tmp_path / "during"
    shutil.copytree(store.path.parent, during, ignore=shutil.ignore_patterns("during"))
    held.end()
    after = tmp_path / "after"  # the first call is in the database and in the spool, the second in the spool alone
    shutil.copytree(store.path.parent, after, ignore=shutil.ignore_patterns("during", "after"))
    for left in (during, after):
        found = SqliteStore(left / store.path.name)
        assert tools(found) == ["first", "second"]
        assert found.check() == []
        found.close()
    author.finished()


def test_what_could_not_be_settled_is_settled_with_what_came_since(
    store: SqliteStore, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(author, monkeypatch, fails=True)
    appended(author, "second")
    held.end()
    assert [type(error) for error in held.raised] == [StoreFull]
    author.writer.flush()
    assert tools(store) == ["first", "second"]
    author.finished()
    assert store.check() == []


def test_a_spool_that_never_rests_is_emptied_when_it_is_long(
    store: SqliteStore, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spool,) = folder_of(store.path).iterdir()
    held = Held(author, monkeypatch)
    appended(author, "second")
    held.end()
    assert spool.stat().st_size > 1000  # kept: there is something new in it
    monkeypatch.setattr(writer, "SPOOL_BYTES", 1000)
    author.tool("third", {}, 3, durability="commit")
    held = Held(author, monkeypatch)
    appended(author, "fourth")
    held.end()
    assert spool.stat().st_size < 100
    assert tools(store) == ["first", "second", "third", "fourth"]
    author.finished()


@pytest.mark.parametrize("settled_by_others", [True, False])
def test_who_was_taken_for_dead_while_it_settled_goes_on_unless_the_run_is_anothers(
    store: SqliteStore, author: Author, monkeypatch: pytest.MonkeyPatch, settled_by_others: bool
) -> None:
    prepare = body_rows.prepare
    once = [True]

    def meanwhile(*args: object) -> object:
        if once:
            once.clear()
            author.tool("second", {"b": 2}, 2, durability="commit")
            monkeypatch.setattr(recovery, "spools", lambda _: frozenset[Path]())  # as another process sees it
            if settled_by_others:
                recovery.recover(store._db, Projector, lambda *_: True)
            else:
                with store._db.transaction() as conn:
                    conn.execute("UPDATE runs SET epoch = epoch + 1")
        return prepare(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(body_rows, "prepare", meanwhile)
    if settled_by_others:
        author.writer.flush()
        author.tool("third", {}, 3)
        author.finished()
        assert tools(store) == ["first", "second", "third"]
        assert store.check() == []
    else:
        with pytest.raises(OwnerAlive):
            author.writer.flush()
        with pytest.raises(OwnerAlive):
            author.tool("third", {}, 3, durability="commit")
        with store._db.transaction() as conn:  # so that the store can be closed
            conn.execute("UPDATE runs SET epoch = epoch - 1")


def test_a_list_that_lacks_what_was_committed_says_so_once(
    store: SqliteStore, author: Author, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A killed process's last words cannot be taken in on a full disk: "no open effects" would be wrong unsaid."""
    author.finished()

    def full(*_: object, **__: object) -> None:
        raise StoreFull("no room", reason="full")

    with monkeypatch.context() as broken:
        broken.setattr(sqlite, "recover", full)
        for _ in range(2):
            assert len(store.runs()) == 1
    assert [record.message for record in caplog.records if "no room" in record.message] == [
        "the end of runs that were killed is not shown, nor their open effects: no room"
    ]


def test_where_no_thread_can_be_begun_any_more_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Since Python 3.12 an interpreter that ends begins none, and programs make calls in their last threads."""

    def begins_none(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    store = SqliteStore(tmp_path / "loupe.db")
    monkeypatch.setattr(threading.Thread, "start", begins_none)
    author = Author(store, "run-1").started(root=True)
    author.tool("first", {"a": 1}, "x", durability="commit")
    author.tool("second", {"a": 2}, "y")
    author.writer.close()
    monkeypatch.undo()
    assert len(store.recording("run-1").events) == author.writer.head.sequence
    assert verify(store.recording("run-1")).fault is None
    store.close()
