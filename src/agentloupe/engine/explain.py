"""From a miss to a `Divergence`: both sides, what differs, nearest recorded calls, likely cause, what to do.

All of this happens once, after the first disagreement; an agreeing replay never comes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from agentloupe.engine.difference import LIMIT, Change, changes_between, hints_for
from agentloupe.engine.edits import show_path
from agentloupe.engine.report import Candidate, Divergence, DivergenceKind, Side
from agentloupe.engine.tape import RecordedCall, Tape, outer_of
from agentloupe.ports.ambient import Caller, Place
from agentloupe.ports.pack import Packer
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import LoupeError

__all__ = ["Explainer", "agreed_with", "digest_of", "end_of"]

_NEAR: Final = 3

_SUGGESTIONS: Final[dict[str, str]] = {
    "order": "if the order is meant to differ, name it with --expect; else look at what made the program skip or swap calls",
    "name_changed": "if the call was renamed or replaced on purpose, name it with --expect, or record the run anew",
    "input_changed": "if the change is meant, name it with --expect, or fork from the start to try it; else undo it",
    "extra": "if the further call is meant, record the run anew or fork it from the start",
    "unconsumed": "if the call is meant to go away, name it with --expect; else look at why the program stopped early",
    "result_changed": "compare both values; if the change is meant, name it with --expect",
    "leak": "send this through the boundary: @loupe.tool, retrieve(...), or a wrapped client",
}


_OF_STREAMS: Final = {
    "extra": "if reading on is meant, record the run anew or fork it from this step",
    "unconsumed": "if leaving off there is meant, record the run anew; else look at why the program stopped reading",
    "truncated": "what came after that is not recorded: record the run anew, or fork it from this step",
}


def digest_of(value: Json, *, request: bool = False) -> str:
    """The integrity digest that a recorder would give this value (of a request: when nothing was recorded before it)."""
    return Packer().pack(value, shared_lists=request).digest


def agreed_with(tape: Tape, last: RecordedCall | None) -> tuple[int, str, str]:
    """Sequence, type and name of the last event that agreed."""
    if last is None:
        return tape.started.sequence, tape.started.type, tape.started.name or ""
    return last.last_seq, last.closing or last.latest, last.name


def end_of(tape: Tape, lane: str) -> int:
    """The event at which a lane ends: of the run, or of the call around it; one more than the last event if there is none."""
    around = outer_of(lane)
    outer = tape.call(around) if around is not None else None
    if outer is not None and outer.closing is not None:
        return outer.last_seq
    return tape.finished.sequence if tape.finished is not None else tape.recording.events[-1].sequence + 1


class Explainer:
    """Explains differences on one tape."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        root = tape.started.attrs.get("root") is True
        self._steps = {call.call_id: i for i, call in enumerate(tape.calls, 1 if root else 0)}

    def step_of(self, call: RecordedCall) -> int:
        """`idx` of the step that a recorded call is."""
        return self._steps[call.call_id]

    def side_of(self, recorded: RecordedCall, value: Json = None) -> Side:
        """The recorded side of a difference."""
        return Side(
            kind=recorded.kind,
            name=recorded.name,
            type=self._first_type(recorded),
            key=recorded.input_key,
            digest=recorded.input_digest,
            value=value,
        )

    def at(self, call: RecordedCall | None, kind: DivergenceKind, last: RecordedCall | None) -> Divergence:
        """A difference at a recorded call, where there is one. `last`: the call that agreed last."""
        if call is None:
            return Divergence(kind=kind, agreed=agreed_with(self.tape, last))
        return Divergence(
            kind=kind,
            lane=call.lane,
            n=call.n,
            step=self.step_of(call),
            expected=self.side_of(call),
            agreed=agreed_with(self.tape, last),
        )

    def call_difference(
        self,
        kind: DivergenceKind,
        made: tuple[Call, Place, str, Json],
        expected: RecordedCall | None,
        last: RecordedCall | None,
        caller: Caller | None,
        near: Sequence[tuple[RecordedCall, str]] = (),
    ) -> Divergence:
        """A call that is not the recorded one. `made` is the call, its place, its key and its scrubbed input."""
        call, where, key, given = made
        recorded, problem = self._input(expected)
        changes: tuple[Change, ...] = ()
        more = False
        if expected is not None and problem is None:
            changes, more = changes_between(recorded, given, LIMIT)
        hints = hints_for(call.kind, changes, recorded) if kind == "input_changed" else ()
        return Divergence(
            kind=kind,
            sequence=expected.first_seq if expected else end_of(self.tape, where.lane),
            lane=where.lane,
            n=where.n,
            step=self.step_of(expected) if expected else None,
            expected=self.side_of(expected, recorded) if expected else None,
            actual=Side(kind=call.kind, name=call.name, key=key, digest=digest_of(given), value=given),
            changes=changes if kind == "input_changed" or not near else (),
            more_changes=more,
            caller=caller,
            candidates=self._candidates(near, given),
            agreed=agreed_with(self.tape, last),
            hints=hints,
            suggestion=_SUGGESTIONS.get(kind),
            message=problem,
        )

    def awaited(self, call: RecordedCall | None, last: RecordedCall | None, timer: str | None = None) -> Divergence:
        """The recorded call, the timer or the end that a program which stands still does not come to."""
        lane, _, number = timer.rpartition("t") if timer is not None else ("", "", "")
        return replace(
            self.at(call, "missing", last),
            sequence=call.first_seq if call else end_of(self.tape, "0"),
            suggestion="look at what the program waits for: a lock, a queue, an answer past the boundary",
            message=f"the tape waits for timer {number} of lane {lane} (a sleep or a timeout)" if number else None,
        )

    def cancelled(
        self, name: str, call: RecordedCall | None, last: RecordedCall | None, caller: Caller | None
    ) -> Divergence:
        """A call or a timer that ended in the recording, and that the program has cancelled."""
        return replace(
            self.at(call, "order", last),
            sequence=call.last_seq if call else None,
            caller=caller,
            message=f"{'it' if call else f'timer {name}'} came to its end in the recording, and is cancelled now",
        )

    def timer_left(self, timer: str, tape: Tape, last: RecordedCall | None) -> Divergence:
        """A timer that fired in the recording, and that nobody waited for."""
        fired = next((e for e in tape.recording.events if e.attrs.get("timer") == timer), None)
        return Divergence(
            kind="unconsumed",
            sequence=fired.sequence if fired else None,
            lane=fired.lane if fired else None,
            agreed=agreed_with(self.tape, last),
            suggestion=_SUGGESTIONS["unconsumed"],
            message="a sleep or a timeout that ran out in the recording did not do so in the program",
        )

    def left_over(self, call: RecordedCall, last: RecordedCall | None, left: int) -> Divergence:
        """A recorded call that nobody asked for."""
        count = f"{left} recorded call{'s' if left > 1 else ''} left" if left else None
        return replace(
            self.at(call, "unconsumed", last),
            sequence=call.first_seq,
            suggestion=_SUGGESTIONS["unconsumed"],
            message=count,
        )

    def result_difference(
        self,
        recorded: tuple[str, str, str | None, Json],
        actual: Json,
        place: tuple[int, RecordedCall | None],
        last: RecordedCall | None,
        message: str | None = None,
        caller: Caller | None = None,
    ) -> Divergence:
        """A result that is not the recorded one. `recorded` is kind, name, digest and value; `place` is where."""
        kind, name, digest, value = recorded
        sequence, call = place
        changes, more = changes_between(value, actual)
        return replace(
            self.at(call, "result_changed", last),
            sequence=sequence,
            expected=Side(kind=kind, name=name, digest=digest, value=value),
            actual=Side(kind=kind, name=name, digest=digest_of(actual), value=actual),
            changes=changes,
            more_changes=more,
            caller=caller,
            hints=hints_for(kind, changes),
            suggestion=_SUGGESTIONS["result_changed"],
            message=message,
        )

    def start_difference(self, kind: DivergenceKind, was: Json, actual: Side, caller: Caller | None) -> Divergence:
        """Another agent, or other arguments, than the recording begins with."""
        started = self.tape.started
        changes, more = changes_between(was, actual.value) if kind == "input_changed" else ((), False)
        return Divergence(
            kind=kind,
            sequence=started.sequence,
            expected=Side(
                kind="agent", name=started.name or "", type=started.type, digest=started.input_digest, value=was
            ),
            actual=actual,
            changes=changes,
            more_changes=more,
            caller=caller,
            hints=hints_for("agent", changes, was),
            suggestion="start the recorded agent with the recorded arguments (a program with several runs: name its agent)",
        )

    def stream_difference(
        self, recorded: RecordedCall, kind: DivergenceKind, message: str, caller: Caller | None
    ) -> Divergence:
        """A stream, or a result that comes item by item, which the program does not take as far as it did. Its beginning agreed."""
        begun = self.tape.recording.events[(recorded.opened_seq or recorded.first_seq) - 1]
        return replace(
            self.at(recorded, kind, None),
            sequence=recorded.last_seq,
            caller=caller,
            agreed=(begun.sequence, begun.type, recorded.name),
            suggestion=_OF_STREAMS.get(kind),
            message=message,
            reason="stream",
        )

    def leak(
        self, message: str, expected: RecordedCall | None, last: RecordedCall | None, caller: Caller | None
    ) -> Divergence:
        """A real call past the boundary."""
        return Divergence(
            kind="leak",
            sequence=expected.first_seq if expected else end_of(self.tape, "0"),
            step=self.step_of(expected) if expected else None,
            expected=self.side_of(expected) if expected else None,
            caller=caller,
            agreed=agreed_with(self.tape, last),
            suggestion=_SUGGESTIONS["leak"],
            message=message,
        )

    def _input(self, call: RecordedCall | None) -> tuple[Json, str | None]:
        if call is None:
            return None, None
        try:
            return self.tape.recording.body(call.input_digest), None
        except LoupeError as problem:
            return None, f"the recorded input cannot be shown: {problem.message}"

    def _first_type(self, call: RecordedCall) -> str:
        first = self.tape.recording.events[0].sequence
        return self.tape.recording.events[call.first_seq - first].type

    def _candidates(self, near: Iterable[tuple[RecordedCall, str]], given: Json) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(call.first_seq, call.kind, call.name, why or self._other_arguments(call, given))
            for call, why in islice(near, _NEAR)
        )

    def _other_arguments(self, call: RecordedCall, given: Json) -> str:
        recorded, problem = self._input(call)
        if problem is not None:
            return problem
        changes, more = changes_between(recorded, given, _NEAR)
        paths = ", ".join(show_path(change.path) or "the whole input" for change in changes)
        return f"other arguments at {paths}{' ...' if more else ''}"
