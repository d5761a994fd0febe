"""Case 11, the replaying half: a moved clock and another seed change nothing inside the boundary, and show outside of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_machine

import agentloupe as loupe
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports import ambient
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from tests.cases.rec import Rec, load_agent

MARCH = "2026-03-02T08:00:00Z"
MAY = "2027-05-20T21:30:00Z"


@pytest.fixture
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("11")


def _recorded(case: Path, workdir: Path, mode: str) -> tuple[Any, Any, Any]:
    store = open_url(workdir / "x.db")
    module = load_agent(case)
    with time_machine.travel(MARCH, tick=False):
        random.seed(1)
        result = module.main(Rec(store), mode)
    return store, module, result


def test_boundary_passes_with_another_clock_and_seed(case: Path, workdir: Path) -> None:
    store, module, (_, uid) = _recorded(case, workdir, "boundary")
    got: list[Any] = []
    recording = store.recording(store.runs()[0].id)
    for seed in (2, 3):
        with time_machine.travel(MAY, tick=False):
            random.seed(seed)
            report = replay(recording, lambda: got.append(module.main(Rec(), "boundary")))
        assert report.verdict == "pass", report.text()
    assert [g[1] for g in got] == [uid, uid]
    store.close()


def test_direct_fails_at_the_first_model_call_and_says_why(case: Path, workdir: Path) -> None:
    store, module, _ = _recorded(case, workdir, "direct")
    with time_machine.travel(MAY, tick=False):
        random.seed(1)
        report = replay(store.recording(store.runs()[0].id), lambda: module.main(Rec(), "direct"))
    found = report.divergence
    assert found is not None
    assert (report.exit_code, found.kind, found.sequence) == (1, "input_changed", 2)
    assert "[-2026-03-02" in report.text()
    assert "{+2027-05-20" in report.text()
    assert any("clock was read outside the boundary" in hint for hint in found.hints), found.hints
    assert any("id: it was made outside the boundary" in hint for hint in found.hints), found.hints
    store.close()


def test_looking_at_it_and_exporting_it_change_nothing(case: Path, workdir: Path) -> None:
    store, module, _ = _recorded(case, workdir, "boundary")
    run_id = store.runs()[0].id
    first = replay(store.recording(run_id), lambda: module.main(Rec(), "boundary"))
    store.steps(run_id)
    store.rebuild(run_id, __import__("agentloupe.engine.project", fromlist=["Projector"]).Projector)
    with (workdir / "x.loupe").open("wb") as out:
        LoupeFileExporter().write(iter([store.recording(run_id)]), out)
    assert replay(store.recording(run_id), lambda: module.main(Rec(), "boundary")) == first
    assert replay(workdir / "x.loupe", lambda: module.main(Rec(), "boundary")) == first
    store.close()


def test_seeded_draws_past_the_boundary_stay_in_step_with_those_that_are_answered() -> None:
    def program() -> list[Any]:
        random.seed(7)
        drawn: list[Any] = [random.random(), loupe.random(), random.random(), loupe.rng.choice("abcd")]
        drawn += [random.randint(1, 10**9), loupe.rng.sample(range(9), 3), random.random()]
        things = [1, 2, 3]
        loupe.rng.shuffle(things)
        return [*drawn, things, loupe.rng.gauss(), loupe.rng.uniform(0, 1), random.random()]

    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        loupe.agent(program)()
    report = replay(store.recording(opener.sessions[0].run_id), program)
    assert report.passed, report.text()
