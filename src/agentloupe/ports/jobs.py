"""Work that takes time, as rows of a table: what an engine that carries jobs has to do. Nothing here does anything.

A job is never evidence: what it makes are runs, which it names before it begins. Whoever takes a job up looks at its runs
first, so that nothing is made twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from agentloupe.words.canonical import Json
from agentloupe.words.run import Owner

__all__ = [
    "JOB_STATUSES",
    "OPEN_JOBS",
    "Answered",
    "Asked",
    "Job",
    "JobKind",
    "JobStatus",
    "Jobs",
    "Worker",
]

JobKind = Literal["fork", "replay", "resume"]
JobStatus = Literal["queued", "running", "waiting", "rate_limited", "done", "failed", "cancelled"]
JOB_STATUSES: tuple[JobStatus, ...] = get_args(JobStatus)
OPEN_JOBS: frozenset[JobStatus] = frozenset({"queued", "running", "waiting", "rate_limited"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person is asked: the result of a tool call.

    Attributes:
        id: of the question.
        run_id, tool, arguments: the call.
        because: `policy` or `miss`.
        nearest: the recorded call that came closest, with its difference.
    """

    id: str
    run_id: str | None
    tool: str
    arguments: Json
    because: str
    nearest: str | None
    asked_at: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What a person answered: a result, or (`failed`) the text of an error; who and when."""

    value: Json
    failed: bool
    by: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One piece of work.

    Attributes:
        id, kind: what it is.
        spec: everything that is needed to do it, as JSON.
        runs: ids of the runs that it makes (a replay: that it looks at), in order.
        parent: the run that it is about.
        needs: what a worker must have: nothing (`""`), or an agent by name (`agent:NAME`).
        status: `queued`, `running`, `waiting` (for a person), `rate_limited`, `done`, `failed`, `cancelled`.
        worker: id of the worker that has it.
        message: one line on how it goes; error: why it failed, as `{reason, message, hint}`.
        retry_after: seconds that a provider asks to wait.
        cancelled: a person wants it to end.
        question: what a person is asked just now.
        result: of a replay its report.
        number: rises with every change of any job, so that a reader can ask for what changed since.
    """

    id: str
    kind: JobKind
    spec: Mapping[str, Json]
    runs: tuple[str, ...]
    parent: str
    needs: str = ""
    status: JobStatus = "queued"
    created_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None
    worker: str | None = None
    message: str | None = None
    error: Mapping[str, Json] | None = None
    retry_after: float | None = None
    cancelled: bool = False
    question: Asked | None = None
    result: Json = None
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who does jobs: a process, with the agents that it has loaded by name."""

    id: str
    owner: Owner
    agents: tuple[str, ...] = field(default=())
    seen_at: str = ""


class Jobs(Protocol):
    """Keeps jobs. Safe to use from several threads and processes; a job has one worker at a time."""

    def add(self, job: Job) -> Job:
        """Puts a new job into the queue."""
        ...

    def get(self, job_id: str) -> Job | None:
        """One job."""
        ...

    def jobs(
        self,
        status: JobStatus | None = None,
        *,
        kind: JobKind | None = None,
        parent: str | None = None,
        first: int = 0,
        limit: int = 50,
    ) -> list[Job]:
        """Jobs, newest first; of one status, of one kind, about one run."""
        ...

    def count(self, status: JobStatus | None = None, *, kind: JobKind | None = None, parent: str | None = None) -> int:
        """How many there are."""
        ...

    def since(self, number: int, *, limit: int = 200) -> list[Job]:
        """Jobs that changed after a number, in order of their last change."""
        ...

    def take(self, worker: Worker, needs: Collection[str]) -> Job | None:
        """The oldest open job that nobody works on and whose needs are among `needs`; it is the worker's from now on.

        One whose worker's process is gone, or whose lease ran out, is nobody's.
        """
        ...

    def renew(self, job_id: str, worker_id: str) -> Job:
        """Keeps a job for another while. Raises `OwnerAlive`: it is another worker's now."""
        ...

    def tell(self, job_id: str, worker_id: str, **changes: Any) -> Job:
        """Changes fields of a job that is the worker's. Raises `OwnerAlive` like `renew`, `NotFound`."""
        ...

    def give_back(self, job_id: str, worker_id: str) -> None:
        """Puts a job back into the queue."""
        ...

    def cancel(self, job_id: str) -> Job:
        """Marks an open job to be ended; one that nobody works on ends at once. Raises `NotFound`."""
        ...

    def answer(self, job_id: str, question_id: str, answered: Answered) -> Job:
        """A person's answer. Raises `NotFound`, `Refused` (it was answered already, or is not asked any more)."""
        ...

    def answered(self, question_id: str) -> Answered | None:
        """What a person answered, once they did."""
        ...

    def hello(self, worker: Worker) -> None:
        """A worker is there, and says so again from time to time."""
        ...

    def bye(self, worker_id: str) -> None:
        """A worker leaves."""
        ...

    def workers(self) -> list[Worker]:
        """Workers that are there."""
        ...
