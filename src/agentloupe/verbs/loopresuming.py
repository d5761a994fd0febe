"""Runs of the plain loop go on without code: forks with the generic engine, and recordings of `run_loop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

from agentloupe.engine.forker import Forker, ForkPlan
from agentloupe.engine.forkresumer import ForkResumer
from agentloupe.engine.loop import Limits, Loop, Model, Spend, Tools, again, dialect_in, manner_in
from agentloupe.engine.overrides import Overrides
from agentloupe.engine.policy import Allow, MissPolicy, ToolRule, stated_effect
from agentloupe.engine.raised import error_name, status_of
from agentloupe.engine.resumer import Attempt, Resumer, schedule_of
from agentloupe.engine.tape import Tape
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Provider, RunWriter, Store
from agentloupe.verbs.forkfamily import Family, ForkWishes
from agentloupe.verbs.forkloop import LoopFork
from agentloupe.verbs.looping import tool_functions
from agentloupe.verbs.models import Pace, chosen_endpoint, model_behind
from agentloupe.verbs.replaying import rules_in
from agentloupe.verbs.sessions import settings_here
from agentloupe.words.call import Effect
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import tools_in
from agentloupe.words.errors import (
    CassetteMiss,
    LoupeError,
    ReplayMismatch,
    ResumeRefused,
    RunNotFound,
)

__all__ = ["GoingOn", "is_of_the_loop", "prepared"]


def is_of_the_loop(tape: Tape) -> bool:
    """Whether the plain loop drove this run."""
    return tape.started.attrs.get("engine") == "generic"


@dataclass(frozen=True, slots=True)
class GoingOn:
    """A run of the loop that is taken over, and what drives it on.

    Attributes:
        resumer: its boundary.
        loop: asks and answers.
        span_id: under which the loop's calls stand.
    """

    resumer: Resumer
    loop: Loop
    tape: Tape
    span_id: str | None = None

    def run(self) -> dict[str, Json] | None:
        """Drives the loop to its end; the final message, or `None` where the run ended otherwise: that is recorded.

        Raises:
            ResumeRefused: the run did not go on.
        """
        message: dict[str, Json] | None = None
        try:
            with ambient.outside(), ambient.inside(self.resumer):
                message = again(self.tape, self.loop, self.span_id)
        except ReplayMismatch:
            self.resumer.diverged()
        except LoupeError as stop:
            self._failed(stop)
        except BaseException as error:
            self._failed(error)
            raise
        else:
            self.resumer.end("ok", {"result": message}, {})
        if self.resumer.refusal is not None:
            raise self.resumer.refusal
        return message

    def _failed(self, error: BaseException) -> None:
        facts: dict[str, Json] = {"error_class": error_name(error)}
        if isinstance(error, LoupeError) and not isinstance(error, CassetteMiss):
            facts["error"] = str(error)
        self.resumer.end(status_of(error), codecs.encode(error).wire, facts)


def prepared(
    store: Store, tape: Tape, provider: Provider | Model | None, wishes: ForkWishes
) -> Callable[[RunWriter, Tape, Attempt], GoingOn]:
    """Looks for everything that the run needs; the result goes on with it once it is taken over and its effects settled.

    Raises:
        ResumeRefused: something is not there: the parent (`parent_gone`), a function (`no_function`).
        ForkRefused, UsageError, ConfigError: as of a fork.
    """
    if tape.started.attrs.get("parent_run_id") is not None:
        return _fork(store, tape, provider, wishes)
    return _sample(tape, provider, wishes)


# --- recordings of `run_loop` -----------------------------------------------------------------------------------------


def _sample(
    tape: Tape, provider: Provider | Model | None, wishes: ForkWishes
) -> Callable[[RunWriter, Tape, Attempt], GoingOn]:
    functions = tool_functions(wishes.functions)
    missing = [name for name in _tools_named(tape) if name not in functions]
    if missing:
        raise ResumeRefused(
            f"{tape.recording.run_id} cannot go on by itself: its tools are not given: {', '.join(missing)}",
            hint="--tools-from MODULE, or functions= in Python",
            reason="no_function",
        )
    dialect = dialect_in(tape)
    given = provider or chosen_endpoint(wishes.endpoint, dialect.form).provider
    pace = Pace(wishes.patience, wishes.cancel, wishes.watch, tape.recording.run_id)
    spend = Spend(_limits(tape), cancel=wishes.cancel)
    spend.price = wishes.price or spend.price
    effects: dict[str, Effect | None] = {tool: stated_effect(function) for tool, function in functions.items()}
    model = model_behind(given, dialect.form, None, pace)
    loop = Loop(model, Tools(functions, None, effects), spend, manner_in(tape), dialect)

    def made(writer: RunWriter, settled: Tape, attempt: Attempt) -> GoingOn:
        resumer = Resumer(
            writer,
            settled,
            rules=rules_in(settled),
            schedule=schedule_of(settled),
            declared=lambda: functions,
            attempt=attempt,
            passes_trace_on=settings_here().pass_trace_on,
        )
        return GoingOn(resumer, loop, settled)

    return made


def _tools_named(tape: Tape) -> list[str]:
    """Tools that the model may ask for."""
    from agentloupe.engine.overrides import tool_names

    request = tape.recording.body(tape.started.bodies.get("request"))
    told = tool_names(tools_in(request)) if isinstance(request, dict) else []
    called = [call.name for call in tape.calls if call.kind == "tool" and not call.attrs.get("parse_error")]
    return list(dict.fromkeys((*told, *called)))


def _limits(tape: Tape) -> Limits:
    told = tape.started.attrs.get("limits")
    known: dict[str, Any] = {"max_steps": None, **(told if isinstance(told, dict) else {})}
    if known.get("max_cost") is not None:
        known["max_cost"] = Decimal(str(known["max_cost"]))
    return Limits(**known)


# --- forks ------------------------------------------------------------------------------------------------------------


def _fork(
    store: Store, tape: Tape, provider: Provider | Model | None, wishes: ForkWishes
) -> Callable[[RunWriter, Tape, Attempt], GoingOn]:
    started, run_id = tape.started, tape.recording.run_id
    step = started.attrs.get("forked_from_step")
    assert isinstance(step, int), "a fork of the loop starts at a step"
    wanted = _recorded_wishes(tape, wishes)
    try:
        family = Family(store, str(started.attrs["parent_run_id"]), step, None, provider, wanted)
    except RunNotFound as gone:
        raise ResumeRefused(
            f"{run_id} cannot go on: {gone.message}, of which it is a fork",
            hint="fork another run",
            reason="parent_gone",
        ) from gone
    plan = family.plan(wanted.overrides, None, run_id)
    _hand_out(plan, tape)
    fork = LoopFork(family.cut, family.of_loop())
    loop = fork.resumed(plan, manner_in(tape))

    def made(writer: RunWriter, settled: Tape, attempt: Attempt) -> GoingOn:
        resumer = ForkResumer(
            writer,
            settled,
            rules=plan.rules,
            schedule=schedule_of(settled),
            declared=_Every,
            attempt=attempt,
            passes_trace_on=plan.passes_trace_on,
        )
        resumer.forker = Forker(replace(plan, spend=loop.spend))
        resumer.forker.goes_on(resumer)
        return GoingOn(resumer, loop, settled, fork.span_id)

    return made


class _Every(list[str]):
    """The names of tools that nobody runs unseen: in a fork all of them."""

    def __contains__(self, name: object) -> bool:
        return True


def _hand_out(plan: ForkPlan, tape: Tape) -> None:
    """Counts what the fork was answered from its cassette as handed out."""
    for call in tape.calls:
        if call.attrs.get("played_from") is not None and call.source != "recorded" and call.input_key is not None:
            plan.cassette.take(call.kind, call.name, call.input_key)


def _recorded_wishes(tape: Tape, wishes: ForkWishes) -> ForkWishes:
    """The wishes that the fork was made with, and what no recording holds from those that are given now.

    Raises:
        ResumeRefused: a sandbox function is needed again (`no_function`).
    """
    bodies = tape.started.bodies
    policy = cast("dict[str, Any]", tape.recording.body(bodies.get("policy")) or {})
    results = cast("dict[str, Json]", tape.recording.body(bodies.get("tool_results")) or {})
    rules: Mapping[str, Any] = policy.get("tools", {})
    allowed: Mapping[str, Any] = policy.get("allow", {})
    given = {name: rule for name, rule in wishes.tools.items() if name in rules}
    lacking = [name for name, rule in rules.items() if rule["how"] == "sandbox" and name not in given]
    if lacking:
        raise ResumeRefused(
            f"{tape.recording.run_id} cannot go on by itself: the sandbox of {lacking[0]!r} is not given",
            hint=f"--tool {lacking[0]}=sandbox:MODULE:FUNCTION",
            reason="no_function",
        )
    return replace(
        wishes,
        overrides=Overrides(tool_results={int(idx): result for idx, result in results.items()}),
        tools={
            **{name: _rule(rule) for name, rule in rules.items() if rule["how"] not in ("live", "sandbox")},
            **given,
        },
        live={name: Allow(entry["reason"], entry["read"]) for name, entry in allowed.items()},
        on_miss=cast("MissPolicy", policy.get("on_miss", "error")),
        engine="generic",
        limits=_limits(tape),
        repeat=1,
        control=None,
        form=dialect_in(tape).form,
    )


def _rule(rule: Mapping[str, Any]) -> ToolRule:
    return ToolRule(rule["how"], value=rule.get("value"))
