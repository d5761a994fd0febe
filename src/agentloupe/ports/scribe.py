"""Turns what happened at the boundary into drafts of events: the one place that knows which call writes which events.

Pure bookkeeping, shared by the recorder, the forker and the importers: no clock, no store, no decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from agentloupe.ports.ambient import Place, new_event_id, new_span_id, new_trace_id
from agentloupe.ports.pack import Body, Look, Packer
from agentloupe.ports.protocols import Durability
from agentloupe.words.call import NO_ATTRS, Attrs, Call, Outcome
from agentloupe.words.canonical import Json, key_of
from agentloupe.words.effects import NOT_DONE
from agentloupe.words.event import SCHEMA_VERSION, Draft
from agentloupe.words.keeping import VALUES_DROPPED
from agentloupe.words.trace import SAMPLED, TraceContext

__all__ = ["Entry", "Scribe", "Started", "entries"]

_OPENING: Mapping[str, str] = {"llm": "model.requested", "agent": "span.started"}
_CLOSING: Mapping[str, tuple[str, str]] = {
    "llm": ("model.responded", "model.failed"),
    "agent": ("span.finished", "span.finished"),
    "tool": ("tool.finished", "tool.failed"),
    "retrieval": ("retrieval.finished", "retrieval.failed"),
    "other": ("call.finished", "call.failed"),
    "clock": ("clock.read", "clock.read"),
    "random": ("random.drawn", "random.drawn"),
    "id": ("id.minted", "id.minted"),
    "env": ("env.read", "env.read"),
    "check": ("check.finished", "check.finished"),
    "state": ("state.changed", "state.changed"),
}
_STREAMING: Mapping[str, tuple[str, str]] = {
    "llm": ("model.opened", "model.streamed"),
    "other": ("call.opened", "call.streamed"),
}
_ASIDE = ("sent", "broken")
_NOTHING: Attrs = NO_ATTRS
_ALLOWED = "tool.allowed"
_STRENGTH: Mapping[Durability, int] = {"grouped": 0, "commit": 1, "full": 2}


class Entry(NamedTuple):
    """Drafts with their bodies, and how durable they must be before the caller goes on."""

    drafts: tuple[Draft, ...] = ()
    bodies: tuple[Body, ...] = ()
    durability: Durability = "grouped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What `run.started` says.

    Attributes:
        agent, name: the agent's name, and the run's (what a list shows).
        arguments: what the agent was called with, as JSON (`{"args": [...], "kwargs": {...}}`).
        engine: `own`, `generic` or `imported`.
        facts: further structure: task_id, arm, parent_run_id, forked_from_step, parent_hash, rules, limits, fidelity ...
        bodies: values by what they are: snapshot, overrides, policy ...
        parameters: names of the positional arguments, for secret removal; not stored.
    """

    agent: str
    name: str
    arguments: Json = None
    engine: str = "own"
    tags: tuple[str, ...] = ()
    facts: Attrs = _NOTHING
    bodies: Mapping[str, Json] | None = None
    parameters: tuple[str, ...] = ()


class Scribe:
    """Writes the drafts of one run.

    Args:
        trace: the run's own place in its trace; calls without a parent span hang under its span.
        epoch: the owner's epoch.
        caller: the place in that trace that the run was called from, if it was.
    """

    def __init__(self, trace: TraceContext, *, epoch: int = 1, caller: TraceContext | None = None) -> None:
        self.trace = trace
        self.epoch = epoch
        self.packer = Packer()
        self._caller = caller

    @classmethod
    def begun(cls, caller: TraceContext | None) -> Self:
        """For a new run: in its caller's trace, or in one of its own."""
        if caller is None:
            return cls(TraceContext(new_trace_id(), new_span_id()))
        return cls(caller.at(new_span_id()), caller=caller)

    def started(self, what: Started, at: str) -> Entry:
        """`run.started`."""
        bodies: list[Body] = []
        named = {
            label: self._pack(value, bodies, shared=label == "request") for label, value in (what.bodies or {}).items()
        }
        attrs: dict[str, Json] = {"run_name": what.name, "engine": what.engine, **what.facts}
        if what.tags:
            attrs["tags"] = list(what.tags)
        if self.trace.flags != SAMPLED:
            attrs["trace_flags"] = self.trace.flags
        draft = self._draft(
            "run.started",
            at,
            name=what.agent,
            span_id=self.trace.span_id,
            parent_span_id=None if self._caller is None else self._caller.span_id,
            input_digest=self._pack(what.arguments, bodies),
            bodies=named,
            attrs=attrs,
        )
        return Entry((draft,), tuple(bodies), "commit")

    def attempted(self, facts: Attrs, bodies: Mapping[str, Json], at: str) -> Entry:
        """`attempt.started`: the run goes on with another owner."""
        packed: list[Body] = []
        named = {label: self._pack(value, packed) for label, value in bodies.items()}
        draft = self._draft("attempt.started", at, span_id=self.trace.span_id, bodies=named, attrs=facts)
        return Entry((draft,), tuple(packed), "commit")

    def finished(self, outcome: Outcome, at: str) -> Entry:
        """`run.finished` with the agent's result or its exception; `outcome.attrs` carry status and coverage."""
        bodies: list[Body] = []
        attrs: dict[str, Json] = {"status": outcome.status, **outcome.attrs}
        digest = self._pack(outcome.output, bodies)
        draft = self._draft("run.finished", at, span_id=self.trace.span_id, output_digest=digest, attrs=attrs)
        return Entry((draft,), tuple(bodies), "full")

    def asked(self, call: Call, look: Look | None, where: Place, at: str) -> tuple[Entry, str]:
        """`opened` of a model call, with the key of its request: both come from one look at it (`packer.look`)."""
        if look is None:
            key = key_of(call.kind, call.name, call.input)
            return self.opened(call, where, key, at), key
        packed, key = self.packer.tell(look)
        draft = self._of(
            call, where, "model.requested", at, input_key=key, input_digest=packed.digest, attrs=call.attrs
        )
        return Entry((draft,), tuple(packed.bodies), "grouped"), key

    def opened(self, call: Call, where: Place, key: str, at: str, extra: Attrs = _NOTHING) -> Entry:
        """What is written before a call is performed; nothing for calls of one event."""
        if call.kind == "tool":
            return self._tool_opened(call, where, key, at, extra)
        opening = _OPENING.get(call.kind)
        if opening is None:
            return Entry()
        bodies: list[Body] = []
        digest = self._pack(call.input, bodies, shared=call.kind == "llm")
        draft = self._of(call, where, opening, at, input_key=key, input_digest=digest, attrs={**call.attrs, **extra})
        return Entry((draft,), tuple(bodies), "grouped")

    def stream_opened(self, call: Call, where: Place, key: str, head: Json, at: str, extra: Attrs = _NOTHING) -> Entry:
        """The answer begins to come; `head` is what came before its first piece."""
        bodies: list[Body] = []
        first = call.kind not in _OPENING
        draft = self._of(
            call,
            where,
            _STREAMING[call.kind][0],
            at,
            input_key=key,
            input_digest=self._pack(call.input, bodies) if first else None,
            attrs={**call.attrs, **extra} if first else extra,
            bodies={"head": self._pack(head, bodies)},
        )
        return Entry((draft,), tuple(bodies), "grouped")

    def streamed(self, call: Call, where: Place, key: str, pieces: Json, at: str) -> Entry:
        """Further pieces of a streamed answer."""
        bodies: list[Body] = []
        named = {"pieces": self._pack(pieces, bodies)}
        draft = self._of(call, where, _STREAMING[call.kind][1], at, input_key=key, attrs=_NOTHING, bodies=named)
        return Entry((draft,), tuple(bodies), "grouped")

    def closed(
        self, call: Call, where: Place, key: str, outcome: Outcome, at: str, *, text: bytes | None = None
    ) -> Entry:
        """What is written when a call has ended. `text`: that of the output (`dumps`), where it was made already.

        The facts `sent` (a body that a client library changed) and `broken` (what ended a stream) become bodies. A
        streamed answer counts as an answer however it ended: what came of it is its output.
        """
        bodies: list[Body] = []
        good, bad = _CLOSING[call.kind]
        answered = outcome.status == "ok" or "stream" in outcome.attrs
        kind = good if answered else "tool.unknown" if outcome.status == "unknown" else bad
        attrs: dict[str, Json] = dict(outcome.attrs)
        named = {label: self._pack(attrs.pop(label), bodies, shared=True) for label in _ASIDE if label in attrs}
        if outcome.status != "ok" and (kind == good or outcome.status == "cancelled"):
            attrs["status"] = outcome.status
        input_digest = None
        if call.kind != "tool" and call.kind not in _OPENING:
            attrs = {**call.attrs, **attrs}
            input_digest = None if call.input is None else self._pack(call.input, bodies)
        draft = self._of(
            call,
            where,
            kind,
            at,
            input_key=key,
            input_digest=input_digest,
            output_digest=self._pack(outcome.output, bodies, text=text),
            source=None if outcome.source == "live" else outcome.source,
            attrs=attrs,
            bodies=named,
        )
        durability: Durability = "full" if call.effect == "write" else "grouped" if call.cheap else "commit"
        return Entry((draft,), tuple(bodies), durability)

    def read(self, call: Call, where: Place, key: str, value: Json, at: str) -> Entry:
        """`closed` of a plain read that went well: one event, and of its value only what stands in its body."""
        packed = self.packer.pack(value)
        kind = _CLOSING[call.kind][0]
        draft = self._of(call, where, kind, at, input_key=key, output_digest=packed.digest, attrs=call.attrs)
        return Entry((draft,), tuple(packed.bodies))

    def dropped(self, call: Call, where: Place, key: str, count: int, at: str) -> Entry:
        """So many plain reads like this one, the first of them, whose values are not kept: one event in place of theirs."""
        attrs = {**call.attrs, VALUES_DROPPED: count}
        return Entry((self._of(call, where, _CLOSING[call.kind][0], at, input_key=key, attrs=attrs),))

    def denied(self, call: Call, where: Place, key: str, why: str, at: str) -> Entry:
        """A tool call that was not allowed to run."""
        bodies: list[Body] = []
        digest = self._pack(call.input, bodies)
        attrs: dict[str, Json] = {"effect": call.effect, "decision": "denied", "why": why, **call.attrs}
        draft = self._of(call, where, "tool.denied", at, input_key=key, input_digest=digest, attrs=attrs)
        return Entry((draft,), tuple(bodies), "commit")

    def scheduled(self, type: str, lane: str, facts: Attrs, at: str) -> Entry:
        """An event of the schedule: a lane that begins or ends, a timer, a lost answer, a mark."""
        draft = Draft(
            type=type,
            event_id=new_event_id(),
            recorded_at=at,
            trace_id=self.trace.trace_id,
            span_id=self.trace.span_id,
            lane=lane,
            owner_epoch=self.epoch,
            attrs=facts,
        )
        return Entry((draft,))

    def _tool_opened(self, call: Call, where: Place, key: str, at: str, extra: Attrs) -> Entry:
        bodies: list[Body] = []
        digest = self._pack(call.input, bodies)
        attrs: dict[str, Json] = {"effect": call.effect, "decision": "allowed", **call.attrs, **extra}
        allowed = self._of(call, where, "tool.allowed", at, input_key=key, input_digest=digest, attrs=attrs)
        begun = self.starting(call, where, key, "tool.allowed", at, extra)
        return Entry((allowed, *begun.drafts), tuple(bodies), begun.durability)

    def starting(self, call: Call, where: Place, key: str, stage: str | None, at: str, extra: Attrs) -> Entry:
        """What is still to be written before a tool is performed that stands at this stage of its life."""
        if stage not in (_ALLOWED, NOT_DONE):
            return Entry()
        writes = call.effect == "write"
        attrs = _intent({"effect": call.effect, **extra})
        types = ("tool.requested", "tool.started") if writes else ("tool.started",)
        drafts = tuple(self._of(call, where, kind, at, input_key=key, attrs=attrs) for kind in types)
        return Entry(drafts, (), "full" if writes else "grouped")

    # --- effects whose end nobody saw ---------------------------------------------------------------------------------

    def unseen(self, call: Call, where: Place, key: str, extra: Attrs, at: str) -> Entry:
        """`tool.unknown` of a call whose process ended before it did. `extra`: its idempotency key."""
        attrs = _intent({"effect": call.effect, **extra})
        return Entry((self._of(call, where, "tool.unknown", at, input_key=key, attrs=attrs),), (), "full")

    def confirmed(
        self,
        call: Call,
        where: Place,
        key: str,
        outcome: Outcome | None,
        extra: Attrs,
        at: str,
        *,
        said: Mapping[str, Json],
    ) -> Entry:
        """`tool.confirmed`: what became of such a call.

        Args:
            call: the call.
            where: its place.
            key: its matching key.
            at: when it was found out.
            outcome: its result or its error; `None`: it was not done.
            extra: its idempotency key, `how` it was found out, `external_id`.
            said: values of users, which become bodies: `by`, `why`.
        """
        bodies: list[Body] = []
        named = {label: self._pack(value, bodies) for label, value in said.items()}
        word = NOT_DONE if outcome is None else "finished" if outcome.status == "ok" else "failed"
        draft = self._of(
            call,
            where,
            "tool.confirmed",
            at,
            input_key=key,
            output_digest=None if outcome is None else self._pack(outcome.output, bodies),
            attrs={"effect": call.effect, "outcome": word, **extra, **({} if outcome is None else outcome.attrs)},
            bodies=named,
        )
        return Entry((draft,), tuple(bodies), "full")

    def _of(
        self,
        call: Call,
        where: Place,
        kind: str,
        at: str,
        *,
        input_key: str,
        attrs: Attrs,
        input_digest: str | None = None,
        output_digest: str | None = None,
        source: str | None = None,
        bodies: Mapping[str, str] | None = None,
    ) -> Draft:
        said: dict[str, Any] = {
            "type": kind,
            "event_id": new_event_id(),
            "recorded_at": at,
            "schema_version": SCHEMA_VERSION,
            "call_id": where.call_id,
            "trace_id": self.trace.trace_id,
            "span_id": where.span_id,
            "parent_span_id": where.parent_span_id or self.trace.span_id,
            "lane": where.lane,
            "n": where.n,
            "owner_epoch": self.epoch,
            "name": call.name,
            "input_key": input_key,
        }
        if where.cause is not None:
            said["parent_seq"] = where.cause
        if input_digest is not None:
            said["input_digest"] = input_digest
        if output_digest is not None:
            said["output_digest"] = output_digest
        if source is not None:
            said["source"] = source
        if bodies:
            said["bodies"] = dict(bodies)
        if attrs:
            said["attrs"] = dict(attrs)
        return Draft.of(said)

    def _draft(
        self,
        kind: str,
        at: str,
        *,
        span_id: str,
        attrs: Attrs,
        parent_span_id: str | None = None,
        name: str | None = None,
        input_digest: str | None = None,
        output_digest: str | None = None,
        bodies: Mapping[str, str] | None = None,
    ) -> Draft:
        return Draft(
            type=kind,
            event_id=new_event_id(),
            recorded_at=at,
            trace_id=self.trace.trace_id,
            span_id=span_id,
            parent_span_id=parent_span_id,
            owner_epoch=self.epoch,
            name=name,
            input_digest=input_digest,
            output_digest=output_digest,
            bodies=bodies or {},
            attrs=attrs,
        )

    def _pack(self, value: Json, bodies: list[Body], *, shared: bool = False, text: bytes | None = None) -> str:
        packed = self.packer.pack(value, shared_lists=shared, text=text)
        bodies.extend(packed.bodies)
        return packed.digest


def _intent(attrs: Attrs) -> Attrs:
    """A later event of the same call repeats only what a reader of that event alone must know."""
    keep = ("effect", "idempotency_key")
    return {name: attrs[name] for name in keep if attrs.get(name) is not None}


def entries(parts: Sequence[Entry]) -> Entry:
    """Several entries as one; the strongest durability wins."""
    drafts: list[Draft] = []
    bodies: list[Body] = []
    strongest: Durability = "grouped"
    for part in parts:
        drafts += part.drafts
        bodies += part.bodies
        if _STRENGTH[part.durability] > _STRENGTH[strongest]:
            strongest = part.durability
    return Entry(tuple(drafts), tuple(bodies), strongest)
