"""The forker: the boundary that answers from the parent's tape up to step N, and from there lets a new run be made.

    own code:      the agent runs again; calls before N are served and checked; at N the overrides apply, the model is live
    generic loop:  no code needed; the loop starts at N with the recorded request

From N on tools are answered by policy, mostly from the cassette; everything is recorded in the new run, which begins with
a copy of the parent's events before N. The parent is only read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn, cast

from agentloupe.engine.cassette import Cassette, Nearest, Played, error_text, miss_text
from agentloupe.engine.credentials import holds_mark
from agentloupe.engine.cut import Cut, Prefix, copy_prefix
from agentloupe.engine.edits import Edit, Op, apply_edits, parse_path, value_at
from agentloupe.engine.loop import Limits, Price, Spend, ToolFailed
from agentloupe.engine.overrides import NO_OVERRIDES, Overrides, compile_overrides
from agentloupe.engine.pen import Answered, Answering, Pen
from agentloupe.engine.policy import CASSETTE, Given, Policy, Question, ToolRule, check_live, find_sandbox
from agentloupe.engine.privacy import Rules, named, scrub
from agentloupe.engine.raised import error_name, status_of
from agentloupe.engine.replayer import Replayer
from agentloupe.engine.ruling import Settings
from agentloupe.engine.tape import PATCHED, RecordedCall
from agentloupe.ports import ambient, codecs, streams
from agentloupe.ports.ambient import HasPlace, Place
from agentloupe.ports.cancel import Cancel
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.progress import Progress, Watch, What, tell
from agentloupe.ports.protocols import Opening, Perform, RunWriter, Serve
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import STUCK_AFTER, Mode, Schedule
from agentloupe.ports.scribe import Scribe, Started
from agentloupe.ports.streams import Piece
from agentloupe.words.call import Attrs, Call, Outcome, OutcomeStatus, Source
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.dialects import Form
from agentloupe.words.errors import Cancelled, CassetteMiss, ForkRefused, LimitReached, LoupeError, ReplayMismatch
from agentloupe.words.run import Engine
from agentloupe.words.trace import TraceContext

__all__ = ["Ended", "ForkPlan", "Forker"]

_BY_POLICY = frozenset({"tool", "retrieval", "other"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPlan:
    """Everything that is fixed before a fork begins.

    Attributes:
        run_id: of the new run.
        cut: where it leaves the parent.
        open: takes ownership of the new run in the store.
        engine: who drives: `own` code or the `generic` loop.
        overrides: what is changed.
        form: of the request, where its fields do not tell.
        policy: who answers tools.
        cassette: recorded results of this fork (never shared between forks).
        limits: of the new part.
        price: cost of a model call from its facts; `spend` is the loop's own count, where the loop keeps the limits.
        rules: of secret removal, those that the parent was recorded with.
        name, tags: of the run; `facts` and `bodies` of its `run.started` beside what is told by the plan itself.
        depends: what the new part depends on, as further bodies; asked for when the agent begins, since only then its
            tools are declared.
        code_changed: before N the inputs of anything but tools may differ; they are counted.
        written: changes that are recorded, where the loop's first request already holds them.
        results: results that kept tool steps shall have had, by call id.
        inherited: changes that the parent and its ancestors made; own code makes its requests without them.
        cancel: ends it from outside: before the next model call, in the plain loop also while a model is asked.
        watch: is told how far it is.
        schedule: how much of the program's order is waited for; stuck_after: see `ruling.Settings`.
        passes_trace_on: requests to models carry the trace of their step.
    """

    run_id: str
    cut: Cut
    open: Callable[[], RunWriter]
    cassette: Cassette
    rules: Rules
    engine: Engine = "own"
    overrides: Overrides = NO_OVERRIDES
    form: Form | None = None
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    price: Price | None = None
    spend: Spend | None = None
    name: str = ""
    tags: tuple[str, ...] = ()
    facts: Attrs = field(default_factory=dict[str, Json])
    bodies: Mapping[str, Json] = field(default_factory=dict[str, Json])
    depends: Callable[[], Mapping[str, Json]] = dict[str, Json]
    code_changed: bool = False
    written: Sequence[Mapping[str, Json]] = ()
    inherited: Sequence[Mapping[str, Json]] = ()
    results: Mapping[str, Json] = field(default_factory=dict[str, Json])
    cancel: Cancel | None = None
    watch: Watch | None = None
    schedule: Mode = "exact"
    stuck_after: float = STUCK_AFTER
    passes_trace_on: bool = False


# --- before N ---------------------------------------------------------------------------------------------------------


class _AtCut(BaseException):
    """Step N is asked for: not an error, but the only way out of a replay's answer."""

    def __init__(self, where: Place) -> None:
        super().__init__()
        self.where = where


class _Before(Replayer):
    """The kept part, served and checked like a replay, up to the call at the cut."""

    def __init__(self, plan: ForkPlan, schedule: Schedule) -> None:
        cut, rules = plan.cut, plan.rules
        settings = Settings(scrub=lambda value: scrub(value, rules).value, rules=rules.digest)
        super().__init__(cut.tape, settings, schedule)
        self.cut = cut
        self.code_changed = plan.code_changed
        self.kept = 0
        self._results = plan.results
        # After a changed result, what the program says to its model may differ.
        changed = [call.first_seq for call in cut.tape.calls if call.call_id in plan.results]
        self._amended_from = min(changed, default=cut.sequence)
        self._overridden.edits = [
            (parse_path(str(c["path"])), cast("Op", c["op"]), c.get("value")) for c in plan.inherited
        ]

    def _agree(self, recorded: RecordedCall, call: Call, key: str) -> bool:
        if super()._agree(recorded, call, key):
            return True
        same = recorded.kind == call.kind and recorded.name == call.name and recorded.kind != "tool"
        if (self.code_changed or recorded.first_seq > self._amended_from) and same:
            self.kept += recorded is not self.cut.call
            return True
        return False

    def _answer(self, call: Call, where: Place, recorded: RecordedCall) -> Serve | Perform:
        if recorded is self.cut.call:
            raise _AtCut(where)
        if recorded.call_id in self._results:
            return Serve(call.decode(self._results[recorded.call_id]))
        answer = super()._answer(call, where, recorded)
        if call.kind == "env" and isinstance(answer, Serve) and holds_mark(answer.value):
            # The real model is asked soon, and takes no placeholder for its key.
            answer.value = os.environ.get(call.name, answer.value)
        late = recorded.turns_from(self.cut.sequence)
        if isinstance(answer, Serve) and late:
            if isinstance(answer.value, streams.Played):
                answer.value.ended = partial(self._late, recorded, late[-1], lost=False)
            if late[0] == recorded.call_id:
                answer.handed = partial(self._late, recorded, late[0])
        return answer

    def _late(self, recorded: RecordedCall, turn: str, lost: bool) -> None:
        """A call that was open at the cut is handed over: the copy of its end stands before the cut, its turn is now."""
        if not lost:
            self.schedule.log("schedule.marked", recorded.lane, {"turn": turn})

    def _compare_own(self, recorded: RecordedCall, status: str, output: Json) -> None:
        if recorded.last_seq < self.cut.sequence and not self.code_changed:
            super()._compare_own(recorded, status, output)

    def _leftovers(self, path: str) -> None:
        if not self.code_changed:
            super()._leftovers(path)

    def ended_early(self) -> ReplayMismatch:
        """The program ended before it asked for step N."""
        call = self.cut.call
        assert call is not None, "there is a step to reach"
        try:
            super()._leftovers(call.lane)
        except ReplayMismatch as stop:
            return stop
        return ReplayMismatch(
            f"the program ended before step {self.cut.step}", kind="unconsumed", sequence=call.first_seq
        )


# --- the new run ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ended:
    """What a fork says when it has ended.

    Attributes:
        begun: the new run exists.
        refusal: why it could not begin, or was stopped by a rule.
        applied: edits by path: to how many requests they were applied.
        kept: kept calls that had another input than recorded.
        others: the program started other runs too, which were stopped where they began.
    """

    begun: bool
    refusal: LoupeError | None
    applied: Mapping[str, int]
    kept: int
    others: bool = False


class Forker:
    """The boundary of one fork. Safe to call from several threads.

    Args:
        plan: see `ForkPlan`.

    Attributes:
        refusal: why the fork could not begin, if it could not.
        applied: edits that were applied, by path: to how many requests.
        stopped: what ended the fork from inside (a limit, an abort), if anything did.
    """

    def __init__(self, plan: ForkPlan) -> None:
        self.plan = plan
        self.refusal: LoupeError | None = None
        self.stopped: BaseException | None = None
        self.applied: dict[str, int] = {}
        self.edits: tuple[Edit, ...] = ()
        self.inherited: tuple[Edit, ...] = ()
        self.prefix: Prefix | None = None
        self.spend = plan.spend or (Spend(plan.limits, plan.price) if plan.price else Spend(plan.limits))
        self._own_limits = plan.spend is None
        served = plan.engine == "own" and plan.cut.step is not None
        tape = plan.cut.tape
        self.schedule = Schedule(
            tape.turns(plan.cut.sequence) if served else (),
            live=not served,
            mode="off" if served and tape.mode == "off" else plan.schedule,
            keeper=self,
            stuck_after=plan.stuck_after,
            naming=tape.naming,
        )
        self._before = _Before(plan, self.schedule) if served else None
        self._pen: Answering | None = None
        self._standing_in: set[str] = set()
        self._lock = plain.RLock()

    @property
    def begun(self) -> bool:
        """Whether the new run exists."""
        return self._pen is not None

    @property
    def kept(self) -> int:
        """How many kept calls had another input than recorded (with `code_changed`)."""
        return self._before.kept if self._before is not None else 0

    @property
    def trace(self) -> TraceContext | None:
        """Where the code stands in its trace: in the parent's before N, then in the new run's."""
        recorder = self._pen or self._before
        return recorder.trace if recorder is not None else None

    @property
    def passes_trace_on(self) -> bool:
        """Whether requests to models carry it."""
        return self.plan.passes_trace_on

    def begin(self, opening: Opening) -> None:
        """Makes the new run, with its copy of the kept prefix. Raises `StoreError` when it cannot be made."""
        plan = self.plan
        scribe = Scribe.begun(ambient.arrived())
        asked = plan.cut.call.input_digest if plan.cut.call is not None else None
        if asked is not None:
            # What the parent asked at N is stored already: the fork's requests are told by what they share with it.
            scribe.packer.adopt(asked, plan.cut.recording.get)
        own = plan.engine == "own"
        packed = {
            call_id: scribe.packer.pack(scrub(result, plan.rules).value) for call_id, result in plan.results.items()
        }
        self.prefix = copy_prefix(
            plan.cut,
            trace_id=scribe.trace.trace_id,
            root_span=scribe.trace.span_id,
            end_agents=not own,
            amended={call_id: found.digest for call_id, found in packed.items()},
        )
        try:
            writer = plan.open()
        except LoupeError as refused:
            self.refusal = refused  # of the store; what the agent makes of it is no difference of the code
            raise
        pen = Pen(writer, scribe, plan.rules, plan.run_id, self.spend if self._own_limits else None)
        self._pen = pen
        bodies = [body for found in packed.values() for body in found.bodies]
        pen.begin(self._started(opening), self.prefix.drafts, bodies)
        reach("fork.after_prefix")
        kept = plan.cut.kept() if own and plan.cut.call is not None else []
        late = [turn for call in kept for turn in call.turns_from(plan.cut.sequence)]
        if late:
            pen.log("schedule.marked", "0", {"open": list[Json](late)})
        self._tell("begun")
        self.schedule.go_live()

    def _tell(self, what: What, where: Place | None = None, call: Call | None = None) -> None:
        call_id, name = where.call_id if where is not None else None, call.name if call is not None else None
        tell(self.plan.watch, Progress(run_id=self.plan.run_id, what=what, call_id=call_id, name=name))

    def _started(self, opening: Opening) -> Started:
        plan, cut = self.plan, self.plan.cut
        changes = [*plan.written, *(edit.as_json() for edit in self.edits)]
        paths: list[Json] = [change["path"] for change in changes]
        paths += [f"tool_results.{idx}" for idx in plan.overrides.tool_results]
        facts: dict[str, Json] = {
            "root": bool(cut.tape.started.attrs.get("root")),
            "parent_run_id": cut.recording.run_id,
            "forked_from_step": cut.step,
            "parent_hash": cut.head,
            **{name: cut.tape.started.attrs[name] for name in ("whole_program",) if name in cut.tape.started.attrs},
            "parent_sequence": cut.sequence - 1,
            "rules": plan.rules.digest,
            **self.schedule.facts,
            "limits": plan.limits.as_json(),
            "overrides": paths,
            **plan.facts,
        }
        if opening.entry is not None:
            facts["entry"] = opening.entry
        bodies: dict[str, Json] = {"policy": plan.policy.as_json(), "rules": plan.rules.as_json()}
        bodies |= {**plan.bodies, **plan.depends()}
        depends = bodies.get("snapshot")
        if isinstance(depends, dict) and opening.source_digest is not None:
            bodies["snapshot"] = {**depends, "source_digest": opening.source_digest}
        if changes:
            bodies["overrides"] = [dict(change) for change in changes]
        if plan.overrides.tool_results:
            bodies["tool_results"] = {str(idx): result for idx, result in plan.overrides.tool_results.items()}
        if plan.inherited:
            bodies["inherited"] = [dict(change) for change in plan.inherited]
        return Started(
            agent=opening.agent,
            name=plan.name,
            arguments=opening.arguments,
            engine=plan.engine,
            tags=plan.tags,
            facts={name: value for name, value in facts.items() if value is not None},
            bodies=bodies,
        )

    # --- the boundary -------------------------------------------------------------------------------------------------

    def decide(self, call: Call) -> Serve | Perform:
        """Before N: the tape. From N on: the model is performed, tools are answered by policy."""
        call = named(call, lambda value: scrub(value, self.plan.rules).value)
        with self._lock:
            if self.stopped is not None:
                raise self.stopped
            if self._pen is None:
                assert self._before is not None, "a generic fork begins before its first call"
                try:
                    return self._before.decide(call)
                except _AtCut as reached:
                    where = reached.where
                self._reach(call)
            else:
                where = ambient.place()
            return Serve(False) if self._old_way(call) else self._new(call, where)

    def _old_way(self, call: Call) -> bool:
        """Whether this asks for a change of the code that was not there before N: then a run keeps to the old way."""
        if self._before is None or call.kind != "check" or not call.name.startswith(PATCHED):
            return False
        return self._before.patched.get(call.name.removeprefix(PATCHED)) is False

    def _reach(self, call: Call) -> None:
        """Step N is asked for, as recorded: the overrides are made for it, the new run begins."""
        request = cast("dict[str, Json]", scrub(call.input, self.plan.rules).value)
        recorded = self.plan.cut.call
        if recorded is not None and recorded.input_key != key_of("llm", call.name, request):
            self.inherited = tuple(_edit_of(change, request) for change in self.plan.inherited)
            request, _ = apply_edits(request, self.inherited)
        try:
            self.edits = compile_overrides(self.plan.overrides, request, self.plan.form)
            self.begin(self._opening)
        except LoupeError as wrong:
            self._stop(wrong)

    _opening: Opening = Opening(agent="")

    def begins(self, opening: Opening) -> None:
        """The agent starts: what it is called with, and by which name."""
        self._opening = opening
        if self._before is None:
            if self.plan.engine == "own" and not self.plan.overrides.empty:
                self._compile_for_the_start()
            self.begin(opening)

    def _compile_for_the_start(self) -> None:
        """From the start there is no step N: overrides are made for the first request that was recorded."""
        tape = self.plan.cut.tape
        first = next((call for call in tape.calls if call.kind == "llm" and call.input_digest is not None), None)
        request = tape.recording.body(first.input_digest) if first is not None else None
        if not isinstance(request, dict):
            raise ForkRefused("the recording holds no model request to override", reason="cut_request")
        self.edits = compile_overrides(self.plan.overrides, request, self.plan.form)
        self.applied = dict.fromkeys((str(edit.as_json()["path"]) for edit in self.edits), 0)

    def goes_on(self, pen: Answering) -> None:
        """The run exists already: it goes on with this pen, whose tape answers what was answered."""
        self._pen = pen
        self._tell("begun")

    def answer(self, call: Call, where: Place) -> Serve | Perform:
        """Decides a call of the new part."""
        with self._lock:
            if self.stopped is not None:
                raise self.stopped
            return self._new(call, where)

    def finished(self, perform: Perform, value: object) -> object:
        """Takes the result of what was performed."""
        token = perform.token
        if isinstance(token, Answered):
            self._was_answered(token, "ok", value)
            return value.value if isinstance(value, Given) else value
        if (recorded := _kept_call(perform)) is None:
            given = self._writing().finished(perform, value)
            asked = getattr(token, "call", None)
            if isinstance(asked, Call) and asked.kind == "llm":
                self._tell("answered", cast("HasPlace", token).place, asked)
            return given
        if self._pen is not None:
            self._end_open(cast("HasPlace", token), recorded, "ok", value)
        else:
            self._serving().finished(perform, value)
        return value

    def opened(self, perform: Perform, head: Json) -> None:
        """A streamed answer begins to come, after N."""
        self._writing().opened(perform, head)

    def streamed(self, perform: Perform, piece: Piece) -> None:
        """A piece of it."""
        self._writing().streamed(perform, piece)

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Takes the exception of what was performed."""
        token = perform.token
        if isinstance(token, Answered):
            self._was_answered(token, status_of(error), error)
        elif (recorded := _kept_call(perform)) is None:
            self._writing().failed(perform, error)
        elif self._pen is not None:
            self._end_open(cast("HasPlace", token), recorded, status_of(error), error)
        else:
            self._serving().failed(perform, error)

    def _writing(self) -> Answering:
        assert self._pen is not None, "the new run has begun"
        return self._pen

    def _serving(self) -> _Before:
        assert self._before is not None, "something is served"
        return self._before

    def _was_answered(self, token: Answered, status: OutcomeStatus, value: object) -> None:
        """A sandbox or a person answered."""
        with self._lock:
            self._standing_in.discard(token.place.call_id)
        took: dict[str, Json] = {"ms": round(ambient.monotonic_ms() - token.began, 3)}
        if isinstance(value, BaseException):
            took["error_class"] = error_name(value)
        if isinstance(value, Given):
            took["answered_by"], value = value.by, value.value
        outcome = Outcome(status=status, output=_wire(value), attrs={**token.attrs, **took}, source=token.source)
        self._writing().asked(token.call, token.place, token.source, token.effect_key)
        self._writing().answered(token.call, token.place, outcome)

    def _end_open(self, token: HasPlace, recorded: RecordedCall, status: OutcomeStatus, value: object) -> None:
        """A nested agent that was open at the cut ends in the new run, whose prefix holds its start."""
        call = Call(kind=recorded.kind, name=recorded.name, input=None, encode=_wire, decode=codecs.decode)
        span = recorded.span_id or token.place.span_id
        where = token.place._replace(span_id=span, parent_span_id=recorded.parent_span_id)
        self._writing().ended(call, where, recorded.input_key or "", Outcome(status=status, output=_wire(value)))

    # --- the schedule -------------------------------------------------------------------------------------------------

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """Stores an event of the new part's schedule."""
        if self._pen is not None:
            self._pen.log(type, lane, facts)

    def stands_still(self, awaited: str | None) -> None:
        """The program does not come to step N."""
        if self._before is not None and self._pen is None:
            self._before.stands_still(awaited)

    def cancelled(self, id: str) -> None:
        """The program has cancelled what was handed to it in the parent."""
        if self._before is not None and self._pen is None:
            self._before.cancelled(id)

    def ran_off(self, what: str, inner: bool) -> NoReturn:
        """Something is tried in a thread that does not have the fork's context: it is refused, and the fork with it."""
        del inner  # inside of a live tool as well
        with self._lock:
            if self.stopped is None:
                self._stop(
                    ForkRefused(
                        f"{what} in a thread without the fork's context: it would be done for real",
                        hint="run it in the agent's own thread, or under contextvars.copy_context().run",
                        reason="ran_off",
                    )
                )
            raise cast("BaseException", self.stopped)

    # --- after N ------------------------------------------------------------------------------------------------------

    def _new(self, call: Call, where: Place) -> Serve | Perform:
        if "not_recorded" in call.attrs:
            why = call.attrs["not_recorded"]
            self._stop(ForkRefused(f"{call.name}: {why}, and a fork sends only what it records", reason="not_recorded"))
        if call.kind == "llm":
            return self._model(call, where)
        if call.kind in _BY_POLICY and not call.attrs.get("limit"):
            return self._by_policy(call, where)
        return self._live(call, where)

    def _live(self, call: Call, where: Place) -> Perform:
        return self._writing().decide_at(call, where)

    def _model(self, call: Call, where: Place) -> Perform:
        reached = self.spend.reached() if self._own_limits else None
        if reached is not None:
            name, text = reached
            self._limit(name, LimitReached(text, reason=name), where)
        if self.plan.cancel is not None and self.plan.cancel.cancelled:
            self._limit("cancelled", self.plan.cancel.error(), where)
        self._tell("asking", where, call)
        edited, applied = self._edited(call)
        if not applied:
            return self._live(call, where)
        if call.resend is None:
            self._stop(ForkRefused(f"this client cannot send a changed request ({call.name})", reason="no_resend"))
        assert call.resend is not None, "stopped otherwise"
        resend, body = call.resend, edited.input
        perform = self._live(edited, where)
        perform.instead = lambda: resend(body)
        return perform

    def _edited(self, call: Call) -> tuple[Call, tuple[Edit, ...]]:
        """The call with the edits that are meant for it. What they are compared with is the request without secrets."""
        if not (self.edits or self.inherited) or not isinstance(call.input, dict):
            return call, ()
        seen = scrub(call.input, self.plan.rules).value
        request, old = apply_edits(call.input, self.inherited, seen=seen)
        if old:
            seen = scrub(request, self.plan.rules).value
        request, applied = apply_edits(request, self.edits, seen=seen)
        for edit in applied:
            path = str(edit.as_json()["path"])
            self.applied[path] = self.applied.get(path, 0) + 1
        applied = (*old, *applied)
        if not applied:
            return call, ()
        attrs, name, model = dict(call.attrs), call.name, request.get("model")
        was = call.input.get("model") or attrs.get("model")  # of some APIs it stands in the URL alone
        if isinstance(model, str) and model != was:
            attrs["model"] = model
            name = name.replace(str(was), model)
        return replace(call, input=request, name=name, attrs=attrs), applied

    def _limit(self, name: str, error: LimitReached | Cancelled, where: Place) -> None:
        """A limit of the new part, or its end from outside: a last step says so, and nothing more is asked."""
        call = Call(kind="other", name=name, input=None, attrs={"limit": True}, encode=_wire, decode=codecs.decode)
        facts: dict[str, Json] = {"error_class": error_name(error)}
        self._writing().asked(call, where, "live")
        self._writing().answered(call, where, Outcome(status=status_of(error), output=_wire(error), attrs=facts))
        self._stop(error)

    def _stop(self, error: BaseException) -> None:
        self.stopped = error
        if not self.schedule.live:
            self.schedule.halt(lambda: error)
        if isinstance(error, ForkRefused) and not self.begun:
            self.refusal = error
        raise error

    # --- tools --------------------------------------------------------------------------------------------------------

    def _by_policy(self, call: Call, where: Place) -> Serve | Perform:
        policy = self.plan.policy
        inside = self._inside(where)
        rule = policy.rule(call.name)
        if inside and rule.how in ("sandbox", "human"):
            rule = CASSETTE  # who stands in for a tool and calls that tool must not be asked for it again
        if call.attrs.get("parse_error"):
            return self._malformed(call, where)
        if rule.how == "live":
            try:
                check_live(call.name, call.effect or "write", policy.allow.get(call.name))
            except ForkRefused as refused:
                self._stop(refused)
            return self._live(call, where)
        if rule.how == "stub":
            return self._serve(call, where, Outcome(status="ok", output=_wire(rule.value), source="stub"))
        if rule.how == "sandbox":
            return self._sandboxed(call, where, rule)
        if rule.how == "human":
            return self._asked(call, where, "policy", None)
        played = self.plan.cassette.take(call.kind, call.name, self._key(call))
        return self._miss(call, where, inside) if played is None else self._played(call, where, played)

    def _inside(self, where: Place) -> bool:
        """Whether a call is made by what stands in for a tool: a sandbox, or the program that asks a person."""
        return any(where.lane.startswith(f"{call_id}~") for call_id in self._standing_in)

    def _stands_in(self, call: Call, where: Place, source: Source, attrs: Attrs, do: Callable[[], object]) -> Perform:
        self._standing_in.add(where.call_id)
        token = Answered(where, call, source, attrs)
        perform = Perform(token, instead=do)
        if (call.effect or "write") == "write":
            key = self._writing().effect_key(call.name, self._key(call), where)
            token.effect_key = perform.facts["idempotency_key"] = key
        return perform

    def _key(self, call: Call) -> str:
        return key_of(call.kind, call.name, scrub(call.input, self.plan.rules).value)

    def _malformed(self, call: Call, where: Place) -> Serve | Perform:
        """Malformed arguments reach no executor and no counter, unless this very text was recorded with a result."""
        played = self.plan.cassette.take(call.kind, call.name, self._key(call))
        if played is None:
            return self._live(call, where)
        if not played.take.parse_error:
            call = replace(call, attrs={n: v for n, v in call.attrs.items() if n != "parse_error"})
        return self._played(call, where, played)

    def _played(self, call: Call, where: Place, played: Played) -> Serve:
        take = played.take
        attrs: dict[str, Json] = {"played_from": take.run_id, "played_step": take.idx, "origin": take.origin}
        if take.amended:
            attrs["amended"] = True
        if played.reused:
            attrs["reused"] = True
        if take.write:
            attrs["replayed_write"] = True
        if take.parse_error:
            attrs["parse_error"] = True
        if take.error_class is not None:
            attrs["error_class"] = take.error_class
        facts = {name: value for name, value in attrs.items() if value is not None}
        status: OutcomeStatus = "error" if take.failed else "ok"
        source: Source = "stub" if take.amended else "cassette"
        return self._serve(call, where, Outcome(status=status, output=played.output, attrs=facts, source=source))

    def _serve(self, call: Call, where: Place, outcome: Outcome, nearest: str | None = None) -> Serve:
        """Hands the answer to the program in the form it expects; it is recorded when that is done."""
        value: object = None
        error: BaseException | None = None
        if outcome.status == "ok":
            value = call.decode(outcome.output)
        elif self.plan.engine == "own":
            error = cast("BaseException", codecs.decode(outcome.output))
        else:
            error = ToolFailed(error_text(outcome.output))
        pen = self._writing()
        pen.asked(call, where, outcome.source)
        return Serve(value, error, where.call_id, handed=lambda lost: pen.answered(call, where, outcome, nearest))

    def _sandboxed(self, call: Call, where: Place, rule: ToolRule) -> Perform:
        try:
            function = find_sandbox(rule, call.name)
        except ForkRefused as refused:
            self._stop(refused)
            raise
        given = codecs.decode(call.input)
        arguments = cast("dict[str, object]", given) if isinstance(given, dict) else {"arguments": given}
        return self._stands_in(call, where, "sandbox", {}, lambda: function(**arguments))

    def _miss(self, call: Call, where: Place, inside: bool) -> Serve | Perform:
        policy = self.plan.policy
        near = self.plan.cassette.nearest(call.kind, call.name, call.input)
        if policy.on_miss == "human" and not inside:
            return self._asked(call, where, "miss", near)
        text = miss_text(call.name, call.input)
        if inside:
            text += "; it was called inside of what stands in for a tool, which is answered from the recording only"
        error = CassetteMiss(text, reason="abort" if policy.on_miss == "abort" else None)
        attrs: dict[str, Json] = {"error_class": error_name(error)}
        if near is not None and near.take.idx is not None:
            attrs |= {"nearest_run": near.take.run_id, "nearest_step": near.take.idx}
        outcome = Outcome(status="error", output=_wire(error), attrs=attrs, source="miss")
        served = self._serve(call, where, outcome, str(near) if near is not None else None)
        if policy.on_miss == "abort":
            assert served.handed is not None, "written at its end"
            served.handed(False)
            self._stop(error)
        return served

    def _asked(self, call: Call, where: Place, because: str, near: Nearest | None) -> Perform:
        ask = self.plan.policy.ask
        assert ask is not None, "the policy was checked before the fork began"
        shown = codecs.decode_for_reading(call.input)
        question = Question(
            call.name,
            shown,
            "miss" if because == "miss" else "policy",
            str(near) if near is not None else None,
            self.plan.run_id,
            where.call_id,
            near.as_json() if near is not None else None,
        )
        self._tell("waiting", where, call)
        return self._stands_in(call, where, "human", {"asked_because": because}, lambda: ask(question))

    # --- the end ------------------------------------------------------------------------------------------------------

    def early_end(self, error: BaseException | None) -> ForkRefused:
        """The agent ended, and step N was never asked for: the refusal, with the replay's report."""
        self.schedule.close()
        before = self._serving()
        if not before.stopped and not isinstance(error, ReplayMismatch):
            before.ended_early()
        report = before.report()
        said = (
            f" (the agent raised {error_name(error)})"
            if error is not None and not isinstance(error, ReplayMismatch)
            else ""
        )
        self.refusal = ForkRefused(
            f"the code diverges before step {self.plan.cut.step}{said}: {report.text()}", reason="diverges_before"
        )
        return self.refusal

    def ended(self) -> Ended:
        """What is to be said now that the agent has ended."""
        stop = self.stopped
        refusal: LoupeError | None = self.refusal
        if refusal is None and isinstance(stop, LoupeError) and (not self.begun or isinstance(stop, ForkRefused)):
            refusal = stop
        return Ended(self.begun, refusal, dict(self.applied), self.kept)

    def end(self, status: OutcomeStatus, output: Json, facts: Mapping[str, Json]) -> None:
        """Ends the new run."""
        more: dict[str, Json] = {}
        if self.applied:
            more["applied"] = dict[str, Json](self.applied)
        if self.kept:
            more["kept"] = self.kept
        self.schedule.close()
        self._writing().end(status, output, {**facts, **more})
        self._tell("ended")


def _wire(value: object) -> Json:
    return codecs.encode(value).wire


def _edit_of(change: Mapping[str, Json], request: Json) -> Edit:
    """A recorded change, as an edit of the request that it is to be made on again."""
    path = parse_path(str(change["path"]))
    return Edit(path, cast("Op", change["op"]), change.get("value"), path, value_at(request, path))


def _kept_call(perform: Perform) -> RecordedCall | None:
    """The recorded call behind the program's own work (a nested agent) that began before N."""
    recorded = getattr(perform.token, "recorded", None)
    return recorded if isinstance(recorded, RecordedCall) else None
