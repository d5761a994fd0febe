"""Comparisons, summaries and families over HTTP."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from agentloupe.engine.overrides import Overrides
from agentloupe.ports.protocols import Store
from agentloupe.verbs.forking import fork_run
from tests.fork_support import Script, weather_run
from tests.server.answers import good, refused


@pytest.fixture
def family(store: Store) -> list[str]:
    """The weather run and two forks of it; the second one from the first."""
    run = weather_run(store)
    one = fork_run(store, run, 3, Overrides(), Script(("calculate", {"expression": "17.7 - 11.9"}), "5.8")).id
    two = fork_run(store, one, 3, Overrides(), Script("no idea")).id
    return [run, one, two]


def test_two_runs_are_aligned_and_paged(client: TestClient, family: list[str]) -> None:
    run, one, _ = family
    found = good(client.get("/api/compare", params={"a": run, "b": one, "limit": 2}))
    header = found["header"]
    assert (len(found["items"]), found["total"], found["next"]) == (2, 6, 2)
    assert [row["status"] for row in found["items"]] == ["same", "same"]
    assert (header["left"]["id"], header["right"]["id"]) == (run, one)
    assert header["first"] == {"row": 5, "left_idx": 5, "right_idx": 5}
    assert header["answers"]["right"] == "5.8"
    assert header["deltas"]["misses"]["change"] == 0
    only = good(client.get("/api/compare", params={"a": run, "b": one, "only": "differences"}))
    assert [row["row"] for row in only["items"]] == [5]


def test_a_row_is_told_down_to_the_words(client: TestClient, family: list[str]) -> None:
    run, one, _ = family
    row = good(client.get("/api/compare/row", params={"a": run, "b": one, "row": 5}))
    assert (row["status"], row["left"]["idx"], row["right"]["idx"]) == ("output_differs", 5, 5)
    assert row["answer"][0]["words"]
    refused(client.get("/api/compare/row", params={"a": run, "b": one, "row": 6}), 404, "no_row")
    refused(client.get("/api/compare", params={"a": run, "b": "nobody"}), 404, "run_not_found")
    assert good(client.get("/api/compare", params={"a": run, "b": run}))["header"]["identical"]


def test_several_runs_are_summed_up(client: TestClient, family: list[str]) -> None:
    found = good(client.get("/api/summary", params={"run": family}))
    assert [row["id"] for row in found["runs"]] == family
    assert found["groups"] == 3
    assert found["agreement"] == pytest.approx(1 / 3)
    assert sorted(found["paths"][0]["runs"]) == sorted(family)
    assert found["runs"][1]["figures"]["steps"] == 6
    refused(client.get("/api/summary"), 422, "asked_wrong")


def test_rows_and_stretches_say_what_each_step_did(client: TestClient, family: list[str]) -> None:
    run, one, _ = family
    rows = good(client.get("/api/compare", params={"a": run, "b": one}))["items"]
    assert rows[0]["left"]["line"].startswith("=> get_weather(")
    assert '{"city":"Beijing"} -> ' in rows[1]["right"]["line"]
    assert "11.9" in rows[1]["right"]["line"]
    assert rows[5]["right"]["line"] == "5.8"
    assert all(len(row["left"]["line"]) <= 200 for row in rows)
    paths = good(client.get("/api/summary", params={"run": family}))["paths"]
    assert paths[0]["stretch"][1]["line"] == rows[1]["left"]["line"]
    client.delete(f"/api/runs/{run}")
    assert good(client.get("/api/compare", params={"a": one, "b": run}))["total"]


def test_the_address_of_a_comparison_leads_to_the_page(client: TestClient, family: list[str]) -> None:
    answer = client.get("/diff", params={"a": family[0], "b": family[1]})
    assert (answer.status_code, answer.headers["location"]) == (307, f"/compare?a={family[0]}&b={family[1]}")


def test_the_family_is_one_graph_from_wherever_it_is_asked(client: TestClient, family: list[str]) -> None:
    run, one, two = family
    graphs = [good(client.get(f"/api/runs/{member}/lineage")) for member in family]
    assert graphs[0] == graphs[1] == graphs[2]
    assert graphs[0]["root"] == run
    assert [(edge["parent"], edge["child"], edge["step"]) for edge in graphs[0]["edges"]] == [
        (run, one, 3),
        (one, two, 3),
    ]
    assert not graphs[0]["capped"]
