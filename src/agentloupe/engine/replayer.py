"""The strict replay: every call of the control logic must be the next one of its lane, and is answered from the tape.

    tape -> Replayer.decide(call) -> Serve(recorded result), or the stop signal `ReplayMismatch`

Nothing is ever performed but the program's own work (nested agents, state changes, checks), which is compared when it is
done. The first disagreement poisons the replay: every later call fails too, whatever the program catches, and the
verdict comes from here, never from what comes out of the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn

from agentloupe import __version__
from agentloupe.engine.covering import recorded_of
from agentloupe.engine.explain import Explainer
from agentloupe.engine.guard import Leak
from agentloupe.engine.outcomes import Outcomes
from agentloupe.engine.overridden import Overridden
from agentloupe.engine.playing import PlayedStreams
from agentloupe.engine.privacy import by_name, by_position, named
from agentloupe.engine.proof import unproven
from agentloupe.engine.raised import status_of
from agentloupe.engine.report import Divergence, DivergenceKind, ReplayReport, Side, Verdict
from agentloupe.engine.ruling import Reached, Ruling, Settings
from agentloupe.engine.serving import Bodies, LaneCursor, cursor_of
from agentloupe.engine.tape import PATCHED, RecordedCall, Tape, outer_of
from agentloupe.ports import codecs
from agentloupe.ports.ambient import Caller, HasPlace, Place, caller, new_span_id, new_trace_id, place
from agentloupe.ports.protocols import Perform, Serve
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.streams import Played
from agentloupe.words.call import OWN_WORK, Attrs, Call, Kind
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.effects import HALF_DONE
from agentloupe.words.errors import Corrupt, Damaged, EffectRefused, LoupeError, NotRebuildable, ReplayMismatch
from agentloupe.words.prompts import PROMPT, prompt_change
from agentloupe.words.trace import SAMPLED, TRACESTATE, TraceContext

__all__ = ["Replayer", "trace_in"]

_VALUES: Final = frozenset({"state", "check"})
"""Kinds that say what the program came to: their input is a result, compared at the level `state`."""


class _Token(HasPlace):
    """What the program does itself: the recorded call that it is to be compared with."""

    __slots__ = ("call", "recorded")

    def __init__(self, where: Place, call: Call, recorded: RecordedCall) -> None:
        self.place = where
        self.call = call
        self.recorded = recorded


class Replayer:
    """A `Boundary` that answers from a tape. Safe to call from several threads.

    Args:
        tape: of a verified recording.
        settings: see `Settings`.
        schedule: which the tape's calls are handed over by, where it is not this replay's own.

    Attributes:
        patched: marks of deliberate changes that were asked for, with the answers.
        unstarted: is called for a verdict when the program has ended, and the recorded agent was not started.
    """

    def __init__(self, tape: Tape, settings: Settings | None = None, schedule: Schedule | None = None) -> None:
        self.tape = tape
        self.settings = settings or Settings()
        self.schedule = schedule or Schedule(
            tape.turns(),
            live=False,
            mode=tape.mode,
            keeper=self,
            stuck_after=self.settings.stuck_after,
            naming=tape.naming,
        )
        self.explainer = Explainer(tape)
        self.bodies = Bodies(tape.recording, [c.output_digest for c in tape.driven if c.output_digest is not None])
        self.ruling = Ruling(self.settings, self.schedule)
        self.notes = self.ruling.notes
        self.patched: dict[str, bool] = {}
        self.unstarted: Callable[[], None] = lambda: None
        self._lock = plain.RLock()
        self._lanes: dict[str, LaneCursor] = {}
        self._served: set[str] = set()
        self._failure = _failure_of(tape) if self.settings.until_failure else None
        self._limited: BaseException | None = None
        self._streams = PlayedStreams(self.bodies.value, self._stream_differs)
        self._outcomes = Outcomes(tape, self.bodies, self.explainer, self.ruling)
        self._overridden = Overridden(tape.started.bodies, self.value_or_none, self._key)

    @property
    def trace(self) -> TraceContext:
        """The recorded run's own place in its trace."""
        return trace_in(self.tape)

    # --- the boundary -------------------------------------------------------------------------------------------------

    def decide(self, call: Call) -> Serve | Perform:
        """Answers from the tape, or stops."""
        with self._lock:
            if self.ruling.stop is not None:
                self.ruling.refuse()
            if self.ruling.ended:
                raise self.strayed(f"{call.kind} {call.name}", caller())
            where = place()
            if call.formerly is not None:
                call = self._as_recorded(call, call.formerly, self._lane(where.lane).next())
            given = by_position(self.settings.scrub(by_name(call.input, call.parameters)), call.parameters)
            call = named(call, self.settings.scrub)
            key = key_of(call.kind, call.name, given)
            if call.kind == "check" and call.name.startswith(PATCHED):
                held = any(recorded.mark for recorded in self.tape.with_key(key))
                return Serve(self.patched.setdefault(call.name.removeprefix(PATCHED), held))
            lane = self._lane(where.lane)
            recorded = lane.found(key, self._key)
            self._keep_limit(lane, (call, where), recorded)
            agrees = recorded is not None and (
                self._agree(recorded, call, key) or self._overridden.agrees(recorded, call, given)
            )
            if recorded is None or not agrees:
                recorded = self._disagree(lane, (call, where, key, given))
                self.schedule.drop([recorded.call_id])
            lane.take(recorded)
            self._tell_template(recorded, call)
            if recorded.kind in _VALUES and self._key(recorded) != key:
                self._outcomes.differ("state", recorded, recorded.input_digest, given)
            answer = (
                self._answer(call, where, recorded) if recorded is not self._failure else self._reach(call, recorded)
            )
            self.ruling.last = recorded
            self._served.add(recorded.call_id)
        if isinstance(answer, Reached):
            self._hand_over(answer)
        if isinstance(answer, Serve) and agrees and recorded.status != "denied":
            cancels = recorded.attrs.get("cancels")
            # The end of a call that was in flight when its run ended would have had its turn, cancelled or not.
            stopped = recorded.cancelled and not recorded.streamed
            times = cancels if isinstance(cancels, int) else int(stopped)
            answer.call_id, answer.cancels = recorded.call_id, times
        return answer

    def _tell_template(self, recorded: RecordedCall, call: Call) -> None:
        """Another template is no difference, since what is sent is compared; a recording that names none says nothing of it."""
        change = prompt_change(recorded.attrs, call.attrs) if PROMPT in recorded.attrs else None
        if change is not None and (note := f"made from another prompt: {change}") not in self.notes:
            self.notes.append(note)

    def _keep_limit(self, lane: LaneCursor, made: tuple[Call, Place], recorded: RecordedCall | None) -> None:
        """A fork that a limit stopped asked no model any more: it is stopped there again, and stays so.

        What the model would have been asked is not in the recording, so any model call comes to that place.
        """
        call, where = made
        here = recorded is not None and recorded.attrs.get("limit") is True and recorded.kind == "other"
        if self._limited is None and recorded is not None and here and call.kind == "llm":
            answer = self._answer(replace(call, kind="other", cheap=False), where, recorded)
            lane.take(recorded)
            self.ruling.last = recorded
            self._served.add(recorded.call_id)
            self._limited = answer.error if isinstance(answer, Serve) else None
        if self._limited is not None:
            raise self._limited

    def finished(self, perform: Perform, value: object) -> object:
        """Compares the program's own work with what it was in the recording."""
        token = perform.token
        if isinstance(token, _Token) and self.ruling.stop is None:
            with self._lock:
                self._leftovers(token.recorded.call_id + "~")
                given = self.settings.scrub(token.call.encode(value))
                self._compare_own(token.recorded, "ok", given)
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """The program's own work raised; was that so in the recording?"""
        token = perform.token
        if isinstance(token, _Token) and self.ruling.stop is None and not isinstance(error, ReplayMismatch):
            with self._lock:
                given = self.settings.scrub(codecs.encode(error).wire)
                self._compare_own(token.recorded, status_of(error), given)

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self, status: str, output: Json) -> None:
        """The program has ended: nothing may be left, and the result must be the recorded one.

        Args:
            status: `ok`, `error` or `cancelled`.
            output: `{"result": ...}`, or the exception, in wire form.

        Raises:
            ReplayMismatch: it ended otherwise than recorded.
        """
        try:
            self._end(status, output)
        finally:
            self.schedule.close()

    def _end(self, status: str, output: Json) -> None:
        with self._lock:
            self.ruling.ended = True
            if self.ruling.stop is not None:
                raise self.ruling.stop
            self._streams.ended()
            if self.ruling.stop is not None:
                raise self.ruling.stop
            if self._limited is not None:
                status, output = status_of(self._limited), codecs.encode(self._limited).wire
            for path in self.tape.lanes:
                self._leftovers(path)
            self._timers_left()
            self.ruling.levels["flow"] = True
            self._outcomes.end(status, self.settings.scrub(output))
            self.ruling.check_expected()
            self.ruling.verdict = "reached" if self.settings.until_failure and status != "ok" else "pass"
            if self.ruling.verdict == "reached":
                self.ruling.message = "reached the recorded failure: the agent itself raised, after its last call"

    def leaked(self, leak: Leak) -> ReplayMismatch:
        """A real call went past the boundary; it is refused with what this returns."""
        return self.strayed(f"{leak.what} ({leak.event}) {leak.target}".rstrip(), leak.caller)

    def ran_off(self, what: str, inner: bool) -> NoReturn:
        """Something is tried in a thread without the run's context, or as a run of its own: it would be real."""
        del inner
        raise self.strayed(f"outside of the run's context: {what}", caller())

    def strayed(self, message: str, line: Caller | None) -> ReplayMismatch:
        """Something would have reached the world. After the recorded run has ended that is no part of the verdict."""
        with self._lock:
            if self.ruling.stop is None and self.ruling.ended:
                note = f"after the run the program went on, and was stopped: {message}"
                if note not in self.notes:
                    self.ruling.notes.append(note)
                return ReplayMismatch(note, kind="leak")
            if self.ruling.stop is None:
                self.ruling.set(self.explainer.leak(message, self._lane("0").next(), self.ruling.last, line))
            return self.ruling.again()

    @property
    def progress(self) -> int:
        """How many calls were answered so far."""
        return len(self._served)

    # --- the schedule -------------------------------------------------------------------------------------------------

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """A replay stores nothing; its marks are counted by the schedule."""

    def stands_still(self, awaited: str | None) -> None:
        """The program is quiet, and what the tape has next does not come."""
        with self._lock:
            if self.ruling.stop is None and not self.ruling.ended:
                self.stand_still(awaited)

    def cancelled(self, id: str) -> None:
        """The program has cancelled what was handed to it in the recording."""
        with self._lock:
            if self.ruling.stop is None and not self.ruling.ended:
                self.ruling.set(self.explainer.cancelled(id, self.tape.call(id), self.ruling.last, caller()))

    def stand_still(self, awaited: str | None = None) -> ReplayMismatch:
        """Stops a program that makes no move any more, at the call (or the timer) that the tape waits for."""
        with self._lock:
            call = self.tape.call(awaited) if awaited is not None and awaited not in self._served else None
            if call is None:
                paths = [p for p in self.tape.lanes if (around := outer_of(p)) is None or around in self._served]
                left = [lane.next() for lane in map(self._lane, paths)]
                call = min((one for one in left if one), key=lambda one: one.first_seq, default=None)
            timer = awaited if awaited is not None and self.tape.call(awaited) is None else None
            return self.abandon("diverged", self.explainer.awaited(call, self.ruling.last, timer))

    def abandon(self, verdict: Verdict, divergence: Divergence) -> ReplayMismatch:
        """Stops for a reason from outside (another agent was started, nothing moves)."""
        with self._lock:
            if self.ruling.stop is None:
                self.ruling.set(divergence, verdict)
            return self.ruling.again()

    def _timers_left(self) -> None:
        """Timers that fired in the recording, and for which the program did not wait."""
        timers = [name for name in self.schedule.left() if self.tape.call(name) is None]
        if timers and not self.schedule.closed and not self.ruling.differences and not self.unproven():
            self.ruling.halt(self.explainer.timer_left(timers[0], self.tape, self.ruling.last))

    def unproven(self) -> tuple[str, ...]:
        """Why it is not proven that the program got everything in the recorded order; empty when it is."""
        return unproven(self.tape, {str(mark): count for mark, count in self.schedule.marks.items()})

    def differs_at_start(self, kind: DivergenceKind, was: Json, actual: Side, line: Caller | None) -> None:
        """The agent that starts is not the recorded one, or has other arguments. Raises unless that is expected."""
        with self._lock:
            found = self.explainer.start_difference(kind, was, actual, line)
            sequence = self.tape.started.sequence
            self.ruling.accept(found, (sequence, sequence))

    def snapshot(self) -> Mapping[str, Json]:
        """The recorded snapshot; empty when there is none."""
        found = self.value_or_none(self.tape.started.bodies.get("snapshot"))
        return found if isinstance(found, dict) else {}

    @property
    def ended(self) -> bool:
        """Whether the program has come to its end."""
        return self.ruling.ended

    @property
    def stopped(self) -> bool:
        """Whether there is a first disagreement already."""
        return self.ruling.stop is not None

    def report(self) -> ReplayReport:
        """What was found. Without an end of the program it counts as having ended early."""
        if self.ruling.verdict is None:
            self.unstarted()
        with self._lock:
            verdict = self.ruling.verdict or "could_not_run"
            divergence = self.ruling.divergence
            return ReplayReport(
                run_id=self.tape.recording.run_id,
                verdict=verdict,
                reason=divergence.reason or divergence.kind
                if divergence
                else None
                if self.ruling.verdict
                else "no_session",
                level=self.settings.level,
                levels=dict(self.ruling.levels),
                events=len(self.tape.recording.events),
                consumed=self._consumed(verdict),
                calls=len(self._served),
                divergence=divergence,
                differences=tuple(self.ruling.differences),
                isolation=self.settings.isolation,
                not_covered=self.settings.not_covered,
                notes=tuple(self.notes),
                version=__version__,
                rules=self.settings.rules,
                message=self.ruling.message
                if self.ruling.verdict
                else "the program ended without starting the recorded agent",
                unproven=self.unproven() if self.ruling.verdict else (),
                strict_order=self.settings.strict_order,
                recorded=recorded_of(self.tape.recording.events),
                patched=dict(self.patched),
            )

    # --- agreeing -----------------------------------------------------------------------------------------------------

    def _lane(self, path: str) -> LaneCursor:
        lane = self._lanes.get(path)
        if lane is None:
            ambiguous = partial(self.schedule.mark, "ambiguous", {})
            lane = self._lanes[path] = cursor_of(self.tape, path, ambiguous)
        return lane

    def _as_recorded(self, call: Call, formerly: tuple[Kind, str, Json], recorded: RecordedCall | None) -> Call:
        """The call as this recording has it, where that is older than what such a call is called now."""
        kind, name, given = formerly
        if recorded is None or (recorded.kind, recorded.name) != (kind, name):
            return call
        return replace(call, kind=kind, name=name, input=given)

    def _agree(self, recorded: RecordedCall, call: Call, key: str) -> bool:
        if recorded.kind != call.kind or recorded.name != call.name:
            return False
        return recorded.kind in _VALUES or self._key(recorded) == key

    def _key(self, recorded: RecordedCall) -> str:
        """The recorded key; where the recording lacks it, the key of the recorded input. Never nothing."""
        if recorded.input_key is not None:
            return recorded.input_key
        if recorded.input_digest is None and recorded.kind in ("llm", "tool"):
            self._halt_damaged(
                Corrupt(f"sequence {recorded.first_seq} has neither an input key nor an input", reason="no_input"),
                recorded,
            )
        try:
            value = None if recorded.input_digest is None else self.tape.recording.body(recorded.input_digest)
        except Damaged as wrong:
            self._halt_damaged(wrong, recorded)
        recorded.input_key = key_of(recorded.kind, recorded.name, value)
        return recorded.input_key

    def _answer(self, call: Call, where: Place, recorded: RecordedCall) -> Serve | Perform:
        if recorded.kind in OWN_WORK:
            # Calls inside a nested agent find their lane under its recorded place, also where calls were left out.
            # Their spans are the recorded ones, so that what asks for the trace gets what it got.
            span = recorded.span_id or where.span_id
            there = Place(recorded.lane, recorded.n, span, where.parent_span_id)
            return Perform(token=_Token(there, call, recorded))
        if recorded.status == "denied":
            why = recorded.attrs.get("why")
            return Serve(error=EffectRefused(f"{recorded.name} was not allowed: {why}"))
        if recorded.streamed and call.streamed:
            return Serve(self._stream(recorded))
        if recorded.status == "open" and self.tape.finished is not None and not self.schedule.closed:
            return Serve()  # the run ended while it was in flight: it is never handed over
        try:
            output = self._output(recorded)
        except Damaged as wrong:
            self._halt_damaged(wrong, recorded)
        well = recorded.status == "ok" or HALF_DONE in recorded.attrs
        try:
            value = _result_of(call, recorded, output) if well else codecs.decode(output)
        except Exception as wrong:  # noqa: BLE001  # also what a codec or a client's types raise on a foreign shape
            self._halt_unbuilt(wrong, recorded)
        if well:
            if isinstance(value, BaseException) and call.cheap:
                wrong = Corrupt("a read that gave an exception and is not marked as failed", reason="status")
                self._halt_damaged(wrong, recorded)
            return Serve(value, reading=self._streams.items(recorded) if "unseen" in call.attrs else None)
        if not isinstance(value, BaseException):
            self._halt_damaged(Corrupt("a failed call whose outcome is no exception", reason="no_exception"), recorded)
        return Serve(error=value)

    def _stream(self, recorded: RecordedCall) -> Played:
        """The recorded stream, which the program reads by itself."""
        try:
            return self._streams.play(recorded)
        except Damaged as wrong:
            self._halt_damaged(wrong, recorded)

    def _stream_differs(self, recorded: RecordedCall, kind: DivergenceKind, text: str) -> ReplayMismatch:
        """The program does not read a stream as recorded."""
        with self._lock:
            if self.ruling.stop is None:
                found = self.explainer.stream_difference(recorded, kind, text, caller())
                self.ruling.set(found, "damaged" if kind == "truncated" else "diverged")
            return self.ruling.again()

    def _output(self, recorded: RecordedCall) -> Json:
        if recorded.status == "open" or (recorded.status == "unknown" and not recorded.received):
            raise Damaged(f"sequence {recorded.first_seq}: the recording has no end of this call", reason="open_call")
        if recorded.output_digest is None:
            raise Corrupt(f"sequence {recorded.last_seq} has no output", reason="no_output")
        return self.bodies.value(recorded.output_digest)

    def _reach(self, call: Call, recorded: RecordedCall) -> Reached:
        """The recorded failure: from here on every call is refused."""
        error = self._rebuilt(recorded)
        kind = type(error).__name__
        at = f"sequence {recorded.first_seq}, step {self.explainer.step_of(recorded)}"
        message = f"reached the recorded failure at {at}: {recorded.kind} {recorded.name} failed with {kind}"
        self.ruling.reached(message, recorded.first_seq)
        return Reached(call, recorded, error)

    def _rebuilt(self, recorded: RecordedCall) -> BaseException:
        """The recorded exception. To come to it is worth more than to rebuild it."""
        try:
            error = codecs.decode(self._output(recorded))
        except Exception as wrong:  # noqa: BLE001  # a codec's own fault, a class that is not there, a lost body
            return wrong
        return error if isinstance(error, BaseException) else Corrupt("the recorded failure holds no exception")

    def _hand_over(self, reached: Reached) -> NoReturn:
        hook = self.settings.until_failure
        if callable(hook):
            hook(reached)
        self.settings.stopped()
        raise self.ruling.again()

    # --- disagreeing --------------------------------------------------------------------------------------------------

    def _disagree(self, lane: LaneCursor, made: tuple[Call, Place, str, Json]) -> RecordedCall:
        """The recorded call that answers in spite of an expected difference; stops at any other."""
        call, _, key, _ = made
        line = caller()
        while True:
            recorded = lane.next()
            if recorded is not None and self._agree(recorded, call, key):
                return recorded
            later = lane.later(key, self._key) if recorded is not None else None
            kind = _kind_of(call, recorded, later)
            if recorded is not None and kind != "input_changed" and self._left_out(lane, recorded):
                continue
            near = list(self._near(lane, call, later))
            found = self.explainer.call_difference(kind, made, recorded, self.ruling.last, line, near)
            sequences = (recorded.first_seq, recorded.last_seq) if recorded else None
            if self.ruling.expectations.take(found, sequences):
                self.ruling.differences.append(found)
                answer = later if kind == "order" else recorded
                if answer is not None and answer.kind == call.kind:
                    return answer
                self.ruling.expected_stop()
            if recorded is not None and kind == "input_changed" and self._left_out(lane, recorded):
                continue
            self.ruling.halt(found)

    def _left_out(self, lane: LaneCursor, recorded: RecordedCall) -> bool:
        """Whether the call whose turn it is may be left out."""
        gone = self.explainer.left_over(recorded, self.ruling.last, 0)
        if not self.ruling.expectations.take(gone, (recorded.first_seq, recorded.last_seq)):
            return False
        self.ruling.differences.append(gone)
        self._drop(recorded)
        lane.take(recorded)
        return True

    def _drop(self, recorded: RecordedCall) -> None:
        """A call is left out, and all that is in it: nobody waits for their turns."""
        inside = f"{recorded.call_id}~"
        below = (
            [turn.id for turn in self.tape.turns() if turn.id.startswith(inside)] if recorded.kind == "agent" else []
        )
        self.schedule.drop([recorded.call_id, *below])

    def _near(self, lane: LaneCursor, call: Call, later: RecordedCall | None) -> list[tuple[RecordedCall, str]]:
        """Recorded calls like this one, and why they are not it; an empty reason is filled in by what differs."""
        left = lane.left()
        near: list[tuple[RecordedCall, str]] = []
        if later is not None:
            before = sum(1 for c in left if c.n < later.n)
            near.append(
                (later, f"the same call, but {before} recorded call{'s come' if before != 1 else ' comes'} before it")
            )
        near += [(c, "") for c in left if c is not later and c.kind == call.kind and c.name == call.name]
        if not near:
            used = [c for c in lane.calls[: lane.at] if c.kind == call.kind and c.name == call.name]
            near += [(c, "already consumed") for c in used[-1:]]
        return near

    def _leftovers(self, path: str) -> None:
        """Recorded calls of a lane that has ended which nobody asked for."""
        around = outer_of(path)
        if around is not None and around not in self._served:
            return  # the call around it is left over, or left out, with all that is in it
        lane = self._lane(path)
        left = lane.left()
        for recorded in left:
            gone = self.explainer.left_over(recorded, self.ruling.last, len(left))
            if not self.ruling.expectations.take(gone, (recorded.first_seq, recorded.last_seq)):
                self.ruling.halt(gone)
            self.ruling.differences.append(gone)
            self._drop(recorded)
            lane.take(recorded)

    def _compare_own(self, recorded: RecordedCall, status: str, output: Json) -> None:
        """A nested agent, a state change or a check, done again."""
        self._outcomes.own(recorded, status, output)

    def equal(self, name: str | None, output: Json) -> bool:
        """Whether a value is the recorded one: by bytes, else by value. A recording without a digest is equal to nothing."""
        return self._outcomes.equal(name, output)

    def value_or_none(self, name: str | None) -> Json:
        """The value behind a digest; `None` when it was deleted, so that only its digest is left to compare with."""
        return self._outcomes.value(name)

    # --- stopping -----------------------------------------------------------------------------------------------------

    def _at(self, recorded: RecordedCall, kind: DivergenceKind, wrong: LoupeError) -> Divergence:
        return Divergence(
            kind=kind,
            sequence=recorded.last_seq,
            lane=recorded.lane,
            n=recorded.n,
            step=self.explainer.step_of(recorded),
            expected=self.explainer.side_of(recorded),
            caller=caller(),
            message=str(wrong),
            reason=wrong.reason,
        )

    def _halt_unbuilt(self, wrong: Exception, recorded: RecordedCall) -> NoReturn:
        if not isinstance(wrong, LoupeError):
            wrong = NotRebuildable(f"the recorded result does not fit ({type(wrong).__name__})")
        self.ruling.halt(self._at(recorded, "not_rebuildable", wrong), "could_not_run")

    def _halt_damaged(self, wrong: Damaged, recorded: RecordedCall) -> NoReturn:
        kind: DivergenceKind = "truncated" if wrong.reason == "open_call" else "corrupt"
        self.ruling.halt(self._at(recorded, kind, wrong), "damaged")

    def _consumed(self, verdict: Verdict) -> int:
        """Events that the replay accounted for: all of a passed one; else those of answered calls and what is inside."""
        events = self.tape.recording.events
        if verdict == "pass" and not self.ruling.differences:
            return len(events)
        count = 1 + (1 if self.ruling.ended and self.tape.finished is not None and verdict == "pass" else 0)
        for call in self.tape.calls:
            top = call
            while top.inner and top.outer is not None:
                outer = self.tape.call(top.outer)
                if outer is None:
                    break
                top = outer
            count += call.events if top.call_id in self._served else 0
        return count


def _result_of(call: Call, recorded: RecordedCall, output: Json) -> object:
    return call.complete(call.decode(output), recorded.attrs)


def trace_in(tape: Tape) -> TraceContext:
    """A recorded run's own place in its trace; what its source did not keep is made up."""
    started = tape.started
    flags, state = started.attrs.get("trace_flags"), None
    with suppress(Damaged):  # deleted: the rest of the trace is known
        state = tape.recording.body(started.bodies.get(TRACESTATE))
    return TraceContext(
        started.trace_id or new_trace_id(),
        started.span_id or new_span_id(),
        flags if isinstance(flags, int) else SAMPLED,
        state if isinstance(state, str) else "",
    )


def _kind_of(call: Call, recorded: RecordedCall | None, later: RecordedCall | None) -> DivergenceKind:
    if recorded is None:
        return "extra"
    if later is not None:
        return "order"
    return "input_changed" if (recorded.kind, recorded.name) == (call.kind, call.name) else "name_changed"


def _failure_of(tape: Tape) -> RecordedCall | None:
    """The failed call that a recording ends in, if it does."""
    last = tape.driven[-1] if tape.driven else None
    return last if last is not None and last.status in ("error", "cancelled") else None
