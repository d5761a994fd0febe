"""Jobs in the same SQLite file as the runs. No evidence: the tables can be emptied, and recordings lose nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from typing import Any, Final, cast

from agentloupe.ports.ids import now, now_and
from agentloupe.ports.jobs import OPEN_JOBS, Answered, Asked, Job, JobKind, JobStatus, Worker
from agentloupe.store.database import Connection, Database
from agentloupe.store.owners import alive
from agentloupe.words.canonical import dumps, loads
from agentloupe.words.errors import NotFound, OwnerAlive, Refused
from agentloupe.words.run import Owner

__all__ = ["LEASE_SECONDS", "SqliteJobs"]

LEASE_SECONDS: Final = 30
"""How long a job stays with a worker on another host that says nothing; here it is seen whether a process lives."""

_IN_ROW = "json_extract(CAST(row AS TEXT),"
_BUSY = "'running', 'waiting', 'rate_limited'"


class SqliteJobs:
    """Implements `ports.jobs.Jobs`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Job | None:
        """See `Jobs.get`."""
        found = self._rows("SELECT row, number FROM jobs WHERE id = ?", job_id)
        return found[0] if found else None

    def jobs(
        self,
        status: JobStatus | None = None,
        *,
        kind: JobKind | None = None,
        parent: str | None = None,
        first: int = 0,
        limit: int = 50,
    ) -> list[Job]:
        """See `Jobs.jobs`."""
        where, args = _where(status, kind, parent)
        sql = f"SELECT row, number FROM jobs {where} ORDER BY created_at DESC, id DESC LIMIT ? OFFSET ?"  # noqa: S608  # our own text
        return self._rows(sql, *args, limit, first)

    def count(self, status: JobStatus | None = None, *, kind: JobKind | None = None, parent: str | None = None) -> int:
        """See `Jobs.count`."""
        where, args = _where(status, kind, parent)
        with self._db.reading() as conn:
            return conn.execute(f"SELECT count(*) FROM jobs {where}", args).fetchone()[0]  # noqa: S608  # our own text

    def since(self, number: int, *, limit: int = 200) -> list[Job]:
        """See `Jobs.since`."""
        return self._rows("SELECT row, number FROM jobs WHERE number > ? ORDER BY number LIMIT ?", number, limit)

    def answered(self, question_id: str) -> Answered | None:
        """See `Jobs.answered`."""
        with self._db.reading() as conn:
            row = conn.execute("SELECT answer FROM job_answers WHERE question = ?", (question_id,)).fetchone()
        if row is None:
            return None
        said = cast("dict[str, Any]", loads(row[0]))
        return Answered(**said)

    def workers(self) -> list[Worker]:
        """See `Jobs.workers`. On this host those whose process lives, of others those that were seen lately."""
        with self._db.reading() as conn:
            rows = conn.execute("SELECT row FROM job_workers ORDER BY id").fetchall()
        found = [_worker(row[0]) for row in rows]
        return [worker for worker in found if alive(worker.owner) and worker.seen_at > now_and(-LEASE_SECONDS)]

    def _rows(self, sql: str, *args: object) -> list[Job]:
        with self._db.reading() as conn:
            rows = conn.execute(sql, cast("tuple[Any, ...]", args)).fetchall()
        return [_job(row, number) for row, number in rows]

    # --- changing -----------------------------------------------------------------------------------------------------

    def add(self, job: Job) -> Job:
        """See `Jobs.add`."""
        fresh = replace(job, created_at=job.created_at or now())
        with self._db.transaction() as conn:
            return _write(conn, fresh, None)

    def take(self, worker: Worker, needs: Collection[str]) -> Job | None:
        """See `Jobs.take`."""
        if not self._worth_a_look():
            return None
        with self._db.transaction() as conn:
            marks = ", ".join("?" for _ in needs)
            rows = conn.execute(
                "SELECT row, number, owner, leased_until FROM jobs"  # noqa: S608  # our own text, values are bound
                f" WHERE status IN ('queued', {_BUSY}) AND needs IN ({marks}) ORDER BY created_at, id",
                tuple(needs),
            ).fetchall()
            for row, number, owner, leased_until in rows:
                job = _job(row, number)
                if job.status != "queued" and _is_held(owner, leased_until):
                    continue
                if job.cancelled:
                    _write(conn, _ended(job, "cancelled"), None)
                    continue
                started = job.started_at or now()
                mine = replace(job, status="running", worker=worker.id, started_at=started, question=None, message=None)
                return _write(conn, mine, worker.owner)
        return None

    def _worth_a_look(self) -> bool:
        """Whether there is an open job at all: most of the time there is none, and nothing is locked for that."""
        with self._db.reading() as conn:
            sql = f"SELECT 1 FROM jobs WHERE status IN ('queued', {_BUSY}) LIMIT 1"  # noqa: S608  # our own text
            return conn.execute(sql).fetchone() is not None

    def renew(self, job_id: str, worker_id: str) -> Job:
        """See `Jobs.renew`."""
        with self._db.transaction() as conn:
            job = _mine(conn, job_id, worker_id)
            conn.execute("UPDATE jobs SET leased_until = ? WHERE id = ?", (now_and(LEASE_SECONDS), job_id))
        return job

    def tell(self, job_id: str, worker_id: str, **changes: Any) -> Job:
        """See `Jobs.tell`."""
        with self._db.transaction() as conn:
            job = replace(_mine(conn, job_id, worker_id), **changes)
            if job.status not in OPEN_JOBS:
                job = _ended(job, job.status)
            return _write(conn, job, _owner(conn, job_id))

    def give_back(self, job_id: str, worker_id: str) -> None:
        """See `Jobs.give_back`."""
        with self._db.transaction() as conn:
            job = _mine(conn, job_id, worker_id)
            _write(conn, replace(job, status="queued", worker=None, question=None), None)

    def cancel(self, job_id: str) -> Job:
        """See `Jobs.cancel`."""
        with self._db.transaction() as conn:
            job = _found(conn, job_id)
            if job.status not in OPEN_JOBS or job.cancelled:
                return job
            marked = replace(job, cancelled=True)
            held = job.status != "queued" and _is_held(*_lease(conn, job_id))
            if not held:
                return _write(conn, _ended(marked, "cancelled"), None)
            return _write(conn, marked, _owner(conn, job_id))

    def answer(self, job_id: str, question_id: str, answered: Answered) -> Job:
        """See `Jobs.answer`."""
        with self._db.transaction() as conn:
            job = _found(conn, job_id)
            if job.question is None or job.question.id != question_id:
                raise Refused(
                    f"job {job_id} does not ask that any more",
                    hint="somebody was quicker, or it ended",
                    reason="answered",
                )
            text = dumps(asdict(answered))
            conn.execute("INSERT INTO job_answers(question, answer) VALUES (?, ?)", (question_id, text))
            return _write(conn, replace(job, question=None, status="running"), _owner(conn, job_id))

    def hello(self, worker: Worker) -> None:
        """See `Jobs.hello`."""
        text = dumps(cast("Any", {**asdict(worker), "agents": list(worker.agents), "seen_at": now()}))
        with self._db.transaction() as conn:
            conn.execute(
                "INSERT INTO job_workers(id, row) VALUES (?, ?) ON CONFLICT(id) DO UPDATE SET row = excluded.row",
                (worker.id, text),
            )

    def bye(self, worker_id: str) -> None:
        """See `Jobs.bye`."""
        with self._db.transaction() as conn:
            conn.execute("DELETE FROM job_workers WHERE id = ?", (worker_id,))


# --- rows -------------------------------------------------------------------------------------------------------------


def _where(status: JobStatus | None, kind: JobKind | None, parent: str | None) -> tuple[str, tuple[str, ...]]:
    """SQL that chooses jobs. Kind and parent stand in the row alone: jobs are few beside runs."""
    asked = (("status", status), (f"{_IN_ROW} '$.kind')", kind), (f"{_IN_ROW} '$.parent')", parent))
    set_ = [(test, value) for test, value in asked if value is not None]
    where = " AND ".join(f"{test} = ?" for test, _ in set_)
    return f"WHERE {where}" if where else "", tuple(value for _, value in set_)


def _write(conn: Connection, job: Job, owner: Owner | None) -> Job:
    number: int = conn.execute("SELECT coalesce(max(number), 0) + 1 FROM jobs").fetchone()[0]
    fresh = replace(job, number=number)
    said: dict[str, Any] = {name: getattr(fresh, name) for name in Job.__dataclass_fields__}
    said["runs"] = list(fresh.runs)
    said["spec"] = dict(fresh.spec)
    said["question"] = None if fresh.question is None else asdict(fresh.question)
    held = None if owner is None else dumps(cast("Any", asdict(owner)))
    conn.execute(
        "INSERT INTO jobs(id, status, needs, created_at, number, owner, leased_until, row)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET status = excluded.status,"
        " number = excluded.number, owner = excluded.owner, leased_until = excluded.leased_until, row = excluded.row",
        (fresh.id, fresh.status, fresh.needs, fresh.created_at, number, held, now_and(LEASE_SECONDS), dumps(said)),
    )
    return fresh


def _job(row: bytes, number: int) -> Job:
    said = cast("dict[str, Any]", loads(row))
    asked = said["question"]
    said |= {"runs": tuple(said["runs"]), "question": None if asked is None else Asked(**asked), "number": number}
    return Job(**said)


def _worker(row: bytes) -> Worker:
    said = cast("dict[str, Any]", loads(row))
    owner = Owner(**said["owner"])
    return Worker(id=said["id"], owner=owner, agents=tuple(said["agents"]), seen_at=said["seen_at"])


def _found(conn: Connection, job_id: str) -> Job:
    row = conn.execute("SELECT row, number FROM jobs WHERE id = ?", (job_id,)).fetchone()
    if row is None:
        raise NotFound(f"no job {job_id!r}", hint="GET /api/jobs lists what there is", reason="job_not_found")
    return _job(*row)


def _mine(conn: Connection, job_id: str, worker_id: str) -> Job:
    job = _found(conn, job_id)
    if job.worker != worker_id or job.status not in OPEN_JOBS:
        raise OwnerAlive(f"job {job_id} is not this worker's any more", reason="job_lost")
    return job


def _lease(conn: Connection, job_id: str) -> tuple[bytes | None, str]:
    return conn.execute("SELECT owner, leased_until FROM jobs WHERE id = ?", (job_id,)).fetchone()


def _owner(conn: Connection, job_id: str) -> Owner | None:
    owner, _ = _lease(conn, job_id)
    return None if owner is None else Owner(**cast("dict[str, Any]", loads(owner)))


def _is_held(owner: bytes | None, leased_until: str) -> bool:
    if owner is None:
        return False
    return alive(Owner(**cast("dict[str, Any]", loads(owner)))) and leased_until > now()


def _ended(job: Job, status: JobStatus) -> Job:
    return replace(job, status=status, ended_at=job.ended_at or now(), question=None, retry_after=None)
