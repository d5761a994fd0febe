"""Does jobs: forks, replays and resumes, by whoever has the code that they need.

    worker = Worker(id=..., owner=this_process())
    with Workbench(store, jobs, worker, agents={}).working():
        ...                               # takes jobs up until the block ends

What is done is written down as it happens, in the runs themselves; a job's row only says how it goes. A job that was
taken up by a process that is gone goes on here: runs of it that ended are kept, one that was interrupted goes on from its own events
(a fork of own code, which cannot, is made again under another name), and the rest is made. What needs the user's own code is done in a
process of its own where the worker knows how to load it, so that a cancel ends it also while it waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from agentloupe.engine.policy import Given, Question
from agentloupe.ports.ambient import arriving, now
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.jobs import Asked, Job, Jobs, JobStatus, Worker
from agentloupe.ports.progress import Progress
from agentloupe.ports.protocols import Store
from agentloupe.verbs.forkfamily import Family, ForkWishes, new_fork_id
from agentloupe.verbs.jobspec import from_step_of, wishes_of
from agentloupe.verbs.workchild import done_apart
from agentloupe.words.canonical import Json, digest
from agentloupe.words.errors import LoupeError, OwnerAlive, ReplayMismatch, ResumeRefused
from agentloupe.words.trace import TRACEPARENT, TRACESTATE, TraceContext, read_trace

__all__ = ["AGENT", "Workbench"]

_LOG = logging.getLogger("agentloupe")

AGENT: Final = "agent:"
"""Before the name of an agent that a job needs."""
_LOOK: Final = 0.2
"""Seconds between looks at the queue, at a mark of cancelling, at an answer."""
_BEAT: Final = 2.0
_TRIES: Final = 3
"""How often a fork of own code is begun again after its worker went."""

Agent = Callable[..., Any]


@dataclass(slots=True)
class Workbench:
    """Takes jobs up and does them, several at once; those that need an agent's own code one after another.

    Attributes:
        store, jobs: where runs and jobs are.
        worker: who works here.
        agents: by name; the code that was loaded on purpose.
        modules: how another process loads it (`importing.agents_of`); without them it runs in this one.
        hands: how many jobs at once.
    """

    store: Store
    jobs: Jobs
    worker: Worker
    agents: Mapping[str, Agent] = field(default_factory=dict[str, "Agent"])
    modules: Sequence[str] = ()
    hands: int = 4
    _over: threading.Event = field(default_factory=threading.Event)
    _held: dict[str, Cancel] = field(default_factory=dict[str, Cancel])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def working(self) -> Generator[None]:
        """Works while inside; what is not done when it ends goes back into the queue."""
        self.jobs.hello(self.worker)
        threads = [threading.Thread(target=self._look_after, name="loupe-worker-beat", daemon=True)]
        threads += [threading.Thread(target=self._work, name="loupe-worker", daemon=True) for _ in range(self.hands)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Takes nothing up any more, and gives back what is being done: whoever takes it up goes on with its runs."""
        self._over.set()
        with self._lock:
            left = list(self._held.items())
        for job_id, _ in left:
            with suppress(LoupeError):
                self.jobs.give_back(job_id, self.worker.id)
        with suppress(LoupeError):
            self.jobs.bye(self.worker.id)

    def done(self, job: Job, cancel: Cancel) -> tuple[JobStatus, dict[str, Any]]:
        """Does a job that was taken, in this thread; how it ended, and what else its row shall say."""
        return _Doing(self, job, cancel).done()

    # --- threads ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        needs = ["" if not self.agents else f"{AGENT}{name}" for name in self.agents or ("",)]
        while not self._over.is_set():
            job = None
            try:
                job = self.jobs.take(self.worker, needs)
            except LoupeError:
                _LOG.warning("the queue of jobs cannot be read", exc_info=True)
            if job is None:
                self._over.wait(_LOOK)
            else:
                self._do(job)

    def _look_after(self) -> None:
        """Keeps the leases, and sees when a person wants a job to end."""
        beats = 0
        while not self._over.wait(_LOOK):
            beats += 1
            with self._lock:
                held = list(self._held.items())
            for job_id, cancel in held:
                with suppress(LoupeError):
                    job = self.jobs.renew(job_id, self.worker.id) if beats % 10 == 0 else self.jobs.get(job_id)
                    if job is not None and job.cancelled:
                        cancel.cancel("a person ended it")
            if beats * _LOOK % _BEAT < _LOOK:
                with suppress(LoupeError):
                    self.jobs.hello(self.worker)

    def _do(self, job: Job) -> None:
        reach("job.after_claim")
        cancel = Cancel()
        with self._lock:
            self._held[job.id] = cancel
        try:
            status, changes = done_apart(self, job, cancel) if job.needs and self.modules else self.done(job, cancel)
            reach("job.after_work")
            if not self._over.is_set():
                self.jobs.tell(job.id, self.worker.id, status=status, **changes)
            reach("job.after_finish")
        except OwnerAlive:
            _LOG.warning("job %s is another worker's now", job.id)
        except Exception as wrong:  # noqa: BLE001  # the thread goes on with the next job
            _LOG.error("job %s failed", job.id, exc_info=wrong)
            fault: dict[str, Json] = {"reason": "internal", "message": type(wrong).__name__, "hint": None}
            with suppress(LoupeError):
                self.jobs.tell(job.id, self.worker.id, status="failed", error=fault)
        finally:
            with self._lock:
                self._held.pop(job.id, None)


@dataclass(slots=True)
class _Doing:
    """One job being done."""

    bench: Workbench
    job: Job
    cancel: Cancel

    def done(self) -> tuple[JobStatus, dict[str, Any]]:
        """Does it; how it ended, and what else its row shall say."""
        try:
            with arriving(_called_from(self.job)):
                result = self._by_kind()
        except LoupeError as wrong:
            if self.cancel.cancelled:
                return "cancelled", {}
            error: dict[str, Json] = {"reason": wrong.reason, "message": wrong.message, "hint": wrong.hint}
            wait = getattr(wrong, "retry_after", None)
            return "failed", {"error": error, "message": wrong.message, **({"retry_after": wait} if wait else {})}
        except ReplayMismatch as wrong:
            return "failed", {"error": {"reason": wrong.kind, "message": wrong.message, "hint": None}}
        return ("cancelled" if self.cancel.cancelled else "done"), {"result": result, "message": None}

    def _by_kind(self) -> Json:
        match self.job.kind:
            case "fork":
                return self._fork()
            case "replay":
                return self._replay()
            case "resume":
                return self._resume()

    def _agent(self) -> Agent | None:
        name = self.job.needs.removeprefix(AGENT)
        return self.bench.agents[name] if self.job.needs else None

    # --- forks --------------------------------------------------------------------------------------------------------

    def _fork(self) -> Json:
        """Makes the runs that are not there yet; one that was interrupted goes on from its own events."""
        store, job = self.bench.store, self.job
        agent = self._agent()
        wishes = replace(wishes_of(job.spec), cancel=self.cancel, watch=self._watch, ask=self._ask)
        family = Family(store, job.parent, from_step_of(job.spec), agent, None, wishes)
        arms = cast("Sequence[str | None]", job.spec["arms"])
        notes: list[str] = []
        with _clients(agent):
            for run_id, arm in zip(job.runs, arms, strict=True):
                if self.cancel.cancelled:
                    break
                there = store.run(run_id)
                if there is None:
                    family.make(arm, run_id)
                elif there.status not in {"running", "waiting", "interrupted"}:
                    continue
                elif family.engine == "own":
                    again = self._instead_of(run_id)
                    notes.append(f"{run_id} was cut off when its worker went; {again} was made in its place")
                    family.make(arm, again)
                else:
                    self._go_on(run_id, wishes)
        made = self.job.runs
        failed = [run for run_id in made if (run := store.run(run_id)) is not None and run.status == "error"]
        if failed and len(failed) == len(made):
            raise LoupeError(failed[0].error or "every run of it failed", reason="runs_failed")
        return {"notes": list[Json](dict.fromkeys([*notes, *family.said()]))}

    def _instead_of(self, run_id: str) -> str:
        """The name of a run to make in place of one that was cut off: a fork of own code cannot go on by itself.

        Nothing happens twice by that, since a fork runs no tool that writes. The run that was cut off stays as it is.
        Raises `LoupeError` where that has been tried often enough: then the work itself ends its worker.
        """
        tried = cast("int", self.job.spec.get("cut_off") or 0) + 1
        if tried > _TRIES:
            raise LoupeError(
                f"the worker went {tried} times in the middle of this fork",
                hint=f"look where {run_id} ends; the agent's code may end its own process",
                reason="cut_off",
            )
        again = new_fork_id(self.job.parent)
        runs = tuple(again if one == run_id else one for one in self.job.runs)
        spec = {**self.job.spec, "cut_off": tried}
        self.job = self.bench.jobs.tell(self.job.id, self.bench.worker.id, runs=runs, spec=spec)
        return again

    def _go_on(self, run_id: str, wishes: ForkWishes) -> None:
        """Goes on with a run that a process left behind."""
        from agentloupe.verbs.resuming import resume

        try:
            resume(run_id, self._agent(), store=self.bench.store, **_resuming(wishes))
        except ResumeRefused as wrong:
            if wrong.reason != "finished":
                raise

    def _watch(self, progress: Progress) -> None:
        """Puts on the job's row what a person should see; what a run does is told by the run."""
        if progress.what == "rate_limited":
            changes: dict[str, Any] = {"retry_after": progress.seconds, "message": progress.text}
            self._tell("rate_limited", **changes)
        elif progress.what in {"begun", "answered"}:
            self._tell("running", retry_after=None, message=None)

    def _tell(self, status: JobStatus, **changes: Any) -> None:
        with suppress(OwnerAlive):
            row = self.bench.jobs.get(self.job.id)
            if row is not None and (row.status != status or status == "rate_limited"):
                self.bench.jobs.tell(self.job.id, self.bench.worker.id, status=status, **changes)

    def _ask(self, question: Question) -> Json | Given:
        """Asks a person through the table, and waits until they answered or the job is ended."""
        asked = Asked(
            id=digest(["question", question.run_id, question.call_id])[:32],
            run_id=getattr(question, "run_id", None) or (self.job.runs[0] if len(self.job.runs) == 1 else None),
            tool=question.tool,
            arguments=question.arguments,
            because=question.because,
            nearest=question.nearest,
            asked_at=now(),
        )
        if self.bench.jobs.answered(asked.id) is None:  # else the worker that asked died over the answer
            self.bench.jobs.tell(self.job.id, self.bench.worker.id, status="waiting", question=asked)
        while True:
            answered = self.bench.jobs.answered(asked.id)
            if answered is not None:
                reach("job.after_answer")
                value: Json = {"error": answered.value} if answered.failed else answered.value
                return Given(value, by=answered.by)
            if self.cancel.cancelled:
                raise self.cancel.error()
            self.bench._over.wait(_LOOK)  # pyright: ignore[reportPrivateUsage]  # one thing in two classes
            if self.bench._over.is_set():  # pyright: ignore[reportPrivateUsage]
                raise self.cancel.error()

    # --- replays and resumes ------------------------------------------------------------------------------------------

    def _replay(self) -> Json:
        from agentloupe.verbs.isolated import replay_code
        from agentloupe.verbs.patience import PATIENCE_SECONDS
        from agentloupe.verbs.replaying import replay
        from agentloupe.verbs.snapshot import code_version

        spec, agent = self.job.spec, self._agent()
        level = cast("Literal['flow', 'state', 'content']", spec.get("level") or "content")
        until_failure = spec.get("until_failure") is True
        if agent is None:  # forks go on live in this process meanwhile, and a replay would shut their way out
            store, run = self.bench.store, self.job.parent
            report = replay_code(run, store=store, level=level, until_failure=until_failure, patience=PATIENCE_SECONDS)
            return {**report.as_json(), "code": code_version()}
        with _clients(agent):
            report = replay(
                self.job.parent,
                agent,
                store=self.bench.store,
                level=level,
                until_failure=until_failure,
            )
        return {**report.as_json(), "code": code_version()}

    def _resume(self) -> Json:
        from agentloupe.verbs.resuming import resume

        agent = self._agent()
        wishes = ForkWishes(cancel=self.cancel, watch=self._watch, ask=self._ask)
        with _clients(agent):
            resume(self.job.parent, agent, store=self.bench.store, wishes=wishes)
        return None


def _called_from(job: Job) -> TraceContext | None:
    """The place in a trace that the job was asked from."""
    headers = job.spec.get("trace")
    said = headers if isinstance(headers, dict) else {}
    parent, state = said.get(TRACEPARENT), said.get(TRACESTATE)
    return read_trace(parent, state if isinstance(state, str) else None) if isinstance(parent, str) else None


def _clients(agent: Agent | None) -> Any:
    """Own code asks its models through its own clients, which are wrapped meanwhile."""
    if agent is None:
        return nullcontext()
    from agentloupe.verbs.clients import wrapping_clients

    return wrapping_clients()


def _resuming(wishes: ForkWishes) -> dict[str, Any]:
    return {"wishes": wishes}
