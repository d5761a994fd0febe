"""Which runs a list shows, as a person types it: one reading for the command line and for the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from agentloupe.importers.times import bound
from agentloupe.words.errors import UsageError
from agentloupe.words.run import STATUSES, Coverage, RunFilter, RunOrder

__all__ = ["chosen_runs"]


def chosen_runs(
    *,
    status: str | None = None,
    since: str | None = None,
    until: str | None = None,
    text: str | None = None,
    limit: int | None = 50,
    offset: int = 0,
    spelled: Callable[[str], str] = str,
    **facets: Any,
) -> RunFilter:
    """The filter of what was typed.

    Args:
        status: a run's status.
        since: only runs from this time on (ISO 8601, UTC unless it has an offset).
        until: only runs before this time.
        text: the beginning of an id, or a part of a name; an empty one asks for nothing.
        limit: at most this many rows.
        offset: how many of the newest to leave out.
        spelled: how a name is written where it was typed (`--since`), for messages.
        facets: further fields of `RunFilter`.

    Raises:
        UsageError: no such status (reason `status`), order (`order`) or coverage (`coverage`), or no time (`time`).
    """
    if status is not None and status not in STATUSES:
        raise UsageError(f"no such status: {status}", hint=f"one of {', '.join(STATUSES)}", reason="status")
    orders = get_args(RunOrder)
    if facets.get("order", "newest") not in orders:
        raise UsageError(f"no such order: {facets['order']}", hint=f"one of {', '.join(orders)}", reason="order")
    known = get_args(Coverage)
    if facets.get("coverage") not in (None, *known):
        raise UsageError(
            f"no such coverage: {facets['coverage']}", hint=f"one of {', '.join(known)}", reason="coverage"
        )
    return RunFilter(
        status=status,
        since=_moment(spelled("since"), since),
        until=_moment(spelled("until"), until),
        text=text or None,
        limit=limit,
        offset=offset,
        **facets,
    )


def _moment(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return bound(text)
    except ValueError as wrong:
        hint = "for instance 2026-03-29T02:30:00+01:00"
        raise UsageError(f"{name} {text}: {wrong}", hint=hint, reason="time") from wrong
