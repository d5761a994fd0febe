"""Does one job that needs the user's own code, in a process of its own: so that it can be ended wherever it waits.

    worker -> session file -> child: loads the code, does the job, leaves a report -> worker: the job's row

A cancel interrupts the child, whose runs end as cancelled; one that does not end in time is killed, and its runs are ended
here. Each job has its code as it lies there when it begins.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from agentloupe.ports.cancel import Cancel
from agentloupe.ports.jobs import Job, JobStatus, Worker
from agentloupe.ports.protocols import Store
from agentloupe.verbs import launch
from agentloupe.verbs.children import run_child
from agentloupe.verbs.ending import end_cancelled
from agentloupe.verbs.importing import agents_of
from agentloupe.verbs.interrupts import raising_at_rest
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.errors import LoupeError
from agentloupe.words.jsontext import loads
from agentloupe.words.run import Owner

if TYPE_CHECKING:
    from agentloupe.verbs.working import Workbench

__all__ = ["done_apart", "main"]

Ended = tuple[JobStatus, dict[str, Any]]
"""How a job ended, and what else its row shall say."""
_LOOK: Final = 0.1
"""Seconds between looks whether the worker is still there."""


# --- the worker -------------------------------------------------------------------------------------------------------


def done_apart(bench: Workbench, job: Job, cancel: Cancel) -> Ended:
    """Does a job in a child that loads what was named to the worker; how it ended. A cancel ends it wherever it is."""
    with tempfile.TemporaryDirectory(prefix="agentloupe-") as folder:
        report = Path(folder, "report.json")
        worker = bench.worker
        fields: dict[str, Json] = {
            "db": bench.store.url,
            "job": job.id,
            "worker": {"id": worker.id, "host": worker.owner.host, "pid": worker.owner.pid},
            "started": worker.owner.started,
            "modules": list[Json](bench.modules),
            "report": str(report),
        }
        spec = launch.write_spec(Path(folder, "session.json"), "work", fields)
        command = [sys.executable, "-m", "agentloupe.verbs.workchild", str(spec)]
        recorded = dict[str, str]()
        with suppress(LoupeError):  # what is wrong with the run the child says
            recorded = launch.variables_of(bench.store.recording(job.parent))
        code = run_child(command, environment={**os.environ, **recorded}, cancel=cancel, apart=True)
        told = _told(report)
    if cancel.cancelled:
        now = bench.jobs.get(job.id) or job
        for run_id in now.runs if job.kind != "replay" else ():
            with suppress(LoupeError):
                end_cancelled(bench.store, run_id, cancel.error())
        return "cancelled", {}
    if told is None:
        error: dict[str, Json] = {
            "reason": "worker_ended",
            "message": f"the agent's process ended with code {code} in the middle of it",
            "hint": "the agent's code may end its own process; what was recorded so far is kept",
        }
        return "failed", {"error": error, "message": error["message"]}
    return cast("JobStatus", told["status"]), cast("dict[str, Any]", told["changes"])


def _told(report: Path) -> dict[str, Json] | None:
    try:
        return cast("dict[str, Json]", loads(report.read_bytes()))
    except FileNotFoundError:
        return None


# --- the child --------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Entry of a child that does one job; returns its exit code."""
    from agentloupe.verbs.sessions import default_store

    cancel = Cancel()
    raising_at_rest(cancel)
    spec = cast("dict[str, Any]", loads(Path((sys.argv[1:] if argv is None else argv)[0]).read_bytes()))
    _end_with(int(spec["worker"]["pid"]))
    report = Path(spec["report"])
    try:
        store = default_store(spec["db"], create=False)
        status, changes = _done(store, spec, cancel)
    except LoupeError as wrong:
        error: dict[str, Json] = {"reason": wrong.reason, "message": wrong.message, "hint": wrong.hint}
        status, changes = "failed", {"error": error}
    except KeyboardInterrupt:
        status, changes = "cancelled", {}
    told: dict[str, Json] = {"status": status, "changes": cast("dict[str, Json]", changes)}
    draft = report.with_suffix(".new")
    draft.write_bytes(dumps(told))
    draft.replace(report)
    return 0


def _done(store: Store, spec: Mapping[str, Any], cancel: Cancel) -> Ended:
    from agentloupe.store.sqlite import SqliteStore
    from agentloupe.verbs.working import Workbench

    assert isinstance(store, SqliteStore), "a worker has a store in a file"
    said = spec["worker"]
    worker = Worker(id=said["id"], owner=Owner(said["host"], said["pid"], spec["started"]))
    job = store.jobs.get(spec["job"])
    assert job is not None, "the worker has taken it"
    return Workbench(store, store.jobs, worker, agents_of(spec["modules"])).done(job, cancel)


def _end_with(worker: int) -> None:
    """Ends this process when the worker is gone: somebody else takes the job up then."""

    def look() -> None:
        while os.getppid() == worker:
            over.wait(_LOOK)
        os._exit(1)

    over = threading.Event()
    if os.name == "posix":
        threading.Thread(target=look, name="loupe-worker-gone", daemon=True).start()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads that the agent left behind have nobody to work for
