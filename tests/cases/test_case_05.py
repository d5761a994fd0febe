"""Case 05: tools that run in worker threads or in gather, and two runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.replaying import replay
from agentloupe.words.run import Run
from tests.cases.rec import Rec, load_agent

TEN = 10


@pytest.fixture
def agent(shared_case: Callable[[str], Path]) -> ModuleType:
    return load_agent(shared_case("05"))


@pytest.fixture
def store(workdir: Path) -> Iterator[Store]:
    opened = open_url(workdir / "x.db")
    yield opened
    opened.close()


def _recorded(agent: ModuleType, store: Store) -> tuple[Any, Run]:
    """Where a processor is scarce the tool that sleeps least does not always wake first: again, then."""
    for left in reversed(range(TEN)):
        live = agent.main(Rec(store))
        run = store.runs()[0]
        events = store.recording(run.id).events
        begun, ended = ([e.lane for e in events if e.type == f"tool.{what}"] for what in ("started", "finished"))
        if ended == [*begun[2::-1], *begun[:2:-1]] or not left:
            return live, run
    raise AssertionError


def test_six_tools_of_one_run(agent: ModuleType, store: Store) -> None:
    live, run = _recorded(agent, store)
    root, *tools = store.steps(run.id)
    assert [step.kind for step in (root, *tools)] == ["agent", *["tool"] * 6]
    assert {step.parent_idx for step in tools} == {root.idx}, "none a root, and none lost"

    events = store.recording(run.id).events
    begun = [(e.lane, e.name) for e in events if e.type == "tool.started"]
    ended = [(e.lane, e.name) for e in events if e.type == "tool.finished"]
    assert sorted(begun) == sorted(ended)
    assert [name for _, name in begun] == ["slow"] * 3 + ["aslow"] * 3
    assert ended == [*begun[2::-1], *begun[:2:-1]], "the last one is the quickest, in both"

    got: list[Any] = []
    for _ in range(TEN):
        report = replay(store.recording(run.id), lambda: got.append(agent.main(Rec())), strict_order=True)
        assert (report.verdict, report.consumed) == ("pass", len(events)), report.text()
    assert got == [live] * TEN


def test_two_runs_at_once_are_never_mixed(agent: ModuleType, store: Store) -> None:
    live = agent.two_runs_at_once(Rec(store))
    assert live == [{"n": 1}, {"n": 2}]
    runs = {run.agent: run for run in store.runs()}
    assert sorted(runs) == ["x", "xy"]
    for name, run in runs.items():
        recording = store.recording(run.id)
        _, step = store.steps(run.id)
        assert recording.body(str(step.output_digest)) == {"n": len(name)}
        texts = set[str]()
        for _ in range(TEN):  # the program starts both each time, and each replay is of one of them
            report = replay(recording, lambda: agent.two_runs_at_once(Rec()), strict_order=True)
            assert (report.verdict, report.consumed) == ("pass", len(recording.events)), report.text()
            texts.add(report.text())
        assert len(texts) == 1
        assert "the program starts other runs too" in texts.pop()
