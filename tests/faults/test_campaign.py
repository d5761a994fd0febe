"""Random kills: processes die wherever it strikes them, others go on, and in the end everything is as if nothing had been.

A story is a folder with a store in which a program is killed so many times: in what the world was asked for, at a fault point,
or some microseconds after one. Between the kills, and in the end, `Stage.sound` must hold. The choices come from a seed
(`FAULTS_SEED`, and the story's number); what a process has done when it strikes is the machine's. A window that is found
here becomes a fault point.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentloupe.ports.jobs import OPEN_JOBS, Job
from agentloupe.providers.loopback import HttpReply, HttpRequest, serve
from agentloupe.verbs.forking import prepare_fork
from agentloupe.verbs.jobspec import wishes_of
from agentloupe.words.canonical import Json
from agentloupe.words.run import Run
from tests.faults.stage import Stage
from tests.faults.test_points import ORDERS, RESULT, completion
from tests.faults.world import Kill, World
from tests.fork_support import weather_run
from tests.support import some_of

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

SEED = int(os.environ.get("FAULTS_SEED", "5"))
KILLS = 6
"""In one story."""
STORIES = 10
"""Of each kind; `make test` takes the first, `make test-all` all."""

STORING = ("spool.before_frame", "spool.after_frame", "settle.after_head", "settle.after_bodies", "settle.after_events")
STORED = (*STORING, "settle.before_commit", "settle.after_commit", "run.before_finish", "run.after_finish")
EFFECTS = (
    "effect.after_intent",
    "effect.after_effect",
    "effect.after_outcome",
    "spool.after_sync",
    "check.after_check",
)
ASKING = ("resume.after_unknown", "resume.after_lookup")
RESUMING = ("resume.after_owner", "resume.after_attempt", "recover.before_commit", "recover.after_commit")
JOBS = ("job.after_claim", "job.after_work", "job.after_finish")


@dataclass
class Striker:
    """Kills programs at random moments.

    Attributes:
        kills: how many it has killed.
        asked: how often the model was asked.
    """

    stage: Stage
    chance: random.Random
    kills: int = 0
    asked: int = 0
    log: list[str] = field(default_factory=list)
    _model: Kill | None = None

    def strike(self, points: Sequence[str], *words: str, world: int = 0, model: int = 0) -> None:
        """Runs a program and kills it in the middle, if it comes that far.

        Args:
            points: the fault points that it may reach.
            words: the program.
            world, model: how often it may ask those; 0: it does not.
        """
        ways: list[Callable[..., tuple[str, int]]] = [self._at_point, self._behind_point]
        ways += [self._in_world] * 2 * bool(world) + [self._in_model] * 2 * bool(model)
        how, code = self.chance.choice(ways)(points, words, world or model)
        assert code in (0, -signal.SIGKILL), f"{words} ended with {code}, {how}; {self}"
        self.kills += code != 0
        self.log.append(f"{words[0]} {how} {'killed' if code else 'ended'}")

    def __str__(self) -> str:
        return f"seed {SEED}, so far: {'; '.join(self.log)}"

    def _run(self, words: Sequence[str], fault: str = "") -> int:
        code, _, err = self.stage.ran(*words, fault=fault)
        assert code in (0, -signal.SIGKILL), f"{err}\n{self}"
        return code

    def _at_point(self, points: Sequence[str], words: Sequence[str], most: int) -> tuple[str, int]:
        fault = f"{self.chance.choice(points)}:{self.chance.randint(1, 3)}"
        return f"at {fault}", self._run(words, fault)

    def _behind_point(self, points: Sequence[str], words: Sequence[str], most: int) -> tuple[str, int]:
        """The program stands still at a point; then it runs on for a moment."""
        fault = f"{self.chance.choice(points)}:{self.chance.randint(1, 3)}"
        moment = self.chance.randint(0, 5000)
        with self.stage.start(*words, fault=f"{fault}:stop") as child:
            found = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
            if found is not None and found.si_code == os.CLD_STOPPED:
                child.send_signal(signal.SIGCONT)
                spin(moment)
                child.kill()
            _, err = child.communicate(timeout=100)
        assert child.returncode in (0, -signal.SIGKILL), f"{err}\n{self}"
        return f"{moment} us after {fault}", child.returncode

    def _in_world(self, points: Sequence[str], words: Sequence[str], most: int) -> tuple[str, int]:
        kill = self._when(most)
        self.stage.world.arm(kill)
        code = self._run(words)
        self.stage.world.arm(None)
        return f"in the world, {kill}", code

    def _in_model(self, points: Sequence[str], words: Sequence[str], most: int) -> tuple[str, int]:
        kill = self._when(most)
        self._model = Kill(kill.nth + self.asked, kill.when, kill.microseconds)
        code = self._run(words)
        self._model = None
        return f"in the model, {kill}", code

    def _when(self, most: int) -> Kill:
        when = self.chance.choice(("before", "after", "answered"))
        return Kill(self.chance.randint(1, most), when, self.chance.randint(0, 3000))

    def answer(self, request: HttpRequest) -> HttpReply:
        """The model: asks for one calculation that the parent made too, then says something; may kill whoever asks."""
        self.asked += 1
        kill = self._model if self._model is not None and self._model.nth == self.asked else None
        if kill is not None:
            spin(0 if kill.when == "before" else kill.microseconds)
            os.kill(self.stage.pid.result(timeout=60), signal.SIGKILL)
        messages = json.loads(request.body)["messages"]
        if len(messages) > 5:
            return completion({"content": f"done after {len(messages)}"})
        function = {"name": "calculate", "arguments": json.dumps({"expression": "17.7 - 11.9"})}
        return completion({"tool_calls": [{"id": "c9", "type": "function", "function": function}]})


def spin(microseconds: int) -> None:
    """Lets a moment pass that is too short to sleep for."""
    until = time.monotonic_ns() + 1000 * microseconds
    while time.monotonic_ns() < until:
        pass


@contextmanager
def striker(folder: Path, kind: str, number: int) -> Generator[Striker]:
    """Of one story, with its world."""
    with World() as world:
        made = Striker(Stage(folder, world), random.Random(f"{SEED} {kind} {number}"))
        try:
            yield made
        except (AssertionError, subprocess.TimeoutExpired) as wrong:
            wrong.add_note(str(made))
            raise


def some(kind: str) -> list[Any]:
    """The numbers of the stories of a kind."""
    return some_of([(kind, number) for number in range(STORIES)], lambda number: number == 0)


def open_runs(stage: Stage) -> list[Run]:
    """Runs that were cut off."""
    return [run for run in stage.runs() if run.status == "interrupted"] if stage.db.exists() else []


# --- recording, effects, resume ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "number"), [*some("one_by_one"), *some("in_threads"), *some("in_tasks")])
def test_effects_happen_once_however_often_the_agent_is_killed(tmp_path: Path, way: str, number: int) -> None:
    with striker(tmp_path, way, number) as by:
        stage = by.stage
        if number % 2:
            stage.more["LOOKUP"] = "1"  # the tools find out by themselves; else a person is asked
        for _ in range(8 * KILLS):
            if by.kills == KILLS:
                break
            cut = next(iter(open_runs(stage)), None)
            if cut is None:
                by.strike(("start.after_row", *STORED, *EFFECTS), "record", way, *ORDERS, world=2 * len(ORDERS))
            else:
                by.strike((*ASKING[: 2 * (number % 2)], *RESUMING, *STORED, *EFFECTS), "resume", cut.id, way, world=3)
            if by.chance.random() < 0.5:
                stage.sound()
            if not number % 2:
                stage.settle()
        assert by.kills == KILLS
        for run in open_runs(stage):
            assert stage.said("resume", run.id, way) == RESULT
        stage.sound()
        for run in stage.runs():
            assert (run.status, stage.result(run.id)) == ("ok", RESULT)
            each = dict.fromkeys(("clock", "find", "charge", "check", "state"), len(ORDERS))
            kinds = {"afind": "find", "acharge": "charge"}
            found = Counter(
                kinds.get(call.name, call.name) if call.kind == "tool" else call.kind for call in stage.calls(run.id)
            )
            assert {name: found[name] for name in each} == each, "the same calls as of a run that was never killed"
            assert stage.derives(run.id) == "succeeded"
            assert stage.said("replay", run.id, way) == ["pass", True]
        assert len(stage.world.done) == len(ORDERS) * len(stage.runs())


@pytest.mark.parametrize(("kind", "number"), some("outbox"))
def test_the_outside_is_told_of_everything_at_least_once_and_in_order(tmp_path: Path, kind: str, number: int) -> None:
    with striker(tmp_path, kind, number) as by:
        stage, file = by.stage, tmp_path / "told.jsonl"
        stage.more |= {"LOUPE_OUTBOX": "true", "LOOKUP": "1"}
        for _ in range(8 * KILLS):
            if by.kills == KILLS:
                break
            cut = next(iter(open_runs(stage)), None)
            if cut is not None and by.chance.random() < 0.5:
                by.strike(
                    ("outbox.after_delivery", "recover.before_commit", "recover.after_commit"), "publish", str(file)
                )
            elif cut is not None:
                by.strike((*ASKING, *RESUMING, *STORED, *EFFECTS), "resume", cut.id, "one_by_one", world=3)
            else:
                by.strike((*STORED, *EFFECTS), "record", "one_by_one", *ORDERS, world=2 * len(ORDERS))
            if by.chance.random() < 0.5:
                stage.sound()
        assert by.kills == KILLS
        for run in open_runs(stage):
            assert stage.said("resume", run.id, "one_by_one") == RESULT
        stage.said("publish", str(file))
        stage.sound()
        stage.told(file)


# --- forks and jobs ---------------------------------------------------------------------------------------------------


@contextmanager
def forks(by: Striker) -> Generator[Run]:
    """The parent of all forks, and the model that is asked by them. In the end all of that must be right."""
    stage = by.stage
    with stage.store() as store:
        weather_run(store)
    (parent,) = stage.runs()
    with serve(by.answer) as server:
        stage.more["LLM_BASE_URL"] = f"{server.url}/v1"
        yield parent
    stage.sound()
    made = [run for run in stage.runs() if run.id != parent.id]
    assert {run.parent_run_id for run in made} == {parent.id}
    for run in made:
        assert (run.status, stage.result(run.id)["content"]) == ("ok", "done after 7")
        assert [call.source for call in stage.calls(run.id) if call.name == "calculate"] == ["cassette"]
    assert 2 * len(made) <= by.asked <= 2 * len(made) + by.kills, "only what a kill took is paid again"
    (after,) = (run for run in stage.runs() if run.id == parent.id)
    assert after == parent
    assert not stage.world.done


@pytest.mark.parametrize(("kind", "number"), some("forks"))
def test_forks_that_are_killed_go_on(tmp_path: Path, kind: str, number: int) -> None:
    with striker(tmp_path, kind, number) as by, forks(by):
        stage = by.stage
        for _ in range(8 * KILLS):
            if by.kills == KILLS:
                break
            cut = next(iter(open_runs(stage)), None)
            if cut is None:
                points = ("start.after_row", "fork.after_prefix", *STORED)
                by.strike(points, "fork", "weather-1", "3", model=2)
            else:
                by.strike((*RESUMING, *STORED), "plain", cut.id, model=2)
            if by.chance.random() < 0.5:
                stage.sound()
        assert by.kills == KILLS
        for run in open_runs(stage):
            stage.said("plain", run.id)


@pytest.mark.parametrize(("kind", "number"), some("jobs"))
def test_jobs_are_done_once_however_often_their_worker_is_killed(tmp_path: Path, kind: str, number: int) -> None:
    with striker(tmp_path, kind, number) as by, forks(by):
        stage = by.stage
        for n in range(8 * KILLS):
            if by.kills == KILLS:
                break
            if not any(job.status in OPEN_JOBS for job in jobs(stage)):
                queue(stage, f"job-{n}")
            points = ("start.after_row", "fork.after_prefix", *STORED, *RESUMING[1:], *JOBS, *JOBS)
            by.strike(points, "work", model=4)
            if by.chance.random() < 0.5:
                stage.sound()
        assert by.kills == KILLS
        assert set(stage.said("work")) == {"done"}
        made = [name for job in jobs(stage) for name in job.runs]
        assert sorted(made) == sorted(run.id for run in stage.runs() if run.parent_run_id), "no run was made twice"


def jobs(stage: Stage) -> list[Job]:
    with stage.store() as store:
        return store.jobs.jobs()


def queue(stage: Stage, name: str) -> None:
    """Puts two forks of the parent into the queue."""
    spec: dict[str, Json] = {"from_step": 3, "control": False, "repeat": 2}
    with stage.store() as store:
        pending = prepare_fork("weather-1", None, from_step=3, store=store, wishes=wishes_of(spec))
        spec["arms"] = list[Json](pending.arms)
        store.jobs.add(Job(id=name, kind="fork", spec=spec, runs=tuple(pending.ids), parent="weather-1"))
