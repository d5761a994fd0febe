"""A fork of a 100-step run at its last model call, with a model that answers at once."""

from __future__ import annotations

from typing import Any

from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.overrides import Overrides
from agentloupe.verbs.forking import ForkWishes, fork, fork_run, prepare_fork
from agentloupe.words.step import Step
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.timing import Batch, by_turns

_STEPS = 100
_OVERRIDES = Overrides(system_prompt="Answer in one sentence.")


def _fake(messages: list[Any], tools: Any, model: Any, temperature: Any) -> tuple[dict[str, Any], int, int]:
    return {"role": "assistant", "content": "done"}, 10, 2


def measure(context: Context) -> Found:
    """To the new run's id, the whole fork with the generic loop, the whole fork with the agent's own code."""
    store = context.store("fork")
    run = recorded(store, model_and_tool, _STEPS, new=1024, most=2 * _STEPS)
    last = [step.idx for step in store.steps(run) if _is_model(step)][-1]

    def to_the_id() -> int:
        wishes = ForkWishes(overrides=_OVERRIDES)
        pending = prepare_fork(run, from_step=last, store=store, provider=from_llm_call(_fake), wishes=wishes)
        assert len(pending.ids) == 1
        return 1

    def generic() -> int:
        made = fork_run(store, run, last, _OVERRIDES, _fake)
        assert made.status == "ok", made.error
        return 1

    def own() -> int:
        done = fork(run, model_and_tool, from_step=last, store=store, overrides=_OVERRIDES)
        assert done.candidates[0].status == "ok", done.candidates[0].error
        return 1

    batches: dict[str, Batch] = {"id": to_the_id, "generic": generic, "own": own}
    before = store.size()
    generic()
    after = store.size()
    for batch in batches.values():
        batch()  # modules that only forks need are loaded
    taken = by_turns(batches, context.turns(10))
    found = Found()
    for name, target, what in (
        ("id", 5.0, "to the new run's id"),
        ("generic", 50.0, "whole, generic loop"),
        ("own", 50.0, "whole, the agent's own code run again"),
    ):
        figure = Figure(
            row="fork", name=what, unit="ms", measured=taken[name].ms, median=taken[name].median * 1e3, target=target
        )
        found.figures.append(figure)
    found.figures.append(
        Figure(
            row="fork",
            name="new bodies of a fork, stored",
            unit="KB",
            measured=(after.bodies_stored - before.bodies_stored) / 1e3,
            peers=(Peer("bodies of the parent, stored", before.bodies_stored / 1e3),),
            note="the request at the fork is told by what it shares with the parent's",
        )
    )
    return found


def _is_model(step: Step) -> bool:
    return step.kind == "llm"
