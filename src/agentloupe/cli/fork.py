"""`agentloupe fork`: a new run from a model step of an old one, with changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from agentloupe.cli import forkoptions as options
from agentloupe.cli.asking import ask
from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened, text_given
from agentloupe.cli.output import Output, fail
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import loads

if TYPE_CHECKING:
    from agentloupe.engine.overrides import Overrides
    from agentloupe.engine.policy import Allow
    from agentloupe.ports.protocols import Store
    from agentloupe.verbs.forkfamily import ForkResult, ForkWishes


def command(
    run: RunRef,
    script: options.Script = None,
    start: options.Start = "",
    code: options.Code = None,
    engine: options.Engine = None,
    endpoint: options.Endpoint = None,
    system_prompt: options.SystemPrompt = None,
    model: options.Model = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    max_tokens: options.MaxTokens = None,
    set_: options.SetPaths = None,
    unset: options.Unset = None,
    overrides: options.OverridesFile = None,
    tool: options.Tool = None,
    live: options.Live = None,
    reason: options.Reason = None,
    tools_from: options.ToolsFrom = None,
    on_miss: options.OnMiss = "error",
    repeat: options.Repeat = 1,
    control: options.Control = None,
    max_steps: options.MaxSteps = 12,
    max_cost: options.MaxCost = None,
    max_seconds: options.MaxSeconds = None,
    require_faithful: options.RequireFaithful = False,
    code_changed: options.CodeChanged = False,
    watch: options.Watch = None,
    fail_on: options.FailOn = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Start a new run from a model step of an old one, with changes. The old run is never written to.

    The model is asked anew; tools are answered from the recording. A tool that writes is never run. The model is the one
    of LLM_BASE_URL, LLM_API_KEY, LLM_MODEL (also from .env), or --endpoint.

    Examples: agentloupe fork last --from 3 --system-prompt "Answer in one sentence.";
    agentloupe fork last --from 3 --temperature 0.9 --repeat 3;
    agentloupe fork last --from start -- python my_agent.py "a question"
    """
    given = dict(locals())
    from agentloupe.cli.arms import not_even_begun, show_forks, without_class
    from agentloupe.cli.watching import telling_steps

    if code and script:
        raise UsageError("fork takes --code or a command behind --, not both")
    out = Output(as_json)
    at = _from(start)
    wishes = _wishes(given)
    with opened(db) as store:
        with telling_steps(store) if _is_watched(watch) else nullcontext() as heard:
            result = _forked(store, run, at, replace(wishes, watch=heard), code, script)
        failed = show_forks(out, store, result, fail_on)
    if not_even_begun(result):
        first = result.candidates[0]
        fail(f"{first.id} got no answer: {without_class(first.error or 'unknown')}", code=failed, slug="provider")
    raise typer.Exit(failed)


def _is_watched(watch: bool | None) -> bool:
    return bool(sys.stderr and sys.stderr.isatty()) if watch is None else watch


def _forked(
    store: Store, run: str, at: int | Literal["start"], wishes: ForkWishes, code: str | None, script: list[str] | None
) -> ForkResult:
    if script:
        from agentloupe.verbs.forkchild import fork_command

        return fork_command(run, script, from_step=at, store=store, wishes=wishes)
    from agentloupe.verbs.forking import fork

    if code is None:
        return fork(run, None, from_step=at, store=store, wishes=wishes)
    from agentloupe.ports.cancel import Cancel
    from agentloupe.verbs.clients import wrapping_clients
    from agentloupe.verbs.interrupts import raising_at_rest

    cancel = Cancel()
    raising_at_rest(cancel)
    with wrapping_clients():
        return fork(run, code, from_step=at, store=store, wishes=replace(wishes, cancel=cancel))


def _from(start: str) -> int | Literal["start"]:
    if start == "start":
        return "start"
    if not start.isdecimal() or not start.isascii() or len(start) > 9:
        raise UsageError(
            f"--from {start}: neither the number of a model step nor start" if start else "fork needs --from STEP",
            hint="agentloupe show RUN numbers the steps; fork from one of kind llm",
        )
    return int(start)


def _wishes(given: Mapping[str, Any]) -> ForkWishes:
    """The options as the verb takes them."""
    from agentloupe.engine.loop import Limits
    from agentloupe.engine.policy import parse_tool
    from agentloupe.verbs.forkfamily import ForkWishes
    from agentloupe.verbs.pricing import call_price

    limits = Limits(max_steps=given["max_steps"], max_cost=_amount(given["max_cost"]), max_seconds=given["max_seconds"])
    as_they_are = ("on_miss", "repeat", "control", "engine", "endpoint", "require_faithful", "code_changed")
    return ForkWishes(
        overrides=_overrides(given),
        tools=dict(parse_tool(text) for text in given["tool"] or ()),
        live=_allowed(given["live"], given["reason"]),
        functions=functions_of(given["tools_from"], given["live"] or ()),
        ask=ask if sys.stdin and sys.stdin.isatty() else None,
        limits=limits,
        price=call_price,
        **{name: given[name] for name in as_they_are},
    )


def _overrides(given: Mapping[str, Any]) -> Overrides:
    from agentloupe.engine.overrides import NO_OVERRIDES, parse_set

    chosen = NO_OVERRIDES if given["overrides"] is None else _from_file(given["overrides"])
    names = ("model", "temperature", "top_p", "seed", "max_tokens")
    changed = {name: given[name] for name in names if given[name] is not None}
    if given["system_prompt"] is not None:
        changed["system_prompt"] = text_given(given["system_prompt"], "--system-prompt")
    if given["set_"]:
        changed["set_paths"] = (*chosen.set_paths, *(parse_set(text) for text in given["set_"]))
    if given["unset"]:
        changed["unset_paths"] = (*chosen.unset_paths, *given["unset"])
    return replace(chosen, **changed)


def _from_file(file: Path) -> Overrides:
    from agentloupe.engine.overrides import overrides_from_json

    try:
        value = loads(file.read_bytes())
    except ValueError as wrong:
        raise UsageError(f"--overrides {file}: not JSON: {wrong}") from wrong
    if not isinstance(value, dict):
        raise UsageError(f"--overrides {file}: not a JSON object")
    return overrides_from_json(value)


def _allowed(live: list[str] | None, reason: list[str] | None) -> Mapping[str, Allow]:
    """The allowlist entries of the tools named live: reasons of the command line, else those of the configuration."""
    from agentloupe.engine.policy import parse_live
    from agentloupe.ports.settings import load

    if reason or not live:
        return parse_live(live or (), reason or ())
    known = load().live
    for text in live:
        if text.partition(":")[0] not in known:
            hint = "give --reason TEXT, or write the reason into loupe.toml under [live]"
            raise UsageError(f"--live {text} needs a written reason", hint=hint)
    return parse_live(live, [known[text.partition(":")[0]] for text in live])


def functions_of(module: str | None, live: Sequence[str]) -> Mapping[str, Callable[..., object]]:
    """The functions of a module that stand for tools: those that are decorated, and plain ones that are named live."""
    if module is None:
        return {}
    from agentloupe.verbs.importing import imported

    try:
        found = vars(imported(module))
    except ImportError as wrong:
        hint = "run the command where the module can be imported"
        raise UsageError(f"--tools-from {module}: {wrong}", hint=hint) from wrong
    named = [text.partition(":")[0] for text in live]
    plain = {name: found[name] for name in named if callable(found.get(name))}
    decorated = {value.__loupe_tool__.name: value for value in found.values() if hasattr(value, "__loupe_tool__")}
    return {**plain, **decorated}


def _amount(text: str | None) -> Decimal | None:
    if text is None:
        return None
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise UsageError(f"--max-cost {text}: not an amount") from None
    if not amount.is_finite() or amount < 0:
        raise UsageError(f"--max-cost {text}: not an amount")
    return amount
