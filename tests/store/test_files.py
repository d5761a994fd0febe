"""Files that are no store, a newer one, or a damaged one; and what a new store puts where."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.verify import verify
from agentloupe.store import envelopes, open_url, spool
from agentloupe.store.schema import SCHEMA
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.errors import Corrupt, LoupeError, OwnerAlive, StoreError, UsageError, VersionUnknown
from agentloupe.words.event import Draft
from agentloupe.words.run import RunFilter
from tests.store.make import Author, dead_owner, small_run


def made(path: Path) -> Path:
    """A store of two runs, closed."""
    store = SqliteStore(path)
    small_run(store, "run-1")
    author = Author(store, "run-2").started()
    for i in range(30):
        author.tool("read", {"i": i}, f"text {i} " * 300)
    author.finished()
    store.close()
    return path


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that tests copy."""
    return made(tmp_path_factory.mktemp("pristine") / "loupe.db")


@pytest.fixture
def db(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(pristine, tmp_path / "loupe.db"))


def changed(stored: bytes, old: str, new: str) -> bytes:
    """A stored envelope with another text in it."""
    return envelopes.pack_all([envelopes.unpack(stored).replace(old.encode(), new.encode())])[0]


def edit(db: Path, *statements: str) -> None:
    """Changes the file behind the store's back."""
    with closing(sqlite3.connect(db, isolation_level=None)) as conn:
        conn.create_function("changed", 3, changed)
        for name in ("events_are_never_changed", "events_are_never_removed", "events_are_never_replaced"):
            conn.execute(f"DROP TRIGGER IF EXISTS {name}")
        for statement in statements:
            conn.execute(statement)


# ---------------------------------------------------------------- a file that goes away while it is used


@pytest.mark.parametrize("way", ["deleted", "moved", "replaced"])
def test_nothing_is_written_into_a_file_that_is_not_there_any_more(db: Path, tmp_path: Path, way: str) -> None:
    store = SqliteStore(db)
    author = Author(store, "run-3").started()
    if way == "deleted":
        db.unlink()
    elif way == "moved":
        db.rename(tmp_path / "elsewhere.db")
    else:
        shutil.copy(db, tmp_path / "copy.db")
        (tmp_path / "copy.db").replace(db)
    with pytest.raises(StoreError, match="deleted, moved or replaced") as gone:
        author.tool("read", {}, "text")
    assert gone.value.reason == "file_gone"


# ---------------------------------------------------------------- what is made where


def test_a_loupe_folder_ignores_itself_in_git(tmp_path: Path) -> None:
    open_url(tmp_path / "project" / ".loupe" / "loupe.db").close()
    assert (tmp_path / "project" / ".loupe" / ".gitignore").read_text() == "*\n"
    open_url(tmp_path / "data" / "loupe.db").close()
    assert not (tmp_path / "data" / ".gitignore").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".loupe").mkdir()
    open_url(tmp_path / ".loupe" / "loupe.db").close()
    assert not (tmp_path / ".loupe" / ".gitignore").exists()


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}"])
def test_a_store_is_named_by_path_or_url(tmp_path: Path, form: str) -> None:
    store = open_url(form.format(tmp_path / "a b%20c?d.db"))
    small_run(store)
    assert store.url == f"sqlite:///{tmp_path / 'a b%20c?d.db'}"
    store.close()
    assert (tmp_path / "a b%20c?d.db").exists()


@pytest.mark.parametrize("url", ["postgresql://host/db", "sqlite://", "sqlite:///", "sqlite:x"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        open_url(url)


def test_events_cannot_be_changed_by_sql(db: Path) -> None:
    with closing(sqlite3.connect(db, isolation_level=None)) as conn:
        for statement in (
            "UPDATE events SET envelope = '{}'",
            "DELETE FROM events",
            "INSERT OR REPLACE INTO events SELECT key, hash, '{}' FROM events",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                conn.execute(statement)


def test_durability_is_what_was_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "loupe.db")
    author = Author(store, "r").started()
    conn = store._db._write_connection()
    synced: list[str] = []
    settled: list[int] = []
    monkeypatch.setattr(spool, "_fsync", lambda _: synced.append("spool"))
    conn.set_trace_callback(
        lambda sql: settled.append(conn.execute("PRAGMA synchronous").fetchone()[0]) if sql == "COMMIT" else None
    )
    author.clock("commit")
    assert synced == []
    author.writer.flush()
    author.clock("full")
    assert synced == ["spool"]
    author.writer.flush()
    author.clock("commit")
    author.writer.flush()
    # What survived a loss of power in the spool survives it in the database before the spool is emptied.
    assert (synced, settled) == (["spool"], [1, 2, 1])
    conn.set_trace_callback(None)
    assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


# ---------------------------------------------------------------- no store, another version


def test_a_file_of_something_else_is_no_store(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are my notes, no database\n" * 100)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as conn:
        conn.execute("CREATE TABLE mine(x)")
        conn.commit()
    for path in (text, other, tmp_path):
        with pytest.raises(StoreError, match=str(path)) as refused:
            SqliteStore(path)
        assert refused.value.reason == "not_a_store"
    assert text.read_text().startswith("these are my notes")
    with closing(sqlite3.connect(other)) as conn:
        assert [row[0] for row in conn.execute("SELECT name FROM sqlite_master")] == ["mine"]


def test_no_file_is_missing_unless_it_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store") as missing:
        SqliteStore(tmp_path / "x" / "loupe.db", create=False)
    assert missing.value.reason == "missing"
    assert not (tmp_path / "x").exists()


def test_a_newer_store_is_refused(db: Path) -> None:
    edit(db, f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(VersionUnknown, match="newer"):
        SqliteStore(db)


def test_a_newer_event_is_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "loupe.db")
    small_run(store)
    author = Author(store, "future").started()
    author.writer.append(
        [Draft(type="state.changed", event_id="x", recorded_at="2026-01-01T00:00:00.000000Z", schema_version=9)]
    )
    with pytest.raises(VersionUnknown, match="schema 9"):
        store.recording("future")
    assert verify(store.recording("run-1")).ok
    store.close()


def test_reading_only_does_not_write(db: Path) -> None:
    before = db.read_bytes()
    store = SqliteStore(db, read_only=True)
    assert len(load_steps(store.recording("run-1"))) == 6
    store.close()
    assert db.read_bytes() == before


# ---------------------------------------------------------------- damage


EDITS: dict[str, str] = {
    "an event changed": "UPDATE events SET envelope = changed(envelope, 'get_weather', 'get_whether') WHERE key = (1 << 32) + 4",
    "an event removed": "DELETE FROM events WHERE key = (1 << 32) + 4",
    "the last events removed": "DELETE FROM events WHERE key > (1 << 32) + 8 AND key < (2 << 32)",
    "the first event removed": "DELETE FROM events WHERE key = (1 << 32) + 1",
    "two events swapped": """UPDATE events SET envelope = (SELECT e.envelope FROM events e WHERE e.key = (2 << 32) + 9 - events.key + (1 << 32))
        WHERE key IN ((1 << 32) + 4, (1 << 32) + 5)""",
    "a hash changed": "UPDATE events SET hash = zeroblob(32) WHERE key = (1 << 32) + 4",
    "an event added": "INSERT INTO events SELECT key + 1, hash, envelope FROM events WHERE key = (SELECT max(key) FROM events WHERE key < 2 << 32)",
    "an event that is no JSON": "UPDATE events SET envelope = '{' WHERE key = (1 << 32) + 4",
    "an unknown type": "UPDATE events SET envelope = changed(envelope, 'tool.started', 'tool.teleported') WHERE key < 2 << 32",
    "an unknown field": "UPDATE events SET envelope = changed(envelope, '\"lane\"', '\"lame\"') WHERE key = (1 << 32) + 4",
    "a body changed": "UPDATE bodies SET data = '\"other\"', form = 0 WHERE bid IN (SELECT min(bid) FROM run_bodies WHERE rid = 1 AND bid NOT IN (SELECT bid FROM run_bodies WHERE rid = 2))",
    "a body removed": "DELETE FROM bodies WHERE bid IN (SELECT min(bid) FROM run_bodies WHERE rid = 1 AND bid NOT IN (SELECT bid FROM run_bodies WHERE rid = 2))",
    "a body cut": "UPDATE bodies SET data = substr(data, 1, length(data) - 1) WHERE bid IN (SELECT max(bid) FROM run_bodies WHERE rid = 1 AND bid NOT IN (SELECT bid FROM run_bodies WHERE rid = 2))",
    "a body of no form": "UPDATE bodies SET form = 7 WHERE bid IN (SELECT min(bid) FROM run_bodies WHERE rid = 1 AND bid NOT IN (SELECT bid FROM run_bodies WHERE rid = 2))",
    "a body that is no zstd": "UPDATE bodies SET form = 1 WHERE bid IN (SELECT min(bid) FROM run_bodies WHERE rid = 1 AND bid NOT IN (SELECT bid FROM run_bodies WHERE rid = 2))",
}


@pytest.mark.parametrize("statement", EDITS.values(), ids=EDITS.keys())
def test_an_edit_behind_the_stores_back_is_found(db: Path, statement: str) -> None:
    edit(db, statement)
    store = SqliteStore(db)
    assert is_damaged(store, "run-1")
    assert not is_damaged(store, "run-2")
    store.close()


def is_damaged(store: SqliteStore, run: str) -> bool:
    try:
        return not verify(store.recording(run)).ok
    except Corrupt as error:
        return run in str(error)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_of_the_events_is_found(pristine: Path, tmp_path: Path, data: st.DataObject) -> None:
    """One byte of one envelope, as text or as it lies in the file."""
    db = tmp_path / "edited.db"
    shutil.copy(pristine, db)
    with closing(sqlite3.connect(db, isolation_level=None)) as conn:
        rows = conn.execute("SELECT key, envelope FROM events WHERE key < 2 << 32 ORDER BY key").fetchall()
        key, stored = data.draw(st.sampled_from(rows))
        text = data.draw(st.booleans())
        before = envelopes.unpack(stored) if text else stored
        at = data.draw(st.integers(0, len(before) - 1))
        new = data.draw(st.integers(0, 255).filter(lambda byte: byte != before[at]))
        after = before[:at] + bytes([new]) + before[at + 1 :]
        conn.execute("DROP TRIGGER events_are_never_changed")
        conn.execute(
            "UPDATE events SET envelope = ? WHERE key = ?", (envelopes.pack_all([after])[0] if text else after, key)
        )
    store = SqliteStore(db)
    try:
        assert is_damaged(store, "run-1") or unchanged(after, stored)
    finally:
        store.close()


def unchanged(after: bytes, stored: bytes) -> bool:
    """A byte of the compressed form can be another one and mean the same: no evidence was touched then."""
    try:
        return envelopes.unpack(after) == envelopes.unpack(stored)
    except ValueError:
        return False


def test_a_damaged_view_says_so_and_is_made_anew(db: Path) -> None:
    store = SqliteStore(db)
    steps = store.steps("run-1")
    run = store.run("run-1")
    edit(
        db,
        "UPDATE steps SET row = '[1,2' WHERE key = (1 << 32) + 2",
        "DELETE FROM steps WHERE key = (1 << 32) + 3",
        "INSERT INTO steps SELECT key + 50, row FROM steps WHERE key = (1 << 32) + 1",
        "UPDATE runs SET row = '[]' WHERE rid = 1",
        "DELETE FROM facets WHERE rid = 1",
    )
    with pytest.raises(Corrupt, match="rebuild"):
        store.steps("run-1")
    with pytest.raises(Corrupt, match="rebuild"):
        store.run("run-1")
    differences = store.rebuild("run-1", Projector)
    assert [line.split(":")[0] for line in differences] == ["run", "step 2", "step 3", "step 51"]
    assert store.steps("run-1") == steps
    assert store.run("run-1") == run
    assert [r.id for r in store.runs(RunFilter(tool="get_weather"))] == ["run-1"]
    assert store.rebuild("run-1", Projector) == []
    store.close()


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("DELETE FROM events WHERE key = (1 << 32) + 4", "events are missing"),
        (
            "DELETE FROM events WHERE key = (SELECT max(key) FROM events WHERE key < 2 << 32)",
            "its end is not the last event",
        ),
        ("DELETE FROM bodies WHERE bid = 1", "a body that it needs is not there"),
        ("DELETE FROM runs WHERE rid = 1", "events of a run that is not there"),
    ],
)
def test_the_database_is_asked_whether_it_is_whole(db: Path, statement: str, fault: str) -> None:
    edit(db, statement)
    store = SqliteStore(db)
    assert any(fault in line for line in store.check())
    store.close()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_of_the_file_are_found_or_said(db: Path, seed: int) -> None:
    """Whatever bytes are flipped: what is read is right, or an error of ours says that it is not."""
    whole = SqliteStore(db)
    expected = {run: load_steps(whole.recording(run)) for run in ("run-1", "run-2")}
    whole.close()
    chance = random.Random(seed)
    data = bytearray(db.read_bytes())
    for _ in range(chance.choice((1, 20, 200))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    db.write_bytes(data)
    said: list[str] = []

    def attempt(read: Callable[[], object]) -> object:
        try:
            return read()
        except LoupeError as error:
            said.append(str(error))
            return None

    store = attempt(lambda: SqliteStore(db))
    if not isinstance(store, SqliteStore):
        assert said
        return
    said.extend(store.check())
    for run, steps in expected.items():
        recording = attempt(lambda run=run: store.recording(run))
        if recording is None:
            continue
        found = attempt(lambda recording=recording: verify(recording))  # type: ignore[arg-type]
        if found is not None and found.ok:  # type: ignore[attr-defined]
            assert attempt(lambda recording=recording: load_steps(recording)) == steps  # type: ignore[arg-type]
        attempt(lambda run=run: store.steps(run))
    attempt(store.runs)
    attempt(store.close)


def test_closing_a_store_keeps_every_run_whatever_became_of_another(tmp_path: Path) -> None:
    """Somebody took one run over while its first owner held events back; those of the other run are written all the same."""
    store = SqliteStore(tmp_path / "loupe.db", new_fold=Projector)
    held_back = Author(store, "other").started()
    lost = Author(store, "lost", owner=dead_owner()).started()
    store.take_over("lost", Projector, owner=dead_owner())
    lost.clock("grouped")
    held_back.clock("grouped")
    with pytest.raises(OwnerAlive):
        store.close()
    again = SqliteStore(tmp_path / "loupe.db")
    assert [event.type for event in again.recording("other").events] == ["run.started", "clock.read"]
    again.close()
