"""One file opened twice in one process: closing a plain descriptor of it must not take SQLite's locks away.

POSIX drops all locks that a process holds on a file when it closes any descriptor of it. A process that lost its locks
so is invisible to others, which then remove the log under its feet.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agentloupe.store.sqlite import SqliteStore
from tests.store.make import small_run
from tests.support import ROOT

_OTHER = """
import sys
from agentloupe.store.sqlite import SqliteStore
from tests.store.make import small_run
store = SqliteStore(sys.argv[1])
small_run(store, "other")
store.close()
"""


def test_another_process_does_not_take_the_log_away(tmp_path: Path) -> None:
    path = tmp_path / "loupe.db"
    mine = SqliteStore(path)
    small_run(mine, "first")
    mine.runs()
    SqliteStore(path).close()
    subprocess.run([sys.executable, "-c", _OTHER, str(path)], check=True, cwd=ROOT)
    assert path.with_name("loupe.db-wal").exists()
    small_run(mine, "second")
    assert mine.check() == []
    assert {run.id for run in mine.runs()} == {"first", "other", "second"}
    mine.close()
