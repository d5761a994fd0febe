"""Runs and headers of steps over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from tests.made import Maker, weather_like
from tests.server.answers import good, refused
from tests.server.serving import put


def test_an_empty_store_is_a_list_without_runs(client: TestClient) -> None:
    assert good(client.get("/api/runs")) == {
        "items": [],
        "total": 0,
        "first": 0,
        "next": None,
        "capped": False,
        "facets": None,
    }
    assert good(client.get("/api/about"))["counts"] == {"runs": 0}


def test_a_list_comes_in_pages_that_say_how_many_there_are(client: TestClient, store: Store) -> None:
    for n in range(5):
        put(store, weather_like(f"run-{n}"))
    found = good(client.get("/api/runs", params={"limit": 2}))
    assert (len(found["items"]), found["total"], found["next"]) == (2, 5, 2)
    rest = good(client.get("/api/runs", params={"limit": 2, "first": 4}))
    assert (len(rest["items"]), rest["next"]) == (1, None)
    ids = {run["id"] for first in (0, 2, 4) for run in good(client.get(f"/api/runs?limit=2&first={first}"))["items"]}
    assert ids == {f"run-{n}" for n in range(5)}


def test_filters_narrow_the_list(client: TestClient, store: Store) -> None:
    put(store, weather_like("one"))
    put(store, Maker("two", None, tags=["special"]).finish())
    assert [r["id"] for r in good(client.get("/api/runs?tag=special"))["items"]] == ["two"]
    assert [r["id"] for r in good(client.get("/api/runs?tool=get"))["items"]] == ["one"]
    assert [r["id"] for r in good(client.get("/api/runs?q=tw"))["items"]] == ["two"]
    assert [r["id"] for r in good(client.get("/api/runs?q=WO"))["items"]] == ["two"]  # a part of its name
    assert good(client.get("/api/runs?since=2026-04-02"))["total"] == 0
    assert good(client.get("/api/runs?until=2026-04-02T00:00:00Z"))["total"] == 2


def test_families_stand_together_and_forks_can_be_left_out(client: TestClient, store: Store) -> None:
    put(store, weather_like("first"))
    put(store, weather_like("second"))
    put(store, Maker("fork", None, parent_run_id="first", forked_from_step=0).finish())
    by_family = good(client.get("/api/runs?sort=family"))
    assert [run["id"] for run in by_family["items"]] == ["second", "first", "fork"]
    assert [run["id"] for run in good(client.get("/api/runs"))["items"]] == ["fork", "second", "first"]
    roots = good(client.get("/api/runs?roots=true"))
    assert ([run["id"] for run in roots["items"]], roots["total"]) == (["second", "first"], 2)
    assert refused(client.get("/api/runs?sort=price"), 422, "asked_wrong")["place"] == "query.sort"


def test_a_filter_that_makes_no_sense_is_named(client: TestClient) -> None:
    assert "since" in refused(client.get("/api/runs?since=yesterday"), 400, "time")["message"]
    assert refused(client.get("/api/runs?status=sideways"), 422, "asked_wrong")["place"] == "query.status"
    assert refused(client.get("/api/runs?limit=0"), 422, "asked_wrong")["place"] == "query.limit"
    assert refused(client.get("/api/runs?first=-1"), 422, "asked_wrong")["place"] == "query.first"


def test_one_run_tells_what_it_is(client: TestClient, store: Store) -> None:
    run = good(client.get(f"/api/runs/{put(store, weather_like())}"))
    assert (run["id"], run["steps"], run["status"], run["erased"]) == ("made", 5, "ok", False)
    assert run["lineage"] == {
        "ancestors": [],
        "children": {"items": [], "total": 0},
        "siblings": {"items": [], "total": 0},
    }
    assert run["badges"] == {"chain": "not_checked", "replay": None}
    assert run["cost"] is None


def test_lineage_goes_both_ways(client: TestClient, store: Store) -> None:
    put(store, weather_like("parent"))
    for n, step in ((1, 3), (2, 3), (3, 1)):
        put(store, Maker(f"child-{n}", None, parent_run_id="parent", forked_from_step=step).finish())
    put(store, Maker("grandchild", None, parent_run_id="child-1", forked_from_step=0).finish())
    parent = good(client.get("/api/runs/parent"))
    assert parent["children"] == parent["lineage"]["children"]["total"] == 3
    child = good(client.get("/api/runs/child-1"))["lineage"]
    assert [run["id"] for run in child["ancestors"]] == ["parent"]
    assert [run["id"] for run in child["siblings"]["items"]] == ["child-2"]
    grandchild = good(client.get("/api/runs/grandchild"))["lineage"]
    assert [run["id"] for run in grandchild["ancestors"]] == ["child-1", "parent"]


@pytest.mark.parametrize("path", ["", "/steps"])
def test_an_unknown_run_is_said_to_be_unknown(client: TestClient, path: str) -> None:
    assert "nothing-260401" in refused(client.get(f"/api/runs/nothing-260401{path}"), 404, "run_not_found")["message"]


def test_steps_are_headers_without_bodies(client: TestClient, store: Store) -> None:
    put(store, weather_like())
    found = good(client.get("/api/runs/made/steps"))
    assert [step["kind"] for step in found["items"]] == ["agent", "llm", "tool", "llm", "clock"]
    assert [step["depth"] for step in found["items"]] == [0, 1, 1, 1, 1]
    assert found["items"][0]["children"] == 4
    assert [step["forkable"] for step in found["items"]] == [False, True, False, True, False]
    assert "model step" in found["items"][2]["fork_reason"]
    assert not {"input", "output", "error"} & set(found["items"][1])
    assert [s["idx"] for s in good(client.get("/api/runs/made/steps?kind=llm&first=1"))["items"]] == [3]


def test_a_changed_prompt_and_changed_tools_are_flagged(client: TestClient, store: Store) -> None:
    made = Maker("flags")
    for system, tools in (("a", 1), ("a", 1), ("b", 1), ("b", 2), ("long " * 900, 2), ("long " * 900, 2)):
        history: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": "go"}]
        made.model(history, {"role": "assistant", "content": "ok"}, tools=[{"type": "function", "n": tools}])
    put(store, made.finish())
    steps = good(client.get("/api/runs/flags/steps"))["items"]
    assert [step["idx"] for step in steps if step["prompt_changed"]] == [2, 4]
    assert [step["idx"] for step in steps if step["tools_changed"]] == [3]


def test_tags_can_be_set_and_a_run_deleted(client: TestClient, store: Store) -> None:
    put(store, weather_like())
    assert good(client.post("/api/runs/made/tags", json={"tags": ["b", "a", "b"]}))["tags"] == ["b", "a"]
    assert [r["id"] for r in good(client.get("/api/runs?tag=a"))["items"]] == ["made"]
    assert client.delete("/api/runs/made").status_code == 204
    run = good(client.get("/api/runs/made"))
    assert (run["erased"], run["coverage"], run["cost"]) == (True, "limited_replay", None)
    assert good(client.get("/api/runs/made/steps"))["total"] == 0


def test_values_to_filter_by_come_with_their_counts(client: TestClient, store: Store) -> None:
    put(store, Maker("a", None, tags=["x"]).finish())
    put(store, Maker("b", None, tags=["x"], parent_run_id="a", forked_from_step=0).finish())
    found = good(client.get("/api/runs?facets=1"))["facets"]
    assert {"value": "x", "count": 2} in found["tags"]
    assert found["statuses"] == [{"value": "ok", "count": 2}]
    assert [r["id"] for r in good(client.get("/api/runs?forks=1"))["items"]] == ["a"]
    assert good(client.get("/api/runs?misses=1"))["total"] == 0
    assert good(client.get("/api/runs?coverage=full"))["total"] == 2
    assert [r["id"] for r in good(client.get("/api/runs?q=b"))["items"]] == ["b"]


def test_metrics_are_in_the_form_of_prometheus(client: TestClient, store: Store) -> None:
    put(store, weather_like("a-secret-name"))
    client.get("/api/runs/a-secret-name")
    text = client.get("/metrics").text
    assert 'loupe_runs{coverage="full"} 1' in text
    assert 'loupe_http_requests_total{method="GET",route="/api/runs/{run_id}",status="200"} 1' in text
    assert "# TYPE loupe_http_request_seconds histogram" in text
    assert "a-secret-name" not in text
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    told = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {n.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for n in names} == told


def figures(client: TestClient) -> dict[str, float]:
    text = client.get("/metrics").text
    rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in rows}


def test_recent_runs_replays_and_appends_have_their_figures(client: TestClient, store: Store) -> None:
    from agentloupe.ports.jobs import Job, Worker
    from agentloupe.server.watched import watched
    from agentloupe.store.owners import this_process
    from agentloupe.store.sqlite import SqliteStore
    from agentloupe.words.canonical import key_of
    from agentloupe.words.errors import StoreFull
    from tests.store.make import Author, at, call, dead_owner

    app: Any = client.app
    seen = watched(store, app.state.context.metrics)
    lost = Author(seen, "lost", owner=dead_owner()).started()
    lost.add(lost.scribe.opened(call("tool", "pay", {}, effect="write"), lost.place(), key_of("tool", "pay", {}), at()))
    put(store, Maker("a", None, parent_run_id="lost", forked_from_step=0).finish())
    assert isinstance(store, SqliteStore)
    me = Worker(id="w", owner=this_process())
    for verdict, consumed in (("passed", 4), ("diverged", 1)):
        job = store.jobs.add(Job(id=f"job-{verdict}", kind="replay", spec={}, runs=(), parent="a"))
        assert store.jobs.take(me, [""])
        said: Any = {"verdict": verdict, "consumed": consumed, "events": 4, "code": "abc-dirty"}
        said["divergence"] = {"kind": "extra"} if verdict == "diverged" else None
        store.jobs.tell(job.id, "w", status="done", result=said)
    found = figures(client)
    assert found["loupe_recent_runs"] == 2
    assert found["loupe_recent_runs_without_snapshot"] == 2
    assert found["loupe_recent_effects_without_receipt"] == 1
    assert (found["loupe_recent_forks"], found["loupe_recent_fork_misses"]) == (1, 0)
    assert found['loupe_replays{verdict="passed",code="abc-dirty"}'] == 1
    assert found['loupe_replays{verdict="diverged",code="abc-dirty"}'] == 1
    assert found['loupe_replay_divergence_position_bucket{le="0.25"}'] == 1
    assert found['loupe_replay_divergence_position_bucket{le="0.1"}'] == 0
    assert found["loupe_event_append_seconds_count"] >= 2
    assert found["loupe_event_appends_failed_total"] == 0

    class Full:
        def append(self, *_: object) -> None:
            raise StoreFull("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "start", lambda *_, **__: Full())
        with pytest.raises(StoreFull):
            seen.start("b", Projector, owner=this_process()).append([])
    assert figures(client)["loupe_event_appends_failed_total"] == 1
