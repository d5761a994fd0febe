"""Jobs that people look at in the browser tests: replays that were done, and one job of every state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from agentloupe.ports.ambient import now
from agentloupe.ports.jobs import OPEN_JOBS, Asked, Job, Jobs, Worker
from agentloupe.ports.protocols import Store
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.instrument import agent
from agentloupe.verbs.working import AGENT, Workbench
from tests.e2e.world import get_weather, recorded

__all__ = ["Work", "jobs_in", "make_work", "replayed", "trip_today", "worker"]


def trip(cities: list[str]) -> str:
    """Looks at the weather of cities in turn."""
    return " ".join(get_weather(city) for city in cities)


def trip_today(cities: list[str]) -> str:
    """The same after somebody changed it: the other way round."""
    return " ".join(get_weather(city) for city in reversed(cities))


@dataclass(frozen=True)
class Work:
    """Ids of jobs by what they are good for, and the run that was replayed."""

    run: str
    passed: str
    diverged: str
    waiting: str
    limited: str
    failed: str
    lacking: str


def jobs_in(store: Store) -> Jobs:
    """The table of jobs of a store in a file."""
    assert isinstance(store, SqliteStore)
    return store.jobs


def worker(store: Store, **agents: Any) -> Workbench:
    """A worker in this process, with agents by name."""
    me = Worker(id="worker-here", owner=this_process(), agents=tuple(agents))
    return Workbench(store, jobs_in(store), me, agents, hands=1)


def make_work(store: Store, parent: str) -> Work:
    """Records a run, replays it with its own and with changed code, and leaves jobs in every state."""
    run = recorded(store, agent(name="trip")(trip), ["Beijing", "Shanghai"])
    return Work(
        run=run,
        passed=replayed(store, run, "job-passed", agent(name="trip")(trip)),
        diverged=replayed(store, run, "job-diverged", agent(name="trip")(trip_today)),
        waiting=_held(store, parent, "job-waiting", status="waiting", question=_question(parent)),
        limited=_held(
            store,
            parent,
            "job-limited",
            status="rate_limited",
            retry_after=18.0,
            message="Quota for this minute is used up.",
        ),
        failed=_held(store, parent, "job-failed", status="failed", error=_ERROR),
        lacking=jobs_in(store)
        .add(Job(id="job-lacking", kind="replay", spec={}, runs=(), parent=run, needs=f"{AGENT}nobody"))
        .id,
    )


_ERROR: Final = {
    "reason": "quota",
    "message": "the endpoint answered 429: the quota of this month is used up",
    "hint": "raise the quota, or name another endpoint",
}


def replayed(store: Store, run: str, job_id: str, code: Any) -> str:
    """Replays a run with this code through a worker, and waits; the id of the job."""
    jobs = jobs_in(store)
    jobs.add(Job(id=job_id, kind="replay", spec={"level": "content"}, runs=(), parent=run, needs=f"{AGENT}{job_id}"))
    with worker(store, **{job_id: code}).working():
        _until_over(jobs, job_id)
    return job_id


def _until_over(jobs: Jobs, job_id: str) -> None:
    pause = Event()
    for _ in range(600):
        job = jobs.get(job_id)
        if job is not None and job.status not in OPEN_JOBS:
            return
        pause.wait(0.1)
    raise AssertionError(f"{job_id} did not end")


def _held(store: Store, parent: str, job_id: str, **changes: Any) -> str:
    """A job that a worker of this process holds just so."""
    jobs, me = jobs_in(store), Worker(id=f"worker-{job_id}", owner=this_process(), agents=())
    spec: Mapping[str, Any] = {"from_step": 3}
    jobs.add(
        Job(
            id=job_id,
            kind="fork",
            spec=spec,
            runs=(f"{parent}-fork-{job_id}",),
            parent=parent,
            needs=f"{AGENT}{job_id}",
        )
    )
    taken = jobs.take(me, [f"{AGENT}{job_id}"])
    assert taken is not None
    jobs.tell(job_id, me.id, **changes)
    return job_id


def _question(parent: str) -> Asked:
    return Asked(
        id="q-1",
        run_id=parent,
        tool="get_weather",
        arguments={"city": "Guangzhou"},
        because="miss",
        nearest='nearest recorded call: get_weather in step 2 of desk-1 (city changed: "Shanghai" -> "Guangzhou")',
        asked_at=now(),
    )
