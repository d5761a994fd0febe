"""What became of what nobody saw end, effects above all: who is asked, and what is written of the answers.

    tape -> unended(tape) -> `tool.unknown` of each -> an answer -> `tool.confirmed`

No I/O: the answers come from a tool's own `lookup` or from a person, see `verbs.effects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from agentloupe.engine.covering import unrecordable_in
from agentloupe.engine.privacy import Rules, scrub
from agentloupe.engine.raised import error_name
from agentloupe.engine.replayer import trace_in
from agentloupe.engine.tape import RecordedCall, Tape
from agentloupe.ports import ambient, codecs
from agentloupe.ports.ambient import Place
from agentloupe.ports.scribe import Entry, Scribe, entries
from agentloupe.words.call import Call, Outcome
from agentloupe.words.canonical import Json
from agentloupe.words.effects import Done, DontKnow, Failed, Finding, How, NotDone
from agentloupe.words.errors import Cancelled
from agentloupe.words.keeping import DIGESTS, KEPT, keeps_digests

__all__ = ["Settler", "finding_of", "happened_inside", "is_question", "questions", "unended"]


def questions(tape: Tape) -> list[RecordedCall]:
    """The calls of which somebody must find out what became of them, in order."""
    return [call for call in tape.calls if is_question(tape, call)]


def is_question(tape: Tape, call: RecordedCall) -> bool:
    """Whether nobody knows what became of a call that may have changed the world.

    A tool that only reads is one too where it was open and an effect inside of it was begun: running it again would do
    that again.
    """
    if call.kind != "tool" or call.unseen:
        return call.unseen
    return call.status == "open" and call.settled is None and happened_inside(tape, call)


def unended(tape: Tape) -> list[RecordedCall]:
    """Those of the questions that are not yet noted as unknown: their process ended before they did."""
    return [call for call in questions(tape) if call.stage != "tool.unknown"]


def happened_inside(tape: Tape, call: RecordedCall) -> bool:
    """Whether an effect was begun inside of a call which is not known as not done: the call as a whole was not nothing."""
    inside = f"{call.call_id}~"
    inner = (one for one in tape.calls if one.lane.startswith(inside) and one.effect == "write")
    return any(one.stage not in ("tool.allowed", "tool.denied", "not_done") for one in inner)


def finding_of(answer: object) -> Finding:
    """What a `lookup` returned. Whatever is not plainly an answer is none: the strictest reading."""
    if isinstance(answer, NotDone | DontKnow):
        return answer
    if isinstance(answer, Failed) and not isinstance(cast("object", answer.error), Exception):
        return DontKnow(f"its Failed holds {type(answer.error).__name__}, and not an exception")
    if isinstance(answer, Failed | Done):
        value = answer.error if isinstance(answer, Failed) else answer.result
        if unrecordable_in(codecs.encode(value).wire):
            return DontKnow("what it returned cannot be recorded")
        return answer
    return DontKnow(f"it returned {type(answer).__name__}, and not Done, Failed, NotDone or DontKnow")


class Settler:
    """Writes the events of one run's unseen effects.

    Args:
        tape: of the run.
        epoch: of the owner who writes.
        rules: of secret removal, those that the run was recorded with.
    """

    def __init__(self, tape: Tape, epoch: int, rules: Rules) -> None:
        self._rules = rules
        self._bare = keeps_digests(tape.recording.events)
        self._scribe = Scribe(trace_in(tape), epoch=epoch)

    def unknown(self, calls: list[RecordedCall]) -> Entry:
        """`tool.unknown` of each."""
        at = ambient.now()
        return entries(
            [self._scribe.unseen(_call(one), _place(one), one.input_key or "", _key_of(one), at) for one in calls]
        )

    def cancelled(self, error: Cancelled) -> Entry:
        """`run.finished` of a run whose process was ended before it could say so itself."""
        facts: dict[str, Json] = {
            "error_class": error_name(error),
            "error": str(error),
            "coverage": "limited_replay",
            "coverage_notes": [f"{error}: what its process did last may not be in this recording"],
        }
        wire = codecs.encode(error).wire
        return self._scribe.finished(Outcome(status="cancelled", output=wire, attrs=facts), ambient.now())

    def confirmed(
        self, call: RecordedCall, found: Done | Failed | NotDone, how: How, *, wire: Json = None, **said: str
    ) -> Entry:
        """`tool.confirmed`.

        Args:
            call: the effect.
            found: what became of it.
            how: who found it out.
            wire: of `Done`: the result in wire form, in place of its value.
            said: `by` and `why` of a person.
        """
        extra: dict[str, Json] = {**_key_of(call), "how": how}
        outcome: Outcome | None = None
        if not isinstance(found, NotDone):
            error = found.error if isinstance(found, Failed) else None
            value = codecs.encode(found.result if isinstance(found, Done) else found.error).wire
            clean = scrub(value if wire is None else wire, self._rules)
            facts: dict[str, Json] = {}
            if error is not None:
                facts["error_class"] = error_name(error)
            if clean.removed:
                facts["removed_from_output"] = list[Json](clean.removed)
            if found.external_id is not None:
                extra["external_id"] = str(scrub(str(found.external_id), self._rules).value)
            if self._bare:
                facts[KEPT] = DIGESTS
            output = None if self._bare else clean.value
            outcome = Outcome(status="ok" if error is None else "error", output=output, attrs=facts)
        return self._scribe.confirmed(
            _call(call),
            _place(call),
            call.input_key or "",
            outcome,
            extra,
            ambient.now(),
            said={label: scrub(text, self._rules).value for label, text in said.items()},
        )


def _call(recorded: RecordedCall) -> Call:
    """The call as far as its events need it."""
    return Call(
        kind="tool",
        name=recorded.name,
        input=None,
        effect=recorded.effect,
        encode=lambda value: codecs.encode(value).wire,
        decode=codecs.decode,
    )


def _place(recorded: RecordedCall) -> Place:
    return Place(recorded.lane, recorded.n, recorded.span_id or ambient.new_span_id(), recorded.parent_span_id)


def _key_of(recorded: RecordedCall) -> Mapping[str, Json]:
    key = recorded.idempotency_key
    return {} if key is None else {"idempotency_key": key}
