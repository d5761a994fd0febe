"""Times of foreign files as instants: UTC, with an offset in every text that goes out.

| what the file says | what is meant |
| --- | --- |
| a time with an offset or `Z` | that instant |
| a time without an offset | UTC, flagged `assumed UTC`; never the zone of the machine that imports |
| a date alone | its midnight in UTC, flagged `assumed UTC` |
| a number, or a text of digits | time since 1970 in seconds, milliseconds, microseconds or nanoseconds, whichever lies between 1973 and 5138; flagged |
| second 60 (a leap second) | the instant after it, flagged `leap second` |
| anything else | no time: `ValueError` |

Digits beyond the microsecond are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation

from agentloupe.words.canonical import Json

__all__ = ["ASSUMED", "Moment", "bound", "moment"]

ASSUMED = "assumed UTC"

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,18}))?)?\s?(Z|z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"\d{9,20}(?:\.\d{1,12})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("seconds", 0), ("milliseconds", 3), ("microseconds", 6), ("nanoseconds", 9))
_EARLIEST, _LATEST = 10**8, 10**11


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant.

    Attributes:
        at: UTC, ISO 8601 with `Z`; six digits of a second, more where the source has more.
        flag: what was assumed to read it, or `None`.
    """

    at: str
    flag: str | None = None


def moment(value: Json) -> Moment:
    """Reads a time. See the module's table.

    Raises:
        ValueError: it is none; the message says why, without the value.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("not a time")  # noqa: TRY004  # of the right kind or not: one error for whoever reads a file
    text = value.strip() if isinstance(value, str) else repr(value)
    if _NUMBER.fullmatch(text):
        return _since_1970(text)
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError("not a time")
    return _written(found)


def _since_1970(text: str) -> Moment:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a time") from None
    for unit, power in _UNITS:
        seconds = number.scaleb(-power)
        if _EARLIEST <= seconds < _LATEST:
            whole = int(seconds)
            fraction = f"{seconds - whole:.18f}"[2:].rstrip("0")
            return Moment(_text(_EPOCH + timedelta(seconds=whole), fraction), f"epoch {unit}")
    raise ValueError("a number that is no time since 1970")


def _written(found: re.Match[str]) -> Moment:
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    flag = None if zone else ASSUMED
    seconds = int(second or 0)
    if seconds == 60:
        flag = "leap second" if zone else f"leap second, {ASSUMED}"
        fraction = None
    try:
        day_at = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), tzinfo=_zone(zone))
        at = (day_at.replace(second=min(seconds, 59) if seconds == 60 else seconds)).astimezone(UTC)
        at += timedelta(seconds=1 if seconds == 60 else 0)
    except (ValueError, OverflowError):
        raise ValueError("a time that does not exist") from None
    return Moment(_text(at, (fraction or "").rstrip("0")), flag)


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if minutes > 59:
        raise ValueError
    ahead = timedelta(hours=hours, minutes=minutes)
    return timezone(ahead if text[0] == "+" else -ahead)


def _text(at: datetime, fraction: str) -> str:
    # not strftime: it does not pad years before 1000 everywhere
    return f"{at.replace(tzinfo=None, microsecond=0).isoformat()}.{fraction.ljust(6, '0')}Z"


_MICROSECOND = len("2026-03-29T02:30:00.000000")


def bound(text: str) -> str:
    """A time that somebody typed, to the microsecond, as a bound that stored times are compared with, as texts.

    It ends where they go on: without a `Z`, it stands before every time of its microsecond, however many digits that has.

    Raises:
        ValueError: it is no time.
    """
    return moment(text).at[:_MICROSECOND]
