"""The plain agent loop with plain functions: record a sample run with it, look at its steps.

    steps = run_loop(llm_call, {"calculate": calculate}, model="m", system="...", question="...", tool_schemas=[...])
    trace = finish(run, steps)

No root step is written. Whatever the loop asks goes through a recorder, so the run can be replayed and forked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import cast

from agentloupe.engine import project
from agentloupe.engine.loop import ExecTool, Limits, LlmCall, Loop, Model, Spend, Tools, from_llm_call
from agentloupe.engine.policy import stated_effect
from agentloupe.engine.project import load_steps
from agentloupe.engine.raised import error_name, status_of
from agentloupe.engine.recorder import Recorder
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Store
from agentloupe.ports.scribe import Started
from agentloupe.ports.settings import Settings
from agentloupe.verbs.keeping import Keeping, keeping_for
from agentloupe.verbs.sessions import settings_here
from agentloupe.words.call import Effect
from agentloupe.words.canonical import Json
from agentloupe.words.errors import LimitReached, LoupeError, ProviderError, StepNotFound
from agentloupe.words.keeping import Profile
from agentloupe.words.run import COUNTED, Counts, Run
from agentloupe.words.step import Step, Trace

__all__ = ["executor_of", "finish", "messages_at", "run_loop", "tool_functions"]


def run_loop(
    llm_call: LlmCall | Model,
    tools: Mapping[str, Callable[..., object]] | Iterable[Callable[..., object]] = (),
    *,
    model: str,
    question: str | None = None,
    system: str | None = None,
    messages: Sequence[Json] = (),
    tool_schemas: Sequence[Json] = (),
    parameters: Mapping[str, Json] | None = None,
    exec_tool: ExecTool | None = None,
    max_steps: int = 12,
    store: Store | None = None,
    run_id: str | None = None,
    name: str = "run_loop",
    tags: Sequence[str] = (),
) -> list[Step]:
    """Runs the loop, records it, and returns its loaded steps (0, 1, 2 ...; no root step).

    Args:
        llm_call: `llm_call(messages, tools, model, temperature) -> (assistant message, input tokens, output tokens)`,
            or a `loop.Model`.
        tools: functions by name, or functions (their names count); called with the arguments by name.
        model: name of the model.
        question: the user's message, after `messages`.
        system: the system prompt, before `messages`.
        messages: a history to begin with.
        tool_schemas: what the model is told of the tools.
        parameters: further fields of the request (temperature, seed ...).
        exec_tool: `exec_tool(name, args) -> (output, error)`, for tools that `tools` does not have.
        max_steps: model calls at most; a last step `max_steps` says so when tool calls are pending.
        store: where the run is kept; without one it is forgotten.
        run_id: of the run; default: a new one.
        name: of the run and its agent.
        tags: of the run.

    What is kept of values is said by the settings' profile and sample for the agent `name`; where only digests are kept, the
    steps that come back hold no values.

    A failed model call or a limit ends the run with status `error`; what a tool raises is told to the model.
    """
    where = store if store is not None else _memory()
    functions = tool_functions(tools)
    request: dict[str, Json] = {"model": model, "messages": _history(messages, system, question)}
    if tool_schemas:
        request["tools"] = list(tool_schemas)
    request.update(parameters or {})
    asked = llm_call if isinstance(llm_call, Model) else from_llm_call(llm_call)
    limits = Limits(max_steps=max_steps)
    effects: dict[str, Effect | None] = {tool: stated_effect(function) for tool, function in functions.items()}
    loop = Loop(asked, Tools(functions, exec_tool, effects), Spend(limits))
    settings = settings_here()
    run_id = run_id or ambient.new_run_id(name)
    # A run that is forgotten keeps nothing, and its steps are given back whole.
    wished: tuple[Profile | None, float | None] = (None, None) if store is not None else ("full", 1.0)
    kept = keeping_for(settings, name, *wished).of_run(run_id)
    recorder = _recorder(where, run_id, settings, kept)
    arguments: Json = {"args": [], "kwargs": {}}
    facts: dict[str, Json] = {"root": False, "rules": recorder.rules.digest, "limits": limits.as_json()}
    bodies: dict[str, Json] = {"rules": recorder.rules.as_json(), "request": request}
    kept.begin(
        recorder,
        Started(
            agent=name, name=name, arguments=arguments, engine="generic", tags=tuple(tags), facts=facts, bodies=bodies
        ),
    )
    _drive(loop, request, recorder)
    return list(load_steps(where.recording(recorder.run_id)))


def _memory() -> Store:
    from agentloupe.store.memory import MemoryStore

    return MemoryStore()


def _recorder(store: Store, run_id: str, settings: Settings, kept: Keeping) -> Recorder:
    from agentloupe.store.owners import this_process

    writer = store.start(run_id, project.Projector, owner=this_process())
    scribe = kept.scribe(ambient.arrived())
    return Recorder(
        writer,
        scribe,
        rules=kept.rules,
        scope=run_id,
        drops_values=settings.when_full == "drop_bodies",
        passes_trace_on=settings.pass_trace_on,
    )


def _drive(loop: Loop, request: dict[str, Json], recorder: Recorder) -> None:
    try:
        with ambient.inside(recorder):
            message = loop.run(request)
    except (LimitReached, ProviderError) as stop:
        _end_failed(recorder, stop)
    except BaseException as error:
        _end_failed(recorder, error)
        raise
    else:
        recorder.end("ok", {"result": message}, {})


def _end_failed(recorder: Recorder, error: BaseException) -> None:
    facts: dict[str, Json] = {"error_class": error_name(error)}
    if isinstance(error, LoupeError):
        facts["error"] = error.message
    recorder.end(status_of(error), codecs.encode(error).wire, facts)


def _history(messages: Sequence[Json], system: str | None, question: str | None) -> list[Json]:
    history: list[Json] = []
    if system is not None:
        history.append({"role": "system", "content": system})
    history += messages
    if question is not None:
        history.append({"role": "user", "content": question})
    return history


def tool_functions(
    tools: Mapping[str, Callable[..., object]] | Iterable[Callable[..., object]] | None,
) -> dict[str, Callable[..., object]]:
    """Functions by tool name: a decorated one by its stable name, a plain one by its own."""
    if tools is None:
        return {}
    if isinstance(tools, Mapping):
        return dict(cast("Mapping[str, Callable[..., object]]", tools))
    return {_name_of(function): function for function in tools}


def _name_of(function: Callable[..., object]) -> str:
    declared = getattr(getattr(function, "__loupe_tool__", None), "name", None)
    return declared if isinstance(declared, str) else getattr(function, "__name__", type(function).__name__)


def executor_of(tools: Mapping[str, Callable[..., object]] | Iterable[Callable[..., object]]) -> ExecTool:
    """`exec_tool(name, args) -> (output, error)` over plain functions; an exception becomes class and message."""
    functions = tool_functions(tools)
    runner = Tools(functions)

    def exec_tool(name: str, args: dict[str, Json]) -> tuple[Json, str | None]:
        try:
            return codecs.decode_for_reading(codecs.encode(runner.run(name, args)).wire), None
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its result
            text = str(error) if name not in functions else f"{type(error).__name__}: {error}"
            return None, text

    return exec_tool


# --- looking at steps -------------------------------------------------------------------------------------------------


def messages_at(steps: Sequence[Step], n: int) -> list[Json]:
    """The messages that the model step of index `n` was sent.

    Raises:
        StepNotFound: there is no such step, or it is no model step with messages (`reason` is `not_llm`).
    """
    step = next((s for s in steps if s.idx == n), None)
    if step is None:
        raise StepNotFound(f"there is no step {n}")
    messages = step.input.get("messages") if isinstance(step.input, dict) else None
    if step.kind != "llm" or not isinstance(messages, list):
        raise StepNotFound(f"step {n} is no model step with its messages ({step.kind})", reason="not_llm")
    return list(messages)


def finish(run: Run, steps: Sequence[Step]) -> Trace:
    """A run's totals from its steps: tokens, times, model, counts, status. Pure; stores nothing.

    A run of the loop is `error` when its last step is a limit's or a failed model call's.
    """
    models = [step for step in steps if step.kind == "llm"]
    known_in = [step.input_tokens for step in models if step.input_tokens is not None]
    known_out = [step.output_tokens for step in models if step.output_tokens is not None]
    costs = [step.cost for step in models if step.cost is not None]
    last = steps[-1] if steps else None
    failed = last is not None and last.error is not None and last.kind in ("llm", "other")
    tools = [step for step in steps if step.kind == "tool" and not step.attrs.get("parse_error")]
    counts = {name: sum(step.source == name for step in tools) for name in COUNTED}
    counts["reused"] = sum(step.attrs.get("reused") is True for step in tools)
    done = replace(
        run,
        status="error" if failed else "ok",
        started_at=steps[0].started_at if steps else run.started_at,
        ended_at=last.ended_at if last is not None else run.ended_at,
        model=run.model or (models[0].model if models else None),
        total_input_tokens=sum(known_in) if known_in else None,
        total_output_tokens=sum(known_out) if known_out else None,
        usage_complete=len(known_in) == len(known_out) == len(models),
        cost=sum(costs, Decimal(0)) if costs else None,
        cost_complete=len(costs) == len(models),
        step_count=len(steps),
        error=last.error if failed and last is not None else None,
        counts=Counts(**counts) if run.parent_run_id is not None else run.counts,
    )
    return Trace(done, tuple(steps))
