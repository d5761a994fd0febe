"""The verb `fork`: a new run from a step of an existing one, with overrides. The parent is only read.

done = fork("weather-...", from_step=3, system_prompt="One sentence.")       # generic loop, no code needed
done = fork(run, agent, from_step=3, overrides=Overrides(temperature=0.9))   # the agent's own code
run = fork_run(store, run_id, 3, Overrides(), llm_call)                      # with a plain function as the model
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from agentloupe.errors import RunNotFound
from agentloupe.forkfamily import MAX_REPEAT, Family, ForkResult, ForkWishes, with_fields
from agentloupe.loop import Limits, LlmCall, Model, from_llm_call
from agentloupe.looping import tool_functions
from agentloupe.overrides import NO_OVERRIDES, Overrides
from agentloupe.policy import Allow
from agentloupe.ports import Provider, Store
from agentloupe.run import Run

__all__ = ["MAX_REPEAT", "ForkResult", "ForkWishes", "fork", "fork_run"]


# --- the verb ---------------------------------------------------------------------------------------------------------


def fork(
    run: str,
    agent: Callable[..., Any] | str | None = None,
    *,
    from_step: int | Literal["start"],
    store: Store | None = None,
    provider: Provider | Model | None = None,
    wishes: ForkWishes | None = None,
    **more: Any,
) -> ForkResult:
    """Forks a run.

    Args:
        run: its id, a unique beginning of one, `last` or `last~N`.
        agent: the agent's function or `module:function`; without it the generic loop is run.
        from_step: index of a model step, or `"start"`: the agent anew from its recorded input.
        store: where runs are; default: the project's.
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
    from agentloupe.api import open_store, resolve

    chosen = with_fields(wishes or ForkWishes(), more)
    where = store if store is not None else open_store()
    return Family(where, resolve(where, run), from_step, agent, provider, chosen).fork()


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
