"""Disks that are full or cannot be written: effects stop, reading goes on, and nothing that was written is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.verify import verify
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.errors import StoreError, StoreFull, StoreReadOnly
from tests.faults.stage import Stage
from tests.faults.test_points import ORDERS
from tests.faults.world import World
from tests.store.make import Author, erased_drafts, small_run

pytestmark = pytest.mark.faults


@contextmanager
def mounted(folder: Path, *options: str) -> Generator[Path]:
    """A file system of its own; skips the test, visibly, where this process may not mount."""
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root: mounts a file system")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"needs to mount a file system: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", "-o", ",".join(("remount", *options)), str(folder)], check=True)


def refuses_to_write(store: SqliteStore) -> None:
    with pytest.raises(StoreReadOnly, match="LOUPE_DB"):
        store.start("new", Projector, owner=this_process())
    with pytest.raises(StoreReadOnly):
        store.erase("run-1", erased_drafts())
    with pytest.raises(StoreReadOnly):
        store.gc()
    with pytest.raises(StoreReadOnly):
        store.rebuild("run-1", Projector)


def is_read(store: SqliteStore, run: str = "run-1") -> None:
    assert store.run(run) is not None
    assert verify(store.recording(run)).ok
    assert len(load_steps(store.recording(run))) == 6
    assert store.check() == []
    assert store.size().runs >= 1


def test_a_read_only_disk_is_read_and_not_written(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        store = SqliteStore(disk / "loupe.db")
        small_run(store)
        store.close()
        remount(disk, "ro")
        store = SqliteStore(disk / "loupe.db")
        is_read(store)
        refuses_to_write(store)
        store.close()
        with pytest.raises(StoreReadOnly):
            SqliteStore(disk / "other.db")
        with pytest.raises(StoreReadOnly):
            SqliteStore(disk / "folder" / "loupe.db")
        with pytest.raises(StoreError) as missing:
            SqliteStore(disk / "other.db", create=False)
        assert missing.value.reason == "missing"


def test_a_store_that_was_left_open_is_read_from_a_read_only_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        writer = SqliteStore(tmp_path / "loupe.db")
        small_run(writer)
        for end in ("", "-wal", "-shm"):
            shutil.copy(tmp_path / f"loupe.db{end}", disk / f"loupe.db{end}")
        writer.close()
        assert (disk / "loupe.db-wal").stat().st_size > 0
        remount(disk, "ro")
        store = SqliteStore(disk / "loupe.db")
        is_read(store)
        refuses_to_write(store)
        store.close()
        remount(disk, "rw")
        (disk / "loupe.db-shm").unlink()
        remount(disk, "ro")
        with pytest.raises(StoreReadOnly, match="-wal"):
            SqliteStore(disk / "loupe.db")


def test_a_full_disk_stops_writing_and_loses_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=2m") as disk:
        store = SqliteStore(disk / "loupe.db")
        small_run(store)
        author = Author(store, "big").started()
        written = 0
        with pytest.raises(StoreFull, match="full"):
            for i in range(2000):
                author.tool("read", {"i": i}, os.urandom(4000).hex())
                written += 1
        is_read(store)
        assert len([s for s in load_steps(store.recording("big")) if s.status == "ok"]) == written
        remount(disk, "size=8m")
        author.tool("read", {"i": "after"}, "there is space again")
        author.finished()
        found = verify(store.recording("big"))
        assert found.ok, found.head
        assert load_steps(store.recording("big"))[-1].output == "there is space again"
        assert store.rebuild("big", Projector) == []
        store.close()


@pytest.mark.parametrize(
    "fault", ["spool.before_frame:4", "effect.after_intent:2", "effect.after_effect:2", "settle.before_commit:1"]
)
def test_a_disk_that_fills_up_at_a_fault_point_stops_effects_and_keeps_what_is_true(tmp_path: Path, fault: str) -> None:
    """The program stands still there until the disk is full. No effect is begun after that, and none is forgotten."""
    with mounted(tmp_path / "disk", "size=2m") as disk, World() as world:
        stage = Stage(disk, world)
        with stage.start("record", "one_by_one", *ORDERS, fault=f"{fault}:stop") as child:
            found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            assert found is not None
            assert found.si_code == os.CLD_STOPPED
            done = len(world.done)
            filler = fill(disk)
            child.send_signal(signal.SIGCONT)
            _, err = child.communicate(timeout=100)
        assert "is full" in err
        assert "EffectRefused" in err, "the next write effect is not started"
        assert len(world.done) == done + (fault == "effect.after_intent:2"), "what was begun ends, nothing else begins"
        filler.unlink()
        stage.sound()
        began = fault != "settle.before_commit:1"  # there even the beginning of the run had no space
        assert [run.status in ("interrupted", "error") for run in stage.runs()] == [True] * began


def fill(disk: Path) -> Path:
    """Takes all that is left of a disk, with one file."""
    file = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
    size = 65_536
    while size:
        try:
            size = size if os.write(file, b"x" * size) == size else size // 2
        except OSError:
            size //= 2
    os.close(file)
    return disk / "filler"


def test_a_disk_that_is_full_from_the_start_says_so(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        (disk / "filler").write_bytes(b"x" * 61440)
        with pytest.raises(StoreFull, match="full"):
            small_run(SqliteStore(disk / "loupe.db"))


def test_space_comes_back_after_erasing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "loupe.db")
    author = Author(store, "big").started()
    planted = os.urandom(200_000).hex()
    author.tool("read", {}, planted)
    author.finished()
    before = store.size().file_bytes
    store.erase("big", erased_drafts())
    store.gc()
    assert store.size().file_bytes < before / 3
    for file in tmp_path.iterdir():
        assert planted[:100].encode() not in file.read_bytes()
    store.close()


def test_erased_text_is_in_no_byte_on_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "loupe.db")
    keeper = Author(store, "keeper").started()
    author = Author(store, "gone").started()
    author.tool("read", {"who": "Ada"}, "a short planted text")
    author.finished()
    assert any(b"a short planted text" in file.read_bytes() for file in tmp_path.iterdir())
    store.erase("gone", erased_drafts())
    keeper.finished()
    for file in tmp_path.iterdir():
        assert b"a short planted text" not in file.read_bytes(), file.name
    store.close()
