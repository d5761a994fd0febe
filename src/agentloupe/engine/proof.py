"""Whether the order of what a program did at once is proven, in its recording and in the replay of it.

A schedule hands outside inputs to a program one at a time, while it is quiet. Where it could not (see `MARKS`), it leaves a
mark. A pass is exact only if neither the recording nor its replay carries one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from agentloupe.engine.tape import Tape

__all__ = ["MARKS", "unproven"]

MARKS: Final[Mapping[str, str]] = {
    "tight": "a loop that never came to rest",
    "guess": "a thread that waited, or turned round and round, where nobody could see for what",
    "no_lane": "a call from a place that cannot be told again",
    "ambiguous": "equal calls with different results, told apart by their order alone",
}
"""What a schedule cannot prove, by its mark."""

_WAYS: Final[Mapping[str, str]] = {
    "off": "the recording was made without a schedule",
    "no_baton": "the recording let threads run freely",
}


def unproven(tape: Tape, marked: Mapping[str, int]) -> tuple[str, ...]:
    """Why the order is not proven, in the order of importance; empty where it is.

    Args:
        tape: of the recording.
        marked: marks of this replay, with how often each was made.
    """
    found = [reason] if (reason := _way(tape)) else []
    events = tape.recording.events
    recorded = Counter(str(event.attrs.get("mark")) for event in events if event.type == "schedule.marked")
    recorded.pop("None", None)  # other facts of the schedule have this type too
    found += [_said(mark, count, "recording") for mark, count in sorted(recorded.items())]
    found += [_said(mark, count, "replay") for mark, count in sorted(marked.items()) if count]
    return tuple(found)


def _said(mark: str, count: int, where: str) -> str:
    what = MARKS.get(mark)
    times = "" if count == 1 else f" ({count} times)"
    return f"{mark} in the {where}{f': {what}' if what else ''}{times}"


def _way(tape: Tape) -> str | None:
    """How the recording was gated, where that proves nothing. One lane without timers has no order to prove."""
    way = tape.started.attrs.get("schedule")
    if way == "exact":
        return None
    lanes = {call.lane for call in tape.driven if "~" not in call.lane}
    if way == "no_baton":
        return _WAYS["no_baton"] if any(_of_a_thread(lane) for lane in lanes) else None
    timed = any(event.type == "timer.fired" for event in tape.recording.events)
    return _WAYS["off"] if len(lanes) > 1 or timed else None


def _of_a_thread(lane: str) -> bool:
    return any(part.lstrip("r")[:1] in ("t", "p") for part in lane.split("/")[1:])
