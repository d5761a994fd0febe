"""Open effects over HTTP: listed, settled once by a person, refused while the run's process lives."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.owners import this_process
from tests.server.answers import good, refused
from tests.server.serving import client_of
from tests.unfinished import killed

WORD = {"why": "the bank's list has it", "by": "anna"}


def test_open_effects_are_listed_over_all_runs_and_those_of_one(client: TestClient, store: Store) -> None:
    runs = [killed(store, 5), killed(store, 1, 7)]
    found = good(client.get("/api/effects"))
    assert [(one["run_id"], one["tool"], one["status"]) for one in found["items"]] == [
        (run, "charge", "open") for run in reversed(runs)
    ]
    assert (found["runs"], found["cursor"]) == (2, None)
    first = good(client.get("/api/effects?limit=1"))
    second = good(client.get("/api/effects", params={"limit": 1, "cursor": first["cursor"]}))
    assert first["items"] + second["items"] == found["items"]
    assert good(client.get(f"/api/runs/{runs[0]}/effects"))["items"] == found["items"][1:]
    assert good(client.get(f"/api/runs/{runs[0]}"))["open_effects"] == 1
    refused(client.get("/api/runs/nobody/effects"), 404, "run_not_found")


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ({"outcome": "finished", "result": {"charge": "ch_9"}, "external_id": "ch_9"}, {"charge": "ch_9"}),
        ({"outcome": "failed", "result": "the card was refused"}, None),
        ({"outcome": "not_done"}, None),
    ],
)
def test_a_person_settles_an_effect_once(client: TestClient, store: Store, said: dict[str, Any], result: Any) -> None:
    run = killed(store, 9)
    (effect,) = good(client.get(f"/api/runs/{run}/effects"))["items"]
    done = good(client.post(f"/api/runs/{run}/effects", json={"call_id": effect["call_id"], **WORD, **said}))
    assert (done["tool"], done["outcome"]) == ("charge", said["outcome"])
    event = good(client.get(f"/api/runs/{run}/events/{done['sequence']}"))
    assert (event["type"], event["attrs"]["outcome"]) == ("tool.confirmed", said["outcome"])
    assert good(client.get(f"/api/runs/{run}/effects"))["items"] == []
    assert good(client.get(f"/api/runs/{run}"))["open_effects"] == 0
    assert good(client.get(f"/api/runs/{run}/verify"))["ok"]
    if result is not None:
        assert client.get(f"/api/runs/{run}/steps/{effect['step']}/raw/output").json() == result
    again = client.post(f"/api/runs/{run}/effects", json={"call_id": effect["call_id"], **WORD, "outcome": "not_done"})
    refused(again, 409, "settled")


def test_what_cannot_be_said_is_refused(client: TestClient, store: Store) -> None:
    run = killed(store, 9)
    (effect,) = good(client.get(f"/api/runs/{run}/effects"))["items"]
    call = {"call_id": effect["call_id"]}
    for body in ({**call, **WORD}, {**call, **WORD, "outcome": "perhaps"}, {**call, "outcome": "not_done", "by": "a"}):
        refused(client.post(f"/api/runs/{run}/effects", json=body), 422, "asked_wrong")
    for body in ({"outcome": "failed", "result": {"a": 1}}, {"outcome": "not_done", "result": 1}):
        refused(client.post(f"/api/runs/{run}/effects", json={**call, **WORD, **body}), 400, "result")
    blank = {**call, **WORD, "outcome": "not_done", "why": "  "}
    refused(client.post(f"/api/runs/{run}/effects", json=blank), 400, "usage")
    other = {"call_id": "9.9", **WORD, "outcome": "not_done"}
    refused(client.post(f"/api/runs/{run}/effects", json=other), 404, "no_call")
    assert len(good(client.get(f"/api/runs/{run}/effects"))["items"]) == 1


def test_nobody_settles_without_the_header_of_a_write(store: Store) -> None:
    run = killed(store, 9)
    answer = client_of(store).post(f"/api/runs/{run}/effects", json={"call_id": "0.0", **WORD, "outcome": "not_done"})
    assert answer.status_code in {401, 403}


def test_while_the_process_of_a_run_lives_only_it_may_say(client: TestClient, store: Store) -> None:
    run = killed(store, 3)
    writer = store.take_over(run, Projector, owner=this_process())
    (effect,) = good(client.get(f"/api/runs/{run}/effects"))["items"]
    assert effect["run_status"] == "running"
    said = {"call_id": effect["call_id"], **WORD, "outcome": "not_done"}
    refused(client.post(f"/api/runs/{run}/effects", json=said), 409, "owner_alive")
    writer.close()
