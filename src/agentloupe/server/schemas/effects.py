"""Effects whose end nobody saw, and what a person says of one."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from agentloupe.server.schemas.common import Document, Json, Time
from agentloupe.words.effects import SettledOutcome
from agentloupe.words.run import RunStatus

__all__ = ["OpenEffects", "SettleBody", "Settled"]


class OpenEffectDocument(Document):
    """A write that was begun, and of which nobody has noted what became of it. No payloads."""

    run_id: str = Field(examples=["shop-261130-k3x9qp"])
    run_name: str
    agent: str
    run_status: RunStatus = Field(description="A running one may still see the end itself.")
    step: int
    call_id: str = Field(examples=["0.3"])
    tool: str = Field(examples=["charge_card"])
    since: Time = Field(description="When it was begun.")
    status: str = Field(description="`open`: its process was killed; `unknown`: it was noted so.")
    idempotency_key: str | None = Field(description="What the tool was given, to ask the receiver by.")
    arguments_digest: str | None
    lookup: bool = Field(description="Whether the tool can find out by itself, at the next resume.")


class OpenEffects(Document):
    """A part of the list."""

    items: list[OpenEffectDocument]
    cursor: str | None = Field(description="Asks for the next part; null: there is none.")
    runs: int = Field(description="How many runs have open effects.")


class SettleBody(Document):
    """What a person says of an open effect."""

    model_config = ConfigDict(
        json_schema_serialization_defaults_required=False,
        json_schema_extra={
            "examples": [
                {
                    "call_id": "0.3",
                    "outcome": "finished",
                    "result": {"charge": "ch_1"},
                    "external_id": "ch_1",
                    "why": "the bank's list has it",
                    "by": "anna",
                }
            ]
        },
    )

    call_id: str = Field(min_length=1, max_length=500)
    outcome: SettledOutcome = Field(description="What was not done is done at the next resume, under the same key.")
    why: str = Field(min_length=1, max_length=20_000, description="How you know.")
    by: str = Field(min_length=1, max_length=200, description="Who says so.")
    result: Json | None = Field(
        default=None,
        description="Of `finished`: what the tool would have returned; the program gets it. Of `failed`: the error's text.",
    )
    external_id: str | None = Field(
        default=None, max_length=1000, description="The id that the outside world gave to it."
    )


class Settled(Document):
    """An effect that was settled just now."""

    run_id: str
    call_id: str
    tool: str
    outcome: SettledOutcome
    sequence: int = Field(description="Number of the event that says so.")
