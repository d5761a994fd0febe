"""Several processes and threads at one file, forks of a process that has it open, readers that do not let go."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.verify import verify
from agentloupe.store import database
from agentloupe.store.database import WAL_LIMIT
from agentloupe.store.owners import this_process
from agentloupe.store.spool import Spool
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.errors import StoreBusy, StoreError
from agentloupe.words.run import RunFilter
from tests.store.make import Author, small_run
from tests.support import ROOT

CHILD = Path(__file__).with_name("recording_child.py")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "loupe.db"


@pytest.fixture
def store(db: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(db)
    yield opened
    opened.close()


def test_forty_runs_by_four_processes_at_once_with_a_reader_open_all_the_while(db: Path) -> None:
    SqliteStore(db).close()
    with closing(sqlite3.connect(f"{db.as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        command = [sys.executable, str(CHILD), str(db)]
        children = [
            subprocess.Popen([*command, f"p{i}", "10"], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
            for i in range(4)
        ]
        said = [child.communicate()[1] for child in children]
        assert [child.returncode for child in children] == [0, 0, 0, 0], said
        assert reader.execute("SELECT count(*) FROM runs").fetchone() == (0,)  # of the moment when it began
    store = SqliteStore(db)
    assert store.check() == []
    assert store.count() == 40
    for run in store.runs(RunFilter(limit=None)):
        assert run.status == "ok"
        assert run.step_count == 16
        assert verify(store.recording(run.id)).ok
        assert len(load_steps(store.recording(run.id))) == 16
    author = Author(store, "last").started()
    for _ in range(20):
        author.tool("x", {}, "y" * 1000)
    author.finished()
    wal = db.with_name("loupe.db-wal")
    assert wal.stat().st_size <= WAL_LIMIT
    store.close()
    assert not wal.exists()


def test_processes_that_all_make_the_file(db: Path) -> None:
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    command = [sys.executable, str(CHILD), str(db)]
    children = [
        subprocess.Popen([*command, f"p{i}", "1"], cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    assert [child.communicate()[1] for child in children] == [""] * 4
    store = SqliteStore(db)
    assert store.count() == 4
    store.close()


def test_threads_share_a_store(store: SqliteStore) -> None:
    failed: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for i in range(3):
                small_run(store, f"{name}-{i}")
                assert verify(store.recording(f"{name}-{i}")).ok
                store.runs()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.count() == 12


def test_threads_of_one_run_are_serialised(store: SqliteStore) -> None:
    author = Author(store, "r").started()
    threads = [threading.Thread(target=lambda: [author.clock() for _ in range(40)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    author.finished()
    found = verify(store.recording("r"))
    assert found.ok
    assert found.events == 162


def in_a_fork(work: object) -> str:
    """Runs something in a forked child; what it returned or raised, as text."""
    came, goes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(work())  # type: ignore[operator]
        except BaseException as error:
            text = f"{type(error).__name__}: {getattr(error, 'reason', error)}"
        os.write(goes, text.encode())
        os._exit(0)
    os.close(goes)
    with os.fdopen(came) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_cannot_write_into_its_parents_run(store: SqliteStore) -> None:
    author = Author(store, "r").started()
    author.clock("grouped")

    def child() -> str:
        author.writer.close()  # gives up nothing: it is not the owner
        author.clock("commit")
        return "written"

    assert in_a_fork(child) == "StoreError: forked"
    author.tool("f", {}, 1)
    author.finished()
    assert verify(store.recording("r")).ok
    assert [e.type for e in store.recording("r").events][:2] == ["run.started", "clock.read"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_records_and_reads_runs_of_its_own(store: SqliteStore) -> None:
    small_run(store, "of-parent")

    def child() -> int:
        small_run(store, "of-child")
        return len(store.steps("of-parent")) + len(store.steps("of-child"))

    assert in_a_fork(child) == "12"
    small_run(store, "after")
    assert {run.id for run in store.runs()} == {"of-parent", "of-child", "after"}
    assert store.check() == []
    assert all(verify(store.recording(run.id)).ok for run in store.runs())


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_waits_for_what_other_threads_do(store: SqliteStore) -> None:
    stop = threading.Event()

    def work() -> None:
        n = 0
        while not stop.is_set():
            small_run(store, f"w-{(n := n + 1)}")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert [in_a_fork(lambda: store.count() >= 0) for _ in range(5)] == ["True"] * 5
    finally:
        stop.set()
        thread.join()
    assert store.check() == []


def test_a_store_that_is_held_for_too_long_is_busy(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    store = SqliteStore(db)
    author = Author(store, "r").started()
    with closing(sqlite3.connect(db, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        author.tool("f", {}, 1)  # a commit needs nobody's lock
        with pytest.raises(StoreBusy, match="in use"):
            author.writer.flush()
        assert store.run("r") is not None  # reading goes on
        assert [step.name for step in load_steps(store.recording("r"))] == ["f"]
        holder.execute("ROLLBACK")
    author.tool("g", {}, 2)
    assert [step.name for step in store.steps("r")] == ["f", "g"]
    assert verify(store.recording("r")).ok
    store.close()


def test_what_could_not_be_written_leaves_no_trace_and_the_run_goes_on(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = Author(store, "r").started()
    author.clock("grouped")

    def broken(*_: object, **__: object) -> None:
        raise StoreError("something else")

    with monkeypatch.context() as patch:
        patch.setattr(Spool, "append", broken)
        with pytest.raises(StoreError):
            author.tool("lost", {}, 1)
    with monkeypatch.context() as patch:
        patch.setattr("agentloupe.store.writer.put_events", broken)
        author.tool("kept", {}, 1)
        with pytest.raises(StoreError):
            author.writer.flush()
    author.finished()
    # The intent of the lost call was grouped and is kept; its end was refused, and is not there.
    assert [(s.name, s.status) for s in store.steps("r")] == [("now", "ok"), ("lost", "open"), ("kept", "ok")]
    assert store.rebuild("r", Projector) == []
    assert verify(store.recording("r")).ok


def test_the_start_of_a_run_that_exists_leaves_the_store_usable(store: SqliteStore) -> None:
    small_run(store, "r")
    with pytest.raises(StoreError):
        store.start("r", Projector, owner=this_process())
    small_run(store, "s")
    assert store.count() == 2
