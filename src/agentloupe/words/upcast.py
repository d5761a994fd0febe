"""Events of older schemas, as this reader sees them.

What a store, a file or a ledger holds is never rewritten: an event keeps the bytes and the hash that it was sealed with.
A reader of a later schema maps its envelope, one version at a time, to a *view* in the present form.

A step is added with the version that makes it necessary, and is never changed or taken away again. Its golden files are the
recordings under `tests/recordings/` that were made before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

__all__ = ["STEPS", "Step", "oldest", "upcast"]

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the envelope of one version, as its own copy, and gives that of the next; `schema_version` is set by `upcast`."""

STEPS: Final[dict[int, Step]] = {}
"""Version -> the step to the next one. Version 1 is the first that there was, so there is none so far."""


def oldest(present: int) -> int:
    """The oldest version that can be read."""
    return min(STEPS, default=present)


def upcast(envelope: Mapping[str, Any], version: int, present: int) -> dict[str, Any]:
    """The view of an older envelope in the present form. `version` is between `oldest` and `present`."""
    view = dict(envelope)
    for number in range(version, present):
        view = {**STEPS[number](view), "schema_version": number + 1}
    return view
