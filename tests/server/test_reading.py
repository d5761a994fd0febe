"""A run and its steps as the page reads them, over HTTP, on the six-step weather run and a fork of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.engine.overrides import Overrides
from agentloupe.ports.protocols import Store
from agentloupe.verbs.forking import fork_run
from tests.fork_support import Script, weather_run
from tests.made import Maker
from tests.server.answers import good, refused
from tests.server.serving import put


@pytest.fixture
def run(store: Store) -> str:
    """Models 0, 3, 5, tools 1, 2, 4."""
    return weather_run(store)


@pytest.fixture
def fork(store: Store, run: str) -> str:
    """From step 3, with another prompt; one miss."""
    script = Script(("calculate", {"expression": "1 + 1"}), "two")
    return fork_run(store, run, 3, Overrides(system_prompt="Be brief."), script).id


def test_the_transcript_joins_calls_and_results(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/transcript"))
    assert [card["card"] for card in found["items"]] == ["question", "model", "model", "model"]
    assert [card["at"] for card in found["items"]] == [0, 1, 2, 3]
    assert found["total"] == 4
    calls = found["items"][1]["calls"]
    assert [(c["name"], json.loads(c["arguments"]["text"])["city"], c["step"], c["source"]) for c in calls] == [
        ("get_weather", "Beijing", 1, "live"),
        ("get_weather", "Shanghai", 2, "live"),
    ]
    assert '"temperature":11.9' in calls[0]["result"]["text"]
    assert found["items"][1]["parallel"]
    assert "10.44" in found["items"][3]["text"]["text"]


def test_a_page_of_the_transcript_can_be_asked_for_by_step(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/transcript?around=4&limit=2"))
    assert [card["step"] for card in found["items"]] == [0, 3]
    assert (found["first"], found["next"]) == (1, 3)
    refused(client.get(f"/api/runs/{run}/transcript?inside=99"), 404, "step_not_found")


def test_a_fork_shows_what_was_kept_and_what_missed(client: TestClient, fork: str) -> None:
    cards = good(client.get(f"/api/runs/{fork}/transcript"))["items"]
    assert [(card["card"], card["step"], card["kept"]) for card in cards] == [
        ("question", 0, True),
        ("model", 0, True),
        ("model", 3, False),
        ("model", 5, False),
    ]
    assert cards[2]["prompt_flag"]
    missed = cards[2]["calls"][0]
    assert (missed["source"], missed["status"]) == ("miss", "error")
    assert "17.7 - 11.9" in missed["nearest"]
    folded = good(client.get(f"/api/runs/{fork}/transcript?fold_kept=1"))["items"]
    assert [(card["card"], card.get("count")) for card in folded][:2] == [("question", None), ("kept", 3)]
    assert (folded[1]["model_calls"], folded[1]["tool_calls"]) == (1, 2)
    step = good(client.get(f"/api/runs/{fork}/steps/3"))
    assert step["overview"]["overrides"]
    detail = good(client.get(f"/api/runs/{fork}"))
    assert (detail["kept_steps"], detail["misses"]) == (3, 1)
    assert [change["value"] for change in detail["changes"]] == ["Be brief."]
    shown = good(client.get(f"/api/runs/{fork}/minimap?columns=100"))
    assert [c["first"] for c in shown["columns"] if c["cut"]] == [3]
    assert [c["first"] for c in shown["columns"] if c["miss"]] == [4]
    assert [c["first"] for c in shown["columns"] if c["flag"]] == [3]


def test_a_step_tells_what_was_asked_and_answered(client: TestClient, run: str) -> None:
    step = good(client.get(f"/api/runs/{run}/steps/3"))
    overview = step["overview"]
    assert (overview["asked_for"], overview["tools"]) == ("small-1", ["get_weather", "calculate"])
    assert "messages" not in overview["parameters"]
    assert overview["problem"] is None
    tool = good(client.get(f"/api/runs/{run}/steps/1"))
    assert (tool["kind"], tool["overview"]["asked_for"], tool["forkable"]) == ("tool", None, False)


def test_messages_mark_what_is_new(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/steps/3/messages"))
    assert [(m["role"], m["new"], m["source"]) for m in found["items"]] == [
        ("system", False, None),
        ("user", False, None),
        ("assistant", True, None),
        ("tool", True, "live"),
        ("tool", True, "live"),
    ]
    assert found["before"] == 0
    assert found["answer"]["parts"][0]["name"] == "calculate"
    part = good(client.get(f"/api/runs/{run}/steps/3/messages?first=3&limit=1"))
    assert ([m["index"] for m in part["items"]], part["next"], part["total"]) == ([3], 4, 5)
    refused(client.get(f"/api/runs/{run}/steps/1/messages"), 400, "not_llm")


def test_the_window_is_shared_out(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/steps/5/context"))
    assert sum(part["tokens"] for part in found["parts"]) == found["total"] == 10
    assert {"tool schemas", "system", "user", "assistant", "tool"} == {part["role"] for part in found["parts"]}
    assert [point["idx"] for point in found["growth"]] == [0, 3, 5]
    assert found["reported"]
    assert all(point["parts"] for point in found["growth"])


def test_a_run_with_too_much_text_tells_the_parts_of_some_samples(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Maker("long")
    for turn in range(9):
        made.model(
            [{"role": "user", "content": f"{n}"} for n in range(turn + 1)], {"role": "assistant", "content": "a"}
        )
    put(store, made.finish())
    monkeypatch.setattr("agentloupe.server.routes.step._TOKENS", 1)
    monkeypatch.setattr("agentloupe.server.routes.step._LEAST", 4)
    growth = good(client.get("/api/runs/long/steps/8/context"))["growth"]
    assert [point["idx"] for point in growth if point["parts"]] == [0, 4, 8]
    assert [point["idx"] for point in growth] == list(range(9))


def test_a_step_differs_from_the_one_before(client: TestClient, fork: str, run: str) -> None:
    found = good(client.get(f"/api/runs/{fork}/steps/3/diff"))
    changed = [message for message in found["messages"] if message["op"] == "changed"]
    assert (found["left"], found["right"], [m["role"] for m in changed]) == (0, 3, ["system"])
    assert ["+", "Be"] in changed[0]["words"]
    assert [m["op"] for m in found["messages"]].count("added") == 3
    assert good(client.get(f"/api/runs/{run}/steps/0/diff"))["left"] is None
    assert good(client.get(f"/api/runs/{run}/steps/5/diff?with=0"))["left"] == 0
    refused(client.get(f"/api/runs/{run}/steps/5/diff?with=5"), 400, "same_step")
    refused(client.get(f"/api/runs/{run}/steps/5/diff?with=77"), 404, "step_not_found")
    refused(client.get(f"/api/runs/{run}/steps/5/diff?with=next"), 422, "asked_wrong")


def test_raw_values_are_exact(client: TestClient, store: Store) -> None:
    made = Maker("exact")
    large: Any = {"big": 2**53 + 1, "bigger": 2**70, "half": 1.0, "zero": -0.0, "ü": "☀"}
    made.call("tool", "count", large, [2**64])
    put(store, made.finish())
    answer = client.get("/api/runs/exact/steps/0/raw/input")
    assert answer.text == '{"big":9007199254740993,"bigger":1180591620717411303424,"half":1.0,"zero":-0.0,"ü":"☀"}'
    assert client.get("/api/runs/exact/steps/0/raw/output").text == "[18446744073709551616]"
    card = good(client.get("/api/runs/exact/transcript"))["items"][0]
    assert "1180591620717411303424" in card["input"]["text"]
    part = client.get("/api/runs/exact/steps/0/raw/input", headers={"Range": "bytes=1-5"})
    assert (part.status_code, part.text) == (206, '"big"')
    assert part.headers["content-range"].startswith("bytes 1-5/")
    assert client.get("/api/runs/exact/steps/0/raw/input", headers={"Range": "bytes=900-"}).status_code == 416
    saved = client.get("/api/runs/exact/steps/0/raw/input?download=1")
    assert saved.headers["content-disposition"] == 'attachment; filename="exact-0-input.json"'
    refused(client.get("/api/runs/exact/steps/0/raw/error"), 404, "no_error")


def test_events_are_envelopes_without_bodies(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/events?limit=3"))
    assert [event["sequence"] for event in found["items"]] == [1, 2, 3]
    assert found["items"][0]["type"] == "run.started"
    assert found["total"] == good(client.get(f"/api/runs/{run}"))["events"]


def test_search_finds_names_and_contents(client: TestClient, run: str) -> None:
    found = good(client.get(f"/api/runs/{run}/search?q=SHANGHAI"))
    assert (found["scanned"], found["of"], found["next"]) == (6, 6, None)
    assert {(hit["idx"], hit["where"]) for hit in found["items"]} >= {(0, "input"), (0, "output"), (2, "input")}
    assert good(client.get(f"/api/runs/{run}/search?q=nowhere"))["items"] == []
    few = good(client.get(f"/api/runs/{run}/search?q=SHANGHAI&limit=1"))
    assert few["next"] is not None
    refused(client.get(f"/api/runs/{run}/search?q="), 422, "asked_wrong")


def test_verified_runs_wear_their_badge(client: TestClient, run: str) -> None:
    verdict = good(client.get(f"/api/runs/{run}/verify"))
    assert verdict["ok"]
    assert good(client.get(f"/api/runs/{run}"))["badges"]["chain"] == "ok"


@pytest.mark.parametrize(
    "path",
    ["", "/messages", "/context", "/diff", "/raw/input", "/raw/output"],
)
def test_a_deleted_run_says_that_its_bodies_are_gone(client: TestClient, run: str, path: str) -> None:
    assert client.delete(f"/api/runs/{run}").status_code == 204
    refused(client.get(f"/api/runs/{run}/steps/0{path}"), 404, "step_not_found")
    assert good(client.get(f"/api/runs/{run}/transcript"))["items"] == []
    assert good(client.get(f"/api/runs/{run}/minimap"))["columns"] == []
    assert good(client.get(f"/api/runs/{run}/search?q=x"))["of"] == 0
    assert good(client.get(f"/api/runs/{run}/events"))["total"] > 0
    assert good(client.get(f"/api/runs/{run}/verify"))["erased"]


def test_documents_fit_the_forms_that_are_told(client: TestClient, fork: str, run: str) -> None:
    """Every answer of these routes is what the OpenAPI document says."""
    import jsonschema_rs

    told: Any = good(client.get("/api/openapi.json"))
    for path, template in (
        ("/api/runs", "/api/runs"),
        (f"/api/runs/{fork}", "/api/runs/{run_id}"),
        *((f"/api/runs/{fork}/{p}", f"/api/runs/{{run_id}}/{p}") for p in ("steps", "transcript", "minimap", "events", "verify")),
        *((f"/api/runs/{fork}/steps/3/{p}", f"/api/runs/{{run_id}}/steps/{{idx}}/{p}") for p in ("messages", "context", "diff")),
        (f"/api/runs/{fork}/steps/4", "/api/runs/{run_id}/steps/{idx}"),
        (f"/api/runs/{fork}/events/4", "/api/runs/{run_id}/events/{sequence}"),
        ("/api/about", "/api/about"),
    ):  # fmt: skip
        schema = told["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        checker = jsonschema_rs.Draft202012Validator({**schema, "components": told["components"]})
        faults = [
            f"{path} {'/'.join(map(str, e.instance_path))}: {e.message}"
            for e in checker.iter_errors(good(client.get(path)))
        ]
        assert not faults, faults[:3]
