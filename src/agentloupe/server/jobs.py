"""Jobs as the page gets them, and the feed of their changes."""

from __future__ import annotations

from pathlib import PurePosixPath
from shlex import quote
from typing import Any, Final, cast

from agentloupe.engine.views.documents import plain
from agentloupe.ports.jobs import OPEN_JOBS, Job, Jobs
from agentloupe.ports.recording import Recording
from agentloupe.server.context import Context
from agentloupe.server.streams import message
from agentloupe.verbs.working import AGENT
from agentloupe.words.errors import NotFound, Refused
from agentloupe.words.run import Run

__all__ = [
    "JobFeed",
    "command_for",
    "compare_url",
    "job_document",
    "jobs_of",
    "replay_badge",
    "replays_of",
    "worker_of",
]

_ENDED: Final = frozenset({"ok", "error", "cancelled"})


def jobs_of(here: Context) -> Jobs:
    """The table of jobs. Raises `Refused`: this store has none."""
    if here.jobs is None:
        raise Refused("this store keeps no jobs", hint="serve a file", reason="no_jobs")
    return here.jobs


def worker_of(here: Context, agent: str) -> str | None:
    """The worker that has an agent, if one does."""
    found = (worker.id for worker in jobs_of(here).workers() if agent in worker.agents)
    return next(found, None)


def command_for(here: Context, run: Run) -> str:
    """The command that starts a worker for a run's agent, as far as its recording tells. It is shown, never run.

    What stands in a script is named by its file, as it lies in the project; what it is called otherwise cannot be imported.
    """
    events = here.store.events(run.id, limit=1)
    entry = events[0].attrs.get("entry") if events else None
    if not isinstance(entry, str):
        return "agentloupe worker MODULE"
    snapshot = Recording(run.id, (), here.store.get, run.id).body_if_there(events[0].bodies.get("snapshot"))
    script = snapshot.get("script") if isinstance(snapshot, dict) else None
    file = script.get("file") if isinstance(script, dict) else None
    module, _, name = entry.partition(":")
    in_script = isinstance(file, str) and file.endswith(".py") and PurePosixPath(file).stem == module
    return f"agentloupe worker {quote(f'{file}:{name}' if in_script else entry)}"


def replays_of(here: Context, run_id: str | None, *, first: int = 0, limit: int = 50) -> tuple[list[Job], int]:
    """Replays that were done, newest first, and how many there are; of one run, or of all."""
    if here.jobs is None:
        return [], 0
    kept: dict[str, Any] = {"kind": "replay", "parent": run_id}
    return here.jobs.jobs("done", **kept, first=first, limit=limit), here.jobs.count("done", **kept)


def replay_badge(here: Context, run_id: str) -> dict[str, Any] | None:
    """What the last replay of a run came to."""
    last = next(iter(replays_of(here, run_id, limit=1)[0]), None)
    report = cast("dict[str, Any]", last.result) if last is not None and isinstance(last.result, dict) else None
    if last is None or report is None:
        return None
    shown = {name: report.get(name) for name in ("verdict", "consumed", "events")}
    return {**shown, "passed": report.get("exit_code") == 0, "at": last.ended_at, "job": last.id}


def compare_url(job: Job) -> str | None:
    """Where what a fork made is seen: beside its parent, or in a summary."""
    if job.kind != "fork" or not job.runs:
        return None
    return f"/diff?a={job.parent}&b={job.runs[0]}"


def job_document(here: Context, job: Job) -> dict[str, Any]:
    """A job as a document, with what its runs have made so far."""
    spec = job.spec
    result = cast("dict[str, Any]", job.result) if isinstance(job.result, dict) else dict[str, Any]()
    notes = cast("list[str]", result.get("notes") or []) if job.kind == "fork" else []
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status,
        "run_ids": list(job.runs) if job.kind != "replay" else [],
        "parent": job.parent,
        "from_step": spec.get("from_step"),
        "agent": job.needs.removeprefix(AGENT) or None,
        "engine": spec.get("engine"),
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "progress": _progress(here, job),
        "retry_after": job.retry_after,
        "message": job.message,
        "error": None if job.error is None else {"hint": None, **job.error},
        "question": None if job.question is None else _question(job),
        "cancelling": job.cancelled and job.status in OPEN_JOBS,
        "worker": job.worker,
        "lacks": _lacks(here, job),
        "notes": notes,
        "compare_url": compare_url(job),
        "number": job.number,
    }


def _lacks(here: Context, job: Job) -> dict[str, Any] | None:
    """What an open job waits for that is not there: a worker with its agent, and the command that starts one."""
    agent = job.needs.removeprefix(AGENT)
    if job.status not in OPEN_JOBS or not job.needs or worker_of(here, agent) is not None:
        return None
    gone = "the worker that did it is gone" if job.worker is not None else f"no worker has the agent {agent!r}"
    run = here.store.run(job.parent)
    return {"message": gone, "command": "agentloupe worker MODULE" if run is None else command_for(here, run)}


def _question(job: Job) -> dict[str, Any]:
    asked = job.question
    assert asked is not None
    return {name: getattr(asked, name) for name in type(asked).__dataclass_fields__}


def _progress(here: Context, job: Job) -> dict[str, Any]:
    made = [run for run in map(here.store.run, job.runs) if run is not None] if job.kind == "fork" else []
    costs = [run.new_cost for run in here.reader.priced(made)]
    known = [cost for cost in costs if cost is not None]
    return {
        "runs": sum(run.status in _ENDED for run in made),
        "of": len(job.runs) if job.kind == "fork" else 0,
        "steps": sum(_new_steps(here, run)[0] for run in made),
        "model_calls": sum(_new_steps(here, run)[1] for run in made),
        "cost": plain(sum(known[1:], known[0])) if known else None,
    }


def _new_steps(here: Context, run: Run) -> tuple[int, int]:
    """Steps and model calls of a fork's new part."""
    new = [step for step in here.store.steps(run.id, first=run.forked_from_step or 0) if step.source != "recorded"]
    return sum(step.kind != "agent" for step in new), sum(step.kind == "llm" for step in new)


class JobFeed:
    """Jobs that changed, each time it is asked; of one job, or of all of them."""

    def __init__(self, here: Context, job_id: str | None, since: int) -> None:
        self._here = here
        self._jobs = jobs_of(here)
        self._job_id = job_id
        self._since = since
        self._shown: dict[str, Any] = {}
        self.ended = False
        if job_id is not None and self._jobs.get(job_id) is None:
            raise NotFound(f"no job {job_id!r}", hint="GET /api/jobs lists what there is", reason="job_not_found")

    def take(self) -> list[bytes]:
        """Messages to send now. That of one job ends with it."""
        return self._of_all() if self._job_id is None else self._of_one(self._job_id)

    def _of_all(self) -> list[bytes]:
        told: list[bytes] = []
        for job in self._jobs.since(self._since):
            self._since = job.number
            told.append(message("job", {"job": job_document(self._here, job)}, job.number))
        return told

    def _of_one(self, job_id: str) -> list[bytes]:
        job = self._jobs.get(job_id)
        if job is None:
            self.ended = True
            return [message("end", {"status": None})]
        document = job_document(self._here, job)
        told: list[bytes] = []
        if document != self._shown:
            self._shown = document
            told.append(message("job", {"job": document}, job.number))
        if job.status not in OPEN_JOBS:
            self.ended = True
            told.append(message("end", {"status": job.status}, job.number))
        return told
