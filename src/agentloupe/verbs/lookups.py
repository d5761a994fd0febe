"""Asks the outside world what became of effects whose end nobody saw, before their run goes on.

First each is noted as `tool.unknown`, then its tool's own `lookup` is asked by the idempotency key, and what it says is
noted as `tool.confirmed`. What nobody can tell stays a question for a person.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from agentloupe.engine.raised import error_name
from agentloupe.engine.resumer import check_answered
from agentloupe.engine.settling import Settler, finding_of, happened_inside, is_question, questions, unended
from agentloupe.engine.tape import RecordedCall, Tape, read_tape
from agentloupe.ports import ambient
from agentloupe.ports.faultpoints import reach
from agentloupe.ports.protocols import RunWriter, Store
from agentloupe.verbs.instrument import Tool, declared_tools, tool_of
from agentloupe.verbs.replaying import rules_in
from agentloupe.verbs.sessions import settings_here
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
    limit = settings_here().lookup_timeout
    # Those inside of others first: what is around them can only be told by them.
    for call_id in [call.call_id for call in reversed(questions(tape))]:
        call = tape.call(call_id)
        if call is None or not is_question(tape, call):
            continue
        found = _found(tape, call, functions or {}, limit)
        if isinstance(found, DontKnow):
            why[call_id] = found.why
            continue
        reach("resume.after_lookup")
        noted = Settler(tape, writer.owner.epoch, rules_in(tape)).confirmed(call, found, "lookup")
        writer.append(noted.drafts, noted.bodies, noted.durability)
        tape = read_tape(store.recording(tape.recording.run_id))
    check_answered(tape, why)
    return tape


def _found(tape: Tape, call: RecordedCall, functions: Mapping[str, Callable[..., object]], limit: float) -> Finding:
    """What the world says of an effect; never less than that nobody knows."""
    inside = happened_inside(tape, call)
    if call.effect != "write":
        return DontKnow("an effect inside of it was begun") if inside else NotDone()
    made = _tool_named(call.name, functions)
    if made is None:
        return DontKnow(
            "its tool is not declared yet: declare it outside of the agent, so that its lookup can be asked"
        )
    if made.lookup is None:
        return DontKnow(f"its tool has no lookup ({_place_of(made.function)})")
    if call.idempotency_key is None:
        return DontKnow("it has no idempotency key")
    found = _asked(made.lookup, call.idempotency_key, limit)
    if isinstance(found, DontKnow):
        return DontKnow(f"{found.why or 'its lookup cannot tell'} (asked {_place_of(made.lookup)})")
    if inside and isinstance(found, NotDone):
        return DontKnow("an effect inside of it was begun")
    return found


def _tool_named(name: str, functions: Mapping[str, Callable[..., object]]) -> Tool | None:
    given = functions.get(name)
    return tool_of(given) if given is not None else declared_tools().get(name)


def _place_of(function: Callable[..., object]) -> str:
    """Where a function stands, to tell two of one name apart."""
    inside = inspect.unwrap(function)
    code = getattr(inside, "__code__", None)
    named = f"{getattr(inside, '__module__', '?')}.{getattr(inside, '__qualname__', type(inside).__name__)}"
    return named if code is None else f"{named}, line {code.co_firstlineno}"


def _asked(lookup: Lookup, key: str, limit: float) -> Finding:
    """What a lookup says within `limit` seconds.

    It runs in a thread of its own, which can be left behind: an answer that comes later is not taken. An async one is cancelled.
    """
    answers: list[object] = []
    errors: list[BaseException] = []
    waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[object]]] = []

    async def awaited(answer: Awaitable[object]) -> None:
        task = asyncio.ensure_future(_of(answer))
        waiting.append((asyncio.get_running_loop(), task))
        answers.append(await task)

    def ask() -> None:
        try:
            with ambient.outside():
                answer = lookup(key)
                if inspect.isawaitable(answer):
                    asyncio.run(awaited(answer))
                else:
                    answers.append(answer)
        except BaseException as error:  # noqa: BLE001  # judged below, by whoever waits
            errors.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(ask,), name="agentloupe-lookup", daemon=True)
    with ambient.outside():
        thread.start()
        thread.join(limit)
    if thread.is_alive():
        for loop, task in waiting:
            with suppress(RuntimeError):  # it has just come to its end
                loop.call_soon_threadsafe(task.cancel)
        return DontKnow(f"its lookup took longer than {limit:g} s")
    if not errors:
        return finding_of(answers[0])
    if isinstance(errors[0], Exception | SystemExit | asyncio.CancelledError):
        return DontKnow(f"its lookup raised {error_name(errors[0])}")
    raise errors[0]


async def _of(answer: Awaitable[object]) -> object:
    return await answer
