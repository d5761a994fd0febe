"""How far a fork is: what is told while it runs, for a page or a terminal that shows it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Progress", "Watch", "What", "tell"]

_log = logging.getLogger("agentloupe")


What = Literal["begun", "asking", "answered", "waiting", "rate_limited", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One thing that happened.

    Attributes:
        run_id: of the new run.
        what: `begun` (it is in the store), `asking` and `answered` (a model), `waiting` (for a person), `rate_limited`,
            `ended`.
        call_id: of the call that it is about.
        name: of that call's step.
        seconds: `rate_limited`: how long it waits.
        text: `rate_limited`: what the provider said.
    """

    run_id: str
    what: What
    call_id: str | None = None
    name: str | None = None
    seconds: float | None = None
    text: str | None = None


Watch: TypeAlias = Callable[[Progress], None]
"""Is told; called in the thread of the fork, so it must be quick."""


def tell(watch: Watch | None, progress: Progress) -> None:
    """Tells whoever watches. Never raises: who watches cannot break what is watched."""
    if watch is None:
        return
    try:
        watch(progress)
    except Exception:  # noqa: BLE001 - see above
        _log.warning("what watches fork %s failed", progress.run_id, exc_info=True)
