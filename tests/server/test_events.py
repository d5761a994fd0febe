"""The log of a run over HTTP: whole in parts, by type, of one step, one event as it was sealed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings
from agentloupe.server.context import Context
from agentloupe.store.owners import this_process
from agentloupe.words.seal import link
from tests.fork_support import weather_run
from tests.made import Maker, weather_like
from tests.server.answers import good, refused
from tests.server.serving import TOKEN, client_of, put, store_in
from tests.server.test_streams import bodies_of


@pytest.fixture
def run(store: Store) -> str:
    return weather_run(store)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A run of some hundred events of several types, and a client."""
    store = store_in(tmp_path_factory.mktemp("events"))
    made = Maker("long")
    for number in range(60):
        made.call("tool", f"t{number % 3}", {"n": number}, number)
        if number % 7 == 0:
            made.call("clock", "now", None, number)
    put(store, made.finish())
    yield client_of(store, TOKEN)
    store.close()


def asked(client: TestClient, **query: Any) -> Any:
    return good(client.get("/api/runs/long/events", params=query))


@given(
    kinds=st.lists(st.sampled_from(["tool.finished", "clock.read", "run.started", "model.failed"]), unique=True),
    limit=st.integers(1, 300),
    at=st.integers(1, 400),
)
def test_parts_make_the_whole_and_a_type_leaves_out_only_others(
    long_run: TestClient, kinds: list[str], limit: int, at: int
) -> None:
    everything = asked(long_run, limit=1000)["items"]
    matching = [event for event in everything if not kinds or event["type"] in kinds]
    found: list[Any] = []
    first: int | None = 0
    while first is not None:
        part = asked(long_run, type=kinds, first=first, limit=limit)
        assert (part["total"], part["first"]) == (len(matching), first)
        found += part["items"]
        first = part["next"]
    assert found == matching
    behind = asked(long_run, type=kinds, at=at, limit=limit)
    assert behind["first"] == sum(event["sequence"] < at for event in matching)
    assert behind["items"] == matching[behind["first"] :][:limit]


def test_types_are_counted(long_run: TestClient) -> None:
    counted = {one["value"]: one["count"] for one in asked(long_run, types=1, limit=1)["types"]}
    assert (counted["tool.finished"], counted["clock.read"], counted["run.started"]) == (60, 9, 1)
    assert sum(counted.values()) == asked(long_run, limit=1)["total"]
    assert asked(long_run, limit=1)["types"] is None


def test_a_step_leads_to_its_events_and_an_event_to_its_step(client: TestClient, run: str) -> None:
    mine = good(client.get(f"/api/runs/{run}/events?step=1"))
    assert [event["type"] for event in mine["items"]] == ["tool.allowed", "tool.started", "tool.finished"]
    assert {event["step"] for event in mine["items"]} == {1}
    assert [e["type"] for e in good(client.get(f"/api/runs/{run}/events?step=1&type=tool.started"))["items"]] == [
        "tool.started"
    ]
    whole = good(client.get(f"/api/runs/{run}/events?limit=1000"))["items"]
    assert {event["step"] for event in whole if event["call_id"]} == set(range(6))
    refused(client.get(f"/api/runs/{run}/events?step=99"), 404, "step_not_found")


def test_an_event_as_it_was_sealed_makes_its_hash(client: TestClient, store: Store) -> None:
    put(store, weather_like())
    for sequence in range(1, good(client.get("/api/runs/made"))["events"] + 1):
        event = good(client.get(f"/api/runs/made/events/{sequence}"))
        assert link(event["prev_hash"], event["sealed"]) == event["hash"]
        assert (event["sealed"]["run_id"], event["sealed"]["sequence"]) == ("made", sequence)
    error = refused(client.get("/api/runs/made/events/999"), 404, "event_not_found")
    assert error["hint"].startswith("events are 1 to ")
    refused(client.get("/api/runs/nobody/events/1"), 404, "run_not_found")
    refused(client.get("/api/runs/made/events?type=no.such"), 422, "asked_wrong")


def test_types_of_a_run_that_goes_on_grow_with_it(store: Store, tmp_path: Path) -> None:
    here = Context(store, Settings(root=tmp_path, db=""))
    made = Maker("live")
    writer = store.start("live", Projector, owner=this_process())
    sent = 0
    for number in range(4):
        made.call("tool", f"t{number}", {}, number)
        writer.append(made.drafts[sent:], bodies_of(made, made.drafts[sent:]))
        sent = len(made.drafts)
        row = store.run("live")
        assert row is not None
        types = here.types.of(row)
        assert dict(types.counts())["tool.finished"] == number + 1
        assert len(types.codes) == sent
        assert types.sequences(["run.started"]) == [1]
    writer.close()
