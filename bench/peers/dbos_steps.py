"""DBOS on SQLite: steps of a workflow, and a fork of it. It keeps threads that poll, so it is measured in a process of its own.

Each step is a commit of its own in SQLite's rollback journal with synchronous FULL, its defaults: it survives a loss of power.
A fork copies the outcomes of the steps before and puts the workflow into a queue, which is polled once a second.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers import load
from bench.timing import Batch


def _step(row: int) -> dict[str, object]:
    return {"row": row, "text": "some twenty characters"}


@contextmanager
def _launched(folder: str) -> Generator[tuple[Any, Any]]:
    dbos: Any = load("dbos").DBOS
    Path(folder).mkdir()
    url = f"sqlite:///{folder}/dbos.sqlite"
    dbos(config={"name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR"})
    step = dbos.step()(_step)

    def steps(count: int) -> int:
        for i in range(count):
            step(i)
        return count

    workflow = dbos.workflow()(steps)
    dbos.launch()
    try:
        yield dbos, workflow
    finally:
        dbos.destroy()


@contextmanager
def steps(folder: str, count: int) -> Generator[Batch]:
    """Workflows of so many steps. Raises `Absent`."""
    with _launched(folder) as (_, workflow):
        yield lambda: workflow(count)


@contextmanager
def forks(folder: str, count: int) -> Generator[Batch]:
    """Forks of a workflow at its last step, each to its result. Raises `Absent`."""
    with _launched(folder) as (dbos, workflow):
        parent = dbos.start_workflow(workflow, count)
        parent.get_result()

        def batch() -> int:
            assert dbos.fork_workflow(parent.workflow_id, count).get_result() == count
            return 1

        yield batch
