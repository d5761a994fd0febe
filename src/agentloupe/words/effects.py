"""The life of a tool call, and what a question about an effect is answered with.

    allowed -> requested -> started -> finished | failed | unknown -> confirmed
                    ^                                                    | not_done
                    +----------------------------------------------------+

`requested` is the durable intent of a write. `unknown`: nobody saw its end. `confirmed`: somebody found out what became of
it: the tool's own `lookup`, or a person. What was not done may be requested again, under the same idempotency key.

`LIFE` is the one table of it: reading a tape, making the view and checking a ledger all follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from agentloupe.words.errors import LoupeError

__all__ = [
    "FROM_OUTSIDE",
    "HALF_DONE",
    "HOWS",
    "INTERRUPTED",
    "LIFE",
    "NOT_DONE",
    "OF_AN_END",
    "OUTCOMES",
    "Done",
    "DontKnow",
    "EffectFailed",
    "Failed",
    "Finding",
    "How",
    "NotDone",
    "OutcomeUnknown",
    "SettledOutcome",
    "is_open",
    "next_stage",
    "stands_in",
]

SettledOutcome = Literal["finished", "failed", "not_done"]
"""What became of an effect whose end nobody saw."""
OUTCOMES: tuple[SettledOutcome, ...] = get_args(SettledOutcome)
How = Literal["lookup", "person"]
"""Who found it out: the tool's own `lookup`, or a person."""
HOWS: tuple[How, ...] = get_args(How)

INTERRUPTED: Final = "interrupted"
"""The stage of a call that had started when another attempt of its run began."""
NOT_DONE: Final = "not_done"
"""The stage of a call that was confirmed as not done."""

LIFE: Final[Mapping[str, tuple[str | None, ...]]] = {
    "tool.allowed": (None,),
    "tool.denied": (None, "tool.allowed", "tool.requested", NOT_DONE),
    "tool.requested": ("tool.allowed", NOT_DONE),
    "tool.started": ("tool.allowed", "tool.requested", INTERRUPTED, NOT_DONE),
    "tool.finished": ("tool.started", INTERRUPTED),
    "tool.failed": ("tool.allowed", "tool.requested", "tool.started", INTERRUPTED),
    "tool.unknown": ("tool.requested", "tool.started", INTERRUPTED),
    "tool.confirmed": ("tool.unknown",),
}
"""Each event of a tool call, with the stages that it may follow; `None` is the beginning."""

FROM_OUTSIDE: Final = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
"""Errors that end a program from outside: no answer to a call, so that nobody has received one."""

_OPEN_STAGES: Final = frozenset({"tool.requested", "tool.started", INTERRUPTED})
"""Stages of a write in which the world may have been changed, and nobody has noted whether it was."""

HALF_DONE: Final = "half_done"
"""Fact of a write that yields: it was stopped in the middle. What it gave until then the program has got."""
OF_AN_END: Final = frozenset({"error_class", "outcome", "how", "external_id", "cancels", HALF_DONE})
"""Facts of an end, which do not hold any more when a call begins again."""

_NEEDS_INTENT: Final = frozenset({"tool.allowed", INTERRUPTED, NOT_DONE})


def next_stage(
    before: str | None, type: str, *, writes: bool, stood_in: bool = False, outcome: object = None
) -> str | None:
    """The stage that a tool call is in after an event, or `None` where that event cannot follow.

    Args:
        before: the stage so far; `None` before the first event.
        type: of the event.
        writes: the call is declared as a write: it never starts without its intent, and never twice on one.
        stood_in: something else than the tool answered (a cassette, a stub, a person): nothing has to start.
        outcome: of `tool.confirmed`.
    """
    if stood_in and type == "tool.finished" and before == "tool.allowed":
        return type
    if before not in LIFE[type] or (writes and type == "tool.started" and before in _NEEDS_INTENT):
        return None
    return NOT_DONE if type == "tool.confirmed" and outcome == NOT_DONE else type


def is_open(stage: str | None, *, writes: bool) -> bool:
    """Whether a tool call at this stage may have changed the world, and nobody has noted whether it did."""
    return stage == "tool.unknown" or (writes and stage in _OPEN_STAGES)


def stands_in(source: Any, copied_source: Any) -> bool:
    """Whether an outcome of this source came from something else than the tool itself."""
    return (copied_source if source == "recorded" else source) not in (None, "live", "recorded")


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """What a `lookup` returns when the effect happened.

    Attributes:
        result: what the tool would have returned; the program gets it.
        external_id: the id that the outside world gave to the effect.
    """

    result: object = None
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """What a `lookup` returns when the effect was tried and refused: the program gets the error."""

    error: Exception
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """What a `lookup` returns when the effect did not happen and will not: it is done now, under the same key."""


@dataclass(frozen=True, slots=True)
class DontKnow:
    """What a `lookup` returns when it cannot tell. So does one that raises, or returns anything else."""

    why: str = ""


Finding = Done | Failed | NotDone | DontKnow
"""What a `lookup` says of an effect."""


class OutcomeUnknown(LoupeError):
    """Raised by a tool that changes the world and cannot tell whether it did; the call's end is then `unknown`."""

    code = "outcome_unknown"

    def __init__(self, message: str = "nobody saw the end of this effect", *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)


class EffectFailed(LoupeError):
    """What the program gets of an effect of which a person has found out that it failed."""

    code = "effect_failed"
