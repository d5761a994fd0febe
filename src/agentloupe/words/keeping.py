"""What a recording keeps of the values that pass through it: its profile, and the share of runs that are kept by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar, get_args

from agentloupe.words.canonical import digest
from agentloupe.words.errors import UsageError
from agentloupe.words.event import Event

__all__ = [
    "DIGESTS",
    "DIGEST_OF",
    "KEPT",
    "PROFILES",
    "SAMPLED_OUT",
    "VALUES_DROPPED",
    "Profile",
    "digests_kept",
    "dropped_note",
    "dropped_values",
    "in_sample",
    "keeps_digests",
    "kept_less",
    "only_digests",
    "profile_named",
    "profile_of",
    "read_profile",
    "read_share",
    "share_named",
    "was_sampled_out",
    "without_answers",
]

T = TypeVar("T")

Profile = Literal["full", "redacted", "digest_only"]
"""`full`: everything but credentials. `redacted`: without personal data too. `digest_only`: structure, and digests of values."""

PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)

KEPT: Final = "kept"
"""Fact of an event whose values were not kept: `DIGESTS` says what was, in place of them."""
DIGESTS: Final = "digests"
DIGEST_OF: Final = "digest_of_"
"""Beginning of the names of facts that hold the digest of a value which was not kept (`digest_of_output`)."""

SAMPLED_OUT: Final = "sampled_out"
"""Fact of a run that would have been kept by its profile and was left out by the share that is (`sample`)."""
VALUES_DROPPED: Final = "values_dropped"
"""Fact of a read that stands for so many of its kind and name of which no value was kept, since what waited to be stored had
reached its bound; and of the run's end: how many in all."""
_DIGITS: Final = 13
"""Hexadecimal digits of a digest that place a run between 0 and 1: as many as a float holds."""


def read_profile(said: object) -> Profile:
    """The profile that a person names, also with a hyphen. Raises `ValueError` for any other word."""
    for profile in PROFILES:
        if isinstance(said, str) and said.strip().replace("-", "_") == profile:
            return profile
    raise ValueError(f"must be one of {', '.join(PROFILES)}")


def profile_named(said: str | None) -> Profile | None:
    """The profile that code or a command line names, if it names one. Raises `UsageError` for an unknown one."""
    return None if said is None else _read("profile", read_profile, said)


def read_share(said: object) -> float:
    """The share of runs that a person names, from 0 to 1, also as text. Raises `ValueError` for anything else."""
    try:
        share = float(said) if isinstance(said, str | int | float) and not isinstance(said, bool) else -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("must be a number from 0 to 1")
    return share


def share_named(said: float | str | None) -> float | None:
    """The share that code or a command line names, if it names one. Raises `UsageError` for what is none."""
    return None if said is None else _read("sample", read_share, said)


def _read(what: str, read: Callable[[object], T], said: object) -> T:
    try:
        return read(said)
    except ValueError as wrong:
        raise UsageError(f"{what} {said!r} {wrong}") from wrong


def in_sample(share: float, scope: str) -> bool:
    """Whether a run is among the share that is kept, told by its task's id or its own: the same answer each time."""
    return int(digest([SAMPLED_OUT, scope])[:_DIGITS], 16) < share * 16**_DIGITS


def profile_of(events: Sequence[Event]) -> str:
    """The profile that a run was recorded with, as its first event says; one that this version does not know as it is."""
    said = events[0].attrs.get("profile") if events else None
    return said if isinstance(said, str) else "full"


def keeps_digests(events: Sequence[Event]) -> bool:
    """Whether a run was recorded so that of its values only digests are kept."""
    return profile_of(events) == "digest_only"


def was_sampled_out(events: Sequence[Event]) -> bool:
    """Whether that is so since the run was not among the share that is kept."""
    return bool(events) and events[0].attrs.get(SAMPLED_OUT) is True


def kept_less(notes: Sequence[str]) -> str | None:
    """The word for what a run keeps less than all, by its coverage notes: `sampled_out`, or its profile."""
    for note in notes:
        if note.startswith(SAMPLED_OUT):
            return SAMPLED_OUT
        for profile in PROFILES:
            if note.startswith(f"profile {profile}"):
                return profile
    return None


def dropped_values(events: Sequence[Event]) -> int:
    """How many values of reads were not kept among these events, those of a run's end left out."""
    told = (event.attrs.get(VALUES_DROPPED) for event in events if event.kind is not None)
    return sum(count for count in told if isinstance(count, int))


def dropped_note(count: int) -> str:
    """What is said of a run that lacks so many values."""
    values = "1 value" if count == 1 else f"{count:,} values"
    return f"{values} of clock, chance, ids or environment dropped: the queue was full (when_full = drop_bodies)"


def digests_kept(events: Sequence[Event]) -> str:
    """What is said of a value of a recording that keeps digests only, and why it does."""
    why = SAMPLED_OUT if was_sampled_out(events) else "profile digest_only"
    return f"only digests were kept ({why})"


def only_digests(events: Sequence[Event]) -> str:
    """Why a recording that keeps digests only cannot be run."""
    return f"of its values {digests_kept(events)}"


def without_answers(events: Sequence[Event]) -> str:
    """The way out where somebody wants to run such a recording."""
    again = "sample = 1" if was_sampled_out(events) else "the profile full or redacted"
    return f"there are no answers to serve: record the agent again with {again}; this one can be shown, verified and compared"
