"""What a job is asked to do, as JSON, and the wishes that this means. The same reading where it is asked and where it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, cast

from agentloupe.engine.loop import Limits
from agentloupe.engine.overrides import overrides_from_json
from agentloupe.engine.policy import Allow, MissPolicy, parse_tool
from agentloupe.ports.settings import load
from agentloupe.verbs.forkfamily import ForkWishes
from agentloupe.verbs.pricing import call_price
from agentloupe.words.canonical import Json
from agentloupe.words.errors import UsageError

__all__ = ["BUILT_IN", "from_step_of", "wishes_of"]

BUILT_IN: Final[Mapping[str, str]] = {"calculate": "arithmetic only; parsed and bounded, never run as code"}
"""Tools that may run live without code of the user's: the calculator of the demo, and nothing else."""


def from_step_of(spec: Mapping[str, Json]) -> int | Literal["start"]:
    """Where a fork starts. Raises `UsageError`."""
    step = spec.get("from_step")
    if step == "start":
        return "start"
    if isinstance(step, int) and not isinstance(step, bool):
        return step
    raise UsageError("from_step is the index of a model step, or start", reason="from_step")


def wishes_of(spec: Mapping[str, Json]) -> ForkWishes:
    """How a fork is to be made. Reads every field, and refuses what it does not understand.

    Raises:
        UsageError: a field is wrong. ConfigError: the allowlist of the settings cannot be read.
    """
    engine = spec.get("engine")
    live = spec.get("live_tools")
    allowed = _allowed(live)
    if live is True and engine != "own":  # of all that may run live, what this process has the code of
        allowed = {name: allow for name, allow in allowed.items() if name in BUILT_IN}
    return ForkWishes(
        overrides=overrides_from_json(_object(spec, "overrides")),
        tools=_rules(_object(spec, "tools")),
        live=allowed,
        functions=_functions(allowed) if engine != "own" else {},
        on_miss=cast("MissPolicy", spec.get("on_miss") or "error"),
        repeat=cast("int", spec.get("repeat", 1)),
        control=cast("bool | None", spec.get("control")),
        engine=cast("Literal['own', 'generic'] | None", engine),
        limits=_limits(_object(spec, "limits")),
        require_faithful=spec.get("require_faithful") is True,
        code_changed=spec.get("code_changed") is True,
        endpoint=cast("str | None", spec.get("endpoint")),
        price=call_price,
    )


def _object(spec: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    value = spec.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{name} is an object", reason=name)
    return value


def _rules(tools: Mapping[str, Json]) -> dict[str, Any]:
    """Rules by tool name. A sandbox would be code that a request names: only a person at a terminal may do that."""
    found: dict[str, Any] = {}
    for name, policy in tools.items():
        if not isinstance(policy, str):
            raise UsageError(f"the policy of tool {name!r} is a text", reason="tools")
        if policy.startswith("sandbox"):
            raise UsageError(
                f"tool {name!r}: a sandbox cannot be named over HTTP", hint="agentloupe fork --tool", reason="sandbox"
            )
        found[name] = parse_tool(f"{name}={policy}")[1]
    return found


def _allowed(live: Json) -> dict[str, Allow]:
    """Tools that shall run live, each with its written reason: given here, or in the settings."""
    known = {**BUILT_IN, **load().live}
    if live is None or live is False:
        return {}
    if live is True:
        return {name: Allow(reason) for name, reason in known.items()}
    if not isinstance(live, list):
        raise UsageError("live_tools is true, false, or a list of {name, reason}", reason="live_tools")
    return dict(_one_allowed(item, known) for item in live)


def _one_allowed(item: Json, known: Mapping[str, str]) -> tuple[str, Allow]:
    entry = item if isinstance(item, dict) else {"name": item}
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise UsageError("live_tools is true, false, or a list of {name, reason}", reason="live_tools")
    reason = entry.get("reason") or known.get(name)
    if not isinstance(reason, str) or not reason.strip():
        raise UsageError(f"tool {name!r} needs a written reason to run live", reason="no_reason")
    return name, Allow(reason, read=entry.get("read") is True)


def _functions(allowed: Mapping[str, Allow]) -> Mapping[str, Callable[..., object]]:
    """The functions behind live tools of the generic loop; tools of the user's are run by a worker only."""
    from agentloupe.demo.calculator import calculate
    from agentloupe.verbs.instrument import tool

    return {name: tool(effect="pure", name=name)(calculate) for name in allowed if name in BUILT_IN}


def _limits(limits: Mapping[str, Json]) -> Limits:
    unknown = limits.keys() - Limits.__dataclass_fields__.keys()
    if unknown:
        raise UsageError(f"unknown limit {min(unknown)!r}", hint=f"known: {', '.join(Limits.__dataclass_fields__)}")
    given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    cost = given.get("max_cost")
    if cost is not None:
        try:
            given["max_cost"] = Decimal(str(cost))
        except InvalidOperation as wrong:
            raise UsageError("max_cost is a number", reason="limits") from wrong
    for name, value in given.items():
        number = float(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else -1.0
        if not 0 <= number < float("inf"):
            raise UsageError(f"{name} is a number, 0 or more", reason="limits")
    return Limits(**given)
