"""Work that takes time: forks, replays and resumes as jobs, and how they go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi import Path as Path_
from starlette.responses import Response

from agentloupe.ports.ambient import now, random_hex
from agentloupe.ports.jobs import Answered, Job, JobStatus
from agentloupe.server.asking import place_of_fork
from agentloupe.server.context import CalledFrom, Context, First, Here, RunId
from agentloupe.server.documents import page
from agentloupe.server.excerpt import lines_around
from agentloupe.server.jobs import JobFeed, command_for, job_document, jobs_of, replays_of, worker_of
from agentloupe.server.reply import reply
from agentloupe.server.routes.stream import EVENTS, LastEventId
from agentloupe.server.schemas import jobs as schemas
from agentloupe.server.streams import stream_of
from agentloupe.verbs.elsewhere import check_here
from agentloupe.verbs.estimating import estimate_fork
from agentloupe.verbs.forking import prepare_fork
from agentloupe.verbs.jobspec import from_step_of, wishes_of
from agentloupe.verbs.models import chosen_endpoint
from agentloupe.verbs.working import AGENT
from agentloupe.words.errors import NotFound, Refused, UsageError
from agentloupe.words.jsontext import Json
from agentloupe.words.run import Run
from agentloupe.words.trace import TraceContext

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["jobs"])

JobId = Annotated[str, Path_(max_length=100, examples=["job-1f2e3d4c5b6a"])]
_ID = 12


# --- beginning --------------------------------------------------------------------------------------------------------


@router.post("/runs/{run_id}/fork", response_model=schemas.Forked, status_code=202)
def fork(here: Here, run_id: RunId, body: schemas.ForkBody, trace: CalledFrom) -> Response:
    """Begins a fork: a new run (or several) from a model step, with changes. Answers at once with the names of its runs."""
    run = here.reader.run(run_id)
    spec = _spec(body)
    wishes = wishes_of(spec)
    needs = _needs(here, run, body.agent) if body.engine == "own" else ""
    if not needs and body.agent is not None:
        raise UsageError("an agent is for the engine `own`", hint='say "engine": "own"', reason="agent")
    pending = prepare_fork(run.id, None, from_step=from_step_of(spec), store=here.store, wishes=wishes)
    if not needs:
        _, _, form = place_of_fork(here.reader.open(run.id), str(from_step_of(spec)))
        chosen_endpoint(body.endpoint, form or "chat")  # raises where nobody could be asked
    spec = {**spec, **_trace(trace), "arms": list[Json](pending.arms)}
    made = _begin(here, "fork", run.id, spec, pending.ids, needs)
    pairs = [{"id": name, "arm": arm} for name, arm in zip(pending.ids, pending.arms, strict=True)]
    runs = [pair for pair in pairs if pair["arm"] != "control"]
    told = {
        "job": job_document(here, made),
        "runs": runs,
        "controls": [pair for pair in pairs if pair["arm"] == "control"],
        "compare_url": f"/diff?a={run.id}&b={runs[0]['id']}",
    }
    return reply(told, 202)


def _spec(body: schemas.ForkBody) -> dict[str, Json]:
    return body.model_dump(mode="json")


def _trace(trace: TraceContext | None) -> dict[str, Json]:
    """What a job's runs know of who asked for them."""
    return {} if trace is None else {"trace": {**trace.headers}}


def _begin(here: Context, kind: Any, parent: str, spec: Mapping[str, Json], runs: Any, needs: str) -> Job:
    job = Job(id=f"job-{random_hex(_ID)}", kind=kind, spec=spec, runs=tuple(runs), parent=parent, needs=needs)
    return jobs_of(here).add(job)


def _needs(here: Context, run: Run, agent: str | None) -> str:
    name = agent or run.agent
    if worker_of(here, name) is None:
        raise Refused(
            f"no worker has the agent {name!r}", hint=f"start one: {command_for(here, run)}", reason="no_worker"
        )
    return f"{AGENT}{name}"


@router.post("/runs/{run_id}/fork/estimate", response_model=schemas.Estimated)
def estimate(here: Here, run_id: RunId, body: schemas.ForkBody) -> Response:
    """What a fork is likely to ask and cost, told by what its parent asked from the same step on."""
    run = here.reader.run(run_id)
    spec = _spec(body)
    wishes = wishes_of(spec)
    prepare_fork(run.id, None, from_step=from_step_of(spec), store=here.store, wishes=wishes)
    found = estimate_fork(run.id, from_step=from_step_of(spec), store=here.store, wishes=wishes)
    return reply({**found.as_json(), "basis": "what the parent asked from this step on; no promise"})


@router.post("/runs/{run_id}/replay", response_model=schemas.Started, status_code=202)
def replay(here: Here, run_id: RunId, body: schemas.ReplayBody) -> Response:
    """Begins a replay by a worker that has the agent's code. Performs nothing and changes nothing."""
    run = here.reader.run(run_id)
    needs = "" if run.engine == "generic" and body.agent is None else _needs(here, run, body.agent)
    spec: dict[str, Json] = body.model_dump(mode="json")
    return reply({"job": job_document(here, _begin(here, "replay", run.id, spec, (), needs))}, 202)


@router.post("/runs/{run_id}/resume", response_model=schemas.Started, status_code=202)
def resume(here: Here, run_id: RunId, trace: CalledFrom) -> Response:
    """Goes on with a run whose process was killed."""
    run = here.reader.run(run_id)
    if run.status != "interrupted":
        raise Refused(f"run {run.id} is {run.status}: only an interrupted run goes on", reason="not_interrupted")
    check_here(here.store, run.id)
    needs = "" if run.engine == "generic" else _needs(here, run, None)
    return reply({"job": job_document(here, _begin(here, "resume", run.id, _trace(trace), (run.id,), needs))}, 202)


# --- how they go ------------------------------------------------------------------------------------------------------


@router.get("/jobs", response_model=schemas.JobPage)
def list_jobs(
    here: Here,
    status: Annotated[JobStatus | None, Query()] = None,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Jobs, newest first."""
    table = jobs_of(here)
    items = [job_document(here, job) for job in table.jobs(status, first=first, limit=limit)]
    return reply(page(items, table.count(status), first))


@router.get("/jobs/stream", response_class=Response, responses=EVENTS)
def jobs_stream(
    here: Here,
    last_event_id: LastEventId = None,
    since: Annotated[int, Query(ge=0, le=2**53, description="Job number up to which everything is known.")] = 0,
) -> Response:
    """All jobs as they change: `job` {job}. The id is the job's number; `Last-Event-ID` goes over `since`."""
    return stream_of(here, JobFeed(here, None, int(last_event_id) if last_event_id is not None else since))


@router.get("/jobs/{job_id}", response_model=schemas.Job)
def one_job(here: Here, job_id: JobId) -> Response:
    """One job."""
    return reply(job_document(here, _found(here, job_id)))


def _found(here: Context, job_id: str) -> Job:
    job = jobs_of(here).get(job_id)
    if job is None:
        raise NotFound(f"no job {job_id!r}", hint="GET /api/jobs lists what there is", reason="job_not_found")
    return job


@router.get("/jobs/{job_id}/stream", response_class=Response, responses=EVENTS)
def job_stream(here: Here, job_id: JobId) -> Response:
    """A job as it goes: `job` {job}, at last `end` {status}."""
    return stream_of(here, JobFeed(here, job_id, 0))


@router.post("/jobs/{job_id}/cancel", response_model=schemas.Job)
def cancel(here: Here, job_id: JobId) -> Response:
    """Ends a job: at once while it waits for a worker, else as soon as its fork sees it."""
    return reply(job_document(here, jobs_of(here).cancel(job_id)))


@router.post("/jobs/{job_id}/answer", response_model=schemas.Job)
def answer(here: Here, job_id: JobId, body: schemas.AnswerBody) -> Response:
    """Answers what a fork asks a person; who and when is recorded on the step."""
    failed = body.error is not None
    said = Answered(body.error if failed else body.result, failed=failed, by=body.who, at=now())
    return reply(job_document(here, jobs_of(here).answer(job_id, body.question, said)))


@router.get("/workers", response_model=schemas.Workers)
def workers(here: Here) -> Response:
    """Who does jobs just now."""
    found = jobs_of(here).workers()
    return reply(
        {
            "items": [
                {
                    "id": worker.id,
                    "agents": list(worker.agents),
                    "host": worker.owner.host,
                    "pid": worker.owner.pid,
                    "seen_at": worker.seen_at,
                }
                for worker in found
            ]
        }
    )


@router.get("/reports", response_model=schemas.ReportPage)
def reports(
    here: Here,
    run: Annotated[str | None, Query(max_length=500, description="Only replays of this run.")] = None,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Replays that were done as jobs, newest first."""
    done, total = replays_of(here, run, first=first, limit=limit)
    return reply(page([_report(job) for job in done], total, first))


@router.get("/reports/{job_id}", response_model=schemas.ReportDetail)
def one_report(here: Here, job_id: JobId) -> Response:
    """One replay, with its first divergence from both sides."""
    job = _found(here, job_id)
    if job.kind != "replay" or job.status != "done":
        raise NotFound(f"job {job_id!r} has no report", reason="no_report")
    return reply({**_report(job), "source": _source(here, job)})


def _source(here: Context, job: Job) -> list[dict[str, Any]] | None:
    report = job.result if isinstance(job.result, dict) else {}
    divergence = report.get("divergence")
    caller = divergence.get("caller") if isinstance(divergence, dict) else None
    return (
        lines_around(here.settings.root, caller.get("file"), caller.get("line")) if isinstance(caller, dict) else None
    )


def _report(job: Job) -> dict[str, Any]:
    passed = job.result.get("exit_code") == 0 if isinstance(job.result, dict) else None
    return {"id": job.id, "run_id": job.parent, "at": job.ended_at, "passed": passed, "report": job.result}
