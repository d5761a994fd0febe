"""tau-bench conversations, imported and forked with a scripted model from several steps: the counts are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.compare import Comparison
from agentloupe.engine.overrides import Overrides
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.exchange import import_file, load_trace
from agentloupe.verbs.forking import fork_run
from agentloupe.words.errors import ForkRefused
from agentloupe.words.step import Step
from tests.fork_support import Script

UNHEARD = ("teleport", {"to": "the moon"})
MODEL = Overrides(model="scripted-1")


@pytest.fixture(scope="module")
def store(shared: Path) -> Store:
    made = open_url("memory:")
    import_file(made, shared / "data" / "tau_bench" / "gpt-4o-airline.give.json")
    return made


def steps_of(store: Store, run_id: str) -> tuple[Step, ...]:
    return load_trace(store.recording(run_id)).steps


def some(steps: tuple[Step, ...]) -> list[Step]:
    """The first, the middle and the last model step."""
    models = [step for step in steps if step.kind == "llm"]
    return [models[0], models[len(models) // 2], models[-1]]


def runs(store: Store) -> list[str]:
    return sorted(run.id for run in store.runs() if run.parent_run_id is None)


def test_forks_from_several_steps_count_hits_and_misses(store: Store) -> None:
    assert len(runs(store)) == 6
    for run_id in runs(store):
        steps = steps_of(store, run_id)
        for at in some(steps):
            later = [s for s in steps if s.kind == "tool" and s.idx > at.idx][:2]
            asked = [(s.name, s.input) for s in later]
            model = Script([*asked, UNHEARD], "done") if asked else Script(UNHEARD, "done")
            fork = fork_run(store, run_id, at.idx, MODEL, model)
            assert (fork.counts.cassette, fork.counts.miss, fork.counts.live) == (len(asked), 1, 0)
            assert fork.step_count == at.idx + 1 + len(asked) + 1 + 1
            assert (fork.parent_run_id, fork.forked_from_step) == (run_id, at.idx)
            made = steps_of(store, fork.id)
            assert [s.source for s in made[: at.idx]] == ["recorded"] * at.idx
            # What was sent is the recorded prefix, exactly, and the answers that the cassette gave are the recorded ones.
            assert isinstance(at.input, dict)
            assert repr(model.asked[0]["messages"]) == repr(at.input["messages"])
            played = [s.output for s in made if s.source == "cassette"]
            assert played == [s.output for s in later]
            results = [m["content"] for m in model.asked[1]["messages"] if m["role"] == "tool"][-1 - len(asked) : -1]
            assert results == played


def test_a_fork_beside_its_parent_has_the_same_prefix(store: Store) -> None:
    run_id = runs(store)[0]
    at = some(steps_of(store, run_id))[1]
    fork = fork_run(store, run_id, at.idx, MODEL, Script(UNHEARD, "done"))
    found = compare(run_id, fork.id, store=store)
    assert isinstance(found, Comparison)
    assert [row.status for row in found.rows[: at.idx]] == ["same"] * at.idx
    assert found.rows[at.idx].status == "input_differs"
    first = found.first_at()
    assert first == (at.idx, at.idx)
    assert found.deltas["misses"].change == 1


def test_an_unchanged_answer_is_no_difference(store: Store) -> None:
    """The recorded answer again: the fork's own part differs in nothing but the model that it was told."""
    run_id = runs(store)[0]
    at = some(steps_of(store, run_id))[-1]
    message: Any = at.output
    fork = fork_run(store, run_id, at.idx, MODEL, Script(message))
    found = compare(run_id, fork.id, store=store)
    assert isinstance(found, Comparison)
    changed = [row for row in found.rows if row.status != "same"]
    if not message.get("tool_calls"):
        assert [row.status for row in changed] == ["input_differs"]
        assert "output differs" not in changed[0].notes


def test_a_tool_step_cannot_be_forked_from(store: Store) -> None:
    run_id = runs(store)[0]
    tool = next(step for step in steps_of(store, run_id) if step.kind == "tool")
    with pytest.raises(ForkRefused) as caught:
        fork_run(store, run_id, tool.idx, MODEL, Script("x"))
    assert caught.value.reason == "not_llm"


def test_no_import_is_ever_written_to(store: Store) -> None:
    run_id = runs(store)[1]
    before = store.recording(run_id).events
    fork_run(store, run_id, some(steps_of(store, run_id))[0].idx, MODEL, Script("done"))
    assert store.recording(run_id).events == before
