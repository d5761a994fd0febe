"""One SQLite file: how it is opened, locked, read and written, from several threads and processes and across forks.

One connection writes, guarded by a lock; reads take a connection from a small pool, for one short transaction each, so
that no reader keeps the log (`-wal`) from shrinking. SQLite's connections must not cross `os.fork`: all are closed before
it and opened anew, on both sides, when they are needed again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from agentloupe.ports.schedule import plain
from agentloupe.store.faults import as_ours
from agentloupe.store.schema import APPLICATION_ID, SCHEMA, TABLES, UPGRADES
from agentloupe.words.errors import Corrupt, StoreBusy, StoreError, StoreReadOnly, VersionUnknown

__all__ = ["Connection", "Database"]

Connection = sqlite3.Connection
Mode = Literal["rw", "ro", "immutable"]

BUSY_SECONDS = 30.0
CHECKPOINT_PAGES = 4000
"""Pages in the log that make a commit move them into the file; fewer cost more, since hot pages are moved more often."""
WAL_LIMIT = 16_000_000
"""Bytes that the `-wal` file keeps at most once no reader holds it back."""
_IDLE_READERS = 4
_MAGIC = b"SQLite format 3\x00"
_SMALLEST = 512
"""Bytes of the smallest SQLite file that is not empty: one page of the smallest size (sqlite.org/fileformat.html, 1.3.2)."""


class _Held:
    """The connections that nobody uses just now."""

    __slots__ = ("idle", "writer")

    def __init__(self) -> None:
        self.idle: list[Connection] = []
        self.writer: Connection | None = None

    def close(self) -> None:
        """Closes them."""
        while self.idle:
            self.idle.pop().close()
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.close()


class Database:
    """One file and its connections.

    Args:
        path: the file.
        create: make it when it is not there.
        read_only: open for reading only; a folder that cannot be written is opened so by itself.

    Raises:
        StoreError: no file there and not to be created (reason `missing`), or a file that is no store (`not_a_store`).
        VersionUnknown: made by a newer version.
        Corrupt, StoreBusy, StoreFull, StoreReadOnly: as they say.
    """

    def __init__(self, path: Path, *, create: bool = True, read_only: bool = False) -> None:
        self._held = _Held()
        # What a finalizer holds is no garbage yet when a store that nobody closed is: else its connections could go first.
        weakref.finalize(self, self._held.close).atexit = False
        self.path = path
        self._name = os.fspath(path)
        self.lock = plain.RLock()
        self._gate = plain.Condition()
        self._busy = 0
        self._synchronous = ""
        self._file: tuple[int, int] | None = None
        self._closed = False
        self._present(create and not read_only)
        self.mode: Mode = self._choose_mode(read_only)
        self._recognise(create)
        _open.add(self)

    # --- opening ------------------------------------------------------------------------------------------------------

    def _present(self, create: bool) -> None:
        """Makes sure that there is a file, or that there can be one."""
        if self.path.is_dir():
            raise StoreError(f"store {self.path} is a folder", hint="name a file", reason="not_a_store")
        if self.path.exists():
            return
        if not create:
            raise StoreError(
                f"no store at {self.path}", hint="record something first, or check --db or LOUPE_DB", reason="missing"
            )
        folder = self.path.parent
        try:
            if not folder.exists():
                folder.mkdir(parents=True)
                if folder.name == ".loupe":
                    (folder / ".gitignore").write_text("*\n")
        except OSError as error:
            raise StoreReadOnly(
                f"folder {folder} cannot be made ({error.strerror})",
                hint="set --db or LOUPE_DB to a file you may write",
            ) from error

    def _choose_mode(self, read_only: bool) -> Mode:
        folder = self.path.parent
        if os.access(folder, os.W_OK) and (not self.path.exists() or os.access(self.path, os.W_OK)):
            return "ro" if read_only else "rw"
        if not self.path.exists():
            raise StoreReadOnly(
                f"folder {folder} cannot be written", hint="set --db or LOUPE_DB to a file you may write"
            )
        # Reading a log needs its index file; where none can be made, only a store without a log can be read.
        log = self.path.with_name(self.path.name + "-wal")
        index = self.path.with_name(self.path.name + "-shm")
        if not log.exists() or log.stat().st_size == 0:
            return "immutable"
        if index.exists():
            return "ro"
        raise StoreReadOnly(
            f"store {self.path} was left open and its folder cannot be written",
            hint="copy the file and its -wal file to a folder you may write to",
        )

    def connect(self, mode: Mode | None = None) -> Connection:
        """A new connection without a transaction. Raises like the class."""
        mode = mode or self.mode
        query = {"rw": "mode=rwc", "ro": "mode=ro", "immutable": "mode=ro&immutable=1"}[mode]
        uri = f"{self.path.absolute().as_uri()}?{query}"
        try:
            conn = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise as_ours(error, self.path) from error
        with self._closed_on_error(conn):
            conn.execute("PRAGMA cache_size = -8000")
        return conn

    @contextmanager
    def _closed_on_error(self, conn: Connection) -> Generator[None]:
        """A connection that cannot be prepared is of no use to anybody."""
        try:
            yield
        except BaseException as error:
            conn.close()
            if isinstance(error, sqlite3.Error):
                raise as_ours(error, self.path) from error
            raise

    def _may_become_a_store(self, create: bool) -> None:
        """Refuses to make tables in a file that somebody else left here, or that was only to be read."""
        size = self.path.stat().st_size
        if size and size < _SMALLEST:  # SQLite takes it for empty, and would write over it
            raise StoreError(
                f"{self.path} is not a store of Loupe", hint="check --db or LOUPE_DB", reason="not_a_store"
            )
        if not create:
            raise StoreError(f"the store {self.path} is empty", hint="record something first", reason="missing")

    def _recognise(self, create: bool) -> None:
        """Checks that the file is a store of a version that we know; makes the tables of a new one."""
        try:
            conn = self.connect()
        except Corrupt:
            self._check_magic()
            raise
        try:
            conn.execute("BEGIN")  # of one moment: others may be making the tables just now
            found, empty = _identity(conn), _empty(conn)
            conn.execute("ROLLBACK")
            if found == (0, 0) and self.mode == "rw" and empty:
                self._may_become_a_store(create)
                self._make(conn)
                found = _identity(conn)
            elif found[0] == APPLICATION_ID and 1 <= found[1] < SCHEMA:
                self._upgrade(conn, found[1])
                found = _identity(conn)
        except sqlite3.Error as error:
            raise as_ours(error, self.path) from error
        finally:
            conn.close()
        application, version = found
        if application != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is not a store of Loupe", hint="check --db or LOUPE_DB", reason="not_a_store"
            )
        if version > SCHEMA:
            raise VersionUnknown(
                f"store {self.path} has schema {version}, newer than this version's {SCHEMA}",
                hint="upgrade agent-loupe",
            )
        if version < 1:
            raise Corrupt(f"store {self.path} has schema {version}, which never existed")

    def _check_magic(self) -> None:
        """Tells a foreign file from a damaged store. Only for a file that SQLite cannot use.

        Closing a descriptor of our own would take all locks of this process on the file away: other connections to it
        would be invisible to other processes, which then remove the log under their feet.
        """
        try:
            with self.path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"store {self.path} cannot be read ({error.strerror})", reason="cannot_open") from error
        if head and head != _MAGIC:
            raise StoreError(
                f"{self.path} is not a store of Loupe", hint="check --db or LOUPE_DB", reason="not_a_store"
            )

    def _make(self, conn: Connection) -> None:
        """Makes the tables. Several processes may try at once: one wins, the others find them made."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                conn.execute("PRAGMA auto_vacuum = INCREMENTAL")
                # Changing the journal mode does not wait for locks by itself.
                conn.execute("PRAGMA journal_mode = WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not isinstance(as_ours(error, self.path), StoreBusy) or time.monotonic() > deadline:
                    raise
                plain.sleep(0.005)
        conn.execute("BEGIN IMMEDIATE")
        try:
            if _identity(conn) == (0, 0):
                for statement in TABLES:
                    conn.execute(statement)
                conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                conn.execute(f"PRAGMA user_version = {SCHEMA}")
            conn.execute("COMMIT")
        except BaseException:
            _roll_back(conn)
            raise

    def _upgrade(self, conn: Connection, version: int) -> None:
        """Brings an older file up to date. Several processes may try at once: one does it."""
        if self.mode != "rw":
            raise StoreReadOnly(
                f"store {self.path} has the older schema {version}", hint="open it once where it can be written"
            )
        conn.execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS * 1000)}").fetchone()
        conn.execute("BEGIN IMMEDIATE")
        try:
            for newer in range(_identity(conn)[1] + 1, SCHEMA + 1):
                for statement in UPGRADES[newer]:
                    conn.execute(statement)
            conn.execute(f"PRAGMA user_version = {SCHEMA}")
            conn.execute("COMMIT")
        except BaseException:
            _roll_back(conn)
            raise

    # --- writing ------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, *, full: bool = False) -> Generator[Connection]:
        """One write transaction, committed at the end, rolled back on any error. `full`: survives power loss.

        Raises:
            StoreReadOnly, StoreBusy, StoreFull, Corrupt, StoreError: nothing was written.
        """
        if self.mode != "rw":
            raise StoreReadOnly(
                f"store {self.path} is open for reading only", hint="set --db or LOUPE_DB to a file you may write"
            )
        with self.lock:
            conn = self._write_connection()
            self.same_file()
            try:
                self._set_synchronous(conn, "FULL" if full else "NORMAL")
                conn.execute("BEGIN IMMEDIATE")
                yield conn
                conn.execute("COMMIT")
            except sqlite3.Error as error:
                _roll_back(conn)
                raise as_ours(error, self.path) from error
            except BaseException:
                _roll_back(conn)
                raise

    @contextmanager
    def erasing(self) -> Generator[Connection]:
        """A transaction whose freed space is overwritten with zeros, in the file and in the log."""
        with self.lock:
            if self.mode == "rw":
                self._pragma("secure_delete = ON")
            try:
                with self.transaction(full=True) as conn:
                    yield conn
                self._pragma("wal_checkpoint(TRUNCATE)")
            finally:
                if self.mode == "rw" and not self._closed:
                    self._pragma("secure_delete = OFF")

    def shrink(self) -> None:
        """Gives free pages back to the file system."""
        with self.lock:
            try:
                # As a script: `execute` takes one step only of what needs one for every page.
                self._write_connection().executescript("PRAGMA incremental_vacuum")
            except sqlite3.Error as error:
                raise as_ours(error, self.path) from error
            self._pragma("wal_checkpoint(TRUNCATE)")

    def _pragma(self, text: str) -> None:
        try:
            self._write_connection().execute(f"PRAGMA {text}").fetchall()
        except sqlite3.Error as error:
            raise as_ours(error, self.path) from error

    def file_bytes(self) -> int:
        """Bytes on disk: the file, its log and the log's index."""
        files = (self.path.with_name(self.path.name + end) for end in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _write_connection(self) -> Connection:
        self._check_open()
        held = self._held
        if held.writer is None:
            conn = self.connect()
            with self._closed_on_error(conn):
                conn.execute("PRAGMA journal_mode = WAL").fetchone()
                conn.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT}").fetchone()
                conn.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchone()
                conn.execute("PRAGMA fullfsync = ON")  # macOS: a plain fsync leaves data in the drive
            self._synchronous = ""
            held.writer, self._file = conn, _file_at(self._name)
        return held.writer

    def same_file(self) -> None:
        """Looks whether the file that was opened for writing is still there.

        SQLite goes on writing into one that was deleted or replaced, where nobody will find it.

        Raises:
            StoreError: it is not (reason `file_gone`).
        """
        if self._file is not None and _file_at(self._name) != self._file:
            raise StoreError(
                f"store {self.path} is not the file any more that was opened: it was deleted, moved or replaced",
                hint="put it back, or start the program again",
                reason="file_gone",
            )

    def _set_synchronous(self, conn: Connection, level: str) -> None:
        if self._synchronous != level:
            conn.execute(f"PRAGMA synchronous = {level}")
            self._synchronous = level

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"store {self.path} is closed", reason="closed")

    # --- reading ------------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """One short read transaction: everything read inside is of one moment. Fetch all rows inside."""
        conn = self._borrow()
        try:
            conn.execute("BEGIN")
            yield conn
        except sqlite3.Error as error:
            raise as_ours(error, self.path) from error
        finally:
            _roll_back(conn)
            self._give_back(conn)

    def _borrow(self) -> Connection:
        with self._gate:
            self._check_open()
            self._busy += 1
            if self._held.idle:
                return self._held.idle.pop()
        try:
            conn = self.connect("ro" if self.mode == "rw" else None)
        except BaseException:
            with self._gate:
                self._busy -= 1
                self._gate.notify_all()
            raise
        return conn

    def _give_back(self, conn: Connection) -> None:
        with self._gate:
            self._busy -= 1
            if self._closed or len(self._held.idle) >= _IDLE_READERS:
                conn.close()
            else:
                self._held.idle.append(conn)
            self._gate.notify_all()

    # --- ending -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes everything. Idempotent."""
        with self.lock, self._gate:
            self._closed = True
            self._held.close()

    def before_fork(self) -> None:
        """Ends what is going on and closes all connections; both locks stay taken until the fork is over."""
        self.lock.acquire()
        self._gate.acquire()
        self._gate.wait_for(lambda: self._busy == 0, timeout=BUSY_SECONDS)
        self._held.close()

    def after_fork_in_parent(self) -> None:
        """Lets the others go on."""
        self._gate.release()
        self.lock.release()

    def after_fork_in_child(self) -> None:
        """Locks of the parent's threads are never released here: new ones."""
        self.lock = plain.RLock()
        self._gate = plain.Condition()
        self._busy = 0


def _file_at(path: str) -> tuple[int, int] | None:
    """Which file lies at a path: its device and number; `None` when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  # asked at every commit, and a Path takes twice as long
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _identity(conn: Connection) -> tuple[int, int]:
    """Application id and version of the file's schema."""
    application: int = conn.execute("PRAGMA application_id").fetchone()[0]
    version: int = conn.execute("PRAGMA user_version").fetchone()[0]
    return application, version


def _empty(conn: Connection) -> bool:
    return conn.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None


def _roll_back(conn: Connection) -> None:
    try:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
    except sqlite3.Error:
        pass  # a full disk or a lost file may have ended the transaction already


# --- forks ------------------------------------------------------------------------------------------------------------

_open: weakref.WeakSet[Database] = weakref.WeakSet()
_fork_lock = threading.Lock()
_forking: list[Database] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking[:] = list(_open)
    for database in _forking:
        database.before_fork()


def _after_in_parent() -> None:
    for database in reversed(_forking):
        database.after_fork_in_parent()
    _forking.clear()
    _fork_lock.release()


def _after_in_child() -> None:
    for database in _forking:
        database.after_fork_in_child()
    _forking.clear()
    _fork_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
