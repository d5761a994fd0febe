"""What a recording keeps of the values that pass through it: its profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, get_args

from agentloupe.words.errors import UsageError
from agentloupe.words.event import Event

__all__ = [
    "DIGESTS",
    "DIGEST_OF",
    "KEPT",
    "ONLY_DIGESTS",
    "PROFILES",
    "WITHOUT_ANSWERS",
    "Profile",
    "keeps_digests",
    "profile_named",
    "profile_of",
    "read_profile",
]

Profile = Literal["full", "redacted", "digest_only"]
"""`full`: everything but credentials. `redacted`: without personal data too. `digest_only`: structure, and digests of values."""

PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)

KEPT: Final = "kept"
"""Fact of an event whose values were not kept: `DIGESTS` says what was, in place of them."""
DIGESTS: Final = "digests"
DIGEST_OF: Final = "digest_of_"
"""Beginning of the names of facts that hold the digest of a value which was not kept (`digest_of_output`)."""

ONLY_DIGESTS: Final = "of its values only digests were kept (profile digest_only)"
"""Why such a recording cannot be run."""
WITHOUT_ANSWERS: Final = (
    "there are no answers to serve: record the agent again with the profile full or redacted; this one can be shown, "
    "verified and compared"
)
"""The way out where somebody wants to run a recording that keeps digests only."""


def read_profile(said: object) -> Profile:
    """The profile that a person names, also with a hyphen. Raises `ValueError` for any other word."""
    for profile in PROFILES:
        if isinstance(said, str) and said.strip().replace("-", "_") == profile:
            return profile
    raise ValueError(f"must be one of {', '.join(PROFILES)}")


def profile_named(said: str | None) -> Profile | None:
    """The profile that code or a command line names, if it names one. Raises `UsageError` for an unknown one."""
    if said is None:
        return None
    try:
        return read_profile(said)
    except ValueError as wrong:
        raise UsageError(f"profile {said!r} {wrong}") from wrong


def profile_of(events: Sequence[Event]) -> str:
    """The profile that a run was recorded with, as its first event says; one that this version does not know as it is."""
    said = events[0].attrs.get("profile") if events else None
    return said if isinstance(said, str) else "full"


def keeps_digests(events: Sequence[Event]) -> bool:
    """Whether a run was recorded so that of its values only digests are kept."""
    return profile_of(events) == "digest_only"
