"""The resumer: a recorder that follows the tape of its own run first, and writes on where the tape ends.

    a run that was killed -> its code again: every call is answered from the tape and checked, up to the last event
                          -> calls that were open are asked for again, everything after that is recorded as ever

Nothing of the program is written before it has come beyond the tape: code that takes another road than the recorded one
is stopped, and leaves the run as it was. Effects whose outcome nobody saw are settled before (`verbs.lookups`), and only
what was found not to be done is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, cast

from agentloupe.engine.cautions import may_write
from agentloupe.engine.privacy import Rules, scrub
from agentloupe.engine.raised import status_of
from agentloupe.engine.recorder import FROM_MESSAGES, Recorder
from agentloupe.engine.replayer import Replayer, trace_in
from agentloupe.engine.ruling import Settings
from agentloupe.engine.serving import LaneCursor
from agentloupe.engine.settling import questions
from agentloupe.engine.tape import PATCHED, RecordedCall, Tape, outer_of
from agentloupe.engine.turn import Again
from agentloupe.ports import ambient, codecs
from agentloupe.ports.ambient import HasPlace, Place
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import Perform, RunWriter, Serve
from agentloupe.ports.schedule.core import STUCK_AFTER, Mode, Schedule
from agentloupe.ports.scribe import Scribe
from agentloupe.words.call import OWN_WORK, Attrs, Call, Outcome, OutcomeStatus
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.effects import NOT_DONE
from agentloupe.words.errors import ReplayMismatch, ResumeRefused
from agentloupe.words.keeping import dropped_note, dropped_values, keeps_digests, only_digests

__all__ = ["Resumer", "check_answered", "check_resumable", "open_intents", "schedule_of"]


# --- may it go on? ----------------------------------------------------------------------------------------------------


def open_intents(tape: Tape) -> list[dict[str, Json]]:
    """Effects that were begun and whose outcome is not recorded: what a person must find out. No payloads."""
    found = [*questions(tape), *_hosted_calls(tape)]
    return [_question(call) for call in sorted(found, key=lambda call: call.first_seq)]


def _hosted_calls(tape: Tape) -> list[RecordedCall]:
    """Model calls without an answer of which the provider itself may have run tools that write."""
    return [call for call in tape.calls if call.status == "open" and any(map(may_write, _hosted(call)))]


def _hosted(call: RecordedCall) -> list[str]:
    named = call.attrs.get("hosted")
    return [str(tool) for tool in named] if isinstance(named, list) else []


def _question(call: RecordedCall) -> dict[str, Json]:
    return {
        "sequence": call.first_seq,
        "call_id": call.call_id,
        "tool": ", ".join(_hosted(call)) or call.name,
        "effect": call.effect or "write",
        "status": call.status,
        "arguments_digest": call.input_digest,
        "idempotency_key": call.idempotency_key,
    }


_ANEW = "start it anew: what it has done is told by `agentloupe show`"


def check_resumable(tape: Tape) -> None:
    """Raises `ResumeRefused` for a run that cannot go on, with the reason and the way out."""
    started, run_id = tape.started.attrs, tape.recording.run_id
    if any(event.type == "run.erased" for event in tape.recording.events):
        raise _refused(run_id, "its bodies were deleted", "limited", "start it anew")
    if keeps_digests(tape.recording.events):
        raise _refused(run_id, only_digests(tape.recording.events), "digest_only", _ANEW)
    if lacking := dropped_values(tape.recording.events):
        raise _refused(run_id, dropped_note(lacking), "limited", _ANEW)
    if tape.finished is not None:
        status = tape.finished.attrs.get("status")
        hint = "fork it from a step, or from the start, to run it again"
        raise _refused(run_id, f"it has ended ({status})", "finished", hint)
    if started.get("engine") == "imported":
        raise _refused(run_id, "another program ran it", "imported", "fork it instead")
    plain = started.get("engine") == "generic"
    if started.get("parent_run_id") is not None and not plain:
        raise _refused(run_id, "it is a fork of own code", "fork", "fork its parent again")
    outside = dict.fromkeys(call.name for call in tape.calls if call.attrs.get("provenance") == FROM_MESSAGES)
    if outside and not plain:
        raise _refused(
            run_id,
            f"tools ran outside the boundary, and would run again: {', '.join(outside)}",
            "control_flow",
            f"decorate these tools with @loupe.tool: {', '.join(outside)}; runs recorded with that can be resumed",
        )
    if _hosted_calls(tape):
        check_answered(tape)  # nobody can be asked for those


def check_answered(tape: Tape, why: Mapping[str, str] | None = None) -> None:
    """Raises `ResumeRefused` where an effect is open. `why`: by call id, why its tool's lookup did not tell."""
    intents = open_intents(tape)
    if not intents:
        return
    intents = [{**intent, "why": (why or {}).get(str(intent["call_id"]))} for intent in intents]
    lines = [_asked(intent) for intent in intents]
    raise ResumeRefused(
        f"{tape.recording.run_id} stops at an open question: did this happen?\n  " + "\n  ".join(lines),
        hint="ask whoever received it, by the key, and say it, for instance with "
        f"`agentloupe effects settle {tape.recording.run_id} {intents[0]['call_id']} --outcome done --result JSON --why TEXT`; "
        "it is never tried again blindly",
        reason="open_intent",
        intents=tuple(intents),
    )


def _asked(intent: Mapping[str, Json]) -> str:
    digest, key = intent["arguments_digest"], intent["idempotency_key"]
    told = f", idempotency key {key}" if key else ""
    told += f"; {intent['why']}" if intent["why"] else ""
    return (
        f"sequence {intent['sequence']}: tool {intent['tool']} ({intent['effect']}) was begun, and nobody saw its end; "
        f"arguments digest {str(digest)[:12]}{told}"
    )


def _refused(run_id: str, why: str, reason: str, hint: str) -> ResumeRefused:
    return ResumeRefused(f"{run_id} cannot go on: {why}", hint=hint, reason=reason)


# --- the tape ---------------------------------------------------------------------------------------------------------


def schedule_of(tape: Tape, mode: Mode = "exact", stuck_after: float = STUCK_AFTER) -> Schedule:
    """Of a run that goes on: first the order of the tape, then inputs of what is new come as they come."""
    return Schedule(tape.turns(), mode=mode, stuck_after=stuck_after, naming=tape.naming)


class _Beyond(BaseException):
    """A call that the tape does not have: from here on the run is new."""

    def __init__(self, where: Place) -> None:
        super().__init__()
        self.where = where


class _Unfinished(BaseException):
    """A call whose end the tape does not have: it is asked for again."""

    def __init__(self, recorded: RecordedCall) -> None:
        super().__init__()
        self.recorded = recorded


class _Kept(Replayer):
    """The tape, served and checked like a replay."""

    def __init__(self, tape: Tape, rules: Rules, schedule: Schedule) -> None:
        settings = Settings(scrub=lambda value: scrub(value, rules).value, rules=rules.digest)
        super().__init__(tape, settings, schedule)
        self._given: Json = None

    def exhausted(self, path: str) -> bool:
        """Whether a lane may go on: all its recorded calls were made, and what it belongs to had not ended."""
        around = outer_of(path)
        outer = self.tape.call(around) if around is not None else None
        return self._lane(path).next() is None and (outer is None or outer.status == "open")

    @property
    def through(self) -> bool:
        """Whether every recorded call was made again."""
        return len(self._served) >= len(self.tape.driven)

    @property
    def last(self) -> RecordedCall | None:
        """The call that was served last."""
        return self.ruling.last

    def said(self, recorded: RecordedCall) -> Json:
        """The recorded answer of the call that was served last."""
        if recorded.streamed:
            return self.tape.recording.body(recorded.output_digest)
        return self._given

    def _output(self, recorded: RecordedCall) -> Json:
        self._given = super()._output(recorded)
        return self._given

    def took(self, recorded: RecordedCall) -> None:
        """A call of the tape was made again, and is performed again."""
        self.ruling.last = recorded
        self._served.add(recorded.call_id)

    def settle(self) -> None:
        """The program has ended. Raises `ReplayMismatch` where it left out a recorded call."""
        with self._lock:
            self.ruling.ended = True
            self._streams.ended()
            if self.ruling.stop is not None:
                raise self.ruling.stop
            for path in self.tape.lanes:
                self._leftovers(path)
            self._timers_left()

    def _disagree(self, lane: LaneCursor, made: tuple[Call, Place, str, Json]) -> RecordedCall:
        where = made[1]
        if lane.next() is None and self.exhausted(where.lane):
            raise _Beyond(where)
        return super()._disagree(lane, made)

    def _answer(self, call: Call, where: Place, recorded: RecordedCall) -> Serve | Perform:
        if recorded.status == "open" and recorded.kind not in OWN_WORK:
            raise _Unfinished(recorded)
        answer = super()._answer(call, where, recorded)
        token = answer.token if isinstance(answer, Perform) else None
        if isinstance(token, HasPlace) and recorded.parent_span_id is not None:
            token.place = token.place._replace(parent_span_id=recorded.parent_span_id)
        return answer

    def _compare_own(self, recorded: RecordedCall, status: str, output: Json) -> None:
        if recorded.status != "open":
            super()._compare_own(recorded, status, output)


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What `attempt.started` says, beside what the tape tells.

    Attributes:
        facts: further structure: entry, argv.
        bodies: values by what they are: snapshot.
    """

    facts: Attrs = field(default_factory=dict[str, Json])
    bodies: Mapping[str, Json] = field(default_factory=dict[str, Json])


def _scope_of(tape: Tape) -> str:
    """What the keys of write effects are made from: of a fork its own id, since its task is its parent's too."""
    task_id = tape.started.attrs.get("task_id")
    return task_id if isinstance(task_id, str) and "parent_run_id" not in tape.started.attrs else tape.recording.run_id


class Resumer(Recorder):
    """Goes on with one run. Safe to call from several threads.

    Args:
        writer: of the run that was taken over.
        tape: of the run, checked by `check_resumable`.
        rules: of secret removal, those that the run was recorded with.
        declared: names of the tools that the program has declared, asked when it matters.
        attempt: what is said of the new attempt.
        schedule: see `schedule_of`.
        strict, refuse_writes, drops_values, passes_trace_on: see `Recorder`.

    Attributes:
        kept: the tape, being followed.
        refusal: why the run does not go on, if it does not.
        begun: the program has come beyond the tape, and the run goes on.
    """

    forgettable = False
    only_plays = False
    """Whether no tool that writes is ever performed (a fork)."""

    def __init__(
        self,
        writer: RunWriter,
        tape: Tape,
        *,
        rules: Rules,
        schedule: Schedule,
        declared: Callable[[], Collection[str]] = tuple,
        attempt: Attempt | None = None,
        strict: bool = False,
        refuse_writes: bool = True,
        drops_values: bool = False,
        passes_trace_on: bool = False,
        control_tools: Sequence[str] = (),
    ) -> None:
        schedule.owes(tape.owed())
        super().__init__(
            writer,
            Scribe(trace_in(tape), epoch=writer.owner.epoch),
            rules=rules,
            scope=_scope_of(tape),
            strict=strict,
            refuse_writes=refuse_writes,
            drops_values=drops_values,
            passes_trace_on=passes_trace_on,
            control_tools=control_tools,
            schedule=schedule,
        )
        self.tape = tape
        self.kept = _Kept(tape, rules, schedule)
        self.refusal: ResumeRefused | None = None
        self.begun = False
        self._declared = declared
        self._attempt = attempt or Attempt()
        self._asked_before: set[str] = set()
        self._early: list[tuple[str, str, Attrs]] = []
        self._undone: dict[tuple[str, str], list[str]] = {}
        self._joined = {event.lane for event in tape.recording.events if event.type == "task.joined"}
        self._remember(tape)
        schedule.keeper = self

    def _next_write(self, name: str, key: str) -> str:
        """The key of an effect: what was not done inside of a tool that runs again keeps the one that it had."""
        undone = self._undone.get((name, key))
        return undone.pop(0) if undone else super()._next_write(name, key)

    def _remember(self, tape: Tape) -> None:
        """What the recorder of the earlier attempts knew."""
        self._lanes.update(tape.lanes)
        for call in tape.calls:
            if call.kind == "tool":
                self._watch.performed(call.name)
            key = call.idempotency_key
            # What a fork took over was counted in its parent; what the cassette answered was no effect.
            if key is not None and call.input_key is not None and call.source != "recorded":
                counted = (call.name, call.input_key)
                self._writes[counted] = self._writes.get(counted, 0) + 1
                if call.inner and call.stage in ("tool.allowed", NOT_DONE):
                    self._undone.setdefault(counted, []).append(key)
        self.model_calls = sum(call.kind == "llm" for call in tape.calls)
        asked = [call.input_digest for call in tape.driven if call.kind == "llm" and call.input_digest is not None]
        if asked:
            # What was asked last is stored already: the next requests are told by what they share with it.
            self._scribe.packer.adopt(asked[-1], tape.recording.get)

    # --- the boundary -------------------------------------------------------------------------------------------------

    def decide(self, call: Call) -> Serve | Perform:  # type: ignore[override]  # a tape answers too
        """From the tape while there is one; then as every recorder."""
        if self.refusal is not None:
            raise self._signal()
        if self.begun and self.kept.through and not self._is_mark(call):
            return self._perform(call, ambient.place())
        with self._lock:
            return self._follow(call)

    def _perform(self, call: Call, where: Place, again: Again | None = None) -> Serve | Perform:
        """A call beyond the tape. `again`: what the tape has of it."""
        return self.decide_at(call, where, again=again)

    def _follow(self, call: Call) -> Serve | Perform:
        if self._is_mark(call) and self._new_mark(call):
            return self.decide_at(call, ambient.place())
        try:
            answer = self.kept.decide(call)
        except _Beyond as beyond:
            self._begin()
            return self._perform(call, beyond.where)
        except _Unfinished as unfinished:
            return self._again(call, unfinished.recorded)
        except ReplayMismatch:
            self.diverged()
            raise
        self._learn(call)
        return answer

    def _is_mark(self, call: Call) -> bool:
        return call.kind == "check" and call.name.startswith(PATCHED)

    def _new_mark(self, call: Call) -> bool:
        """Whether a deliberate change of the code is met for the first time, and beyond the tape: then it holds."""
        key = key_of(call.kind, call.name, call.input)
        if key in self._asked_before or self.tape.with_key(key) or not (self.begun and self.kept.through):
            self._asked_before.add(key)
            return False
        return True

    def _again(self, call: Call, recorded: RecordedCall) -> Serve | Perform:
        """An open call: asking again changes nothing, or is what was found out to be right."""
        if recorded.unseen and not self.only_plays:
            self._refuse(
                _refused(self.run_id, f"the outcome of {recorded.name} is not known", "open_intent", "ask for it")
            )
        if "write" in (call.effect, recorded.effect) and call.effect != recorded.effect is not None:
            # Of a read nobody noted an intent, and a write is not begun without one: neither may go on as the other.
            self._refuse(
                _refused(
                    self.run_id,
                    f"{recorded.name} was going on as a {recorded.effect} tool, and is declared {call.effect} now",
                    "effect_changed",
                    f"declare it {recorded.effect} again if it may be done now, or fork the run to go on with other code",
                )
            )
        self.kept.took(recorded)
        self._begin()
        span, parent = recorded.span_id or ambient.new_span_id(), recorded.parent_span_id
        cause = self.tape.recording.events[recorded.first_seq - 1].parent_seq
        again = Again(len(self.tape.lane(f"{recorded.call_id}~")), recorded.stage, recorded.idempotency_key)
        return self._perform(call, Place(recorded.lane, recorded.n, span, parent, cause), again)

    def _learn(self, call: Call) -> None:
        """What a served model answer says of tools; one that asks for a tool which nobody knows may not be gone beyond."""
        recorded = self.kept.last
        if call.kind == "tool" and recorded is not None:
            self._watch.claimed(call.name, recorded.input_key or "", recorded.lane, call.attrs.get("tool_call_id"))
        if call.kind != "llm" or recorded is None or recorded.status != "ok" or recorded.output_digest is None:
            return
        self._watch.requested(call.input)
        self._watch.answered(self.kept.said(recorded), call.input, recorded.last_seq, recorded.lane)
        if not self.kept.exhausted(recorded.lane):
            return
        unknown = [name for name in self._watch.never_seen() if name not in self._declared()]
        if unknown:
            names = ", ".join(unknown)
            self._refuse(
                _refused(
                    self.run_id,
                    f"the last answer asks for tools that are not declared, and may have run unseen: {names}",
                    "control_flow",
                    f"decorate these tools with @loupe.tool: {names}",
                )
            )

    def finished(self, perform: Perform, value: object) -> object:
        """Takes the result of what was performed, or of the program's own work."""
        recorded = _recorded(perform)
        if recorded is None:
            return super().finished(perform, value)
        with self._lock:
            self._own_work(perform, recorded, lambda: self.kept.finished(perform, value), "ok", value)
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Takes the exception of what was performed, or of the program's own work."""
        recorded = _recorded(perform)
        if recorded is None:
            super().failed(perform, error)
            return
        with self._lock:
            self._own_work(perform, recorded, lambda: self.kept.failed(perform, error), status_of(error), error)

    def _own_work(
        self,
        perform: Perform,
        recorded: RecordedCall,
        compare: Callable[[], object],
        status: OutcomeStatus,
        value: object,
    ) -> None:
        """A nested agent, a state change or a check, done again; one that was open ends now."""
        try:
            compare()
        except ReplayMismatch:
            self.diverged()
            raise
        if recorded.status == "open" and not self.kept.stopped:
            self._begin()
            call = Call(kind=recorded.kind, name=recorded.name, input=None, encode=_wire, decode=codecs.decode)
            where = cast("HasPlace", perform.token).place
            outcome = Outcome(status=status, output=self._clean.value(_wire(value), f"result of {call.name}").value)
            self._book.append(self._scribe.closed(call, where, recorded.input_key or "", outcome, ambient.now()))

    # --- the schedule -------------------------------------------------------------------------------------------------

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """Stores an event of the schedule that the tape does not have. Never raises."""
        if type == "task.joined" and lane in self._joined:
            return
        if type == "schedule.marked" and not self.begun:
            self._early.append((type, lane, facts))
            return
        self._begin()
        super().log(type, lane, facts)

    def stands_still(self, awaited: str | None) -> None:
        """The program is quiet, and what its tape has next does not come."""
        self.kept.stands_still(awaited)
        self._if_stopped()

    def cancelled(self, id: str) -> None:
        """The program has cancelled what was handed to it in the recording."""
        self.kept.cancelled(id)
        self._if_stopped()

    def _if_stopped(self) -> None:
        if self.kept.stopped:
            self.diverged()

    def ran_off(self, what: str, inner: bool) -> None:
        """Code without a place in the run: over the tape that might be done for the second time, so it is refused."""
        if not inner and not (self.begun and self.kept.through):
            self._refuse(
                _refused(
                    self.run_id, f"{what} ran outside the run's context", "control_flow", "run it inside of the run"
                )
            )
        super().ran_off(what, inner)

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self, status: OutcomeStatus, output: Json, facts: Attrs) -> None:
        """Ends the run, if the program came to the end of its tape. Never raises; see `refusal`."""
        if self.refusal is None and not self._over:
            try:
                self.kept.settle()
            except ReplayMismatch:
                self.diverged()
        if self.refusal is not None:
            self.give_up()
            return
        self._begin()
        super().end(status, output, facts)

    @property
    def over(self) -> bool:
        """Whether the run has ended, or was given up."""
        return self._over

    def give_up(self) -> None:
        """Leaves the run to whoever resumes it next. Idempotent."""
        self._over = True
        if self.schedule is not None:
            self.schedule.close()
        self._book.check()
        self._book.close()

    def _begin(self) -> None:
        """The program has come beyond the tape: says so, once."""
        with self._lock:
            if self.begun:
                return
            self.begun = True
            events = self.tape.recording.events
            open_calls = [call.call_id for call in self.tape.driven if call.status == "open" and call.kind != "agent"]
            caller = ambient.arrived()
            facts: dict[str, Json] = {
                **({} if caller is None else {"called_from": caller.traceparent}),
                "attempt": 2 + sum(event.type == "attempt.started" for event in events),
                "asked_again": list[Json](open_calls),
                **self._attempt.facts,
            }
            self._book.append(self._scribe.attempted(facts, self._attempt.bodies, ambient.now()))
            reach("resume.after_attempt")
            for mark in self._early:
                super().log(*mark)
            self._check_book()

    # --- stopping -----------------------------------------------------------------------------------------------------

    def diverged(self) -> None:
        """The tape was left: the run does not go on, for the first such reason."""
        if self.refusal is None:
            self.refusal = ResumeRefused(
                f"the code takes another road than {self.run_id} did: {self.kept.report().text()}",
                hint="resume with the code that ran, or fork the run to go on with other code",
                reason="diverged",
            )

    def _refuse(self, refusal: ResumeRefused) -> NoReturn:
        self.refusal = self.refusal or refusal
        if self.schedule is not None:
            self.schedule.halt(self._signal)
        raise self._signal()

    def _signal(self) -> ReplayMismatch:
        assert self.refusal is not None, "stopped"
        return ReplayMismatch(self.refusal.message.partition("\n")[0], kind=self.refusal.reason or "refused")


def _recorded(perform: Perform) -> RecordedCall | None:
    """The recorded call behind the program's own work."""
    found = getattr(perform.token, "recorded", None)
    return found if isinstance(found, RecordedCall) else None


def _wire(value: object) -> Json:
    return codecs.encode(value).wire
