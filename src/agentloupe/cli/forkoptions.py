"""The options of `agentloupe fork`, by name; the verb itself says what is done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

__all__ = [
    "Code",
    "CodeChanged",
    "Control",
    "Endpoint",
    "Engine",
    "FailOn",
    "Live",
    "MaxCost",
    "MaxSeconds",
    "MaxSteps",
    "MaxTokens",
    "Model",
    "OnMiss",
    "OverridesFile",
    "Reason",
    "Repeat",
    "RequireFaithful",
    "Script",
    "Seed",
    "SetPaths",
    "Start",
    "SystemPrompt",
    "Temperature",
    "Tool",
    "ToolsFrom",
    "TopP",
    "Unset",
]


def _option(*names: str, help: str, metavar: str | None = None) -> Any:
    """An option without a default to show."""
    return typer.Option(*names, help=help, metavar=metavar, show_default=False)


Script = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND...]", help="The agent's script, to fork with its own code.", show_default=False
    ),
]
Start = Annotated[
    str, _option("--from", metavar="STEP|start", help="A model step, or start: the agent anew from its recorded input.")
]
Code = Annotated[str | None, _option(metavar="MODULE:FUNCTION", help="The agent, to fork with its own code.")]
Engine = Annotated[
    Literal["own", "generic"] | None,
    _option(help="own: your code runs. generic: the plain agent loop. Default: own when there is code."),
]
Endpoint = Annotated[
    str | None,
    _option(metavar="NAME", help="Ask this endpoint of the configuration (generic). Default: LLM_BASE_URL."),
]
SystemPrompt = Annotated[str | None, _option(metavar="TEXT|@FILE", help="Another system prompt.")]
Model = Annotated[str | None, _option(help="Another model.")]
Temperature = Annotated[float | None, _option(help="Another temperature.")]
TopP = Annotated[float | None, _option(help="Another top_p.")]
Seed = Annotated[int | None, _option(help="Another seed.")]
MaxTokens = Annotated[int | None, _option(help="Another limit of tokens for each answer.")]
SetPaths = Annotated[
    list[str] | None,
    _option(
        "--set",
        metavar="PATH=VALUE",
        help="Change any part of the request; VALUE is JSON or text. May be repeated.",
    ),
]
Unset = Annotated[list[str] | None, _option(metavar="PATH", help="Take a part of the request out. May be repeated.")]
OverridesFile = Annotated[Path | None, _option(metavar="FILE", help="Overrides as JSON; single options go over it.")]
Tool = Annotated[
    list[str] | None,
    _option(
        metavar="NAME=POLICY",
        help="Who answers a tool: cassette (default), stub[:JSON], sandbox:MODULE:FUNCTION, human, live.",
    ),
]
Live = Annotated[
    list[str] | None,
    _option(
        metavar="NAME[:read]", help="Run this pure tool for real (with :read, also one that reads). Needs --reason."
    ),
]
Reason = Annotated[list[str] | None, _option(metavar="TEXT", help="Why the live tool may run.")]
ToolsFrom = Annotated[
    str | None, _option(metavar="MODULE", help="Where the functions of live tools are (generic engine).")
]
OnMiss = Annotated[
    Literal["error", "abort", "human"],
    typer.Option(help="When the cassette has no answer: tell the model, stop, or ask you."),
]
Repeat = Annotated[int, typer.Option(help="How many candidates, 1 to 3; several are paired with controls.")]
Control = Annotated[
    bool | None,
    _option("--control/--no-control", help="Also fork with nothing changed. Default: when repeated."),
]
MaxSteps = Annotated[int, typer.Option(min=1, help="Model calls of the new part at most.")]
MaxCost = Annotated[str | None, _option(metavar="AMOUNT", help="Stop when the new part has cost this much.")]
MaxSeconds = Annotated[float | None, _option(help="Stop after this time.")]
RequireFaithful = Annotated[
    bool,
    typer.Option(
        "--require-faithful", help="Refuse a fork in which an answer was neither real nor recorded for that call."
    ),
]
CodeChanged = Annotated[
    bool,
    typer.Option("--code-changed", help="Own code: let inputs before STEP differ (tool arguments must agree)."),
]
Watch = Annotated[
    bool | None,
    _option("--watch/--no-watch", help="Tell each step as it ends, on standard error. Default: on a terminal."),
]
FailOn = Annotated[
    Literal["miss", "diff"] | None,
    _option(help="Exit with 1 on a miss, or when the road differs from the parent's."),
]
