"""Cancel, while own code waits inside of a call: the job ends soon, its run as cancelled, and the worker goes on with the next."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.words.run import Run
from tests.held import HELD
from tests.server.answers import good, refused
from tests.server.serving import TOKEN, client_of
from tests.server.test_jobs import DONE, ended
from tests.server.test_worker import started

pytestmark = pytest.mark.faults

AGENTS = (
    HELD
    + """
import os
import agentloupe as loupe
from openai import OpenAI

@loupe.tool(effect="write")
def pay(amount: int) -> str:
    if (HERE / "slow").exists():
        held()
    if (HERE / "die").exists():
        os._exit(1)
    return "paid"

@loupe.agent(name="payer")
def payer(amount: int) -> str:
    client = loupe.wrap(OpenAI(api_key="none", base_url=os.environ["LLM_BASE_URL"], max_retries=0))
    asked = [{"role": "user", "content": "and then?"}]
    said = client.chat.completions.create(model="m", messages=asked).choices[0].message.content
    if (HERE / "quits").exists():
        os._exit(7)
    if (HERE / "stuck").exists():
        held()
    pay(amount)
    return said
"""
)


class Model:
    """Answers at once, or holds an answer back."""

    def __init__(self) -> None:
        self.slow = False
        self.asked, self.go_on = threading.Semaphore(0), threading.Event()

    def answer(self, _: HttpRequest) -> HttpReply:
        if self.slow:
            self.asked.release()
            self.go_on.wait(60)
        return json_reply(DONE)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    made = Model()
    with serve(made.answer) as answering:
        monkeypatch.setenv("LLM_BASE_URL", f"{answering.url}/v1")
        yield made
        made.go_on.set()


@pytest.fixture
def recorded(tmp_path: Path, store: Store, model: Model) -> Path:
    """The folder with the agents, one run of which is recorded."""
    (tmp_path / "payers.py").write_text(AGENTS)
    os.mkfifo(tmp_path / "reached")
    call(tmp_path, check=True)
    return tmp_path


def call(folder: Path, *, check: bool) -> None:
    """Runs the agent in a process of its own."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    environ["LOUPE_DB"] = str(folder / "runs.db")
    subprocess.run([sys.executable, "-c", "import payers; payers.payer(5)"], env=environ, check=check, cwd=folder)


def told(folder: Path, *names: str) -> None:
    """How the agent shall behave from now on."""
    for name in names:
        (folder / name).touch()


def model_step(store: Store, run: str) -> int:
    return next(step.idx for step in store.steps(run) if step.kind == "llm")


def test_while_its_model_is_asked(client: TestClient, store: Store, recorded: Path, model: Model) -> None:
    run = store.runs()[0].id
    model.slow = True
    body = {"from_step": model_step(store, run), "engine": "own"}
    with started(recorded, "worker", "payers", "--db", str(recorded / "runs.db")):
        begun = good(client.post(f"/api/runs/{run}/fork", json=body))["job"]
        assert model.asked.acquire(timeout=60)
        assert good(client.post(f"/api/jobs/{begun['id']}/cancel"))["cancelling"]
        assert ended(client, begun["id"])["status"] == "cancelled"
        (made,) = begun["run_ids"]
        row = store.run(made)
        assert row is not None
        assert row.status == "cancelled"
        last = store.steps(made)[-1]
        assert (last.kind, last.status, last.error_class) == ("llm", "cancelled", "KeyboardInterrupt")
        assert verify(store.recording(made)).ok
        model.slow = False
        again = good(client.post(f"/api/runs/{run}/fork", json=body))["job"]["id"]
        assert ended(client, again)["status"] == "done"


@pytest.mark.parametrize("kind", ["fork", "replay"])
@pytest.mark.parametrize("deaf", [False, True], ids=["hears it", "hears nothing"])
def test_while_its_code_is_stuck(client: TestClient, store: Store, recorded: Path, kind: str, deaf: bool) -> None:
    run = store.runs()[0].id
    told(recorded, "stuck", *(["deaf"] if deaf else []))
    body = {"from_step": model_step(store, run), "engine": "own"} if kind == "fork" else {}
    with started(recorded, "worker", "payers:payer", "--db", str(recorded / "runs.db")):
        begun = good(client.post(f"/api/runs/{run}/{kind}", json=body))["job"]
        (recorded / "reached").open().close()  # it is there
        client.post(f"/api/jobs/{begun['id']}/cancel")
        assert ended(client, begun["id"])["status"] == "cancelled"
    rows = [store.run(made) for made in begun["run_ids"]]
    assert [row.status for row in rows if row is not None] == ["cancelled"] * (kind == "fork")
    for row in filter(None, rows):
        assert verify(store.recording(row.id)).ok
        assert (row.coverage == "limited_replay") == deaf  # only where it could not say the last word itself
        assert row.error is not None
        assert ("a person ended it" in row.error) == deaf


@pytest.mark.parametrize("deaf", [False, True], ids=["hears it", "hears nothing"])
def test_in_the_middle_of_a_write(client: TestClient, store: Store, recorded: Path, deaf: bool) -> None:
    """A run that goes on and is cancelled while it pays: nobody knows whether it was paid, and that is what is recorded."""
    told(recorded, "die")
    call(recorded, check=False)
    run = next(row.id for row in store.runs() if row.status == "interrupted")
    (effect,) = good(client.get(f"/api/runs/{run}/effects"))["items"]
    settled = {"call_id": effect["call_id"], "outcome": "not_done", "by": "anna", "why": "the bank has no such payment"}
    good(client.post(f"/api/runs/{run}/effects", json=settled))
    told(recorded, "slow", *(["deaf"] if deaf else []))
    with started(recorded, "worker", "payers", "--db", str(recorded / "runs.db")):
        begun = good(client.post(f"/api/runs/{run}/resume", json={}))["job"]
        (recorded / "reached").open().close()
        client.post(f"/api/jobs/{begun['id']}/cancel")
        assert ended(client, begun["id"])["status"] == "cancelled"
    row = store.run(run)
    assert row is not None
    assert (row.status, row.open_effects) == ("cancelled", 1)
    (pay,) = (step for step in store.steps(run) if step.kind == "tool")
    assert (pay.status, pay.name) == ("unknown", "pay")
    assert verify(store.recording(run)).ok


def test_a_run_that_belongs_elsewhere_is_not_resumed_from_the_page(
    client: TestClient, store: Store, recorded: Path, tmp_path: Path
) -> None:
    told(recorded, "die")
    call(recorded, check=False)
    run = next(row.id for row in store.runs() if row.status == "interrupted")
    export_run(store, run, tmp_path / "run.loupe")
    other = open_url(str(tmp_path / "other.db"), new_fold=Projector)
    (report,) = import_file(other, tmp_path / "run.loupe").runs
    assert any("has not ended" in warning for warning in report.found.warnings)
    with client_of(other, TOKEN) as elsewhere:
        error = refused(elsewhere.post(f"/api/runs/{run}/resume", json={}), 409, "elsewhere")
        assert f"agentloupe resume {run} --take-over" in error["hint"]
        body = {"call_id": "0.1", "outcome": "not_done", "by": "anna", "why": "asked"}
        refused(elsewhere.post(f"/api/runs/{run}/effects", json=body), 409, "elsewhere")
    other.close()


def over(run: Run | None) -> None:
    """Waits until the process of a run is over: its pipes are closed a moment before."""
    assert run is not None
    assert run.owner is not None
    with suppress(ProcessLookupError):
        process = os.pidfd_open(run.owner.pid)
        try:
            assert select.select([process], [], [], 30)[0]
        finally:
            os.close(process)


def test_a_worker_that_is_stopped_leaves_no_child_and_the_next_one_goes_on(
    client: TestClient, store: Store, recorded: Path, model: Model
) -> None:
    run = store.runs()[0].id
    model.slow = True
    body = {"from_step": model_step(store, run), "engine": "own"}
    db = str(recorded / "runs.db")
    with started(recorded, "worker", "payers", "--db", db) as process:
        begun = good(client.post(f"/api/runs/{run}/fork", json=body))["job"]
        assert model.asked.acquire(timeout=60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)  # it is over when its child is, which holds the same pipes
        assert process.returncode == 0
    (cut,) = begun["run_ids"]
    over(store.run(cut))
    row = store.run(cut)
    assert row is not None
    assert (row.status, good(client.get(f"/api/jobs/{begun['id']}"))["status"]) == ("interrupted", "queued")
    model.slow = False
    with started(recorded, "worker", "payers", "--db", db):
        job = ended(client, begun["id"])
    assert (job["status"], job["run_ids"] == [cut]) == ("done", False)
    assert any(f"{cut} was cut off when its worker went" in note for note in job["notes"])


def test_code_that_ends_its_own_process_fails_its_job_and_not_the_worker(
    client: TestClient, store: Store, recorded: Path
) -> None:
    run = store.runs()[0].id
    told(recorded, "quits")
    body = {"from_step": model_step(store, run), "engine": "own"}
    with started(recorded, "worker", "payers", "--db", str(recorded / "runs.db")) as process:
        job = ended(client, good(client.post(f"/api/runs/{run}/fork", json=body))["job"]["id"])
        assert (job["status"], job["error"]["reason"]) == ("failed", "worker_ended")
        assert "ended with code 7" in job["error"]["message"]
        assert process.poll() is None
