"""Case 12, more of the kind: siblings at the same moment, own code with canaries, reload in another process's eyes."""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.overrides import Overrides
from agentloupe.engine.project import load_steps
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.forking import fork, fork_run
from agentloupe.verbs.replaying import replay
from tests.fork_support import Script, exported, import_runs
from tests.tapes import record_in


def at_once(*works: Callable[[], None]) -> None:
    """Runs works in threads of their own; what one raises comes out."""
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(guarded, work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


class Meeting(Script):
    """A model whose first answers wait until every sibling has asked: none ends before all have begun."""

    def __init__(self, barrier: threading.Barrier, *answers: Any) -> None:
        super().__init__(*answers)
        self.barrier = barrier

    def __call__(self, *asked: Any) -> Any:
        if not self.asked:
            self.barrier.wait(20)
        return super().__call__(*asked)


def texts(store: Store, run_id: str) -> str:
    return json.dumps([[s.name, s.input, s.output, s.error] for s in load_steps(store.recording(run_id))])


@pytest.mark.parametrize("siblings", [2, 5])
def test_siblings_that_run_at_the_same_moment_stay_apart(
    shared_case: Callable[[str], Path], tmp_path: Path, siblings: int
) -> None:
    store = open_url(tmp_path / "runs.db")
    [parent] = import_runs(store, shared_case("12") / "trace.json")
    before = exported(store, parent)
    barrier = threading.Barrier(siblings)
    scripts = [Meeting(barrier, ("lookup", {"k": "B"}), f"answer-{n}-only") for n in range(siblings)]
    made: dict[int, str] = {}

    def one(n: int) -> Callable[[], None]:
        def work() -> None:
            made[n] = fork_run(store, parent, 2, Overrides(system_prompt=f"prompt-{n}-only"), scripts[n]).id

        return work

    at_once(*(one(n) for n in range(siblings)))
    live = {n: texts(store, made[n]) for n in made}
    assert len(set(made.values())) == siblings
    assert exported(store, parent) == before
    store.close()

    store = open_url(tmp_path / "runs.db", read_only=True)
    for n, run_id in made.items():
        assert texts(store, run_id) == live[n], "what is on disk is what was live"
        own = [f"answer-{n}-only" in live[n], f"prompt-{n}-only" in live[n]]
        others = [word for m in made if m != n for word in (f"answer-{m}-only", f"prompt-{m}-only") if word in live[n]]
        assert (own, others) == ([True, True], [])
        recording = store.recording(run_id)
        assert verify(recording).ok
        assert {event.run_id for event in recording.events} == {run_id}
        run = store.run(run_id)
        assert run is not None
        assert (run.parent_run_id, run.forked_from_step, run.counts.cassette, run.step_count) == (parent, 2, 1, 5)
        assert len(scripts[n].asked[0]["messages"]) == 4, "it began at step 2, not at the start"
    store.close()


@pytest.mark.parametrize("first", ["x", "y", "parent"])
def test_deleting_one_damages_none_of_the_others(
    shared_case: Callable[[str], Path], tmp_path: Path, first: str
) -> None:
    store = open_url(tmp_path / "runs.db")
    [parent] = import_runs(store, shared_case("12") / "trace.json")
    runs = {"parent": parent}
    for name in ("x", "y"):
        runs[name] = fork_run(store, parent, 2, Overrides(system_prompt=name), Script(("lookup", {"k": "B"}), name)).id
    runs["y2"] = fork_run(store, runs["y"], 4, Overrides(temperature=1), Script("y2")).id
    whole = {name: (exported(store, run_id), texts(store, run_id)) for name, run_id in runs.items()}
    store.erase(runs[first], [])
    store.gc()
    store.close()
    store = open_url(tmp_path / "runs.db")
    for name, run_id in runs.items():
        if name != first:
            assert (exported(store, run_id), texts(store, run_id)) == whole[name]
            assert verify(store.recording(run_id)).ok
    if first != "y":
        again = fork_run(store, runs["y2"], 4, None, Script("once more"))
        assert again.step_count == 5
    assert store.check() == []
    store.close()


# ---------------------------------------------------------------- own code

sang: list[str] = []


def ask(words: str) -> str:
    """One question to the model of the fork that is running."""
    from agentloupe.ports import ambient
    from tests.tapes import ask as question

    answer: Any = ambient.call(question(words).call(), lambda: {"choices": [{"message": {"content": said(words)}}]})
    return answer["choices"][0]["message"]["content"]


said: Callable[[str], str] = lambda words: f"answer to {words}"  # noqa: E731


@loupe.tool(effect="read", name="look")
def look(k: str) -> str:
    sang.append(k)
    return f"found {k}"


@loupe.agent(name="inner")
def inner(k: str) -> str:
    return ask(f"inner {k} {look(k=k)}")


@loupe.agent(name="outer")
def outer() -> list[str]:
    return [ask("first"), look(k="A"), inner("B"), inner("C"), ask("last")]


def test_a_fork_of_any_step_of_nested_agents_executes_nothing_before_it_and_nothing_for_real() -> None:
    """The first new model call is the chosen step; tools, before it and after it, answer from the tape."""
    from agentloupe.store.memory import MemoryStore

    sang.clear()
    store = MemoryStore()
    recording = record_in(store, outer)
    assert sang == ["A", "B", "C"]
    sang.clear()
    steps = load_steps(recording)
    models = [step.idx for step in steps if step.kind == "llm"]
    assert len(models) == 4
    before = exported(store, recording.run_id)
    for at in models:
        run = fork(recording.run_id, outer, from_step=at, store=store).candidates[0]
        new = load_steps(store.recording(run.id))
        assert sang == []
        assert [s.name for s in new] == [s.name for s in steps]
        sources = [s.source for s in new if s.kind in ("llm", "tool")]
        kinds = [s.kind for s in new if s.kind in ("llm", "tool")]
        kept = sum(s.idx < at for s in steps if s.kind in ("llm", "tool"))
        assert sources[:kept] == ["recorded"] * kept
        assert sources[kept:] == [{"llm": "live", "tool": "cassette"}[kind] for kind in kinds[kept:]]
        child = fork(run.id, outer, from_step=models[-1], store=store).candidates[0]
        assert (child.parent_run_id, child.forked_from_step) == (run.id, models[-1])
        assert replay(child.id, outer, store=store).verdict == "pass"
        assert sang == []
    assert exported(store, recording.run_id) == before


def test_the_root_reaches_from_the_shifted_prefix_to_the_new_end_and_new_steps_stand_under_the_same_parents() -> None:
    from agentloupe.store.memory import MemoryStore

    store = MemoryStore()
    recording = record_in(store, outer)
    steps = load_steps(recording)
    for at in [step.idx for step in steps if step.kind == "llm"]:
        run = fork(recording.run_id, outer, from_step=at, store=store).candidates[0]
        root, *others = load_steps(store.recording(run.id))
        assert root.parent_idx is None
        assert [s.parent_idx for s in others] == [s.parent_idx for s in steps[1:]]
        assert root.started_at <= min(s.started_at for s in others)
        assert root.ended_at is not None
        assert root.ended_at >= max(str(s.ended_at) for s in others)
        kept, new = [s for s in others if s.idx < at and s.kind != "agent"], [s for s in others if s.idx >= at]
        assert all(str(s.ended_at) <= min(n.started_at for n in new) for s in kept), (
            "the kept part ends where the new begins"
        )
