"""What every engine that carries jobs has to do; the table in the store is the first one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentloupe.ports.jobs import Answered, Asked, Job, Jobs, Worker
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.errors import NotFound, OwnerAlive, Refused
from agentloupe.words.run import Owner

HERE = this_process()
DEAD = Owner(HERE.host, HERE.pid, "another start")
ME = Worker(id="me", owner=HERE)
GONE = Worker(id="gone", owner=DEAD)
QUESTION = Asked(id="q1", run_id="r", tool="t", arguments={"big": 2**70}, because="miss", nearest=None, asked_at="")
YES = Answered({"n": 2**64}, failed=False, by="anna", at="2026-04-01T10:00:00.000000Z")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    store = SqliteStore(tmp_path / "runs.db")
    yield store.jobs
    store.close()


def job(id: str = "j1", needs: str = "") -> Job:
    return Job(id=id, kind="fork", spec={"from_step": 2**60}, runs=("r",), parent="p", needs=needs)


def test_a_job_comes_back_as_it_was_put(jobs: Jobs) -> None:
    put = jobs.add(job())
    found = jobs.get("j1")
    assert found == put
    assert (put.status, put.number) == ("queued", 1)
    assert found is not None
    assert found.spec == {"from_step": 2**60}
    assert jobs.get("nobody") is None


def test_jobs_are_listed_newest_first_and_counted(jobs: Jobs) -> None:
    for n in range(3):
        jobs.add(replace(job(f"j{n}"), created_at=f"2026-04-01T10:00:0{n}.000000Z"))
    assert [one.id for one in jobs.jobs()] == ["j2", "j1", "j0"]
    assert [one.id for one in jobs.jobs(first=1, limit=1)] == ["j1"]
    assert (jobs.count(), jobs.count("queued"), jobs.count("done")) == (3, 3, 0)


def test_the_oldest_job_is_taken_once_by_who_has_what_it_needs(jobs: Jobs) -> None:
    jobs.add(job("old", needs="agent:a"))
    jobs.add(job("new"))
    assert taken(jobs, ME) == "new"
    assert taken(jobs, ME) is None
    assert taken(jobs, ME, "agent:a") == "old"


def taken(jobs: Jobs, worker: Worker, *needs: str) -> str | None:
    found = jobs.take(worker, ["", *needs])
    return found.id if found is not None else None


def test_many_workers_never_take_one_job_twice(jobs: Jobs) -> None:
    for n in range(12):
        jobs.add(job(f"j{n}"))
    got: list[str] = []

    def work(name: str) -> None:
        while (one := taken(jobs, Worker(id=name, owner=HERE))) is not None:
            got.append(one)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(f"j{n}" for n in range(12))


def test_a_job_of_a_process_that_is_gone_is_taken_up(jobs: Jobs) -> None:
    jobs.add(job())
    assert taken(jobs, GONE) == "j1"
    assert taken(jobs, ME) == "j1"
    with pytest.raises(OwnerAlive, match="j1"):
        jobs.tell("j1", "gone", status="done")
    with pytest.raises(OwnerAlive):
        jobs.renew("j1", "gone")
    assert jobs.renew("j1", "me").worker == "me"


def test_a_job_that_is_given_back_waits_again(jobs: Jobs) -> None:
    jobs.add(job())
    taken(jobs, ME)
    jobs.give_back("j1", "me")
    found = jobs.get("j1")
    assert found is not None
    assert (found.status, found.worker) == ("queued", None)
    assert taken(jobs, ME) == "j1"


def test_what_is_told_changes_the_job_and_its_number(jobs: Jobs) -> None:
    jobs.add(job("a"))
    jobs.add(job("b"))
    taken(jobs, ME)
    told = jobs.tell("a", "me", status="rate_limited", retry_after=2.5, message="later")
    assert (told.status, told.retry_after) == ("rate_limited", 2.5)
    assert [one.id for one in jobs.since(0)] == ["b", "a"]
    assert [one.id for one in jobs.since(told.number - 1)] == ["a"]
    assert jobs.since(told.number) == []
    done = jobs.tell("a", "me", status="done", result={"n": 1})
    assert done.ended_at is not None
    assert done.retry_after is None
    with pytest.raises(OwnerAlive):
        jobs.tell("a", "me", status="running")
    with pytest.raises(NotFound):
        jobs.tell("nobody", "me", status="done")


def test_a_job_that_waits_is_cancelled_at_once_and_one_that_runs_is_marked(jobs: Jobs) -> None:
    jobs.add(job("queued"))
    assert jobs.cancel("queued").status == "cancelled"
    assert taken(jobs, ME) is None
    jobs.add(job("running"))
    taken(jobs, ME)
    marked = jobs.cancel("running")
    assert (marked.status, marked.cancelled) == ("running", True)
    assert jobs.renew("running", "me").cancelled
    assert jobs.tell("running", "me", status="cancelled").status == "cancelled"
    assert jobs.cancel("running").status == "cancelled"
    jobs.add(job("orphan"))
    taken(jobs, GONE)
    assert jobs.cancel("orphan").status == "cancelled"
    with pytest.raises(NotFound):
        jobs.cancel("nobody")


def test_a_question_is_answered_once(jobs: Jobs) -> None:
    jobs.add(job())
    taken(jobs, ME)
    assert jobs.tell("j1", "me", status="waiting", question=QUESTION).question == QUESTION
    assert jobs.answered("q1") is None
    with pytest.raises(Refused):
        jobs.answer("j1", "another", YES)
    told = jobs.answer("j1", "q1", YES)
    assert (told.status, told.question) == ("running", None)
    assert jobs.answered("q1") == YES
    with pytest.raises(Refused, match="any more"):
        jobs.answer("j1", "q1", YES)
    with pytest.raises(NotFound):
        jobs.answer("nobody", "q1", YES)


def test_workers_are_there_while_their_process_lives(jobs: Jobs) -> None:
    jobs.hello(replace(ME, agents=("a", "b")))
    jobs.hello(GONE)
    assert [(worker.id, worker.agents) for worker in jobs.workers()] == [("me", ("a", "b"))]
    jobs.bye("me")
    assert jobs.workers() == []


def test_jobs_are_no_evidence(tmp_path: Path) -> None:
    from tests.made import weather_like

    store = SqliteStore(tmp_path / "runs.db")
    recording = weather_like()
    from agentloupe.engine.project import Projector

    store.insert("made", recording.events, recording.get, Projector)
    store.jobs.add(job())
    assert store.holds("made")
    assert store.check() == []
    store.close()
