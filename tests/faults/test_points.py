"""Every fault point: a process is killed there, others go on, and everything is right.

The list of points is closed (`ports/faultpoints.py`), and each has its drill here. What must hold after any kill is `Stage.sound`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentloupe.ports.ambient import now
from agentloupe.ports.faultpoints import POINTS
from agentloupe.ports.jobs import Answered, Job
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.effects import open_effects
from agentloupe.verbs.forking import prepare_fork
from agentloupe.verbs.jobspec import wishes_of
from agentloupe.words.canonical import Json
from tests.faults.stage import Stage
from tests.faults.world import World
from tests.fork_support import weather_run

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ORDERS = ("a", "bb", "ccc")
RESULT = ["R-a for 11", "R-bb for 12", "R-ccc for 13"]
CALLS = ("--", "python", "script.py", *ORDERS)
SCRIPT = """
import json, sys
from tests.faults.shop import sell
print(json.dumps([sell(order) for order in sys.argv[1:]]), flush=True)
raise SystemExit  # which nobody inside sees: the run's end is left to whoever sees the exit code
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with World() as world:
        yield Stage(tmp_path, world)


# --- runs -------------------------------------------------------------------------------------------------------------


def went_on(stage: Stage, way: str = "one_by_one") -> None:
    """The run that was cut off goes on to the end that it would have had, and its evidence says so."""
    with stage.store() as store:
        asked = open_effects(store).items
    if asked:
        done = dict(stage.world.done)
        code, _, err = stage.ran("resume", "last", way)
        assert (code, "stops at an open question" in err) == (1, True), err
        assert stage.world.done == done, "it is never tried again blindly"
        stage.sound()
        stage.settle()
        stage.sound()
    assert stage.said("resume", "last", way) == RESULT
    ended_well(stage)


def ended_well(stage: Stage) -> None:
    """There is one run, it has ended as it should, and everything happened once."""
    stage.sound()
    (run,) = stage.runs()
    assert run.status == "ok"
    assert run.owner is None or run.owner.pid > 0
    assert sorted(stage.world.done.values()) == [1] * len(ORDERS)
    assert stage.derives(run.id) == "succeeded"
    assert not stage.db.with_name(f"{stage.db.name}-spool").exists(), "nothing is left to settle"


def recording(nth: int, *orders: str) -> Callable[[Stage, str], None]:
    """The point is reached while a run is recorded, for the nth time."""

    def drill(stage: Stage, point: str) -> None:
        stage.killed("record", "one_by_one", *(orders or ORDERS), fault=f"{point}:{nth}")
        stage.sound()
        (run,) = stage.runs()
        assert run.status == "interrupted"
        if not orders:
            went_on(stage)

    return drill


def before_the_first_event(stage: Stage, point: str) -> None:
    stage.killed("record", "one_by_one", *ORDERS, fault=point)
    stage.sound()
    assert stage.runs() == []
    assert stage.said("record", "one_by_one", *ORDERS) == RESULT
    with stage.store() as store:
        store.gc()
        assert store.size().runs == 1
    ended_well(stage)


def grouped(stage: Stage, point: str) -> None:
    """Settled by the thread in the background, while the program waits for the world."""
    stage.killed("record", "one_by_one", "slow", *ORDERS, fault=point)
    stage.sound()
    assert stage.said("resume", "last", "one_by_one") == ["R-slow for 14", *RESULT]
    stage.sound()


def after_its_end(stage: Stage, point: str) -> None:
    stage.killed("record", "one_by_one", *ORDERS, fault=point)
    code, _, err = stage.ran("-m", "agentloupe", "resume", "last", "--code", "tests.faults.shop:one_by_one")
    assert (code, "it has ended (ok)" in err) == (3, True), err
    (run,) = stage.runs()
    assert stage.result(run.id) == RESULT
    ended_well(stage)


def recovering(stage: Stage, point: str) -> None:
    """Who settles what a killed process left is killed as well."""
    stage.killed("record", "one_by_one", *ORDERS, fault="spool.after_frame:6")
    stage.killed("resume", "last", "one_by_one", fault=point)
    stage.sound()
    went_on(stage)


def resuming(stage: Stage, point: str) -> None:
    stage.killed("record", "one_by_one", *ORDERS, fault="effect.after_outcome:2")
    stage.killed("resume", "last", "one_by_one", fault=point)
    stage.sound()
    stage.killed("resume", "last", "one_by_one", fault=point)
    went_on(stage)


def asking(stage: Stage, point: str) -> None:
    """Killed between an effect and its outcome; who asks the world what became of it is killed too."""
    stage.more["LOOKUP"] = "1"
    for cut in ("effect.after_effect:2", "effect.after_intent:2"):
        stage.killed("record", "one_by_one", *ORDERS, fault=cut)
        stage.killed("resume", "last", "one_by_one", fault=point)
        stage.sound()
        stage.killed("resume", "last", "one_by_one", fault="resume.after_attempt")
        stage.sound()
        assert stage.said("resume", "last", "one_by_one") == RESULT
        stage.sound()
        assert [run.status for run in stage.runs()] == ["ok"] * len(stage.runs())
        assert len(stage.world.done) == len(ORDERS) * len(stage.runs())


def handed_over(stage: Stage, point: str) -> None:
    (stage.folder / "script.py").write_text(SCRIPT)
    stage.killed("-m", "agentloupe", "run", *CALLS, fault=point)
    stage.sound()
    (run,) = stage.runs()
    assert run.status == "interrupted"
    code, out, err = stage.ran("-m", "agentloupe", "resume", "last", *CALLS)
    assert (code, json.loads(out.partition("\n")[0])) == (0, RESULT), err
    ended_well(stage)


def publishing(stage: Stage, point: str) -> None:
    """The sink has the messages, and who brought them dies before that is noted: they come again, the same."""
    stage.more["LOUPE_OUTBOX"] = "true"
    stage.killed("record", "one_by_one", *ORDERS, fault="effect.after_outcome:2")
    stage.killed("publish", "told.jsonl", fault=point)
    before = (stage.folder / "told.jsonl").read_bytes()
    assert before.count(b"tool.finished") == 2
    assert stage.said("resume", "last", "one_by_one") == RESULT
    assert stage.said("publish", "told.jsonl") > before.count(b"\n")
    assert (stage.folder / "told.jsonl").read_bytes().startswith(before * 2)
    stage.told(stage.folder / "told.jsonl")
    ended_well(stage)


# --- forks and jobs ---------------------------------------------------------------------------------------------------


def completion(message: dict[str, Any]) -> HttpReply:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}, "finish_reason": reason}
    return json_reply({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@dataclass
class Asked:
    """How often the model was asked."""

    times: int = 0


@contextmanager
def weather(stage: Stage, *, asks: bool = False) -> Generator[Asked]:
    """A store with the weather run, and a model that answers forks of it; `asks`: first with a call that no cassette has."""
    asked = Asked()
    call = {"name": "calculate", "arguments": json.dumps({"expression": "1 + 1"})}

    def model(request: HttpRequest) -> HttpReply:
        asked.times += 1
        messages = json.loads(request.body)["messages"]
        if asks and asked.times == 1:
            return completion({"tool_calls": [{"id": "c9", "type": "function", "function": call}]})
        return completion({"content": f"done after {len(messages)}"})

    with stage.store() as store:
        weather_run(store)
    with serve(model) as server:
        stage.more["LLM_BASE_URL"] = f"{server.url}/v1"
        yield asked


def forking(stage: Stage, point: str) -> None:
    with weather(stage) as asked:
        parent = stage.runs()[0]
        stage.killed("fork", parent.id, "5", fault=point)
        stage.sound()
        (made,) = (run for run in stage.runs() if run.parent_run_id == parent.id)
        assert (made.status, asked.times) == ("interrupted", 0)
        assert len(stage.calls(made.id)) == 5, "the whole copied beginning, and nothing more"
        stage.said("plain", made.id)
        stage.sound()
        (made,) = (run for run in stage.runs() if run.parent_run_id == parent.id)
        assert (made.status, asked.times) == ("ok", 1)
        assert stage.runs()[-1].head == parent.head
        assert stage.result(made.id)["content"] == "done after 7"


def queue(stage: Stage, **spec: Json) -> Job:
    """Puts a fork of the weather run into the queue of jobs."""
    whole: dict[str, Json] = {"from_step": 5, "control": False, **spec}
    with stage.store() as store:
        pending = prepare_fork("weather-1", None, from_step=5, store=store, wishes=wishes_of(whole))
        whole["arms"] = list[Json](pending.arms)
        return store.jobs.add(Job(id="job-1", kind="fork", spec=whole, runs=tuple(pending.ids), parent="weather-1"))


def job_of(stage: Stage) -> Job:
    with stage.store() as store:
        (job,) = store.jobs.jobs()
    return job


def working(stage: Stage, point: str) -> None:
    with weather(stage) as asked:
        queue(stage, repeat=2)
        stage.killed("work", fault=point)
        stage.sound()
        assert stage.said("work") == ["done"]
        stage.sound()
        job = job_of(stage)
        runs = {run.id: run for run in stage.runs() if run.parent_run_id == "weather-1"}
        assert set(job.runs) == set(runs), "no run was made twice"
        assert [runs[name].status for name in job.runs] == ["ok", "ok"]
        assert asked.times == 2, "nothing was paid twice"


def answered(stage: Stage, point: str) -> None:
    """A person answers, and the worker that asked dies over the answer: it counts, and nobody is asked again."""
    with weather(stage, asks=True) as asked:
        queue(stage, on_miss="human")
        with stage.start("work", fault=point) as child, stage.store() as store:
            while (question := job_of(stage).question) is None:
                assert child.poll() is None
            store.jobs.answer("job-1", question.id, Answered({"result": 2}, False, "anna", now()))
            _, err = child.communicate(timeout=60)
        assert child.returncode == -9, err
        stage.sound()
        assert stage.said("work") == ["done"]
        stage.sound()
        (made,) = (run for run in stage.runs() if run.parent_run_id == "weather-1")
        (human,) = (call for call in stage.calls(made.id) if call.attrs.get("answered_by") == "anna")
        assert human.status == "ok"
        assert asked.times == 2


# --- files ------------------------------------------------------------------------------------------------------------


def exporting(verb: str) -> Callable[[Stage, str], None]:
    """A file or a folder is written: at its place there is nothing, or the whole."""

    def drill(stage: Stage, point: str) -> None:
        assert stage.said("record", "one_by_one", *ORDERS) == RESULT
        words = {
            "export": ("export", "last", "--output", "made"),
            "ledger": ("ledger", "export", "last", "made"),
            "report": ("ledger", "replay", "made"),
        }[verb]
        made = stage.folder / ("made" if verb != "report" else "made/replay_report.json")
        if verb == "export":
            words, made = (*words[:-1], "made.loupe"), stage.folder / "made.loupe"
        if verb == "report":
            stage.ran("-m", "agentloupe", "ledger", "export", "last", "made")
        stage.killed("-m", "agentloupe", *words, fault=point)
        assert not made.exists()
        code, out, err = stage.ran("-m", "agentloupe", *words)
        assert code == 0, out + err
        if verb == "report":
            first = made.read_bytes()
            assert stage.ran("-m", "agentloupe", *words)[0] == 0
            assert made.read_bytes() == first
        elif verb == "ledger":
            assert "state=succeeded" in stage.ran("-m", "agentloupe", "ledger", "replay", "made")[1]
        else:
            whole = made.read_bytes()
            assert stage.ran("-m", "agentloupe", *words, "--force")[0] == 0
            assert made.read_bytes() == whole
        ended_well(stage)

    return drill


# --- the list ---------------------------------------------------------------------------------------------------------

DRILLS: dict[str, Callable[[Stage, str], None]] = {
    "start.after_row": before_the_first_event,
    "spool.before_frame": recording(4),
    "spool.after_frame": recording(5),
    "spool.after_sync": recording(3),
    "flusher.before_flush": grouped,
    "settle.after_head": recording(2),
    "settle.after_bodies": recording(2),
    "settle.after_events": recording(2),
    "settle.before_commit": recording(2),
    "settle.after_commit": recording(2),
    "recover.before_commit": recovering,
    "recover.after_commit": recovering,
    "check.after_check": recording(2),
    "run.before_finish": recording(1),
    "run.after_finish": after_its_end,
    "run.handed_over": handed_over,
    "effect.after_intent": recording(2),
    "effect.after_effect": recording(2),
    "effect.after_outcome": recording(2),
    "resume.after_owner": resuming,
    "resume.after_attempt": resuming,
    "resume.after_unknown": asking,
    "resume.after_lookup": asking,
    "outbox.after_delivery": publishing,
    "fork.after_prefix": forking,
    "job.after_claim": working,
    "job.after_answer": answered,
    "job.after_work": working,
    "job.after_finish": working,
    "file.before_rename": exporting("report"),
    "export.before_rename": exporting("export"),
    "ledger.after_receipts": exporting("ledger"),
    "ledger.before_rename": exporting("ledger"),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_point_leaves_everything_right(stage: Stage, point: str) -> None:
    assert point in DRILLS, "a new point needs its drill"
    DRILLS[point](stage, point)


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("settle.")])
def test_a_kill_while_it_is_settled_beside_the_program(stage: Stage, point: str) -> None:
    grouped(stage, f"{point}:2")


@pytest.mark.parametrize("point", ["start.after_row", "fork.after_prefix", "run.before_finish", "run.after_finish"])
def test_a_job_goes_on_after_a_kill_in_its_run(stage: Stage, point: str) -> None:
    working(stage, point)
