"""The recorder's own time and ids.

This is the only module (beside the program's own reads) that reads the wall clock and makes ids. Ids come from the operating
system, never from `random`, so that a seeded application draws the same numbers with and without Loupe.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta

__all__ = [
    "monotonic_ms",
    "new_event_id",
    "new_run_id",
    "new_span_id",
    "new_trace_id",
    "now",
    "now_and",
    "random_base32",
    "random_hex",
]


def now() -> str:
    """The time: UTC, ISO 8601 with microseconds and `Z`."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    of, text = _second[0]
    if of != seconds:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second[0] = seconds, text
    return f"{text}.{rest // 1000:06d}Z"


def now_and(seconds: float) -> str:
    """The time so many seconds after now; before it, where they are less than none."""
    return (datetime.fromisoformat(now()) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_second: list[tuple[int, str]] = [(-1, "")]
"""The last second that was asked for, and its text: both in one, so that several threads may use it."""


def monotonic_ms() -> float:
    """A clock for durations, in milliseconds."""
    return time.perf_counter_ns() / 1e6


class _Pool:
    """Random hex digits of the operating system, fetched many at a time, since each system call costs more than an event."""

    DIGITS = 8192

    __slots__ = ("at", "forks", "hex")

    def __init__(self) -> None:
        self.hex = ""
        self.at = 0
        self.forks = 0


class _Local(threading.local):
    def __init__(self) -> None:
        self.pool = _Pool()


_local = _Local()
_forks = [0]


def random_hex(digits: int) -> str:
    """That many random hex digits."""
    pool = _local.pool
    start = pool.at
    end = start + digits
    if end > len(pool.hex) or pool.forks != _forks[0]:
        pool.hex, pool.forks = os.urandom(max(digits, pool.DIGITS) // 2 + 1).hex(), _forks[0]
        start, end = 0, digits
    pool.at = end
    return pool.hex[start:end]


def _forked() -> None:
    """In a forked child: what is left in the pool is the parent's too."""
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def new_event_id() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of milliseconds, then chance from the operating system."""
    chance = random_hex(19)
    time_ms = time.time_ns() // 1_000_000
    of, text = _millisecond[0]
    if of != time_ms:
        text = f"{time_ms >> 16:08x}-{time_ms & 0xFFFF:04x}-7"
        _millisecond[0] = time_ms, text
    return f"{text}{chance[:3]}-{_VARIANT[chance[3]]}{chance[4:7]}-{chance[7:]}"


_millisecond: list[tuple[int, str]] = [(-1, "")]
"""The last millisecond that an id was made in, and how its ids begin; see `_second`."""


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def random_base32(digits: int) -> str:
    """That many random digits of Crockford's base 32, lower case."""
    return "".join(_BASE32[byte & 31] for byte in bytes.fromhex(random_hex(2 * digits)))


_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"


def new_trace_id() -> str:
    """A W3C trace id: 32 hex digits."""
    return random_hex(32)


def new_span_id() -> str:
    """A W3C span id: 16 hex digits."""
    return random_hex(16)


def new_run_id(agent: str) -> str:
    """`<agent>-<yymmdd>-<6 base32>`; characters that a shell or a file name would mind become `-`."""
    safe = "".join(c if c.isalnum() or c in "_." else "-" for c in agent).strip("-.") or "run"
    return f"{safe[:48]}-{datetime.now(UTC):%y%m%d}-{random_base32(6)}"
