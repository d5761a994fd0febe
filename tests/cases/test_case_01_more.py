"""Case 01, more of the kind: what the program got is what it would have got bare, and what is not known is not free."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.cli import main
from agentloupe.verbs.replaying import replay
from tests.cases.test_case_01 import agent_of, bare, cancelled_agent, case, expected, server
from tests.stream_support import Player, model_step

__all__ = ["case", "expected", "server"]


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("how", ["left", "closed", "dropped"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # a dropped stream leaves its connection to the collector
def test_the_chunks_are_those_of_a_program_without_a_recorder(server: Player, how: str, asynchronous: bool) -> None:
    agent = agent_of(server.url, how, asynchronous)
    assert loupe.record(agent).result == bare(agent)


@pytest.mark.usefixtures("workdir")
def test_with_a_price_list_a_part_of_a_stream_is_of_unknown_cost_and_not_free(
    server: Player,
    shared_case: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LOUPE_PRICES", str(shared_case("22") / "prices.json"))
    told: dict[str, Any] = {}
    for how in ("left", "read"):
        if how == "read":
            server.hold = None
        run_id = loupe.record(agent_of(server.url, how, False)).run_id
        assert model_step(run_id).idx >= 0
        capsys.readouterr()
        assert main(["show", run_id, "--json"]) == 0
        told[how] = json.loads(capsys.readouterr().out)
        assert main(["show", run_id]) == 0
        text = capsys.readouterr().out
        assert ("cost unknown" in text) is (how == "left"), text
        assert ("$0" in text) is (how == "read"), text
    costs = {how: [s["cost"] for s in found["steps"] if s["kind"] == "llm"] for how, found in told.items()}
    assert costs == {"left": [None], "read": ["0.00007"]}
    assert [found["run"]["cost_complete"] for found in told.values()] == [False, True]


@pytest.mark.usefixtures("workdir")
def test_a_cancelled_task_got_the_chunks_of_a_program_without_a_recorder(server: Player) -> None:
    agent = cancelled_agent(server.url)
    assert loupe.record(agent).result == bare(agent)


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_who_reads_on_in_a_replay_gets_the_recorded_chunks_and_not_one_more(server: Player, asynchronous: bool) -> None:
    done = loupe.record(agent_of(server.url, "left", asynchronous))
    seen: list[Any] = []
    report = replay(done.run_id, agent_of(server.url, "read", asynchronous, seen))
    assert report.divergence is not None
    assert report.divergence.kind == "extra"
    assert seen == done.result
