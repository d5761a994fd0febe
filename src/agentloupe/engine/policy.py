"""Who answers a tool call of a fork: rules by tool name, and what happens on a miss.

`live` needs all three: the tool is on the allowlist with a written reason, it is declared `pure` (or `read`, with an
explicit word), and its switch is on for this fork. A `write` tool is never run live, whatever is asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from agentloupe.engine.edits import nearest
from agentloupe.words.call import Effect
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ForkRefused, UsageError
from agentloupe.words.jsontext import loads

__all__ = [
    "CASSETTE",
    "Allow",
    "Ask",
    "Given",
    "MissPolicy",
    "Policy",
    "Question",
    "ToolFunction",
    "ToolRule",
    "check_live",
    "parse_tool",
    "stated_effect",
]

How = Literal["cassette", "live", "stub", "sandbox", "human"]
MissPolicy = Literal["error", "abort", "human"]
ToolFunction: TypeAlias = Callable[..., object]
HOWS: tuple[str, ...] = get_args(How)


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked: the result of this call.

    Attributes:
        tool, arguments: the call.
        because: `policy` (this tool is always asked for) or `miss`.
        nearest: the recorded call that comes closest, with its difference, as text; `None` if there is none.
        run_id, call_id: of the call in the fork.
        nearest_call: that recorded call as JSON: `{run_id, step, tool, arguments, changes}`.
    """

    tool: str
    arguments: Json
    because: Literal["policy", "miss"]
    nearest: str | None = None
    run_id: str = ""
    call_id: str = ""
    nearest_call: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A result that a person gave: its value as JSON, and who that was."""

    value: Json
    by: str


Ask: TypeAlias = Callable[[Question], "Json | Given"]
"""Asks a person, and waits; returns the result as JSON, or as `Given`. Raises `Cancelled` to end the fork."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Who answers one tool.

    Attributes:
        how: the policy.
        value: what a stub answers.
        sandbox: the function that runs in place of the tool, or where it is (`module:function`, not yet looked up).
    """

    how: How = "cassette"
    value: Json = None
    sandbox: ToolFunction | str | None = None


CASSETTE = ToolRule()


@dataclass(frozen=True, slots=True)
class Allow:
    """An entry of the allowlist of tools that a fork may run: why, in words, and whether a `read` tool is meant too."""

    reason: str
    read: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one fork.

    Attributes:
        tools: rules by tool name; any other tool is answered from the cassette.
        allow: the allowlist.
        on_miss: what happens when the cassette has no answer: the model is told (`error`), the fork ends (`abort`), or a
            person is asked (`human`).
        ask: how a person is asked; needed for `human`.
    """

    tools: Mapping[str, ToolRule] = field(default_factory=dict[str, ToolRule])
    allow: Mapping[str, Allow] = field(default_factory=dict[str, Allow])
    on_miss: MissPolicy = "error"
    ask: Ask | None = None

    def rule(self, tool: str) -> ToolRule:
        """The rule of this tool."""
        return self.tools.get(tool, CASSETTE)

    def named_live(self) -> tuple[str, ...]:
        """The tools whose switch is on, sorted."""
        return tuple(sorted(name for name, rule in self.tools.items() if rule.how == "live"))

    def check(self, effect_of: Callable[[str], Effect]) -> None:
        """Refuses before anything is sent.

        Raises:
            ForkRefused: a live tool is not allowed (see `check_live`), or a sandbox is not there (`no_sandbox`).
            UsageError: a person is to be asked and nobody can be.
        """
        for name in self.named_live():
            check_live(name, effect_of(name), self.allow.get(name))
        if self.ask is None and (self.on_miss == "human" or any(r.how == "human" for r in self.tools.values())):
            raise UsageError("policy human needs somebody to ask", hint="run it in a terminal, or pass ask=")

    def as_json(self) -> dict[str, Json]:
        """The policy as it is recorded with the fork."""
        tools: dict[str, Json] = {name: _rule_json(rule) for name, rule in self.tools.items()}
        allow: dict[str, Json] = {name: {"reason": a.reason, "read": a.read} for name, a in self.allow.items()}
        return {"tools": tools, "allow": allow, "on_miss": self.on_miss}


def _rule_json(rule: ToolRule) -> Json:
    shown: dict[str, Json] = {"how": rule.how}
    if rule.how == "stub":
        shown["value"] = rule.value
    if rule.how == "sandbox":
        shown["function"] = rule.sandbox if isinstance(rule.sandbox, str) else _where(rule.sandbox)
    return shown


def _where(function: ToolFunction | None) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', '?')}"


def check_live(tool: str, effect: Effect, entry: Allow | None) -> None:
    """All that must hold for a tool to run in a fork.

    Raises:
        ForkRefused: `reason` is `live_write`, `live_not_listed`, `live_no_reason` or `live_read`.
    """
    if effect == "write":
        raise ForkRefused(
            f"tool {tool!r} is declared write (unstated means write): a fork never runs it",
            hint=f"answer it from the cassette, or with --tool {tool}=stub:JSON or sandbox:MODULE:FUNCTION",
            reason="live_write",
        )
    if entry is None:
        raise ForkRefused(
            f"tool {tool!r} is not on the list of tools that may run live",
            hint=f"--live {tool} --reason TEXT lists it for this fork",
            reason="live_not_listed",
        )
    if not entry.reason.strip():
        raise ForkRefused(f"tool {tool!r} may run live only with a written reason", reason="live_no_reason")
    if effect == "read" and not entry.read:
        raise ForkRefused(
            f"tool {tool!r} is declared read: running it live asks the real world",
            hint=f"if that is meant, say so: --live {tool}:read --reason TEXT",
            reason="live_read",
        )


def stated_effect(function: ToolFunction | None) -> Effect | None:
    """The effect that a decorated tool states, or `None` for a plain function."""
    effect = getattr(getattr(function, "__loupe_tool__", None), "effect", None)
    return effect if effect in ("pure", "read", "write") else None


def parse_tool(text: str) -> tuple[str, ToolRule]:
    """Reads `NAME=POLICY` of the command line.

    Policies are `cassette`, `live`, `human`, `stub` (answers null), `stub:JSON` and `sandbox:MODULE:FUNCTION`.

    Raises:
        UsageError: not of this form.
    """
    name, equals, rule = text.partition("=")
    how, colon, rest = rule.partition(":")
    name, how = name.strip(), how.strip()
    if not equals or not name:
        raise UsageError(f"--tool wants NAME=POLICY, not {text!r}", hint=f"POLICY is one of {', '.join(HOWS)}")
    if how == "stub":
        return name, ToolRule("stub", value=_stub(rest, text) if colon else None)
    if how == "sandbox":
        module, colon, function = rest.partition(":")
        if not module or not colon or not function:
            raise UsageError(f"--tool {text!r}: a sandbox is MODULE:FUNCTION")
        return name, ToolRule("sandbox", sandbox=rest)
    if colon or how not in HOWS:
        close = nearest(how, HOWS)
        raise UsageError(
            f"--tool {text!r}: no such policy {rule!r}",
            hint=f"did you mean {close}?" if close else f"it is one of {', '.join(HOWS)}",
        )
    return name, ToolRule("live" if how == "live" else "human" if how == "human" else "cassette")


def _stub(text: str, whole: str) -> Json:
    try:
        return loads(text)
    except ValueError as wrong:
        raise UsageError(f"--tool {whole!r}: the stub's answer is not JSON: {wrong}") from wrong


def parse_live(names: Sequence[str], reasons: Sequence[str]) -> dict[str, Allow]:
    """Pairs `--live NAME` with `--reason TEXT`, in order; one reason may serve all. `NAME:read` allows a read tool.

    Raises:
        UsageError: reasons are missing, or more than names.
    """
    if names and len(reasons) not in (1, len(names)):
        raise UsageError(
            f"{len(names)} --live, but {len(reasons)} --reason", hint="each tool that may run live needs a reason"
        )
    if reasons and not names:
        raise UsageError("--reason belongs to --live NAME")
    found: dict[str, Allow] = {}
    for i, text in enumerate(names):
        name, _, word = text.partition(":")
        if word not in ("", "read"):
            raise UsageError(f"--live {text!r}: the only word after the name is read")
        found[name] = Allow(reasons[i % len(reasons)], read=word == "read")
    return found


def find_sandbox(rule: ToolRule, tool: str) -> ToolFunction:
    """The sandbox function of a rule. A name is looked up in modules that are loaded already, never imported here.

    Raises:
        ForkRefused: it is not there (reason `no_sandbox`).
    """
    if callable(rule.sandbox):
        return rule.sandbox
    module, _, function = (rule.sandbox or "").partition(":")
    found: object = sys.modules.get(module)
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ForkRefused(f"sandbox of tool {tool!r} is not there: {rule.sandbox}", reason="no_sandbox")
    return found


def with_live(tools: Mapping[str, ToolRule], live: Iterable[str]) -> dict[str, ToolRule]:
    """The rules with these tools switched to live; a tool that has another rule already is a contradiction.

    Raises:
        UsageError: the tool has another rule.
    """
    switched = dict(tools)
    for name in live:
        if name in switched and switched[name].how != "live":
            raise UsageError(f"tool {name!r} is to be live and {switched[name].how} at once")
        switched[name] = ToolRule("live")
    return switched
