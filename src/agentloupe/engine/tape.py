"""The tape: a recording's events put together into calls, each lane's calls in order. Read by replays, forks, cassettes.

    tape = read_tape(recording)
    tape.lane("0")[3]         # the fourth call of the program's own lane
    tape.with_key(key)        # recorded calls that asked for exactly this, in order

Looks at events only, never at bodies. What cannot be true of an honest recording (an end without a start, two ends,
two calls under one number) is `Corrupt`, at the event where it shows.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from agentloupe.ports.recording import Recording
from agentloupe.ports.schedule.core import Mode, Turn
from agentloupe.ports.schedule.lanes import Naming
from agentloupe.ports.schedule.pieces import passed_in
from agentloupe.ports.streams import END_OF_STREAM, in_turn
from agentloupe.words.call import NO_ATTRS, NO_TURN, Attrs, Effect, Kind, Source
from agentloupe.words.canonical import Json
from agentloupe.words.effects import FROM_OUTSIDE, INTERRUPTED, OF_AN_END, is_open, next_stage, stands_in
from agentloupe.words.errors import Corrupt, Truncated
from agentloupe.words.event import FINAL_TYPES, KIND_OF_TYPE, Event

__all__ = ["PATCHED", "CallStatus", "RecordedCall", "Tape", "outer_of", "read_tape"]

CallStatus = Literal["ok", "error", "cancelled", "unknown", "denied", "open"]
"""How a recorded call ended; `open` has no end on the tape."""

PATCHED: Final = "patched "
"""Checks of this name's beginning mark deliberate changes of the code (`reads.patched`): they have no turn."""

_OPENING = frozenset({"model.requested", "tool.allowed", "span.started", "call.opened"})
_BETWEEN: Mapping[str, frozenset[str]] = {
    "model.opened": frozenset({"model.requested"}),
    "model.streamed": frozenset({"model.opened", "model.streamed"}),
    "call.streamed": frozenset({"call.opened", "call.streamed"}),
}
_NEEDS_OPENING = frozenset({"model.responded", "model.failed", "span.finished"})
_ENDS = _NEEDS_OPENING | {"call.finished", "call.failed"}
_OPENED = frozenset({"model.opened", "call.opened"})
_AFTER_THE_END = frozenset({"run.erased", "tool.confirmed"})
_INNER = "~"


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """One call as the tape holds it.

    Attributes:
        call_id: `<lane>.<n>`.
        kind, name, effect: of the call.
        lane, n: where it was made.
        span_id, parent_span_id: its span, and the one it happened in.
        input_key: for matching; `None` when the recording lacks it (then it must be computed from the input's body).
        input_digest, output_digest: names of its bodies.
        attrs: structural facts of all its events, later ones over earlier ones.
        source: who answered.
        status: how it ended.
        closing: type of the event that ended it, or `None`.
        stage: of a tool: where in `words.effects.LIFE` it stands.
        settled: of an effect whose end nobody saw: what was found out about it, or `None`.
        ended_run: it was stopped from outside (Ctrl-C), and so was the run: that is what the program has got of it.
        first_seq, last_seq: its first and last event.
        events: how many events it has.
        lost: the program cancelled it after its end, and did not get its outcome.
        outer: call id of the call in whose performing it was made, or `None`.
        head_digest, piece_digests, broken_digest: of a streamed call: bodies of what came before its first piece, of its
            pieces in order, and of what broke it; opened_seq: where it began to come.
        ended_seq: where its outcome was noted that the program got; 0: nowhere.
        handed_seq: where a mark says that it was handed over, if one does.
        inner: made while another call was performed: when that one is served, this one is not asked for. Calls inside
            a nested agent are not inner, since a nested agent is run again.
    """

    call_id: str
    kind: Kind
    name: str
    lane: str
    n: int
    span_id: str | None = None
    parent_span_id: str | None = None
    effect: Effect | None = None
    input_key: str | None = None
    input_digest: str | None = None
    output_digest: str | None = None
    attrs: Attrs = NO_ATTRS
    source: Source = "live"
    status: CallStatus = "open"
    closing: str | None = None
    first_seq: int = 0
    last_seq: int = 0
    events: int = 0
    lost: bool = False
    outer: str | None = None
    inner: bool = False
    head_digest: str | None = None
    opened_seq: int = 0
    piece_digests: tuple[str, ...] = ()
    broken_digest: str | None = None
    stage: str | None = None
    settled: str | None = None
    ended_seq: int = 0
    handed_seq: int = 0
    ended_run: bool = False
    latest: str = field(default="", repr=False)

    @property
    def idempotency_key(self) -> str | None:
        """Of a write: the key that the tool got; `None` where none is recorded."""
        key = self.attrs.get("idempotency_key")
        return key if isinstance(key, str) else None

    @property
    def unseen(self) -> bool:
        """Whether it may have changed the world, and nobody has found out yet whether it did."""
        return self.kind == "tool" and self.settled is None and is_open(self.stage, writes=self.effect == "write")

    @property
    def received(self) -> bool:
        """Whether the program got an error of a call whose end nobody saw (a timeout, a cancellation), and went on with it."""
        return (
            self.closing == "tool.unknown" and self.output_digest is not None and (self.ended_run or not self._stopped)
        )

    @property
    def cancelled(self) -> bool:
        """Whether the program has cancelled it, or never waited for its end."""
        if self.status == "unknown":
            return str(self.attrs.get("error_class")).rpartition(".")[2] == "CancelledError"
        return self.status in ("cancelled", "open")

    @property
    def _stopped(self) -> bool:
        return self.attrs.get("error_class") in FROM_OUTSIDE

    @property
    def streamed(self) -> bool:
        """Whether its answer came in pieces."""
        return self.head_digest is not None

    @property
    def mark(self) -> bool:
        """Whether it only marks a deliberate change of the code."""
        return self.kind == "check" and self.name.startswith(PATCHED)

    @property
    def has_turn(self) -> bool:
        """Whether what came of it was handed to the program in its turn; of a stream, its beginning."""
        if self.inner or self.lost or self.kind in NO_TURN or self.status == "denied":
            return False
        if not self.streamed and (self.status == "open" or (self.status == "unknown" and not self.received)):
            return False
        return not (self.attrs.get("limit") is True and self.kind == "other") and "unseen" not in self.attrs

    def turns_from(self, sequence: int) -> list[str]:
        """Its turns that do not stand before this sequence."""
        if not self.has_turn or max(self.last_seq, self.handed_seq) < sequence:
            return []
        ended = [f"{self.call_id}{END_OF_STREAM}"] if _end_in_turn(self.attrs) else []
        return ([self.call_id] if self.opened_seq >= sequence else []) + ended if self.streamed else [self.call_id]


class Tape:
    """All calls of one recording. Immutable once read.

    Attributes:
        recording: what it was read from.
        started: the `run.started` event.
        finished: the `run.finished` event, or `None` (running, or interrupted).
        calls: every call in order of its first event.
        driven: the calls that control logic itself makes (all but inner ones and marks), in the same order.
        lanes: the paths of all lanes, in order of appearance.
    """

    def __init__(self, recording: Recording, started: Event, finished: Event | None, calls: list[RecordedCall]) -> None:
        self.recording = recording
        self.started = started
        self.finished = finished
        self.calls: tuple[RecordedCall, ...] = tuple(calls)
        self.driven: tuple[RecordedCall, ...] = tuple(call for call in calls if not call.inner and not call.mark)
        self._lanes = _in_lanes(self.calls)
        self.lanes: tuple[str, ...] = tuple(self._lanes)
        self._by_id = {call.call_id: call for call in calls}
        self._by_key: dict[str, list[RecordedCall]] | None = None
        self._order: tuple[Turn, ...] | None = None
        self._placeless: frozenset[str] | None = None

    @property
    def mode(self) -> Mode:
        """How the run was scheduled; a run that does not say so was not, and the generic loop has nothing to schedule."""
        if self.started.attrs.get("engine") == "generic":
            return "off"
        said = self.started.attrs.get("schedule")
        return said if said in ("exact", "no_baton") else "off"

    @property
    def naming(self) -> Naming:
        """How its lanes are counted and its hashes made."""
        return Naming.of(self.started.attrs)

    @property
    def placeless(self) -> frozenset[str]:
        """Calls of code that had no place of its own: which of a lane's they are, their arrival alone has told."""
        if self._placeless is None:
            marked = (event.attrs for event in self.recording.events if event.type == "schedule.marked")
            self._placeless = frozenset(str(attrs.get("call")) for attrs in marked if attrs.get("mark") == "no_lane")
        return self._placeless

    def turns(self, before: int | None = None) -> tuple[Turn, ...]:
        """What was handed to the program, in order; with `before`, only by events before that sequence."""
        events = self.recording.events
        if before is not None:
            return _turns(self, [event for event in events if event.sequence < before])
        if self._order is None:
            self._order = _turns(self, events)
        return self._order

    def owed(self) -> frozenset[str]:
        """Calls whose end was told, and whose turn, of which a mark says that it comes later, did not come any more."""
        marks = [event.attrs for event in self.recording.events if event.type == "schedule.marked"]
        late = {str(call) for attrs in marks for call in _named(attrs.get("open"))}
        return frozenset(late - {str(attrs.get("turn")) for attrs in marks})

    def lane(self, path: str) -> Sequence[RecordedCall]:
        """The calls of one lane in the order in which they were made; empty for a lane that is not on the tape."""
        return self._lanes.get(path, ())

    def call(self, call_id: str) -> RecordedCall | None:
        """The call of this id, or of this turn's."""
        return self._by_id.get(call_id.partition(END_OF_STREAM)[0])

    def with_key(self, key: str) -> Sequence[RecordedCall]:
        """The calls of exactly this kind, name and input, in order. The index is made at the first question."""
        if self._by_key is None:
            self._by_key = {}
            for call in self.calls:
                if call.input_key is not None:
                    self._by_key.setdefault(call.input_key, []).append(call)
        return self._by_key.get(key, ())


def read_tape(recording: Recording) -> Tape:
    """Puts a recording's events together.

    Raises:
        Truncated: there is no event at all.
        Corrupt: the events cannot be those of one honest run; the message names the sequence.
    """
    events = recording.events
    if not events:
        raise Truncated(f"{recording.origin}: the recording is empty", reason="empty")
    if events[0].type != "run.started":
        raise Corrupt(f"{recording.origin}: sequence {events[0].sequence} is {events[0].type}, not run.started")
    calls: dict[str, RecordedCall] = {}
    finished: Event | None = None
    for event in events[1:]:
        if finished is not None and event.type not in _AFTER_THE_END:
            raise _fault(recording, event, "comes after run.finished")
        if event.type in ("run.started", "run.finished"):
            if event.type == "run.started":
                raise _fault(recording, event, "starts the run a second time")
            finished = event
            _stop_with(calls)
        elif event.type == "attempt.started":
            _begin_again(calls)
        elif event.type in KIND_OF_TYPE:
            _take(recording, calls, event)
    ordered = list(calls.values())
    for call in ordered:
        _place_inside(call, calls)
    for event in events:
        _mark(calls, event)
    return Tape(recording, events[0], finished, ordered)


def _mark(calls: Mapping[str, RecordedCall], event: Event) -> None:
    """What an event says of a call that had ended before."""
    if event.type == "task.cancelled" and (lost := calls.get(str(event.attrs.get("call")))) is not None:
        lost.lost = True
    elif event.type == "schedule.marked" and (handed := calls.get(str(event.attrs.get("turn")))) is not None:
        handed.handed_seq = event.sequence


def _stop_with(calls: dict[str, RecordedCall]) -> None:
    """The run has ended: what stopped a call from outside (Ctrl-C) has reached the program, and ended it too."""
    for call in calls.values():
        if call.status == "unknown" and call.settled is None and not call.received:
            call.ended_run = True
            call.ended_seq = call.last_seq if call.received else 0


def _begin_again(calls: dict[str, RecordedCall]) -> None:
    """The run was resumed: what was open then is asked for again, and what had come of it counts no more."""
    for call in calls.values():
        if call.stage == "tool.started":
            call.stage = INTERRUPTED
    for call in [call for call in calls.values() if call.closing is None and call.streamed]:
        if call.kind == "llm":
            call.latest = "model.requested"
            call.head_digest, call.piece_digests = None, ()
        else:
            del calls[call.call_id]  # such a call begins with its answer


def outer_of(lane: str) -> str | None:
    """The call in whose performing the calls of this lane were made, if any: `0.3~` and `0.3~/a1` belong to call `0.3`."""
    return lane.rpartition(_INNER)[0] or None


def _take(recording: Recording, calls: dict[str, RecordedCall], event: Event) -> None:
    if event.call_id is None:
        by_a_store = "engine" in recording.events[0].attrs  # else it was a ledger that people or other programs wrote
        raise _fault(recording, event, "belongs to no call", "lifecycle" if by_a_store else "no_calls")
    call = calls.get(event.call_id)
    stage = _stage_after(call, event) if KIND_OF_TYPE[event.type] == "tool" else None
    if call is None:
        if event.type in _NEEDS_OPENING or event.type in _BETWEEN or (stage is None and _of_tool(event)):
            raise _fault(recording, event, f"of call {event.call_id} has no start")
        call = calls[event.call_id] = _new_call(recording, event)
    elif stage is None if _of_tool(event) and call.kind == "tool" else event.type not in _follows(call):
        raise _fault(recording, event, f"of call {event.call_id} cannot follow {call.latest}")
    else:
        _same_call(recording, call, event)
    call.stage = stage
    _add(call, event)


def _of_tool(event: Event) -> bool:
    return KIND_OF_TYPE[event.type] == "tool"


def _stage_after(call: RecordedCall | None, event: Event) -> str | None:
    """Where a tool call stands after an event; `None`: it cannot follow."""
    return next_stage(
        None if call is None else call.stage,
        event.type,
        writes=call is not None and call.effect == "write",
        stood_in=stands_in(event.source, event.attrs.get("copied_source")),
        outcome=event.attrs.get("outcome"),
    )


def _follows(call: RecordedCall) -> frozenset[str]:
    """Types that may come next in a call that is no tool's."""
    if call.closing is not None:
        return frozenset()
    family = call.latest.split(".", 1)[0]
    between = {kind for kind, before in _BETWEEN.items() if call.latest in before}
    return frozenset(between | {kind for kind in _ENDS if kind.split(".", 1)[0] == family})


def _same_call(recording: Recording, call: RecordedCall, event: Event) -> None:
    """All events of one call say the same of it, where they say it at all."""
    for said, held, what in (
        (event.name, call.name, "name"),
        (event.input_key, call.input_key, "input key"),
        (event.lane, call.lane, "lane"),
        (event.n, call.n, "number in its lane"),
    ):
        if said is not None and held is not None and said != held:
            raise _fault(recording, event, f"of call {call.call_id} has another {what} than the event before it")


def _new_call(recording: Recording, event: Event) -> RecordedCall:
    call_id = cast("str", event.call_id)
    lane, n = _place_of(recording, event, call_id)
    if event.name is None:
        raise _fault(recording, event, f"of call {call_id} has no name")
    return RecordedCall(
        call_id=call_id,
        kind=KIND_OF_TYPE[event.type],
        name=event.name,
        lane=lane,
        n=n,
        span_id=event.span_id,
        parent_span_id=event.parent_span_id,
        first_seq=event.sequence,
    )


def _place_of(recording: Recording, event: Event, call_id: str) -> tuple[str, int]:
    """Lane and number; the call id says both, so that leaving them out changes nothing."""
    lane, _, number = call_id.rpartition(".")
    if not lane or not number.isdecimal():
        raise _fault(recording, event, f"has the call id {call_id!r}, which is not <lane>.<n>")
    n = int(number)
    if (event.lane is not None and event.lane != lane) or (event.n is not None and event.n != n):
        raise _fault(recording, event, f"of call {call_id} names another place than its call id")
    return lane, n


def _add(call: RecordedCall, event: Event) -> None:
    call.events += 1
    call.last_seq = event.sequence
    call.latest = event.type
    call.input_key = call.input_key or event.input_key
    call.input_digest = call.input_digest or event.input_digest
    if event.attrs:
        call.attrs = {**call.attrs, **event.attrs}
        effect = event.attrs.get("effect")
        if call.effect is None and effect is not None:
            call.effect = cast("Effect", effect)
    if event.bodies:
        if "head" in event.bodies:
            call.head_digest, call.opened_seq = event.bodies["head"], event.sequence
        call.broken_digest = event.bodies.get("broken")
        if "pieces" in event.bodies:
            call.piece_digests = (*call.piece_digests, event.bodies["pieces"])
    if event.type in FINAL_TYPES:
        call.closing = event.type
        call.output_digest = event.output_digest
        call.source = event.source or "live"
        call.status = _status(event)
        call.ended_seq = event.sequence if call.status != "unknown" or call.received else 0
    elif event.type == "tool.confirmed":
        _settle(call, event)
    elif event.type in ("tool.requested", "tool.started") and call.settled is not None:
        _reopen(call)


def _settle(call: RecordedCall, event: Event) -> None:
    """Somebody found out what became of it. What the program has got of it, it keeps."""
    call.settled = str(event.attrs.get("outcome"))
    if call.received:
        return
    if call.settled == "not_done":
        call.status, call.closing, call.output_digest = "open", None, None
        return
    call.status = "ok" if call.settled == "finished" else "error"
    call.output_digest, call.ended_seq = event.output_digest, event.sequence


def _reopen(call: RecordedCall) -> None:
    """It was not done, and is done now."""
    call.settled = None
    call.attrs = {name: value for name, value in call.attrs.items() if name not in OF_AN_END}


def _status(event: Event) -> CallStatus:
    last = event.type.rsplit(".", 1)[1]
    if last in ("unknown", "denied"):
        return cast("CallStatus", last)
    said = event.attrs.get("status")
    if said in ("error", "cancelled"):
        return cast("CallStatus", said)
    return "error" if last == "failed" else "ok"


def _place_inside(call: RecordedCall, calls: Mapping[str, RecordedCall]) -> None:
    """Finds the call around a call; anything but a nested agent makes it an inner one."""
    call.outer = outer_of(call.lane)
    around = call.outer
    while around is not None:
        outer = calls.get(around)
        # A lane below a call that is not on the tape was made in its performing: nobody will ask for it.
        if outer is None or outer.kind != "agent":
            call.inner = True
            return
        around = outer_of(outer.lane)


def _turns(tape: Tape, events: Sequence[Event]) -> tuple[Turn, ...]:
    """The order of hand-overs. A call's turn is its end, unless a mark says that it came later."""
    late: set[str] = set()
    for event in tape.recording.events:  # also behind those that count
        if event.type == "schedule.marked":
            named = _named(event.attrs.get("open"))
            late.update(map(str, named or [event.attrs.get("turn")]))
    turns: list[Turn] = []
    need: list[str] = []
    for event in events:
        name = _handed(tape, event, late)
        if name is not None and event.attrs.get("at_once") is True:
            turns.append(Turn(name, at_once=True))
        elif name is not None:
            stream = name.removesuffix(END_OF_STREAM) if name.endswith(END_OF_STREAM) else None
            turns.append(Turn(name, tuple(need), stream=stream))
            need = []
        elif event.type == "schedule.marked":
            turns += _pieces_passed(tape, event)
        elif event.type == "task.joined":
            need.append(event.lane or "")
        elif event.type in _OPENING and (call := tape.call(event.call_id or "")) is not None and call.has_turn:
            need.append(call.call_id)
    return tuple(turns)


def _pieces_passed(tape: Tape, event: Event) -> Generator[Turn]:
    """The pieces that were handed over before this event; not those of a stream that was asked for again since."""
    for piece in passed_in(event.attrs.get("pieces")):
        call = tape.call(piece.call_id)
        if call is not None and call.streamed and call.has_turn and call.opened_seq < event.sequence:
            yield Turn(piece.id, stream=piece.call_id)


def _handed(tape: Tape, event: Event, late: set[str]) -> str | None:
    """The input that was handed over at this event, if one was."""
    if event.type == "timer.fired":
        return str(event.attrs.get("timer"))
    if event.type == "schedule.marked":
        turn = event.attrs.get("turn")
        return turn if isinstance(turn, str) else None
    call = tape.call(event.call_id) if event.call_id is not None else None
    if call is None or not call.has_turn:
        return None
    if not call.streamed:
        name = call.call_id if event.sequence == call.ended_seq else None
    elif event.type in FINAL_TYPES:
        name = f"{call.call_id}{END_OF_STREAM}" if _end_in_turn(event.attrs) else None
    else:
        # A stream that broke off with its process was asked for again: what was handed over is the last beginning.
        name = call.call_id if event.type in _OPENED and event.sequence == call.opened_seq else None
    return None if name in late else name


def _named(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _end_in_turn(attrs: Attrs) -> bool:
    return in_turn(attrs.get("stream"), attrs.get("error_class"), attrs.get("lost"))


def _in_lanes(calls: Sequence[RecordedCall]) -> dict[str, list[RecordedCall]]:
    lanes: dict[str, list[RecordedCall]] = {}
    for call in calls:
        lanes.setdefault(call.lane, []).append(call)
    for lane in lanes.values():
        lane.sort(key=lambda call: call.n)
    return lanes


def _fault(recording: Recording, event: Event, what: str, reason: str = "lifecycle") -> Corrupt:
    return Corrupt(f"{recording.origin}: sequence {event.sequence}: {event.type} {what}", reason=reason)
