"""The recorder: the boundary that performs every call and appends what happened.

It never breaks the agent. What fails inside it (a full disk, a value that cannot be read, a fault of its own) lowers the
run's coverage and is said once; the agent goes on with its own values. Two things stop a call before it is performed: a
write effect whose intent cannot be made durable (`EffectRefused`), and, in strict sessions or before a write effect,
arguments that cannot be recorded (`Unrecordable`).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from typing import cast

from agentloupe.engine.book import Book
from agentloupe.engine.cleaning import Cleaner
from agentloupe.engine.covering import MOST_NOTES, Covered, unrecordable_in, what_is_lost
from agentloupe.engine.privacy import Rules, Scrubbed, scrub, scrub_text
from agentloupe.engine.raised import error_name, says_nothing, status_of
from agentloupe.engine.streaming import Arriving, facts_of_stream, status_of_stream
from agentloupe.engine.toolwatch import SeenResult, ToolWatch
from agentloupe.engine.turn import Again, Turn, TurnAgain
from agentloupe.ports import ambient, codecs
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.pack import Look, Packer
from agentloupe.ports.protocols import Perform, RunWriter
from agentloupe.ports.schedule import plain
from agentloupe.ports.schedule.core import Schedule
from agentloupe.ports.scribe import Entry, Scribe, Started, entries
from agentloupe.ports.streams import Piece, Streamed
from agentloupe.words.call import PLAIN_READS, Attrs, Call, Kind, Outcome, OutcomeStatus
from agentloupe.words.canonical import Json, digest, dumps, key_of
from agentloupe.words.effects import HALF_DONE
from agentloupe.words.errors import EffectRefused, LoupeError, Unrecordable
from agentloupe.words.keeping import VALUES_DROPPED, dropped_note
from agentloupe.words.run import Coverage
from agentloupe.words.trace import TRACESTATE, TraceContext

__all__ = ["FROM_MESSAGES", "Recorder", "idempotency_key"]

_log = logging.getLogger("agentloupe")

FROM_MESSAGES = "from_messages"
"""Provenance of a tool step that nobody saw run: a later request's messages told its result."""
_SAID = frozenset({"state", "check"})  # said by the program, not done: they take no time
_READS = PLAIN_READS | {"env"}


def idempotency_key(scope: str, name: str, key: str, occurrence: int) -> str:
    """The key of one write effect, 64 hex digits.

    It comes from the task (or, without one, the run), the tool, its arguments and how often they were asked for before;
    never from an attempt or the time. So a resumed run uses the same key, and a fork its own.
    """
    return digest(["write", scope, name, key, occurrence])


class Recorder:
    """Records one run.

    Args:
        writer: the run's only writer.
        scribe: makes the events.
        rules: of secret removal.
        scope: what write effects' keys are made from: the task id, or the run id.
        strict: an unrecordable value raises.
        refuse_writes: a write effect whose intent cannot be stored is refused.
        drops_values: where what waits to be stored is full, values of cheap reads are not kept; else the program waits.
        passes_trace_on: requests to models carry the trace of their step.
        control_tools: names (patterns) of tools that nobody has to run: control logic answers them itself.
        schedule: of the run, which is told here; `None`: outcomes are taken as they come.
    """

    forgettable = True

    def __init__(
        self,
        writer: RunWriter,
        scribe: Scribe,
        *,
        rules: Rules,
        scope: str,
        strict: bool = False,
        refuse_writes: bool = True,
        drops_values: bool = False,
        passes_trace_on: bool = False,
        control_tools: Sequence[str] = (),
        schedule: Schedule | None = None,
    ) -> None:
        self.rules = rules
        self.passes_trace_on = passes_trace_on
        self.schedule = schedule
        self.model_calls = 0
        self._scribe = scribe
        self._scope = scope
        self._strict = strict
        self._refuse_writes = refuse_writes
        self._covered = Covered()
        self._watch = ToolWatch(control_tools)
        self._writes: dict[tuple[str, str], int] = {}
        self._said: set[str] = set()
        self._clean = Cleaner(rules, self._withheld)
        self._over = False
        self._detached = False
        self._going_on: dict[str, Perform] = {}
        self._streams: dict[str, Perform] = {}
        self._lock = plain.RLock()
        self._book = Book(writer, self._lock, nullcontext if schedule is None else schedule.own, drops=drops_values)
        self._scheduled = schedule is not None and not schedule.closed
        self._lanes = {"0"}

    @property
    def run_id(self) -> str:
        """The run that is being recorded."""
        return self._book.writer.run_id

    @property
    def trace(self) -> TraceContext:
        """The run's own place in its trace."""
        return self._scribe.trace

    # --- the boundary -------------------------------------------------------------------------------------------------

    def decide(self, call: Call) -> Perform:
        """Always: perform. Raises `EffectRefused` or `Unrecordable`, see above."""
        return self.decide_at(call, ambient.place())

    def decide_at(self, call: Call, where: ambient.Place, *, again: Again | None = None) -> Perform:
        """Like `decide`, for a call whose place is known already. `again`: what is stored of it is not written anew."""
        if self._detached:
            return Perform()
        if self._over:
            self._say("late", f"run {self.run_id} has ended: call {call.name!r} is kept out of it")
            if call.effect == "write" and self._refuse_writes:
                raise EffectRefused(f"run {self.run_id} has ended: write effect {call.name!r} cannot be recorded")
            return Perform()
        turn = Turn(where, call) if again is None else TurnAgain(where, call, again)
        perform = Perform(token=turn)
        try:
            turn.call = self._clean.named(call)
            self._open(turn, perform)
        except (EffectRefused, Unrecordable):
            raise
        except Exception as fault:  # noqa: BLE001  # a fault of the recorder is not the agent's
            self._trouble(fault)
            self._refuse_unrecorded(turn)
        turn.began = ambient.monotonic_ms()
        return perform

    def finished(self, perform: Perform, value: object) -> object:
        """Stores the result; returns the very same. Raises `Unrecordable` in strict sessions, after storing."""
        turn = perform.token
        if not isinstance(turn, Turn):
            return value
        if isinstance(value, Streamed):
            self._ended(turn, perform, value)
            return value
        if turn.call.cheap and turn.call.kind in PLAIN_READS and turn.call.input is None and not perform.facts:
            self._read(turn, value)
            return value
        took = _took(turn, perform)
        lost: Sequence[tuple[str, str]] = ()
        try:
            output, text, lost = self._encode(turn.call, value)
            if lost:
                self._lower_for(lost, f"result of {turn.call.name}")
            status: OutcomeStatus = "unknown" if HALF_DONE in perform.facts else "ok"
            self._close(turn, status, output, {**_facts(turn.call, output), **perform.facts}, took, text)
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)
        if lost and self._strict:
            raise Unrecordable(what_is_lost(f"the result of {turn.call.name!r}", lost))
        return value

    def failed(self, perform: Perform, error: BaseException) -> None:
        """Stores the exception."""
        turn = perform.token
        if not isinstance(turn, Turn):
            return
        took = _took(turn, perform)
        status = status_of(error)
        if turn.call.effect == "write" and says_nothing(error):
            status = "unknown"
        try:
            facts: dict[str, Json] = {**perform.facts, "error_class": error_name(error)}
            code = getattr(error, "status_code", None)
            if isinstance(code, int) and not isinstance(code, bool):
                facts["status_code"] = code
            self._close(turn, status, codecs.encode(error).wire, facts, took)
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    # --- streams ------------------------------------------------------------------------------------------------------

    def opened(self, perform: Perform, head: Json) -> None:
        """Stores that the answer begins to come."""
        turn = perform.token
        if not isinstance(turn, Turn) or not turn.recorded or self._over:
            return
        try:
            facts: dict[str, Json] = {"opened_ms": round(_took(turn, perform), 3)}
            clean = self._clean.value(head, f"answer of {turn.call.name}")
            if clean.removed:
                facts["removed_from_head"] = list[Json](clean.removed)
            turn.arriving = Arriving(head, self.rules)
            with self._lock:
                self._streams[turn.place.call_id] = perform
                entry = self._scribe.stream_opened(turn.call, turn.place, turn.key, clean.value, ambient.now(), facts)
                self._book.append(entry)
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    def streamed(self, perform: Perform, piece: Piece) -> None:
        """Takes a piece; what came is stored every 50 ms, and with the end."""
        turn = perform.token
        arriving = turn.arriving if isinstance(turn, Turn) else None
        if arriving is None:
            return
        with self._lock:
            if arriving.add(piece):
                self._book.remind(lambda: self._store_pieces(cast("Turn", turn)))

    def _store_pieces(self, turn: Turn) -> None:
        """Stores the pieces that wait. Never raises."""
        try:
            with self._lock:
                if turn.arriving is not None and turn.place.call_id in self._streams:
                    self._book.append(self._waiting(turn, turn.arriving, last=False))
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    def _waiting(self, turn: Turn, arriving: Arriving, *, last: bool) -> Entry:
        pieces = arriving.take(last=last)
        if pieces is None:
            return Entry()
        return self._scribe.streamed(turn.call, turn.place, turn.key, pieces, ambient.now())

    def _rest_of_stream(self, turn: Turn, arriving: Arriving, attrs: dict[str, Json]) -> Entry:
        """The last pieces of a stream; what was removed from it becomes a fact of its end."""
        rest = self._waiting(turn, arriving, last=True)
        if arriving.removed:
            attrs["removed_from_stream"] = list[Json](arriving.removed)
        if arriving.withheld:
            self._withheld(f"stream of {turn.call.name}", "parts")
        if arriving.unread:
            attrs["unread_bytes"] = arriving.unread
            note = f"stream of {turn.call.name}: {arriving.unread} bytes are no messages (a wrong checksum or length)"
            self._covered.lower(
                "full", f"{note}: kept as they came, looked through for secrets as far as they can be read"
            )
        return rest

    def _ended(self, turn: Turn, perform: Perform, streamed: Streamed) -> None:
        """Stores the rest of a stream, how it ended, and the whole answer put together from it."""
        took = _took(turn, perform)
        if turn.arriving is None:
            return
        try:
            output, text, lost = self._encode(turn.call, streamed)
            self._lower_for(lost, f"result of {turn.call.name}")
            facts = {**_facts(turn.call, output), **perform.facts, **facts_of_stream(streamed)}
            if streamed.error is not None:
                facts["error_class"] = error_name(streamed.error)
            self._close(turn, status_of_stream(streamed), output, facts, took, text)
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    def _leave_streams(self) -> None:
        """The run ends: whoever still has a stream or a generator open has left it."""
        for perform in list(self._going_on.values()):
            if perform.left is not None:
                perform.left()
        for perform in list(self._streams.values()):
            turn = cast("Turn", perform.token)
            if turn.arriving is not None:
                seen = turn.arriving.seen
                self._ended(turn, perform, replace(seen, how="left_early", waiting=perform.waiting))

    # --- the schedule -------------------------------------------------------------------------------------------------

    def log(self, type: str, lane: str, facts: Attrs) -> None:
        """Stores an event of the schedule. Never raises."""
        try:
            with self._lock:
                if not (self._over or self._detached):
                    self._book.append(self._scribe.scheduled(type, lane, facts, ambient.now()))
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    def stands_still(self, awaited: str | None) -> None:
        """A recording follows no order."""

    def cancelled(self, id: str) -> None:
        """A recording follows no order."""

    def forked(self, child: str = "child process") -> None:
        """The program has started a process, or another `child`: the recording lacks what that does, and says so."""
        self._lacks("os.fork", f"what the {child} does")

    def detach(self) -> None:
        """In a forked child: nothing is recorded any more, and the program does not notice."""
        self._detached = True

    def ran_off(self, what: str, inner: bool) -> None:
        """Something is done as a run of its own: the recording lacks it, and says so.

        What happens inside of a recorded call is not asked for again, so that its loss changes nothing.
        """
        if not inner:
            self._lacks("ran off", f"{what} ran outside the run's context (as a run of its own)")

    def _lacks(self, topic: str, what: str) -> None:
        if not self._over:
            self._covered.lower("control_flow", f"{what} is not in this recording")
            self._say(topic, f"run {self.run_id}: {what} is not in this recording")

    # --- the run ------------------------------------------------------------------------------------------------------

    def lower(self, level: Coverage, note: str) -> None:
        """Lowers the run's coverage for what it does not keep on purpose, with the reason."""
        self._covered.lower(level, note)

    def start(self, what: Started) -> None:
        """Stores `run.started`. Never raises."""
        try:
            self._lower_for(unrecordable_in(what.arguments), "the agent's arguments")
            clean = self._clean_start(what)
            with self._lock:
                self._book.append(self._scribe.started(clean, ambient.now()))
                if self.schedule is not None:  # not before: nothing stands in front of the beginning
                    self.schedule.keeper = self
            self._check_book()
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    def _clean_start(self, what: Started) -> Started:
        state: Mapping[str, Json] = {TRACESTATE: self.trace.state} if self.trace.state else {}
        return self._clean.started(replace(what, bodies={**(what.bodies or {}), **state}))

    def end(self, status: OutcomeStatus, output: Json, facts: Attrs) -> None:
        """Stores `run.finished` and gives the run up. Later calls are kept out. Never raises; only the first counts."""
        if not self._shut():
            return
        try:
            clean = self._clean.value(output, "result")
            self._lower_for(unrecordable_in(clean.value), "the run's result")
            self._lower_for_going_on()
            self._store_end(status, clean, self._clean.facts({**facts, **self._outside(status)}))
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)
        finally:
            self._book.close()
            self._check_book()

    def hand_over(self, ends: Mapping[OutcomeStatus, Attrs]) -> dict[OutcomeStatus, Attrs]:
        """Gives the run up without its end, which somebody else will know and write.

        Args:
            ends: the ends that it may have, each with its facts; `ok` the last one.

        Returns:
            All facts of each; empty where the run is over already.
        """
        if not self._shut():
            return {}
        self._lower_for_going_on()
        known: dict[OutcomeStatus, Attrs] = {
            status: self._end_facts(self._clean.facts({**f, **self._outside(status)})) for status, f in ends.items()
        }
        self._book.close()
        self._check_book()
        return known

    def _shut(self) -> bool:
        """Keeps later calls out; `False` where the run is over already."""
        if self.schedule is not None:
            self.schedule.leave_waiting()
            self.schedule.note_pieces()
        with self._lock:
            if self._over:
                return False
            self._leave_streams()
            self._over = True
        if self.schedule is not None:
            self.schedule.close()
        return True

    def _lower_for_going_on(self) -> None:
        for call in (cast("Turn", perform.token).call for perform in self._going_on.values()):
            in_turn = self._scheduled and call.kind != "agent" and "unseen" not in call.attrs
            if call.effect == "write" or not in_turn:
                self._covered.lower("limited_replay", f"{call.kind} {call.name} had not ended when the run did")

    def _outside(self, status: OutcomeStatus) -> Attrs:
        """Lowers the coverage for tools that were not seen at the boundary; their names as a fact of the run's end.

        A run that was stopped may have been stopped before its last tool; one that ended well was not.
        """
        ran = self._watch.undecorated()
        for name in ran:
            self._covered.lower("control_flow", f"tool {name!r} ran outside the boundary: decorate it with @loupe.tool")
        unseen = self._watch.never_seen() if status == "ok" else ()
        for name in unseen:
            note = f"tool {name!r} was asked for and not seen to run: decorate it, or it was never run"
            self._covered.lower("control_flow", note)
        facts: dict[str, Json] = {"undecorated": list[Json]((*ran, *unseen))} if ran or unseen else {}
        if self._watch.control:
            facts["control_tools"] = list[Json](self._watch.control)
        return facts

    def _store_end(self, status: OutcomeStatus, clean: Scrubbed, facts: Attrs) -> None:
        attrs = self._end_facts(facts)
        if clean.removed:
            attrs["removed"] = list[Json](clean.removed)
        outcome = Outcome(status=status, output=clean.value, attrs=attrs)
        reach("run.before_finish")
        with self._lock:
            self._book.append(self._scribe.finished(outcome, ambient.now()), last=True)
        reach("run.after_finish")

    def _end_facts(self, facts: Attrs) -> dict[str, Json]:
        """What is said of the run when it ends."""
        self._book.check()
        if self._book.failed is not None:
            self._covered.lower("lossy", f"the store failed meanwhile ({error_name(self._book.failed)})")
        attrs: dict[str, Json] = {**facts, "dropped": self._book.dropped}
        if lacking := self._book.values_dropped:
            attrs[VALUES_DROPPED] = lacking
            self._covered.lower("limited_replay", dropped_note(lacking))
            self._say("full", f"run {self.run_id}: {dropped_note(lacking)}; a replay lacks them")
        attrs["coverage"] = self._covered.level
        if self._covered.notes:
            attrs["coverage_notes"] = [scrub_text(note, self.rules) for note in self._covered.notes]
        return attrs

    # --- calls --------------------------------------------------------------------------------------------------------

    def _open(self, turn: Turn, perform: Perform) -> None:
        call = turn.call
        if turn.place.lane not in self._lanes:
            self._forked(turn.place.lane)
        if call.cheap and call.input is None:
            turn.key, turn.recorded = _key_of_read(call.kind, call.name), True
            return
        if call.lost:
            self._lower_for(call.lost, f"arguments of {call.name}")
            if self._strict or call.effect == "write":
                raise Unrecordable(what_is_lost(f"the arguments of {call.name!r}", call.lost))
        if "not_recorded" in call.attrs:
            why = call.attrs["not_recorded"]
            self._covered.lower("limited_replay", f"{call.name} passed without a record ({why})")
        asks = call.kind == "llm"
        if not asks:
            turn.call = call = self._clean.call(call)
        with self._lock:
            look = self._looked(turn) if asks else None
            call = turn.call
            if isinstance(turn, TurnAgain):
                entry = self._asked_again(turn, call, perform)
            else:
                entry = self._asked(turn, look) if asks else self._opened(turn, call, perform)
            if entry.durability == "grouped":
                turn.recorded = True
                if entry.drafts:
                    self._book.wait(entry)
            else:
                turn.recorded = self._book.append(entry, hold=call.effect != "write")
            self._going_on[turn.place.call_id] = perform
            if call.effect == "write":
                if not turn.recorded:
                    self._not_durable(turn, entry)
                reach("effect.after_intent")
        self._check_book()

    def _looked(self, turn: Turn) -> Look | None:
        """Takes secrets out of a model call, looking at what is new in its request; how that goes on from earlier ones."""
        asked, packer = turn.call, self._scribe.packer
        look = packer.look(asked.input) if isinstance(asked.input, dict) else None
        turn.call = call = self._clean.request(asked, look)
        if call is asked:
            return look
        return packer.look(call.input) if isinstance(call.input, dict) else None

    def _asked(self, turn: Turn, look: Look | None) -> Entry:
        call = turn.call
        self.model_calls += 1
        for n, seen in enumerate(self._watch.requested(call.input)):
            self._book.append(self._from_messages(seen, turn.place, n))
        entry, turn.key = self._scribe.asked(call, look, turn.place, ambient.now())
        return entry

    def _opened(self, turn: Turn, call: Call, perform: Perform) -> Entry:
        turn.key = key_of(call.kind, call.name, call.input)
        extra: dict[str, Json] = {}
        if call.kind == "tool":
            turn.place = self._caused(call, turn.place, turn.key)
        if call.effect == "write":
            extra["idempotency_key"] = perform.facts["idempotency_key"] = self._next_write(call.name, turn.key)
        return self._scribe.opened(call, turn.place, turn.key, ambient.now(), extra)

    def _caused(self, call: Call, where: ambient.Place, key: str) -> ambient.Place:
        """The place of a tool's call with the answer that asked for it, where one did."""
        self._watch.performed(call.name)
        cause = self._watch.claimed(call.name, key, where.lane, call.attrs.get("tool_call_id"))
        return where if cause is None else where._replace(cause=cause)

    def _asked_again(self, turn: TurnAgain, call: Call, perform: Perform) -> Entry:
        """An earlier attempt has stored how it began, or a part of that."""
        if call.kind == "llm":
            self._watch.requested(call.input)
        turn.key = key_of(call.kind, call.name, call.input)
        extra: dict[str, Json] = {}
        if call.effect == "write":
            extra["idempotency_key"] = perform.facts["idempotency_key"] = turn.again.key
        return self._scribe.starting(call, turn.place, turn.key, turn.again.stage, ambient.now(), extra)

    def _forked(self, lane: str) -> None:
        """The first call of a task or thread says that there is one; those that make no call cost nothing."""
        with self._lock:
            self._lanes.add(lane)
            if "/" in lane.rpartition("~")[2]:
                self._book.append(self._scribe.scheduled("task.forked", lane, {}, ambient.now()))

    def _from_messages(self, seen: SeenResult, where: ambient.Place, n: int) -> Entry:
        """The step of a tool that ran outside the boundary, as far as the request `where` tells.

        It stands in a lane of its own, below a place where no call is, so that no replay asks for it.
        """
        place = ambient.Place(f"{where.call_id}m~", n, ambient.new_span_id(), where.parent_span_id, seen.cause)
        attrs: dict[str, Json] = {"provenance": FROM_MESSAGES, "effect_unstated": True}
        call = Call(
            kind="tool", name=seen.name, input=seen.arguments, attrs=attrs, encode=_to_wire, decode=codecs.decode
        )
        key, at = key_of("tool", seen.name, seen.arguments), ambient.now()
        outcome = Outcome(status="ok", output=call.encode(seen.result))
        opened = self._scribe.opened(call, place, key, at, {"decision": FROM_MESSAGES})
        return entries((opened, self._scribe.closed(call, place, key, outcome, at)))

    def _next_write(self, name: str, key: str) -> str:
        occurrence = self._writes.get((name, key), 0)
        self._writes[name, key] = occurrence + 1
        return idempotency_key(self._scope, name, key, occurrence)

    def _not_durable(self, turn: Turn, intent: Entry) -> None:
        """The intent of a write effect is not stored: refuse, or go on by setting."""
        self._check_book()
        if not self._refuse_writes:
            turn.recorded = self._book.append(intent)
            return
        self._going_on.pop(turn.place.call_id, None)
        why = self._book.failed
        denied = self._scribe.denied(turn.call, turn.place, turn.key, "store", ambient.now())
        self._book.append(denied._replace(bodies=(*intent.bodies, *denied.bodies)))
        raise EffectRefused(
            f"write effect {turn.call.name!r} was not started: its intent could not be stored",
            hint='mend the store, or set write_without_store = "allow"',
        ) from why

    def _refuse_unrecorded(self, turn: Turn) -> None:
        if turn.call.effect == "write" and self._refuse_writes:
            raise EffectRefused(f"write effect {turn.call.name!r} was not started: its intent could not be recorded")

    def _close(
        self, turn: Turn, status: OutcomeStatus, output: Json, facts: Attrs, took: float, text: bytes | None = None
    ) -> None:
        if self._over:
            self._late(turn.call)
            return
        if not turn.recorded:
            return
        call = turn.call
        clean = self._clean.output(call, output)
        attrs = self._clean.facts(facts)
        if "external_id" in attrs:  # by its name it would count as an id, which may look like a key
            attrs["external_id"] = scrub(attrs["external_id"], self.rules).value
        if clean.removed:
            attrs["removed_from_output"] = list[Json](clean.removed)
        if not call.cheap and call.kind not in _SAID:
            attrs["ms"] = round(took, 3)
        outcome = Outcome(status=status, output=clean.value, attrs=attrs)
        if call.effect == "write":
            reach("effect.after_effect")
        with self._lock:
            self._going_on.pop(turn.place.call_id, None)
            self._streams.pop(turn.place.call_id, None)
            if call.cheap and status == "ok" and self._dropped(turn):
                return
            rest = None if turn.arriving is None else self._rest_of_stream(turn, turn.arriving, attrs)
            text = text if clean.value is output else None
            closed = self._scribe.closed(call, turn.place, turn.key, outcome, ambient.now(), text=text)
            keep = self._book.wait if call.cheap else self._book.append
            stored = keep(closed if rest is None else entries([rest, closed]))
            if call.kind == "llm" and (status == "ok" or attrs.get("finish_reason")):
                number = self._book.sequence if stored else None
                self._watch.answered(clean.value, call.input, number, turn.place.lane)
        if call.effect == "write":
            reach("effect.after_outcome")
        if self._book.failed is not None:
            self._check_book()

    def _dropped(self, turn: Turn) -> bool:
        """Whether the value of a read is not kept, since it would have to wait for the store. The lock is held."""
        call = turn.call
        if call.kind not in _READS or not self._book.drops():
            return False
        at = ambient.now()
        self._book.drop(
            (call.kind, call.name), lambda count: self._scribe.dropped(call, turn.place, turn.key, count, at)
        )
        return True

    def _late(self, call: Call) -> None:
        self._say("late", f"run {self.run_id} has ended: the end of call {call.name!r} is kept out of it")

    def _read(self, turn: Turn, value: object) -> None:
        """Keeps what the program read of clock, chance and ids: no secret, and there are many. Never raises.

        These values cannot be changed any more, so their events are made later: with whatever is stored next, or soon.
        """
        try:
            with self._lock:
                if self._over:
                    self._late(turn.call)
                elif turn.recorded and not self._dropped(turn):
                    self._book.wait(partial(self._made_of_read, turn, value, ambient.now()))
            if self._book.failed is not None:
                self._check_book()
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)

    def _made_of_read(self, turn: Turn, value: object, at: str) -> Entry:
        """The event of a read. The lock is held. Never raises."""
        try:
            output, _, _ = self._encode(turn.call, value)
            return self._scribe.read(turn.call, turn.place, turn.key, output, at)
        except Exception as fault:  # noqa: BLE001  # see decide
            self._trouble(fault)
            return Entry()

    def _encode(self, call: Call, value: object) -> tuple[Json, bytes | None, Sequence[tuple[str, str]]]:
        """A result as JSON, its text where that was made on the way, and what of it could not be recorded."""
        try:
            output = call.encode(value)
        except Exception as fault:  # noqa: BLE001  # a codec that fails must not cost the call its record
            self._covered.lower(
                "limited_replay", f"the result of {call.name} could not be encoded ({error_name(fault)})"
            )
            output = codecs.encode(value).wire
        if call.kind in PLAIN_READS:
            return output, None, ()
        text = dumps(output)
        return output, text, unrecordable_in(output, text)

    def _withheld(self, what: str, how_much: str) -> None:
        note = f"{what}: a rule of secret removal failed, {how_much} were withheld"
        self._covered.lower("limited_replay", note)
        self._say("withheld", f"run {self.run_id}: {note}")

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def _lower_for(self, lost: Sequence[tuple[str, str]], what: str) -> None:
        for path, kind in lost[:MOST_NOTES]:
            self._covered.lower("limited_replay", f"{what}: {path} of type {kind} could not be recorded")
        if lost:
            path, kind = lost[0]
            self._say(
                f"lost {kind}",
                f"run {self.run_id}: {what}: {path} of type {kind} could not be recorded; "
                "the agent has it, a replay will not (teach it with agentloupe.register_type)",
            )

    def _check_book(self) -> None:
        failed = self._book.failed
        if failed is not None:
            self._covered.lower("lossy", f"the store failed meanwhile ({error_name(failed)})")
            said = str(failed) if isinstance(failed, LoupeError) else error_name(failed)
            self._say("store", f"run {self.run_id} is not recorded whole: {said}; the agent goes on")

    def _trouble(self, fault: BaseException) -> None:
        self._scribe.packer = Packer()  # what the old one gave out may never have been stored
        self._covered.lower("lossy", f"the recorder failed ({error_name(fault)})")
        self._say("fault", f"run {self.run_id} is not recorded whole: {error_name(fault)}; the agent goes on", fault)

    def _say(self, topic: str, text: str, fault: BaseException | None = None) -> None:
        """One warning a topic and run. By `logging`, since a warning may be an error to the program."""
        if topic not in self._said:
            self._said.add(topic)
            _log.warning(self._harmless(text))
            if fault is not None and _log.isEnabledFor(logging.DEBUG):
                told = "".join(traceback.format_exception(fault))
                _log.debug("the fault: %s", self._harmless(told))

    def _harmless(self, text: str) -> str:
        """A text without secrets; where that fails, none of it."""
        try:
            return scrub_text(text, self.rules)
        except Exception as fault:  # noqa: BLE001  # see _trouble
            return f"run {self.run_id} is not recorded whole: secret removal failed ({error_name(fault)}); the agent goes on"


def _took(turn: Turn, perform: Perform) -> float:
    """Milliseconds of the real thing alone, without the wait for its turn."""
    return (ambient.monotonic_ms() if perform.ended is None else perform.ended) - turn.began


@lru_cache(maxsize=1024)
def _key_of_read(kind: Kind, name: str) -> str:
    return key_of(kind, name, None)


def _to_wire(value: object) -> Json:
    return codecs.encode(value).wire


def _facts(call: Call, output: Json) -> Attrs:
    try:
        return call.facts(output)
    except Exception as fault:  # noqa: BLE001  # an answer of an odd shape has no facts
        return {"facts_failed": error_name(fault)}
