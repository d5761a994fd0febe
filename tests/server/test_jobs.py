"""Forks as jobs over HTTP: a real scripted model behind a loopback address, and a worker in this process."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.jobs import Worker
from agentloupe.ports.protocols import Store
from agentloupe.providers.loopback import HttpReply, HttpRequest, completion, error_reply, json_reply, serve
from agentloupe.providers.scripted import ScriptedServer, ask, say
from agentloupe.providers.scripted.answers import Ask
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.working import Workbench
from tests.fork_support import weather_run
from tests.server.answers import good, refused
from tests.server.serving import TOKEN, client_of
from tests.server.test_streams import read
from tests.store.make import Author, dead_owner

DONE = completion(
    id="c", model="m", created=1, message={"role": "assistant", "content": "done"}, finish_reason="stop", usage=None
)
SAYS_MORE = ask(("calculate", {"expression": "(17.7 - 11.9) * 9 / 5"}))


@contextmanager
def worker(store: Store, **agents: Any) -> Generator[Workbench]:
    assert isinstance(store, SqliteStore)
    me = Worker(id="here", owner=this_process(), agents=tuple(agents))
    bench = Workbench(store, store.jobs, me, agents)
    with bench.working():
        yield bench


def ended(client: TestClient, job_id: str) -> dict[str, Any]:
    """The job once it has ended: its stream ends with it."""
    with client.stream("GET", f"/api/jobs/{job_id}/stream") as answer:
        told = read([part.encode() for part in "".join(answer.iter_text()).strip().split("\n\n") if part[0] != ":"])
    assert told[-1][0] == "end"
    return good(client.get(f"/api/jobs/{job_id}"))


def until(client: TestClient, job_id: str, status: str) -> dict[str, Any]:
    """The job once it has a status."""
    with client.stream("GET", f"/api/jobs/{job_id}/stream") as answer:
        for line in answer.iter_lines():
            if line.startswith("event: end"):
                break
            if f'"status":"{status}"' in line:
                break
    job = good(client.get(f"/api/jobs/{job_id}"))
    assert job["status"] == status, job
    return job


@pytest.fixture
def run(store: Store) -> str:
    return weather_run(store)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets the model: a script or a rule."""
    servers: list[ScriptedServer] = []

    def use(script: Any) -> ScriptedServer:
        server = ScriptedServer(script).__enter__()
        servers.append(server)
        monkeypatch.setenv("LLM_BASE_URL", server.url)
        return server

    yield use
    for server in servers:
        server.__exit__(None, None, None)


def test_a_fork_has_its_names_at_once_and_then_is_made(client: TestClient, store: Store, run: str, model: Any) -> None:
    asked = model([SAYS_MORE, say("10.44 F")])
    begun = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 3, "overrides": {"system_prompt": "Brief."}}))
    (name,) = (made["id"] for made in begun["runs"])
    assert begun["controls"] == []
    assert begun["compare_url"] == f"/diff?a={run}&b={name}"
    assert begun["job"]["status"] == "queued"
    assert store.run(name) is None
    with worker(store):
        job = ended(client, begun["job"]["id"])
    assert (job["status"], job["run_ids"], job["error"]) == ("done", [name], None)
    assert job["progress"] == {"runs": 1, "of": 1, "steps": 3, "model_calls": 2, "cost": None}
    assert job["notes"]
    made = good(client.get(f"/api/runs/{name}"))
    assert (made["status"], made["parent_run_id"], made["forked_from_step"], made["misses"]) == ("ok", run, 3, 1)
    assert asked.requests[0]["messages"][0]["content"] == "Brief."


def test_repeats_come_with_controls(client: TestClient, store: Store, run: str, model: Any) -> None:
    model(lambda _: say("done"))
    begun = good(
        client.post(f"/api/runs/{run}/fork", json={"from_step": 5, "repeat": 2, "overrides": {"model": "other"}})
    )
    assert (len(begun["runs"]), len(begun["controls"])) == (2, 2)
    with worker(store):
        job = ended(client, begun["job"]["id"])
    assert job["progress"]["runs"] == 4
    arms = {r["id"]: good(client.get(f"/api/runs/{r['id']}"))["arm"] for r in begun["runs"] + begun["controls"]}
    assert sorted(arms.values()) == ["candidate", "candidate", "control", "control"]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"from_step": 1}, 400, "not_llm"),
        ({"from_step": 77}, 400, "no_step"),
        ({"from_step": -1}, 400, "no_step"),
        ({"from_step": 3, "repeat": 0}, 400, "usage"),
        ({"from_step": 3, "repeat": 4}, 400, "usage"),
        ({"from_step": 3, "overrides": {"sistem_prompt": "x"}}, 400, "usage"),
        ({"from_step": 3, "overrides": {"messages": [{"nothing": 1}]}}, 400, "usage"),
        ({"from_step": 3, "tools": {"calculate": "sandbox:os:system"}}, 400, "sandbox"),
        ({"from_step": 3, "tools": {"calculate": "magic"}}, 400, "usage"),
        ({"from_step": 3, "limits": {"max_steps": -1}}, 400, "limits"),
        ({"from_step": 3, "limits": {"colour": 1}}, 400, "usage"),
        ({"from_step": 3, "live_tools": [{"name": "get_weather"}]}, 400, "no_reason"),
        ({"from_step": 3, "endpoint": "nowhere"}, 400, "usage"),
        ({"from_step": 3, "engine": "own"}, 409, "no_worker"),
        ({"from_step": 3, "agent": "mine"}, 400, "agent"),
        ({"from_step": "middle"}, 422, "asked_wrong"),
        ({}, 422, "asked_wrong"),
        ({"from_step": 3, "surprise": 1}, 422, "asked_wrong"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_begun(
    client: TestClient, run: str, model: Any, body: Any, status: int, reason: str
) -> None:
    asked = model([])
    refused(client.post(f"/api/runs/{run}/fork", json=body), status, reason)
    assert good(client.get("/api/jobs"))["total"] == 0
    assert asked.requests == []


def test_a_fork_of_an_unknown_run_or_without_a_model_is_refused(client: TestClient, run: str) -> None:
    refused(client.post("/api/runs/nobody/fork", json={"from_step": 3}), 404, "run_not_found")
    error = refused(client.post(f"/api/runs/{run}/fork", json={"from_step": 3}), 409, "no_model")
    assert "LLM_BASE_URL" in error["hint"]


def test_no_tool_but_the_calculator_ever_runs_live(client: TestClient, store: Store, run: str, model: Any) -> None:
    model([SAYS_MORE, say("10.44 F")])
    begun = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 3, "live_tools": True}))
    listed = client.post(
        f"/api/runs/{run}/fork", json={"from_step": 3, "live_tools": [{"name": "get_weather", "reason": "why not"}]}
    )
    with worker(store):
        job = ended(client, begun["job"]["id"])
        other = ended(client, good(listed)["job"]["id"])
    assert job["status"] == "done"
    counts = good(client.get(f"/api/runs/{job['run_ids'][0]}"))["counts"]
    assert (counts["live"], counts["miss"]) == (1, 0)
    assert (other["status"], other["error"]["reason"]) == ("failed", "live_read")


def test_a_person_answers_what_was_never_recorded(client: TestClient, store: Store, run: str, model: Any) -> None:
    asked = model([SAYS_MORE, say("10.44 F")])
    begun = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 3, "on_miss": "human"}))
    job_id = begun["job"]["id"]
    with worker(store):
        job = until(client, job_id, "waiting")
        question = job["question"]
        assert (question["tool"], question["because"]) == ("calculate", "miss")
        assert question["arguments"] == {"expression": "(17.7 - 11.9) * 9 / 5"}
        assert "17.7 - 11.9" in question["nearest"]
        body = {"question": question["id"], "who": "anna", "result": {"result": 2**60 + 1}}
        refused(client.post(f"/api/jobs/{job_id}/answer", json={**body, "question": "another"}), 409, "answered")
        assert good(client.post(f"/api/jobs/{job_id}/answer", json=body))["question"] is None
        assert ended(client, job_id)["status"] == "done"
        refused(client.post(f"/api/jobs/{job_id}/answer", json=body), 409, "answered")
    (name,) = job["run_ids"]
    steps = good(client.get(f"/api/runs/{name}/steps?kind=tool"))["items"]
    assert (steps[-1]["source"], steps[-1]["attrs"]["answered_by"]) == ("human", "anna")
    assert str(2**60 + 1) in asked.requests[1]["messages"][-1]["content"]


def test_a_job_that_waits_for_a_worker_is_cancelled_at_once(
    client: TestClient, store: Store, run: str, model: Any
) -> None:
    asked = model([])
    job_id = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 3}))["job"]["id"]
    assert good(client.post(f"/api/jobs/{job_id}/cancel"))["status"] == "cancelled"
    with worker(store):
        assert ended(client, job_id)["status"] == "cancelled"
    assert asked.requests == []
    refused(client.post("/api/jobs/nobody/cancel"), 404, "job_not_found")


def test_a_job_is_cancelled_while_its_model_thinks(client: TestClient, store: Store, run: str, model: Any) -> None:
    thinking, over = threading.Event(), threading.Event()

    def slow(_: Ask) -> Any:
        thinking.set()
        over.wait(30)
        return say("too late")

    model(slow)
    job_id = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 3}))["job"]["id"]
    with worker(store):
        assert thinking.wait(30)
        assert good(client.post(f"/api/jobs/{job_id}/cancel"))["cancelling"]
        job = ended(client, job_id)
    over.set()
    assert job["status"] == "cancelled"
    assert good(client.get(f"/api/runs/{job['run_ids'][0]}"))["status"] == "cancelled"


def test_a_job_is_cancelled_while_a_person_is_asked(client: TestClient, store: Store, run: str, model: Any) -> None:
    model([SAYS_MORE, say("never")])
    job_id = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 3, "on_miss": "human"}))["job"]["id"]
    with worker(store):
        until(client, job_id, "waiting")
        client.post(f"/api/jobs/{job_id}/cancel")
        assert ended(client, job_id)["status"] == "cancelled"


def test_several_jobs_run_side_by_side(
    client: TestClient, store: Store, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(3, timeout=30)

    def meet(_: HttpRequest) -> HttpReply:
        together.wait()
        return json_reply(DONE)

    with serve(meet) as server:
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        ids = [good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}))["job"]["id"] for _ in range(3)]
        with worker(store):
            assert [ended(client, job_id)["status"] for job_id in ids] == ["done"] * 3


def test_an_estimate_is_told_before(client: TestClient, run: str) -> None:
    found = good(client.post(f"/api/runs/{run}/fork/estimate", json={"from_step": 3, "repeat": 2}))
    assert (found["runs"], found["calls"], found["input_tokens"]) == (4, 8, 80)
    refused(client.post(f"/api/runs/{run}/fork/estimate", json={"from_step": 1}), 400, "not_llm")


def test_the_dialog_is_filled_with_what_was_sent(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/fork?from=3"))
    assert found["system_prompt"].startswith("Use the tools")
    assert (found["model"], found["form"], found["kept"]) == ("small-1", "chat", {"steps": 3, "answers": 1})
    assert [(t["name"], t["recorded"], t["locked"]) for t in found["tools"]] == [
        ("get_weather", 2, False),
        ("calculate", 1, False),
    ]
    generic, own = found["engines"]
    assert (generic["available"], own["available"]) == (True, False)
    assert own["command"].startswith("agentloupe worker")
    assert '"messages"' in found["request"]
    refused(client.get(f"/api/runs/{run}/fork?from=1"), 400, "not_llm")
    refused(client.get(f"/api/runs/{run}/fork?from=the+middle"), 422, "asked_wrong")
    headers = good(client.get(f"/api/runs/{run}/steps"))["items"]
    assert [step["fork_reason_code"] for step in headers[:2]] == [None, "not_llm"]
    start = good(client.get(f"/api/runs/{run}/fork?from=start"))
    assert (start["at_start"], start["request"], start["kept"]) == (True, "{}", {"steps": 0, "answers": 0})
    assert [engine["why_not_code"] for engine in start["engines"]] == ["start", "no_worker"]
    assert {tool["name"] for tool in start["tools"]} >= {"get_weather", "calculate"}


def test_jobs_are_listed_and_their_changes_are_told(client: TestClient, store: Store, run: str, model: Any) -> None:
    model(lambda _: say("done"))
    ids = [good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}))["job"]["id"] for _ in range(2)]
    found = good(client.get("/api/jobs"))
    assert ([job["id"] for job in found["items"]], found["total"]) == (ids[::-1], 2)
    assert good(client.get("/api/jobs?status=done"))["total"] == 0
    from agentloupe.server.jobs import JobFeed

    app: Any = client.app
    feed = JobFeed(app.state.context, None, 0)
    told = read(feed.take())
    assert [d["job"]["id"] for _, _, d in told] == ids
    later = JobFeed(app.state.context, None, int(told[0][1] or 0))
    assert [d["job"]["id"] for _, _, d in read(later.take())] == ids[1:]
    assert feed.take() == []
    with worker(store):
        ended(client, ids[0])
    assert ids[0] in {d["job"]["id"] for _, _, d in read(feed.take())}


def test_a_job_survives_a_worker_that_is_gone(client: TestClient, store: Store, run: str, model: Any) -> None:
    """Another process took it and died before it made the run: the next one makes it under the same name."""
    from tests.store.test_jobs import GONE

    model([say("done")])
    begun = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}))
    assert isinstance(store, SqliteStore)
    assert store.jobs.take(GONE, [""]) is not None
    assert good(client.get("/api/jobs"))["items"][0]["status"] == "running"
    with worker(store):
        job = ended(client, begun["job"]["id"])
    assert (job["status"], job["run_ids"]) == ("done", [begun["runs"][0]["id"]])


def test_what_was_made_is_not_made_again(client: TestClient, store: Store, run: str, model: Any) -> None:
    asked = model(lambda _: say("done"))
    begun = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5, "repeat": 2, "control": False}))
    first, second = (made["id"] for made in begun["runs"])
    from agentloupe.verbs.forkfamily import Family, ForkWishes

    Family(store, run, 5, None, None, ForkWishes()).make(None, first)
    assert len(asked.requests) == 1
    with worker(store):
        assert ended(client, begun["job"]["id"])["status"] == "done"
    assert len(asked.requests) == 2
    assert store.run(second) is not None


def test_a_quota_that_is_used_up_is_told_with_the_servers_text(
    client: TestClient, store: Store, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_money(_: HttpRequest) -> HttpReply:
        return error_reply(429, "You exceeded your current quota", code="insufficient_quota")

    with serve(no_money) as server:
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        job_id = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}))["job"]["id"]
        with worker(store):
            job = ended(client, job_id)
    assert job["status"] == "failed"
    assert "quota" in job["error"]["message"]


def test_a_provider_that_says_later_is_waited_for_and_shown(
    client: TestClient, store: Store, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def later(_: HttpRequest) -> HttpReply:
        nonlocal asked
        asked += 1
        if asked == 1:
            return json_reply({"error": {"message": "slow down, please"}}, 429, {"retry-after": "1"})
        return json_reply(DONE)

    with serve(later) as server:
        monkeypatch.setenv("LLM_BASE_URL", f"{server.url}/v1")
        job_id = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}))["job"]["id"]
        with worker(store):
            seen = until(client, job_id, "rate_limited")
            assert seen["retry_after"] is not None
            assert "slow down" in seen["message"]
            assert ended(client, job_id)["status"] == "done"


def test_code_that_a_recording_names_is_never_loaded(
    client: TestClient, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    from tests.made import Maker
    from tests.server.serving import put

    (tmp_path / "canary_module.py").write_text("raise SystemExit('loaded')")
    monkeypatch.syspath_prepend(tmp_path)
    made = Maker("foreign", None, entry="canary_module:agent")
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"}, model="m")
    put(store, made.finish())
    error = refused(client.post("/api/runs/foreign/fork", json={"from_step": 0, "engine": "own"}), 409, "no_worker")
    assert "agentloupe worker canary_module:agent" in error["hint"]
    refused(client.post("/api/runs/foreign/replay", json={}), 409, "no_worker")
    refused(client.post("/api/runs/foreign/resume"), 409, "not_interrupted")
    assert (
        good(client.get("/api/runs/foreign/fork?from=0"))["engines"][1]["command"]
        == "agentloupe worker canary_module:agent"
    )
    assert "canary_module" not in sys.modules


def test_a_replay_without_code_does_not_shut_the_way_out_of_a_fork_beside_it(
    client: TestClient, store: Store, run: str, model: Any
) -> None:
    """A fork waits for its model, and the replay of another run is done meanwhile, in a process of its own."""
    waits, goes_on = threading.Event(), threading.Event()

    def answer(request: Any) -> Any:
        if "wait" in request.messages[0]["content"]:
            waits.set()
            assert goes_on.wait(60)
        return say("10.44 F")

    model(answer)

    def fork_with(prompt: str) -> str:
        wanted = {"from_step": 3, "overrides": {"system_prompt": prompt}}
        return good(client.post(f"/api/runs/{run}/fork", json=wanted))["job"]["id"]

    with worker(store):
        whole = ended(client, fork_with("Be brief."))["run_ids"][0]
        slow = fork_with("Wait: wait.")
        assert waits.wait(60)
        try:
            job = ended(client, good(client.post(f"/api/runs/{whole}/replay", json={}))["job"]["id"])
        finally:
            goes_on.set()
        assert (job["status"], ended(client, slow)["status"]) == ("done", "done"), job
    (report,) = good(client.get(f"/api/reports?run={whole}"))["items"]
    assert report["passed"] is True


def test_own_code_is_forked_and_replayed_by_the_worker_that_has_it(
    client: TestClient, store: Store, model: Any
) -> None:
    from agentloupe.verbs.instrument import agent, tool

    @tool(effect="pure")
    def double(n: int) -> int:
        return 2 * n

    @agent(name="doubler")
    def doubler(n: int) -> int:
        return double(n)

    from agentloupe.ports import ambient
    from agentloupe.verbs.sessions import RecordOpener

    with ambient.opening_with(RecordOpener(store)):
        doubler(4)
    run = store.runs()[0].id
    assert client.get("/api/workers").json()["items"] == []
    with worker(store, doubler=doubler):
        assert good(client.get("/api/workers"))["items"][0]["agents"] == ["doubler"]
        job = ended(client, good(client.post(f"/api/runs/{run}/replay", json={}))["job"]["id"])
        assert job["status"] == "done"
        assert job["agent"] == "doubler"
        fork = ended(
            client,
            good(client.post(f"/api/runs/{run}/fork", json={"from_step": "start", "engine": "own"}))["job"]["id"],
        )
        assert fork["status"] == "done", fork
    assert good(client.get("/api/reports?first=1"))["items"] == []
    assert good(client.get("/api/reports?run=another"))["total"] == 0
    found = good(client.get(f"/api/reports?run={run}"))
    assert (found["total"], found["next"]) == (1, None)
    report = found["items"][0]
    assert report["run_id"] == run
    assert report["passed"] is True
    assert good(client.get(f"/api/runs/{run}"))["badges"]["replay"]["passed"] is True
    one = good(client.get(f"/api/reports/{report['id']}"))
    assert one == report | {
        "source": None
    }  # a row of the list reads no code; a replay that agrees has no place to show
    assert good(client.get(f"/api/runs/{fork['run_ids'][0]}"))["status"] == "ok"


def test_a_store_without_jobs_says_so() -> None:
    from agentloupe.store.opening import open_url

    refused(client_of(open_url("memory:"), TOKEN).get("/api/jobs"), 409, "no_jobs")


def test_a_fork_that_ends_its_own_worker_is_given_up(client: TestClient, store: Store) -> None:
    """Its worker went in the middle of it three times: nobody tries once more."""
    from agentloupe.ports import ambient
    from agentloupe.ports.jobs import Job
    from agentloupe.verbs.instrument import agent
    from agentloupe.verbs.sessions import RecordOpener

    @agent(name="leaver")
    def leaver() -> int:
        return 1

    with ambient.opening_with(RecordOpener(store)):
        leaver()
    parent = store.runs()[0].id
    cut = f"{parent}-fork-abcdef"
    Author(store, cut, owner=dead_owner()).started(agent="leaver", parent_run_id=parent).writer.close()
    assert isinstance(store, SqliteStore)
    spec: dict[str, Any] = {"from_step": "start", "engine": "own", "arms": [None], "cut_off": 3}
    job = store.jobs.add(Job(id="job-1", kind="fork", spec=spec, runs=(cut,), parent=parent, needs="agent:leaver"))
    assert good(client.get("/api/jobs/job-1"))["lacks"]["message"] == "no worker has the agent 'leaver'"
    with worker(store, leaver=leaver):
        done = ended(client, job.id)
    assert (done["status"], done["error"]["reason"], done["run_ids"]) == ("failed", "cut_off", [cut])
    assert store.count() == 2


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("headers", "belongs"),
    [
        ([("traceparent", f"00-{TRACE}-{SPAN}-01"), ("tracestate", "a=1"), ("tracestate", "b=2")], True),
        ([("traceparent", f"00-{TRACE}-{SPAN}-01")] * 2, False),
        ([("traceparent", f"ff-{TRACE}-{SPAN}-01")], False),
    ],
)
def test_runs_of_a_job_belong_to_the_trace_of_the_request(
    client: TestClient, store: Store, run: str, model: Any, headers: Any, belongs: bool
) -> None:
    model(lambda _: say("done"))
    begun = good(client.post(f"/api/runs/{run}/fork", json={"from_step": 5}, headers=headers))
    with worker(store):
        ended(client, begun["job"]["id"])
    (name,) = (made["id"] for made in begun["runs"])
    recording = store.recording(name)
    started = recording.events[0]
    assert ({event.trace_id for event in recording.events} == {TRACE}) == belongs
    assert (started.parent_span_id, recording.body(started.bodies.get("tracestate"))) == (
        (SPAN, "a=1,b=2") if belongs else (None, None)
    )
    found = good(client.get("/api/runs", params={"trace": TRACE}))
    assert [item["id"] for item in found["items"]] == ([name] if belongs else [])
