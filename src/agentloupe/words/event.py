"""Events: the append-only facts of a run, their kinds, and their form on disk.

An event row holds structure and digests only. Every value of a user is a separate body, referred to by digest, so that
it can be erased without breaking the chain. `hash = SHA-256(prev_hash + canonical(envelope without the two hashes))`,
computed by `agentloupe.words.seal` in the store's append transaction.

Which events a call writes (all share the call's `call_id`):

| call | events |
| --- | --- |
| model | `model.requested`, `model.responded` or `model.failed` |
| model, streamed | `model.requested`, `model.opened`, `model.streamed` (pieces, any number), `model.responded` |
| tool `pure`, `read` | `tool.allowed`, `tool.started`, `tool.finished` or `tool.failed` |
| tool `write` | `tool.allowed`, `tool.requested` (durable intent), `tool.started`, `tool.finished`, `.failed` or `.unknown`, later `.confirmed` |
| tool refused | `tool.denied` |
| retrieval | `retrieval.finished` or `retrieval.failed` |
| other | `call.finished` or `call.failed` |
| other, streamed | `call.opened`, `call.streamed` (any number), `call.finished` |
| clock, random, id, env | one each: `clock.read`, `random.drawn`, `id.minted`, `env.read` |
| check, state | `check.finished`, `state.changed` |
| nested agent | `span.started`, `span.finished` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack, get_args

from agentloupe.words.call import NO_ATTRS, Attrs, Kind, Nothing, Source
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Corrupt, VersionUnknown
from agentloupe.words.upcast import oldest, upcast

__all__ = [
    "EVENT_TYPES",
    "FINAL_TYPES",
    "KIND_OF_TYPE",
    "SCHEMA_VERSION",
    "Draft",
    "Event",
    "EventType",
    "Head",
    "from_envelope",
    "sealed_event",
]

SCHEMA_VERSION = 1
"""Raised when a meaning changes, together with a step in `upcast`. Optional fields may be added without raising it."""

EventType = Literal[
    "run.started",
    "run.finished",
    "run.erased",
    "attempt.started",
    "model.requested",
    "model.opened",
    "model.streamed",
    "model.responded",
    "model.failed",
    "tool.allowed",
    "tool.denied",
    "tool.requested",
    "tool.started",
    "tool.finished",
    "tool.failed",
    "tool.unknown",
    "tool.confirmed",
    "retrieval.finished",
    "retrieval.failed",
    "call.opened",
    "call.streamed",
    "call.finished",
    "call.failed",
    "clock.read",
    "random.drawn",
    "id.minted",
    "env.read",
    "check.finished",
    "state.changed",
    "task.forked",
    "task.joined",
    "task.cancelled",
    "timer.fired",
    "schedule.marked",
    "span.started",
    "span.finished",
]
EVENT_TYPES: frozenset[str] = frozenset(get_args(EventType))

KIND_OF_TYPE: Mapping[str, Kind] = {
    "model.requested": "llm",
    "model.opened": "llm",
    "model.streamed": "llm",
    "model.responded": "llm",
    "model.failed": "llm",
    "tool.allowed": "tool",
    "tool.denied": "tool",
    "tool.requested": "tool",
    "tool.started": "tool",
    "tool.finished": "tool",
    "tool.failed": "tool",
    "tool.unknown": "tool",
    "tool.confirmed": "tool",
    "retrieval.finished": "retrieval",
    "retrieval.failed": "retrieval",
    "call.opened": "other",
    "call.streamed": "other",
    "call.finished": "other",
    "call.failed": "other",
    "clock.read": "clock",
    "random.drawn": "random",
    "id.minted": "id",
    "env.read": "env",
    "check.finished": "check",
    "state.changed": "state",
    "span.started": "agent",
    "span.finished": "agent",
}
"""Kind of the step that an event belongs to; types that are not here make no step of their own."""

FINAL_TYPES: frozenset[str] = frozenset(
    t
    for t in EVENT_TYPES
    if t.rsplit(".", 1)[1]
    in {"responded", "finished", "failed", "unknown", "denied", "read", "drawn", "minted", "changed"}
    and t in KIND_OF_TYPE
)
"""Types that end a call."""


_NO_BODIES: Mapping[str, str] = Nothing()
_DIGESTS = ("input_digest", "output_digest")


class Said(TypedDict, total=False):
    """The fields of a draft, see there; what is `None` or empty counts as left out."""

    type: Required[str]
    event_id: Required[str]
    recorded_at: Required[str]
    schema_version: int
    call_id: str | None
    parent_seq: int | None
    trace_id: str | None
    span_id: str | None
    parent_span_id: str | None
    lane: str | None
    n: int | None
    source: Source | None
    owner_epoch: int
    copied_hash: str | None
    name: str | None
    input_key: str | None
    input_digest: str | None
    output_digest: str | None
    bodies: Mapping[str, str]
    attrs: Attrs
    key_version: int | None
    retention: str | None
    audit_ref: str | None


class SealedSaid(Said, total=False):
    """The fields of an event."""

    run_id: Required[str]
    sequence: Required[int]
    prev_hash: Required[str]
    hash: Required[str]


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class Draft:
    """An event before the store has numbered and sealed it.

    What is set, and nothing else, lies in the instance's `__dict__`: it is the envelope, so that sealing and reading make
    no copies field by field. What is not set has the default below.

    Attributes:
        type: one of `EVENT_TYPES`.
        event_id: UUIDv7.
        recorded_at: UTC, ISO 8601 with microseconds and `Z`.
        call_id: ties the events of one call together; unique in the run.
        parent_seq: sequence of the event that caused this one (not the same as order).
        trace_id, span_id, parent_span_id: W3C trace context; the tree of steps follows `parent_span_id`.
        lane, n: logical path of the task or thread that made the call, and the call's number in it (from 0).
        source: who answered; `None` means `live`.
        owner_epoch: which owner of the run wrote it.
        copied_hash: hash of the parent run's event that this one copies (the kept prefix of a fork).
        name: name of the call (model, tool, ...): structure, never a payload.
        input_key: key for matching (see `canonical.key_of`).
        input_digest, output_digest: integrity digests, and names of the bodies.
        bodies: further bodies by what they are (`snapshot`, `overrides`, `sent` ...), as digests.
        attrs: structural facts; see the docs of the event schema.
        key_version, retention, audit_ref: reserved for encryption at rest, retention classes and the audit trail.
    """

    type: str
    event_id: str
    recorded_at: str
    schema_version: int = SCHEMA_VERSION
    call_id: str | None = None
    parent_seq: int | None = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    lane: str | None = None
    n: int | None = None
    source: Source | None = None
    owner_epoch: int = 1
    copied_hash: str | None = None
    name: str | None = None
    input_key: str | None = None
    input_digest: str | None = None
    output_digest: str | None = None
    bodies: Mapping[str, str] = field(default=_NO_BODIES)
    attrs: Attrs = NO_ATTRS
    key_version: int | None = None
    retention: str | None = None
    audit_ref: str | None = None

    def __init__(self, **said: Unpack[Said]) -> None:
        _put(self, _set(said))

    @staticmethod
    def of(said: dict[str, Any]) -> Draft:
        """A draft of fields that are all set, known and of the right types; they belong to it from now on."""
        made = _new(Draft)
        _put_dict(made, "__dict__", said)
        return made

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((self.type, self.event_id))

    def envelope(self, run_id: str, sequence: int) -> dict[str, Json]:
        """The fields that are sealed: everything that is set, plus `run_id` and `sequence`."""
        return {**vars(self), "run_id": run_id, "sequence": sequence}

    def digests(self) -> tuple[str, ...]:
        """Digests of all bodies that this event names."""
        said = vars(self)
        found = [said[name] for name in _DIGESTS if name in said]
        return (*found, *said["bodies"].values()) if "bodies" in said else tuple(found)


@dataclass(frozen=True, kw_only=True, init=False, eq=False)
class Event(Draft):
    """A sealed event: a draft with its run, its number (1, 2, 3 ...) and its place in the chain.

    One of an older schema shows its fields in the present form; what was sealed is told by `as_sealed` and `envelope`.
    """

    __slots__ = ("_older", "hash", "prev_hash")

    run_id: str
    sequence: int
    prev_hash: str
    hash: str

    def __init__(self, **said: Unpack[SealedSaid]) -> None:
        put = object.__setattr__
        fields: dict[str, Any] = dict(said)
        put(self, "prev_hash", fields.pop("prev_hash"))
        put(self, "hash", fields.pop("hash"))
        _put(self, _set(fields))

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Event
            and other.hash == self.hash
            and other.prev_hash == self.prev_hash
            and vars(other) == vars(self)
        )

    def __hash__(self) -> int:
        return hash(self.hash)

    @property
    def as_sealed(self) -> Mapping[str, Any]:
        """The envelope as it was sealed, in the form of its own schema."""
        try:
            return self._older
        except AttributeError:
            return vars(self)

    def envelope(self, run_id: str, sequence: int) -> dict[str, Json]:
        """The fields that were sealed."""
        return {**self.as_sealed, "run_id": run_id, "sequence": sequence}

    @property
    def kind(self) -> Kind | None:
        """Kind of the step it belongs to, if any."""
        return KIND_OF_TYPE.get(self.type)


_REQUIRED: frozenset[str] = frozenset({"type", "event_id", "recorded_at", "run_id", "sequence"})
_MAPPINGS = ("attrs", "bodies")
_KNOWN: frozenset[str] = frozenset({*Said.__annotations__, "run_id", "sequence"})
_SHAPES: Mapping[str, type] = {
    **dict.fromkeys(("schema_version", "sequence", "parent_seq", "n", "owner_epoch", "key_version"), int),
    **dict.fromkeys(_MAPPINGS, dict),
}
"""Types of the fields in an envelope, where they are not texts."""


def _put(made: Draft, said: Mapping[str, Any]) -> None:
    object.__setattr__(made, "__dict__", said)


def _set(said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are set, in a mapping of their own."""
    fields: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "owner_epoch": 1, **said}
    if None in fields.values():
        fields = {name: value for name, value in fields.items() if value is not None}
    for name in _MAPPINGS:
        held = fields.get(name)
        if held is not None and type(held) is not dict:
            held = fields[name] = dict(held)
        if not held:
            fields.pop(name, None)
    unknown = fields.keys() - _KNOWN
    if unknown:
        raise TypeError(f"no fields of an event: {sorted(unknown)}")
    return fields


class Head(NamedTuple):
    """The end of a run's chain: number and hash of its last event (`0` and `GENESIS` before the first)."""

    sequence: int
    hash: str


def from_envelope(envelope: Mapping[str, Any], prev_hash: str, hash: str) -> Event:
    """Reads a sealed envelope back; one of an older schema as a view in the present one.

    Raises:
        VersionUnknown: the schema version is newer than this reader or none that there was, or the type or a field is not
            known.
        Corrupt: a required field is missing or has a wrong shape.
    """
    version = envelope.get("schema_version")
    where = f"sequence {envelope.get('sequence')!r}"
    if not isinstance(version, int) or isinstance(version, bool):
        raise Corrupt(f"event at {where} has no schema_version")
    if version > SCHEMA_VERSION:
        raise VersionUnknown(
            f"event at {where} has schema {version}, newer than this reader ({SCHEMA_VERSION})",
            hint="upgrade agent-loupe",
        )
    if version < SCHEMA_VERSION:
        return _older(envelope, version, (prev_hash, hash))
    if envelope.get("type") not in EVENT_TYPES:
        raise VersionUnknown(
            f"event at {where} has type {envelope.get('type')!r}, which is not known", reason="unknown_type"
        )
    shape = (*envelope, *map(type, envelope.values()))
    if shape not in _good_shapes:
        _check_shape(envelope, where)
        if len(_good_shapes) < _SHAPES_KEPT:
            _good_shapes.add(shape)
    if "bodies" in envelope and not all(type(digest) is str for digest in envelope["bodies"].values()):
        raise Corrupt(f"event at {where} has bodies that are no digests")
    if not envelope.keys() >= _REQUIRED:
        raise Corrupt(f"event at {where} lacks {sorted(_REQUIRED - envelope.keys())}")
    return sealed_event(dict(envelope), prev_hash, hash)


def _older(envelope: Mapping[str, Any], version: int, hashes: tuple[str, str]) -> Event:
    if version < oldest(SCHEMA_VERSION):
        raise VersionUnknown(
            f"event at sequence {envelope.get('sequence')!r} has schema {version}, which this reader does not know",
            hint=f"it reads schema {oldest(SCHEMA_VERSION)} to {SCHEMA_VERSION}",
        )
    event = from_envelope(upcast(envelope, version, SCHEMA_VERSION), *hashes)
    object.__setattr__(event, "_older", dict(envelope))
    return event


def sealed_event(envelope: dict[str, Json], prev_hash: str, hash: str) -> Event:
    """The event of an envelope that was just made (`Draft.envelope`); it belongs to the event from now on."""
    made = _new(Event)  # the slots are set directly: thousands are made a second
    _put_dict(made, "__dict__", envelope)
    _put_prev(made, prev_hash)
    _put_hash(made, hash)
    return made


_new, _put_dict = object.__new__, object.__setattr__
_put_prev = Event.__dict__["prev_hash"].__set__
_put_hash = Event.__dict__["hash"].__set__
_SHAPES_KEPT = 1000
_good_shapes: set[tuple[object, ...]] = set()
"""Names and types of fields that were found to be right; a handful in any run."""


def _check_shape(envelope: Mapping[str, Any], where: str) -> None:
    unknown = envelope.keys() - _KNOWN
    if unknown:
        raise VersionUnknown(f"event at {where} has unknown fields {sorted(unknown)}", reason="unknown_field")
    misshapen = [name for name, value in envelope.items() if type(value) is not _SHAPES.get(name, str)]
    if misshapen:
        raise Corrupt(f"event at {where} has fields of a wrong shape: {sorted(misshapen)}")
