"""All forks of one call of the verb `fork`: what is checked before anything is sent, the plan of each, and running it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, cast

from agentloupe.engine import project
from agentloupe.engine.cassette import Cassette, Take, takes_of
from agentloupe.engine.cautions import cautions, may_write
from agentloupe.engine.cut import Cut, cut_at, cut_at_start, index_of
from agentloupe.engine.edits import Edit, nearest
from agentloupe.engine.forker import Ended, Forker, ForkPlan
from agentloupe.engine.forkopener import ForkOpener
from agentloupe.engine.guard import going_on_live
from agentloupe.engine.loop import Limits, Model
from agentloupe.engine.overrides import NO_OVERRIDES, Overrides, apply_to_request, tool_names
from agentloupe.engine.policy import Allow, Ask, MissPolicy, Policy, ToolRule, parse_tool, with_live
from agentloupe.engine.serving import Bodies
from agentloupe.engine.tape import Tape, read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient, codecs
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.progress import Watch
from agentloupe.ports.protocols import Opening, Provider, Store
from agentloupe.ports.recording import Recording
from agentloupe.ports.settings import Settings
from agentloupe.verbs import snapshot, yielding
from agentloupe.verbs.forkloop import LoopFork, LoopParts
from agentloupe.verbs.instrument import as_agent, declared_tools, stated_for
from agentloupe.verbs.looping import tool_functions
from agentloupe.verbs.replaying import agent_named, arguments_of, rules_in, to_the_end, way_back
from agentloupe.verbs.sessions import settings_here, snapshot_of
from agentloupe.words.call import Effect
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import Form, form_in, form_of, hosted_tools
from agentloupe.words.errors import Corrupt, Damaged, ForkRefused, LoupeError, RunNotFound, UsageError
from agentloupe.words.exchange import answer_in
from agentloupe.words.keeping import dropped_note, dropped_values
from agentloupe.words.run import Engine, Run
from agentloupe.words.turns import DIALECTS

__all__ = ["MAX_REPEAT", "Family", "ForkResult", "ForkWishes", "with_fields"]

MAX_REPEAT = 3
"""Repeats at once; more are a job."""

_FAMILY = 50  # generations that a cassette looks back


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkWishes:
    """How a fork is to be made. Everything has a default.

    Attributes:
        overrides: what is changed.
        tools: rule by tool name, as `policy.ToolRule` or as text (`stub:{"a":1}`, `human`, ...).
        live: tools that may run, each with its written reason (or `policy.Allow`); naming one switches it on.
        functions: the functions behind live tools, for the generic loop.
        on_miss: `error`, `abort` or `human`; `ask` is how a person is asked.
        repeat: candidates, 1 to 3.
        control: also fork with nothing changed, beside the candidates; default: when repeated.
        engine: `own` or `generic`; default: own when there is code.
        limits: of each fork's new part.
        require_faithful: a fork that would be, or became, hypothetical is refused.
        code_changed: own code: before N inputs of anything but tools may differ.
        price: cost of a model call from its facts.
        form: of the request (`anthropic` ...), where its fields do not tell.
        cancel: ends the fork from another thread; its run is then `cancelled`.
        watch: is told how far it is.
        patience: seconds that a model call may wait altogether for a provider that says "later".
        endpoint: generic: name of the configured endpoint that is asked; default: that of `LLM_BASE_URL`.
    """

    overrides: Overrides = NO_OVERRIDES
    tools: Mapping[str, ToolRule | str] = field(default_factory=dict[str, "ToolRule | str"])
    live: Mapping[str, Allow | str] = field(default_factory=dict[str, "Allow | str"])
    functions: Mapping[str, Callable[..., object]] | Iterable[Callable[..., object]] = ()
    on_miss: MissPolicy = "error"
    ask: Ask | None = None
    repeat: int = 1
    control: bool | None = None
    engine: Literal["own", "generic"] | None = None
    limits: Limits = field(default_factory=Limits)
    require_faithful: bool = False
    code_changed: bool = False
    price: Callable[[Mapping[str, Json]], Decimal | None] | None = None
    form: Form | None = None
    cancel: Cancel | None = None
    watch: Watch | None = None
    patience: float = 60.0
    endpoint: str | None = None


def _no_notes() -> Sequence[str]:
    return ()


@dataclass(frozen=True)
class ForkResult:
    """What came of a fork.

    Attributes:
        parent: the observed run.
        candidates: the forks with the overrides, in order.
        controls: the forks with nothing changed.
        said: makes the notes; some of them look through the whole kept prefix.
    """

    parent: Run
    candidates: tuple[Run, ...]
    controls: tuple[Run, ...] = ()
    said: Callable[[], Sequence[str]] = field(default=_no_notes, repr=False, compare=False)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What to know before believing it, one line each. Made when it is first looked at."""
        return tuple(dict.fromkeys(self.said()))

    @property
    def runs(self) -> tuple[Run, ...]:
        """Candidates, then controls."""
        return (*self.candidates, *self.controls)

    def summary(self) -> dict[str, Json]:
        """The three arms with their figures, as JSON."""
        arms: dict[str, Json] = {"observed": [_figures(self.parent)]}
        arms["control"] = [_figures(run) for run in self.controls]
        arms["candidate"] = [_figures(run) for run in self.candidates]
        return {"parent": self.parent.id, "arms": arms, "notes": list(self.notes)}


def _figures(run: Run) -> Json:
    return {
        "id": run.id,
        "status": run.status,
        "steps": run.step_count,
        "counts": dict[str, Json](run.counts.as_dict()),
        "label": run.label,
        "hypothetical_from": run.hypothetical_from,
        "new_input_tokens": run.new_input_tokens,
        "new_output_tokens": run.new_output_tokens,
        "error": run.error,
    }


def with_fields(wishes: ForkWishes, more: Mapping[str, Any]) -> ForkWishes:
    """Single arguments over the whole: fields of wishes, of overrides and of limits by their names.

    `max_tokens` is the parameter of the request; as a limit it is given in `limits`.
    """
    own = {name: value for name, value in more.items() if name in ForkWishes.__dataclass_fields__}
    of_limits = Limits.__dataclass_fields__.keys() - Overrides.__dataclass_fields__.keys()
    limits = {name: value for name, value in more.items() if name in of_limits}
    rest = {name: value for name, value in more.items() if name not in own and name not in limits}
    chosen = replace(wishes, **own)
    if limits:
        chosen = replace(chosen, limits=replace(chosen.limits, **limits))
    unknown = [name for name in rest if name not in Overrides.__dataclass_fields__]
    if unknown:
        known = [*Overrides.__dataclass_fields__, *ForkWishes.__dataclass_fields__, *Limits.__dataclass_fields__]
        close = nearest(unknown[0], known)
        raise UsageError(f"unknown override {unknown[0]!r}", hint=f"did you mean {close!r}?" if close else None)
    return replace(chosen, overrides=replace(chosen.overrides, **rest)) if rest else chosen


# --- one family of forks ----------------------------------------------------------------------------------------------


def new_fork_id(parent: str) -> str:
    """`<parent>-fork-<6 hex>`."""
    return f"{parent}-fork-{ambient.random_hex(6)}"


def check_repeat(wishes: ForkWishes) -> None:
    """Raises `UsageError` when there are too many repeats, or none."""
    if not 1 <= wishes.repeat <= MAX_REPEAT:
        raise UsageError(f"repeat is {wishes.repeat}, it goes from 1 to {MAX_REPEAT}")


def arms_of(wishes: ForkWishes) -> list[str | None]:
    """The arm of each fork in the order in which they are made: control and candidate by turns, or candidates alone."""
    paired = wishes.repeat > 1 if wishes.control is None else wishes.control
    return ["control", "candidate"] * wishes.repeat if paired else [None] * wishes.repeat


class Family:
    """All forks of one call of the verb: they share the parent, the cut and the rules."""

    code_is_here = True
    """Whether the code that declares tools is in this process already. Where it is not, it is asked when it begins."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        from_step: int | Literal["start"],
        agent: Callable[..., Any] | str | None,
        provider: Provider | Model | None,
        wishes: ForkWishes,
        ids: Sequence[str] = (),
    ) -> None:
        check_repeat(wishes)
        self._ids = list(ids)
        parent = store.run(run_id)
        if parent is None:
            raise RunNotFound(f"no run {run_id!r}", hint="`agentloupe list` shows what there is")
        self.store = store
        self.parent = parent
        self.wishes = wishes
        self.recording = _whole(store.recording(run_id))
        self.cut = cut_at_start(self.recording) if from_step == "start" else cut_at(self.recording, from_step)
        self.engine: Engine = _engine(wishes, agent, self.cut)
        self.agent = agent_named(agent) if isinstance(agent, str) else agent
        self.provider = provider
        self.functions = tool_functions(wishes.functions)
        self.effects = _effects(self.cut.tape, self.functions)
        self.policy = self._policy()
        self.rules = rules_in(self.cut.tape)
        self.form: Form | None = wishes.form or self._form()
        self.notes: list[str] = []
        self._edits: tuple[Edit, ...] = ()
        self._takes: tuple[list[Take], list[list[Take]]] | None = None
        self._check()

    # --- before anything is sent --------------------------------------------------------------------------------------

    def _form(self) -> Form | None:
        """Which form the request has: by its own answer, else by where it was sent and by its fields."""
        if self.cut.request is None or self.cut.call is None:
            return None
        digest = self.cut.call.output_digest
        answer = None if digest is None or self.cut.call.status != "ok" else self.recording.body(digest)
        return form_in(answer_in(answer)) or form_of(
            self.cut.request, self._recorded("provider"), self._recorded("endpoint")
        )

    def _recorded(self, fact: str) -> str | None:
        said = self.cut.call.attrs.get(fact) if self.cut.call is not None else None
        return said if isinstance(said, str) else None

    def _policy(self) -> Policy:
        wishes = self.wishes
        rules = {n: _rule(n, r) for n, r in wishes.tools.items()}
        allow = _allowed(wishes.live)
        hosted = hosted_tools(self.cut.request or {})
        self.named = [*rules, *(name for name in allow if name not in hosted)]
        if self.code_is_here:
            self.check_names(self.named)
        switched = with_live(rules, [name for name in allow if name not in hosted])
        policy = Policy(tools=switched, allow=allow, on_miss=wishes.on_miss, ask=wishes.ask)
        unnamed = [name for name in hosted if may_write(name) and name not in allow]
        if unnamed:
            raise ForkRefused(
                f"the request lets the provider run {unnamed[0]!r}, which may write: a fork would run it for real",
                hint=f"if that is meant: --live {unnamed[0]} --reason TEXT; or take it out with --unset tools",
                reason="hosted_tool",
            )
        own = self.engine == "own"
        policy.check(lambda tool: self.effects.get(tool) or ("pure" if own else "write"))
        missing = [name for name in policy.named_live() if not own and name not in self.functions]
        if missing:
            raise ForkRefused(
                f"tool {missing[0]!r} is to run live, but its function was not given",
                hint="--tools-from MODULE (functions= in Python) gives it to the generic loop; "
                "or fork with the agent's own code: --code MODULE:FUNCTION, or -- COMMAND",
                reason="live_no_function",
            )
        return policy

    def check_names(self, names: Sequence[str]) -> None:
        """A rule of a tool that is nowhere would be applied to nothing, and the fork would look as if it had been.

        Raises:
            UsageError: of a name that was neither called nor offered to a model, and that no code given here declares.
        """
        known = {call.name for call in self.cut.tape.calls if call.kind == "tool"} | self.functions.keys()
        if self.engine == "own":
            known |= declared_tools().keys()
        if known.issuperset(names):
            return
        known |= self._offered()
        for name in names:
            if name not in known:
                close = nearest(name, known)
                has = f"it has: {', '.join(sorted(known))}" if known else "it has none"
                hint = f"did you mean {close!r}?" if close else None
                raise UsageError(f"no tool {name!r} in this run; {has}", hint=hint)

    def _offered(self) -> set[str]:
        """Names of the tools that models were told of, or are to be told of in this fork."""
        asked = [call.input_digest for call in self.cut.tape.calls if call.kind == "llm" and call.input_digest]
        bodies = Bodies(self.recording, asked)
        found = {edit.name for edit in self.wishes.overrides.tools}
        for digest in asked:
            try:
                request = bodies.value(digest)
            except Damaged:
                continue  # a body that was deleted offers nothing; what is wrong with another is said where it is needed
            listed = request.get("tools") if isinstance(request, dict) else None
            found.update(tool_names(listed) if isinstance(listed, list) else ())
        return found

    def _check(self) -> None:
        overrides, request = self.wishes.overrides, self.cut.request
        if request is None:
            if not overrides.empty and self.engine == "generic":
                raise ForkRefused("the generic loop starts at a model step, not at the start", reason="no_code")
        else:
            applied = apply_to_request(request, overrides, self.form)
            self.notes += [*applied.notes, *cautions(request, applied.request, applied.edits, self.form)]
            self._edits = applied.edits
        if self.engine == "own" and self.cut.call is not None and self.cut.call.inner:
            raise ForkRefused(
                f"step {self.cut.step} was made inside a tool, which a fork does not run again",
                hint="use the generic loop (--engine generic), or fork before the tool",
                reason="inside_a_tool",
            )
        if self.engine == "generic":
            self._check_generic()
        changed = [tool for tool, rule in self.policy.tools.items() if rule.how in ("stub", "sandbox", "human")]
        if self.wishes.require_faithful and changed:
            raise ForkRefused(
                f"a fork with a {self.policy.rule(changed[0]).how} for {changed[0]!r} is hypothetical",
                reason="not_faithful",
            )

    def _check_generic(self) -> None:
        """The loop must know the form of the request, and be able to append to what it asks."""
        step = f"step {self.cut.step}"
        if self.form not in DIALECTS:
            raise ForkRefused(
                f"{step}: the generic loop does not speak the form {self.form!r}",
                hint="fork it with its own code",
                reason="other_form",
            )
        sent = apply_to_request(self.cut.request or {}, self.wishes.overrides, self.form).request
        if sent.get("conversation") is not None:
            raise ForkRefused(
                f"{step}: its provider keeps the conversation (server_held), a fork would write into the parent's",
                hint="take it out with --unset conversation, or fork with the agent's own code",
                reason="server_held",
            )

    def _kept_prefix(self, edits: Sequence[Edit]) -> list[str]:
        """How many kept model answers were given to requests that the overrides would have changed."""
        if not edits:
            return []
        asked = [call.input_digest for call in self.cut.kept() if call.kind == "llm" and call.input_digest is not None]
        bodies = Bodies(self.recording, asked)
        requests = [bodies.value(digest) for digest in asked]
        count = sum(any(edit.fits(request) for edit in edits) for request in requests)
        if not count:
            return []
        prompt = any(edit.path[0] in ("messages", "input", "system", "instructions") for edit in edits)
        what = "the old prompt" if prompt else "the old parameters"
        one = f"1 model answer was kept that was made with {what}"
        return [one if count == 1 else f"{count} model answers were kept that were made with {what}"]

    # --- forking ------------------------------------------------------------------------------------------------------

    def fork(self) -> ForkResult:
        """Runs all arms, control and candidate by turns."""
        made: dict[str | None, list[Run]] = {"control": [], "candidate": [], None: []}
        for arm in arms_of(self.wishes):
            made[arm].append(self.make(arm))
        candidates, controls = [*made["candidate"], *made[None]], made["control"]
        return ForkResult(self.parent, tuple(candidates), tuple(controls), self.said)

    def said(self) -> list[str]:
        """What to know before believing what was made, one line each; it looks through the whole kept prefix."""
        return [*self.notes, *self._kept_prefix(self._edits)]

    def make(self, arm: str | None, run_id: str | None = None) -> Run:
        """Makes the run of one arm; with a run id it gets that. Raises like the verb."""
        plan = self.plan(NO_OVERRIDES if arm == "control" else self.wishes.overrides, arm, run_id)
        with going_on_live():
            if self.engine == "own":
                self.own(plan)
            else:
                self.noted(LoopFork(self.cut, self.of_loop()).run(plan))
        run = self.store.run(plan.run_id)
        assert run is not None, "the new run was stored"
        if self.wishes.require_faithful and run.label == "hypothetical":
            raise ForkRefused(
                f"the fork {run.id} is hypothetical from step {run.hypothetical_from} on",
                hint=f"the run is kept: agentloupe show {run.id}",
                reason="not_faithful",
            )
        return run

    def of_loop(self) -> LoopParts:
        """What the loop is made of. Only of a family with the generic engine."""
        assert self.form is not None, "the generic loop starts at a model step"
        parts = (self.form, self.provider, self.functions, self.effects)
        wishes = self.wishes
        return LoopParts(*parts, model=self.parent.model, endpoint=wishes.endpoint, patience=wishes.patience)

    def plan(self, overrides: Overrides, arm: str | None, run_id: str | None = None) -> ForkPlan:
        """The plan of one fork, with a run id (default: a new one) and a cassette of its own."""
        run_id = run_id or (self._ids.pop(0) if self._ids else new_fork_id(self.parent.id))
        at = "the start" if self.cut.step is None else f"step {self.cut.step}"
        facts: dict[str, Json] = {} if arm is None else {"arm": arm}
        if self.parent.task_id is not None:
            facts["task_id"] = self.parent.task_id
        cassette = self._cassette()
        results = self._results(overrides, cassette)
        settings = settings_here()
        return ForkPlan(
            run_id=run_id,
            cut=self.cut,
            open=lambda new_id=run_id: self.store.start(
                new_id, project.Projector, owner=_owner(), share=self.parent.id
            ),
            cassette=cassette,
            rules=self.rules,
            engine=self.engine,
            overrides=overrides,
            form=self.form,
            policy=self.policy,
            limits=self.wishes.limits,
            price=self.wishes.price,
            name=f"{self.parent.name} (fork from {at})",
            tags=self.parent.tags,
            facts=facts,
            depends=lambda: self._snapshot(settings),
            code_changed=self.wishes.code_changed,
            cancel=self.wishes.cancel,
            watch=self.wishes.watch,
            inherited=self._inherited() if self.engine == "own" else (),
            results=results,
            schedule=settings.schedule,
            stuck_after=settings.stuck_after,
            passes_trace_on=settings.pass_trace_on,
        )

    def _snapshot(self, settings: Settings) -> Mapping[str, Json]:
        """What the new part of a fork with its own code depends on; the plain loop runs no code of the user's."""
        if self.engine != "own":
            return {}
        entry = self.cut.tape.started.attrs.get("entry")
        opening = Opening(agent=self.parent.agent, entry=entry if isinstance(entry, str) else None)
        return {"snapshot": snapshot_of(settings, opening), "packages": snapshot.packages()}

    def _results(self, overrides: Overrides, cassette: Cassette) -> dict[str, Json]:
        """Changed results of tool steps: the kept ones by call id; later ones are put into the cassette."""
        kept: dict[str, Json] = {}
        calls = self.cut.tape.calls
        for idx, result in overrides.tool_results.items():
            at = idx - self.cut.first_idx
            call = calls[at] if 0 <= at < len(calls) else None
            if call is None or call.kind != "tool":
                tools = [str(i) for i, c in enumerate(calls, self.cut.first_idx) if c.kind == "tool"]
                known = f"tool steps are {', '.join(tools)}" if tools else "it has no tool step"
                raise UsageError(f"step {idx} is no tool step whose result can be changed", hint=known)
            wire = codecs.encode(result).wire
            if call.first_seq < self.cut.sequence:
                kept[call.call_id] = wire
            else:
                cassette.amend(idx, wire)
        return kept

    def _inherited(self) -> list[Mapping[str, Json]]:
        """Changes that the parent and its ancestors made, the oldest first: its code makes its requests without them."""
        bodies = self.cut.tape.started.bodies
        stored = [self.recording.body(bodies.get(label)) for label in ("inherited", "overrides")]
        return [
            c for changes in stored if isinstance(changes, list) for c in changes if isinstance(c, dict) and "op" in c
        ]

    def _cassette(self) -> Cassette:
        if self._takes is None:
            ids = index_of(self.cut.tape, self.cut.first_idx)
            self._takes = takes_of(self.cut.tape, ids.get), [_takes(r) for r in self._ancestors()]
        own, ancestors = self._takes
        return Cassette(own, ancestors, used_before=0 if self.cut.step is None else self.cut.sequence)

    def _ancestors(self) -> list[Recording]:
        found: list[Recording] = []
        parent = self.parent.parent_run_id
        while parent is not None and len(found) < _FAMILY:
            try:
                recording = self.store.recording(parent)
            except RunNotFound:
                break
            found.append(recording)
            said = recording.events[0].attrs.get("parent_run_id") if recording.events else None
            parent = said if isinstance(said, str) else None
        return found

    # --- own code -----------------------------------------------------------------------------------------------------

    def own(self, plan: ForkPlan) -> None:
        """Runs one fork of own code."""
        assert self.agent is not None, "the engine was chosen by it"
        agent = as_agent(self.agent, self.cut.tape.started.name)
        args, kwargs = arguments_of(self.cut.tape)
        forker = Forker(plan)
        try:
            with ambient.beside(forker), ambient.opening_with(ForkOpener(forker)):
                result = yielding.all_of(agent(*args, **kwargs))
                if inspect.isawaitable(result):
                    to_the_end(result)
        except KeyboardInterrupt:
            raise
        except BaseException:
            # What the agent raised is its run's error, recorded there; and a refusal is told below.
            if not forker.begun and forker.refusal is None:
                raise
        self.noted(forker.ended())

    def noted(self, ended: Ended) -> None:
        """Takes over what a fork says when it has ended. Raises its refusal, if it was refused."""
        if ended.refusal is not None:
            raise ended.refusal
        for path, count in ended.applied.items():
            self.notes.append(f"{path} was applied to {count} request{'' if count == 1 else 's'}")
        if ended.kept:
            self.notes.append(f"{ended.kept} kept calls have another input than recorded (code changed)")
        if ended.others:
            self.notes.append(
                "the program starts other runs too; each was stopped where it began, and that may have ended this one: "
                "--code MODULE:FUNCTION forks it alone"
            )


def _allowed(live: object) -> dict[str, Allow]:
    """The allowlist of a call. Raises `UsageError` where tools stand in it without their reasons."""
    if not isinstance(live, Mapping):
        raise UsageError("live tools need their reasons", hint='live={"calculate": "arithmetic only"}')
    named = cast("Mapping[str, Allow | str]", live)
    return {name: Allow(given) if isinstance(given, str) else given for name, given in named.items()}


def _rule(tool: str, rule: ToolRule | str) -> ToolRule:
    """A rule; a sandbox that a person named is imported, as the agent's code is."""
    found = parse_tool(f"{tool}={rule}")[1] if isinstance(rule, str) else rule
    if isinstance(found.sandbox, str):
        try:
            found = replace(found, sandbox=agent_named(found.sandbox))
        except LoupeError as wrong:
            raise ForkRefused(f"sandbox of tool {tool!r}: {wrong.message}", reason="no_sandbox") from wrong
    real = stated_for(found.sandbox)
    if real is not None and real[1] == "write":
        raise ForkRefused(
            f"sandbox of tool {tool!r} is the real tool {real[0]!r}, which writes: a fork never runs it",
            hint="a sandbox is a function of its own that stands in for the tool",
            reason="live_write",
        )
    return found


def _takes(recording: Recording) -> list[Take]:
    tape = read_tape(recording)
    return takes_of(tape, index_of(tape, 1 if tape.started.attrs.get("root") else 0).get)


def _owner() -> Any:
    from agentloupe.store.owners import this_process

    return this_process()


def _whole(recording: Recording) -> Recording:
    found = verify(recording, bodies=False)
    if not found.ok:
        fault = found.fault
        raise Corrupt(
            f"run {recording.run_id} is not whole, it is not forked: {found.head}",
            reason=fault.reason if fault else None,
        )
    return recording


def _engine(wishes: ForkWishes, agent: object, cut: Cut) -> Literal["own", "generic"]:
    engine = wishes.engine or ("own" if agent is not None else "generic")
    if engine == "own" and agent is None:
        raise ForkRefused(
            "a fork with the agent's own code needs its code", hint="--code MODULE:FUNCTION", reason="no_code"
        )
    if engine == "generic" and cut.step is None:
        raise ForkRefused(
            "a fork from the start runs the agent's own code", hint="--code MODULE:FUNCTION", reason="no_code"
        )
    coverage = cut.tape.finished.attrs.get("coverage") if cut.tape.finished is not None else None
    if engine == "own" and coverage == "control_flow":
        notes = cut.tape.finished.attrs.get("coverage_notes") if cut.tape.finished is not None else None
        told = "; ".join(map(str, notes)) if isinstance(notes, list) else "its notes do not say what"
        raise ForkRefused(
            f"not all of this run went through the boundary, running its code might do that for real: {told}",
            hint=f"{way_back(cut.tape)}; or use the generic loop (--engine generic)",
            reason="control_flow",
        )
    lacking = dropped_values([event for event in cut.recording.events if event.sequence < cut.sequence])
    if engine == "own" and lacking:
        raise ForkRefused(
            f"its code cannot be brought to this step: {dropped_note(lacking)}",
            hint="fork it from an earlier step, or use the generic loop (--engine generic)",
            reason="limited",
        )
    return engine


def _effects(tape: Tape, functions: Mapping[str, Callable[..., object]]) -> dict[str, Effect | None]:
    """Effects by tool: as decorated, else as recorded; a plain function that is handed in is declared pure by that."""
    found: dict[str, Effect | None] = {}
    for call in tape.calls:
        if call.kind == "tool" and not call.attrs.get("parse_error") and not call.attrs.get("effect_unstated"):
            found[call.name] = call.effect
    for name, function in functions.items():
        stated = stated_for(function)
        if stated is not None or found.get(name) is None:
            found[name] = stated[1] if stated is not None else "pure"
    return found
