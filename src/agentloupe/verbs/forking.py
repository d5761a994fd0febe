"""The verb `fork`: a new run from a step of an existing one, with overrides. The parent is only read.

done = fork("weather-...", from_step=3, system_prompt="One sentence.")       # generic loop, no code needed
done = fork(run, agent, from_step=3, overrides=Overrides(temperature=0.9))   # the agent's own code
run = fork_run(store, run_id, 3, Overrides(), llm_call)                      # with a plain function as the model
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentloupe.engine.loop import Limits, LlmCall, Model, from_llm_call
from agentloupe.engine.overrides import NO_OVERRIDES, Overrides
from agentloupe.engine.policy import Allow
from agentloupe.ports.protocols import Provider, Store
from agentloupe.verbs.forkfamily import (
    MAX_REPEAT,
    Family,
    ForkResult,
    ForkWishes,
    arms_of,
    check_repeat,
    new_fork_id,
    with_fields,
)
from agentloupe.verbs.looping import tool_functions
from agentloupe.words.errors import ForkRefused, RunNotFound
from agentloupe.words.run import Run

__all__ = ["MAX_REPEAT", "ForkResult", "ForkWishes", "PendingFork", "fork", "fork_run", "prepare_fork"]


# --- the verb ---------------------------------------------------------------------------------------------------------


def fork(
    run: str,
    agent: Callable[..., Any] | str | None = None,
    *,
    from_step: int | Literal["start"],
    store: Store | str | Path | None = None,
    provider: Provider | Model | None = None,
    wishes: ForkWishes | None = None,
    **more: Any,
) -> ForkResult:
    """Forks a run.

    Args:
        run: its id, a unique beginning of one, `last` or `last~N`.
        agent: the agent's function or `module:function`; without it the generic loop is run.
        from_step: index of a model step, or `"start"`: the agent anew from its recorded input.
        store: where runs are: a store, its URL or its file; default: the project's.
        provider: who is asked by the generic loop; default: the model of the settings (`LLM_BASE_URL` ...).
        wishes: how.
        more: single fields of `ForkWishes`, `Limits` and `Overrides`, over `wishes`.

    Raises:
        RunNotFound: there is no such run.
        ForkRefused: a fork cannot start there; `reason` says why.
        UsageError: an override, a policy or a number is wrong.
        Damaged: the parent's recording is not whole.
        StoreError: the new run cannot be stored.
    """
    from agentloupe.verbs.api import open_store, resolve

    chosen = with_fields(wishes or ForkWishes(), more)
    where = open_store(store, create=False) if store is None or isinstance(store, str | Path) else store
    return Family(where, resolve(where, run), from_step, agent, provider, chosen).fork()


@dataclass(frozen=True, slots=True)
class PendingFork:
    """A fork that is named, and not yet made.

    Attributes:
        ids: ids of the runs that will be made, in order of `arms`.
        arms: `candidate`, `control`, or `None` for a candidate without a control.
        run: makes them; see `fork` for what it returns and raises.
    """

    ids: tuple[str, ...]
    arms: tuple[str | None, ...]
    run: Callable[[], ForkResult]


def prepare_fork(
    run: str,
    agent: Callable[..., Any] | str | None = None,
    *,
    from_step: int | Literal["start"],
    store: Store,
    provider: Provider | Model | None = None,
    wishes: ForkWishes | None = None,
) -> PendingFork:
    """Names the runs of a fork at once, for an answer that cannot wait. Arguments as for `fork`; `run` is an exact id.

    What the header of the step tells is refused here, everything else when it is run.

    Raises:
        RunNotFound, ForkRefused, UsageError: see `fork`.
    """
    chosen = wishes or ForkWishes()
    check_repeat(chosen)
    if store.run(run) is None:
        raise RunNotFound(f"no run {run!r}", hint="`agentloupe list` shows what there is")
    if from_step != "start":
        found = store.steps(run, first=from_step, limit=1) if from_step >= 0 else []
        if not found or found[0].idx != from_step:
            raise ForkRefused(f"step {from_step} of {run} is not there", reason="no_step")
        if found[0].kind != "llm":
            kind = found[0].kind
            raise ForkRefused(
                f"step {from_step} of {run} is of kind {kind}: a fork starts at a model step", reason="not_llm"
            )
        if found[0].partial is not None:
            raise ForkRefused(f"step {from_step} of {run}: the stored request is not complete", reason="cut_request")
    arms = tuple(arms_of(chosen))
    ids = tuple(new_fork_id(run) for _ in arms)
    return PendingFork(ids, arms, lambda: Family(store, run, from_step, agent, provider, chosen, ids).fork())


def fork_run(
    store: Store,
    run_id: str,
    from_step: int,
    overrides: Overrides | None,
    llm_call: LlmCall,
    live_tools: Mapping[str, Callable[..., object]] | Iterable[Callable[..., object]] | None = None,
    max_steps: int = 12,
) -> Run:
    """Forks one run with the generic loop and a plain function as the model; returns the new run.

    Handing a function in `live_tools` lists it and declares it `pure`, unless it is decorated otherwise; a tool that is
    declared `write` is refused.

    Raises:
        RunNotFound, ForkRefused, UsageError, Damaged, StoreError: see `fork`.
    """
    functions = tool_functions(live_tools)
    wishes = ForkWishes(
        overrides=overrides or NO_OVERRIDES,
        functions=functions,
        live={name: Allow("handed in as a live tool", read=True) for name in functions},
        limits=Limits(max_steps=max_steps),
        engine="generic",
    )
    if store.run(run_id) is None:
        raise RunNotFound(f"no run {run_id!r}", hint="`agentloupe list` shows what there is")
    return Family(store, run_id, from_step, None, from_llm_call(llm_call), wishes).fork().candidates[0]
