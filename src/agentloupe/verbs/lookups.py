"""Asks the outside world what became of effects whose end nobody saw, before their run goes on.

First each is noted as `tool.unknown`, then its tool's own `lookup` is asked by the idempotency key, and what it says is
noted as `tool.confirmed`. What nobody can tell stays a question for a person.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from agentloupe.engine.raised import error_name
from agentloupe.engine.resumer import check_answered
from agentloupe.engine.settling import Settler, finding_of, happened_inside, is_question, questions, unended
from agentloupe.engine.tape import RecordedCall, Tape, read_tape
from agentloupe.ports import ambient
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import RunWriter, Store
from agentloupe.verbs.instrument import declared_tools, tool_of
from agentloupe.verbs.replaying import rules_in, to_the_end
from agentloupe.words.effects import DontKnow, Finding, NotDone

__all__ = ["note_unseen", "settle_by_lookup"]

Lookup = Callable[[str], Any]


def note_unseen(store: Store, writer: RunWriter, tape: Tape) -> Tape:
    """Writes `tool.unknown` for every effect that its process did not see end; returns the tape with them."""
    calls = unended(tape)
    if not calls:
        return tape
    noted = Settler(tape, writer.owner.epoch, rules_in(tape)).unknown(calls)
    writer.append(noted.drafts, noted.bodies, noted.durability)
    reach("resume.after_unknown")
    return read_tape(store.recording(tape.recording.run_id))


def settle_by_lookup(
    store: Store, writer: RunWriter, tape: Tape, functions: Mapping[str, Callable[..., object]] | None = None
) -> Tape:
    """Asks the lookups of the tools; returns the tape with what they said.

    Args:
        store: where the run is.
        writer: of the run.
        tape: with its unseen effects noted.
        functions: tools by name that the run is given, before those that the process has declared.

    Raises:
        ResumeRefused: some effects stay open (reason `open_intent`).
    """
    why: dict[str, str] = {}
    # Those inside of others first: what is around them can only be told by them.
    for call_id in [call.call_id for call in reversed(questions(tape))]:
        call = tape.call(call_id)
        if call is None or not is_question(tape, call):
            continue
        found = _found(tape, call, functions or {})
        if isinstance(found, DontKnow):
            why[call_id] = found.why or "its lookup cannot tell"
            continue
        reach("resume.after_lookup")
        noted = Settler(tape, writer.owner.epoch, rules_in(tape)).confirmed(call, found, "lookup")
        writer.append(noted.drafts, noted.bodies, noted.durability)
        tape = read_tape(store.recording(tape.recording.run_id))
    check_answered(tape, why)
    return tape


def _found(tape: Tape, call: RecordedCall, functions: Mapping[str, Callable[..., object]]) -> Finding:
    """What the world says of an effect; never less than that nobody knows."""
    inside = happened_inside(tape, call)
    if call.effect != "write":
        return DontKnow("an effect inside of it was begun") if inside else NotDone()
    lookup = _lookup_of(call.name, functions)
    if lookup is None:
        return DontKnow("its tool has no lookup")
    key = call.attrs.get("idempotency_key")
    if not isinstance(key, str):
        return DontKnow("it has no idempotency key")
    found = _asked(lookup, key)
    if inside and isinstance(found, NotDone):
        return DontKnow("an effect inside of it was begun")
    return found


def _lookup_of(name: str, functions: Mapping[str, Callable[..., object]]) -> Lookup | None:
    given = functions.get(name)
    made = tool_of(given) if given is not None else declared_tools().get(name)
    return None if made is None else made.lookup


def _asked(lookup: Lookup, key: str) -> Finding:
    answers: list[object] = []
    try:
        with ambient.outside():
            answer = lookup(key)
            if inspect.isawaitable(answer):

                async def awaited() -> None:
                    answers.append(await answer)

                to_the_end(awaited())
            else:
                answers.append(answer)
    except (Exception, SystemExit) as wrong:  # noqa: BLE001  # whatever it raises: it did not tell
        return DontKnow(f"its lookup raised {error_name(wrong)}")
    return finding_of(answers[0])
