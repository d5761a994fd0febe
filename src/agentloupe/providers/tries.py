"""The tries of a client library inside one call: what each answered, when it began and how long it took.

A client that retries on its own waits between its tries; those waits belong to no try, so a step can be ten seconds
long while the model worked for one.
"""

from __future__ import annotations

from agentloupe.ports.ambient import monotonic_ms, note
from agentloupe.words.canonical import Json

__all__ = ["Tries"]


class Tries:
    """Lists the tries of the call that is being performed, through `ambient.note`.

    Each becomes `{"status": HTTP status or null, "started_ms": ms since the call began, "ms": its own duration}` and,
    where no answer came, `"error"`: the class of the exception.
    """

    __slots__ = ("_began", "_open")

    def __init__(self) -> None:
        self._began = monotonic_ms()
        self._open: float | None = None

    def begin(self) -> None:
        """A request goes out now."""
        self._open = monotonic_ms()

    def end(self, *, status: int | None = None, error: str | None = None) -> None:
        """The answer is here, or will not come. Does nothing when no try is open."""
        if self._open is None:
            return
        now = monotonic_ms()
        entry: dict[str, Json] = {
            "status": status,
            "started_ms": round(self._open - self._began, 3),
            "ms": round(now - self._open, 3),
        }
        if error is not None:
            entry["error"] = error
        self._open = None
        note("tries[]", entry)
