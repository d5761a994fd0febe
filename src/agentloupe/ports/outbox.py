"""The outbox: what is told to the outside of a run's events, kept in the same transaction as the events themselves.

    event + message, one commit -> a publisher -> a sink, at least once and in order

A message is structure and digests only. Its id is that of its event, so that whoever gets it twice can tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json
from agentloupe.words.event import Event
from agentloupe.words.run import Owner

__all__ = ["DEFAULT_TYPES", "LEASE_SECONDS", "Message", "Outbox", "Sink", "message_of", "published"]

DEFAULT_TYPES: Final = (
    *("tool.finished", "tool.failed", "tool.unknown", "tool.confirmed"),
    *("state.changed", "run.finished"),
)
"""What is published unless the setting names something else: ends of effects, states, ends of runs."""

LEASE_SECONDS: Final = 30
"""How long the outbox stays with a publisher on another host that says nothing; here it is seen whether a process lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One event, as the outside is told of it.

    Attributes:
        number: of the message in its outbox; rises in the order of commits. Not told.
        id: id of the event: the same at every delivery.
        run_id, sequence, type, recorded_at: of the event.
        call_id, name: the call that it belongs to, if any.
        input_digest, output_digest: names of values, which are not told.
        facts: the event's structural facts.
    """

    number: int
    id: str
    run_id: str
    sequence: int
    type: str
    recorded_at: str
    call_id: str | None
    name: str | None
    input_digest: str | None
    output_digest: str | None
    facts: Attrs

    def as_json(self) -> dict[str, Json]:
        """What the outside gets: all that is set, without the number."""
        told: dict[str, Json] = {"id": self.id, "run_id": self.run_id, "sequence": self.sequence, "type": self.type}
        told |= {"recorded_at": self.recorded_at, "call_id": self.call_id, "name": self.name}
        told |= {"input_digest": self.input_digest, "output_digest": self.output_digest, "facts": dict(self.facts)}
        return {name: value for name, value in told.items() if value is not None}


def message_of(event: Event, number: int) -> Message:
    """The message that an event is told by."""
    return Message(
        number=number,
        id=event.event_id,
        run_id=event.run_id,
        sequence=event.sequence,
        type=event.type,
        recorded_at=event.recorded_at,
        call_id=event.call_id,
        name=event.name,
        input_digest=event.input_digest,
        output_digest=event.output_digest,
        facts=event.attrs,
    )


def published(events: Iterable[Event], types: Collection[str]) -> list[Event]:
    """The events that are told. Not what a fork has copied; of a tool's ends only those of effects, which have a key."""
    return [
        event
        for event in events
        if event.type in types
        and event.copied_hash is None
        and (not event.type.startswith("tool.") or "idempotency_key" in event.attrs)
    ]


class Sink(Protocol):
    """Where messages go."""

    def deliver(self, messages: Sequence[Message]) -> None:
        """Takes messages, in order; when it returns they are safe there. Raises what goes wrong: they come again."""
        ...

    def close(self) -> None:
        """Nothing comes any more. Idempotent."""
        ...


class Outbox(Protocol):
    """The messages of a store that are not delivered yet."""

    def types(self) -> frozenset[str]:
        """The types of events that are published; none: it is off."""
        ...

    def publish(self, types: Collection[str]) -> None:
        """Sets the types, for every process that writes to the store, from now on."""
        ...

    def lease(self, owner: Owner, token: str) -> None:
        """Takes the outbox for one publisher, or keeps it. `token`: tells it from others in the same process.

        Raises:
            OwnerAlive: another publisher has it (reason `publishing`).
        """
        ...

    def release(self, token: str) -> None:
        """Gives it back, if it is still this publisher's."""
        ...

    def waiting(self, limit: int) -> list[Message]:
        """The first messages that are not delivered, in the order of their commits."""
        ...

    def delivered(self, token: str, last: int) -> None:
        """Removes the messages up to a number. Raises `OwnerAlive` where the outbox is not this publisher's any more."""
        ...

    def count(self) -> int:
        """How many messages wait."""
        ...
