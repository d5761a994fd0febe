"""`agentloupe fork`: a new run from a model step of an old one, with changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agentloupe.cli.arms import show_forks
from agentloupe.cli.common import AsJson, Database, Debug, RunRef, opened
from agentloupe.cli.output import Output, harmless, pretty
from agentloupe.errors import CassetteMiss, UsageError
from agentloupe.jsontext import Json, loads

_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change any part of the request; VALUE is JSON or text. May be repeated.",
        show_default=False,
    ),
]


def command(
    run: RunRef,
    script: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]", help="The agent's script, to fork with its own code.", show_default=False
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="STEP|start",
            help="A model step, or start: the agent anew from its recorded input.",
            show_default=False,
        ),
    ] = "",
    code: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="The agent, to fork with its own code.", show_default=False),
    ] = None,
    engine: Annotated[
        Literal["own", "generic"] | None,
        typer.Option(
            help="own: your code runs. generic: the plain agent loop. Default: own when there is code.",
            show_default=False,
        ),
    ] = None,
    system_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT|@FILE", help="Another system prompt.", show_default=False)
    ] = None,
    model: Annotated[str | None, typer.Option(help="Another model.", show_default=False)] = None,
    temperature: Annotated[float | None, typer.Option(help="Another temperature.", show_default=False)] = None,
    top_p: Annotated[float | None, typer.Option(help="Another top_p.", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed.", show_default=False)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Another limit of tokens for each answer.", show_default=False)
    ] = None,
    set_: _Set = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Take a part of the request out. May be repeated.", show_default=False),
    ] = None,
    overrides: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Overrides as JSON; single options go over it.", show_default=False),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=POLICY",
            help="Who answers a tool: cassette (default), stub[:JSON], sandbox:MODULE:FUNCTION, human, live.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:read]",
            help="Run this pure tool for real (with :read, also one that reads). Needs --reason.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Why the live tool may run.", show_default=False)
    ] = None,
    tools_from: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE", help="Where the functions of live tools are (generic engine).", show_default=False
        ),
    ] = None,
    on_miss: Annotated[
        Literal["error", "abort", "human"],
        typer.Option(help="When the cassette has no answer: tell the model, stop, or ask you."),
    ] = "error",
    repeat: Annotated[int, typer.Option(help="How many candidates, 1 to 3; several are paired with controls.")] = 1,
    control: Annotated[
        bool | None,
        typer.Option(
            "--control/--no-control", help="Also fork with nothing changed. Default: when repeated.", show_default=False
        ),
    ] = None,
    max_steps: Annotated[int, typer.Option(min=1, help="Model calls of the new part at most.")] = 12,
    max_cost: Annotated[
        str | None,
        typer.Option(metavar="AMOUNT", help="Stop when the new part has cost this much.", show_default=False),
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop after this time.", show_default=False)] = None,
    require_faithful: Annotated[
        bool,
        typer.Option(
            "--require-faithful", help="Refuse a fork in which an answer was neither real nor recorded for that call."
        ),
    ] = False,
    code_changed: Annotated[
        bool,
        typer.Option("--code-changed", help="Own code: let inputs before STEP differ (tool arguments must agree)."),
    ] = False,
    fail_on: Annotated[
        Literal["miss", "diff"] | None,
        typer.Option(help="Exit with 1 on a miss, or when the road differs from the parent's.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Start a new run from a model step of an old one, with changes. The old run is never written to.

    The model is asked anew; tools are answered from the recording. A tool that writes is never run. The model is the one
    of LLM_BASE_URL, LLM_API_KEY, LLM_MODEL (also from .env).

    Examples: agentloupe fork last --from 3 --system-prompt "Answer in one sentence.";
    agentloupe fork last --from 3 --temperature 0.9 --repeat 3;
    agentloupe fork last --from start --code my_app.agents:support
    """
    from agentloupe.api import resolve
    from agentloupe.forking import ForkWishes, fork
    from agentloupe.loop import Limits
    from agentloupe.policy import parse_tool

    if code and script:
        raise UsageError("fork takes --code or a command behind --, not both")
    out = Output(as_json)
    wishes = ForkWishes(
        overrides=_overrides(
            overrides,
            system_prompt,
            set_,
            unset,
            {"model": model, "temperature": temperature, "top_p": top_p, "seed": seed, "max_tokens": max_tokens},
        ),
        tools=dict(parse_tool(text) for text in tool or ()),
        live=_allowed(live, reason),
        functions=_functions(tools_from),
        on_miss=on_miss,
        ask=_ask,
        repeat=repeat,
        control=control,
        engine=engine,
        limits=Limits(max_steps=max_steps, max_cost=_amount(max_cost), max_seconds=max_seconds),
        require_faithful=require_faithful,
        code_changed=code_changed,
        price=_price(),
    )
    with opened(db) as store:
        run_id = resolve(store, run)
        at = _from(start)
        if script:
            raise UsageError(
                "fork with a command behind -- is not there yet", hint="name the agent: --code MODULE:FUNCTION"
            )
        result = fork(run_id, code, from_step=at, store=store, wishes=wishes)
        failed = show_forks(out, store, result, fail_on)
    raise typer.Exit(failed)


def _from(start: str) -> int | Literal["start"]:
    if start == "start":
        return "start"
    if not start.isdecimal():
        raise UsageError(
            "--from wants the number of a model step, or start" if start else "fork needs --from STEP",
            hint="agentloupe show RUN numbers the steps; fork from one of kind llm",
        )
    return int(start)


def _overrides(
    file: Path | None,
    system_prompt: str | None,
    sets: list[str] | None,
    unset: list[str] | None,
    single: Mapping[str, Any],
) -> Any:
    from agentloupe.overrides import NO_OVERRIDES, overrides_from_json, parse_set

    chosen = NO_OVERRIDES
    if file is not None:
        try:
            value = loads(file.read_bytes())
        except ValueError as wrong:
            raise UsageError(f"--overrides {file}: not JSON: {wrong}") from wrong
        if not isinstance(value, dict):
            raise UsageError(f"--overrides {file}: not a JSON object")
        chosen = overrides_from_json(value)
    given = {name: value for name, value in single.items() if value is not None}
    if system_prompt is not None:
        given["system_prompt"] = _text(system_prompt)
    if sets:
        given["set_paths"] = (*chosen.set_paths, *(parse_set(text) for text in sets))
    if unset:
        given["unset_paths"] = (*chosen.unset_paths, *unset)
    return replace(chosen, **given)


def _text(given: str) -> str:
    """The text itself, or what is in the file behind `@`."""
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text("utf-8")
    except UnicodeDecodeError as wrong:
        raise UsageError(f"--system-prompt {given}: not UTF-8 text") from wrong


def _allowed(live: list[str] | None, reason: list[str] | None) -> Mapping[str, Any]:
    """The allowlist entries of the tools named live: reasons of the command line, else those of the configuration."""
    from agentloupe.policy import parse_live
    from agentloupe.settings import load

    if reason or not live:
        return parse_live(live or (), reason or ())
    known = load().live
    for text in live:
        if text.partition(":")[0] not in known:
            hint = "give --reason TEXT, or write the reason into loupe.toml under [live]"
            raise UsageError(f"--live {text} needs a written reason", hint=hint)
    return parse_live(live, [known[text.partition(":")[0]] for text in live])


def _functions(module: str | None) -> Mapping[str, Callable[..., object]]:
    if module is None:
        return {}
    sys.path.insert(0, "")
    try:
        found = import_module(module)
    except ImportError as wrong:
        hint = "run the command where the module can be imported"
        raise UsageError(f"--tools-from {module}: {wrong}", hint=hint) from wrong
    tools = [value for value in vars(found).values() if hasattr(value, "__loupe_tool__")]
    return {value.__loupe_tool__.name: value for value in tools}


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


def _price() -> Callable[[Mapping[str, Json]], Decimal | None]:
    """Cost of a call from its facts. The price table is loaded when the first call has ended."""

    def price(facts: Mapping[str, Json]) -> Decimal | None:
        from agentloupe.pricing import price_table

        model, provider = facts.get("model"), facts.get("provider")
        return price_table().cost(
            model if isinstance(model, str) else None,
            facts.get("usage"),
            provider=provider if isinstance(provider, str) else None,
        )

    return price


def _ask(question: Any) -> Json:
    """Asks on the terminal for a tool's result."""
    err = sys.stderr
    if not sys.stdin.isatty():
        raise CassetteMiss(
            f"{question.tool} needs an answer from a person, and nobody is at this terminal",
            hint="choose another --on-miss, or a stub",
        )
    because = "its policy is human" if question.because == "policy" else "no recorded result exists for this call"
    err.write(
        f"\n{harmless(question.tool)} asks for its result ({because}). Arguments:\n{harmless(pretty(question.arguments))}\n"
    )
    if question.nearest:
        err.write(f"nearest recorded call: {harmless(question.nearest)}\n")
    while True:
        err.write("result as JSON (or text): ")
        err.flush()
        line = sys.stdin.readline()
        if not line:
            raise CassetteMiss(f"no answer was given for {question.tool}")
        if not line.strip():
            continue
        try:
            return loads(line)
        except ValueError:
            return line.rstrip("\n")
