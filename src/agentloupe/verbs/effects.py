"""Open effects: writes that were begun and of which nobody has noted what became of them. Listed, and settled by a person.

for effect in open_effects().items: print(effect.run_id, effect.call_id, effect.tool)
settle_effect("shop-261130-k3x9qp", "0.3", "finished", why="the bank's list has it", result={"charge": "ch_1"})
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agentloupe.engine.project import Projector
from agentloupe.engine.settling import Settler, happened_inside, is_question, questions
from agentloupe.engine.tape import RecordedCall, Tape, read_tape
from agentloupe.ports.protocols import RunWriter, Store
from agentloupe.ports.scribe import entries
from agentloupe.verbs.api import open_store, resolve
from agentloupe.verbs.elsewhere import check_here
from agentloupe.verbs.replaying import rules_in
from agentloupe.words.canonical import Json
from agentloupe.words.effects import OUTCOMES, Done, EffectFailed, Failed, NotDone, SettledOutcome
from agentloupe.words.errors import NotFound, Refused, StoreError, UsageError
from agentloupe.words.run import Run, RunFilter, RunStatus
from agentloupe.words.step import Step

__all__ = ["OpenEffect", "OpenEffects", "Settled", "open_effects", "settle_effect"]

_RUNS_AT_ONCE: Final = 50
_DIGITS: Final = 18
"""Of a cursor: what the store can count to."""


@dataclass(frozen=True, slots=True)
class OpenEffect:
    """An effect that was begun, and of which nobody has noted what became of it. No payloads.

    Attributes:
        run_id, run_name, agent, run_status: its run; a `running` one may still see the end itself.
        step, call_id, tool: which call it is.
        since: when it was begun (UTC, ISO 8601).
        status: `open` (its process was killed), or `unknown` (noted so).
        idempotency_key: the key that the tool was given, to ask the receiver by.
        arguments_digest: digest of its arguments.
        lookup: whether the tool can find out by itself, at the next resume.
    """

    run_id: str
    run_name: str
    agent: str
    run_status: RunStatus
    step: int
    call_id: str
    tool: str
    since: str
    status: str
    idempotency_key: str | None
    arguments_digest: str | None
    lookup: bool

    def as_json(self) -> dict[str, Json]:
        """All of it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class OpenEffects:
    """A page of them. `cursor` asks for the next page; `None` where there is none."""

    items: tuple[OpenEffect, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """An effect that was settled just now: `sequence` is that of its `tool.confirmed`."""

    run_id: str
    call_id: str
    tool: str
    outcome: SettledOutcome
    sequence: int


def open_effects(
    store: Store | str | Path | None = None, run: str | None = None, *, limit: int = 100, cursor: str | None = None
) -> OpenEffects:
    """The open effects of all runs, newest run first; those of one run in order.

    Args:
        store: where runs are: a store, its URL or its file; default: the project's.
        run: only this one: an id, a unique beginning of one, `last` or `last~N`.
        limit: at least so many before the list stops, at the end of a run.
        cursor: where a page before this one has stopped.

    Raises:
        RunNotFound: there is no such run. UsageError: no such cursor.
    """
    where = _store(store)
    if run is not None:
        row = where.run(resolve(where, run))
        return OpenEffects(tuple(_of_run(where, row)) if row is not None else ())
    if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _DIGITS):
        raise UsageError(f"no such cursor: {cursor!r}", hint="take the one that the page before gave")
    passed, found = int(cursor or 0), list[OpenEffect]()
    while rows := where.runs(RunFilter(open_effects=True, limit=_RUNS_AT_ONCE, offset=passed)):
        for row in rows:
            if len(found) >= limit:
                return OpenEffects(tuple(found), str(passed))
            passed += 1
            found.extend(_of_run(where, row))
    return OpenEffects(tuple(found))


def _of_run(store: Store, run: Run) -> Iterator[OpenEffect]:
    steps = store.steps(run.id) if run.open_effects else ()
    for step in filter(_is_open, steps):
        key = step.attrs.get("idempotency_key")
        yield OpenEffect(
            run_id=run.id,
            run_name=run.name,
            agent=run.agent,
            run_status=run.status,
            step=step.idx,
            call_id=step.call_id or "",
            tool=step.name,
            since=step.started_at,
            status=step.status,
            idempotency_key=key if isinstance(key, str) else None,
            arguments_digest=step.input_digest,
            lookup=step.attrs.get("lookup") is True,
        )


def _is_open(step: Step) -> bool:
    if step.kind != "tool" or step.source == "recorded":
        return False
    begun = step.effect == "write" and step.status == "open" and step.last_seq > step.first_seq
    return begun or (step.status == "unknown" and "outcome" not in step.attrs)


# --- settling ---------------------------------------------------------------------------------------------------------


def settle_effect(
    run: str,
    call_id: str,
    outcome: SettledOutcome,
    *,
    why: str,
    by: str | None = None,
    result: Json = None,
    external_id: str | None = None,
    store: Store | str | Path | None = None,
    force_owner: bool = False,
) -> Settled:
    """Says what became of an open effect: one durable append to its run, which `resume` then goes on from.

    Args:
        run: id of the run, a unique beginning of one, `last` or `last~N`.
        call_id: of the call, as `open_effects` names it.
        outcome: `finished`, `failed` or `not_done`. What was not done is done at the next resume, under the same key.
        why: how you know.
        by: who says so; default: the login name.
        result: of `finished`: what the tool would have returned, as JSON; the program gets it. Of `failed`: the error's text.
        external_id: the id that the outside world gave to the effect.
        store: where runs are.
        force_owner: the run belongs to a process on another host, and you know that it is gone.

    Raises:
        RunNotFound: there is no such run. NotFound: it has no such call.
        Refused: the call is settled already, has its end, or never began (reason `settled`, `ended`, `not_begun`); or it
            cannot be not done, since an effect inside of it was (`inner_effect`).
        OwnerAlive: the run's owner lives, and may see the end itself; or it was imported before it had ended (`elsewhere`).
        UsageError: no such outcome, no reason, or a result that does not go with the outcome.
        StoreError and its kin: nothing was written.
    """
    from agentloupe.store.owners import this_process

    if outcome not in OUTCOMES:
        raise UsageError(f"unknown outcome {outcome!r}", hint=f"one of {', '.join(OUTCOMES)}")
    if not why.strip():
        raise UsageError("it must be said how you know what became of the effect", hint="--why TEXT")
    if outcome == "failed" and result is not None and not isinstance(result, str):
        raise UsageError("the result of a failed effect is the text of its error", reason="result")
    if outcome == "not_done" and result is not None:
        raise UsageError("what was not done has no result", reason="result")
    where = _store(store)
    run_id = resolve(where, run)
    check_here(where, run_id)
    _open_call(read_tape(where.recording(run_id)), call_id, outcome)
    try:
        writer = where.take_over(run_id, Projector, owner=this_process(), force=force_owner, ended=True)
    except StoreError as wrong:
        if wrong.reason == "erased":
            raise Refused(f"run {run_id} was deleted: it asks nobody any more", reason="erased") from wrong
        raise
    try:
        # Read again, now that nobody else writes: another person may have been quicker.
        tape = read_tape(where.recording(run_id))
        call = _open_call(tape, call_id, outcome)
        found: Done | Failed | NotDone = NotDone()
        if outcome == "finished":
            found = Done(None, external_id)
        elif outcome == "failed":
            found = Failed(EffectFailed(result if isinstance(result, str) else f"{call.name} failed"), external_id)
        _append(
            writer, tape, call, found, {"by": by or _login(), "why": why}, result if outcome == "finished" else None
        )
        return Settled(run_id, call_id, call.name, outcome, writer.head.sequence)
    finally:
        writer.close()


def _append(
    writer: RunWriter,
    tape: Tape,
    call: RecordedCall,
    found: Done | Failed | NotDone,
    said: Mapping[str, str],
    wire: Json,
) -> None:
    settler = Settler(tape, writer.owner.epoch, rules_in(tape))
    parts = [] if call.stage == "tool.unknown" else [settler.unknown([call])]
    whole = entries([*parts, settler.confirmed(call, found, "person", wire=wire, **said)])
    writer.append(whole.drafts, whole.bodies, whole.durability)


def _open_call(tape: Tape, call_id: str, outcome: SettledOutcome) -> RecordedCall:
    """The open effect of this id. Raises what `settle_effect` does."""
    run_id, call = tape.recording.run_id, tape.call(call_id)
    if call is None or call.call_id != call_id:
        raise NotFound(f"run {run_id} has no call {call_id!r}", hint=_there_are(tape), reason="no_call")
    where = f"{call.name} (call {call_id} of run {run_id})"
    if call.settled is not None:
        said = call.attrs.get("how")
        raise Refused(f"{where} is settled already: {call.settled}, by {said}", reason="settled")
    if not is_question(tape, call):
        if call.status == "open" and call.kind == "tool":
            raise Refused(f"{where} never began to change the world", hint="resume the run", reason="not_begun")
        raise Refused(f"{where} has its end: {call.status}", hint=_there_are(tape), reason="ended")
    if outcome == "not_done" and happened_inside(tape, call):
        raise Refused(
            f"{where} cannot be done again: an effect inside of it was begun",
            hint="settle what is inside first; where that was done, say finished or failed, with a result",
            reason="inner_effect",
        )
    return call


def _there_are(tape: Tape) -> str:
    found = [f"{call.call_id} ({call.name})" for call in questions(tape)]
    return f"its open effects: {', '.join(found[:5])}" if found else "it has no open effects"


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


def _store(store: Store | str | Path | None) -> Store:
    return open_store(store, create=False) if store is None or isinstance(store, str | Path) else store
