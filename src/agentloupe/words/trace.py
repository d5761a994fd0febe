"""W3C trace context: the headers `traceparent` and `tracestate`, read and written.

What is not well formed is ignored, as the recommendation asks, and never an error: a header from outside must not stop
an agent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["RANDOM", "SAMPLED", "TRACEPARENT", "TRACESTATE", "TraceContext", "read_trace", "read_tracestate"]

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

SAMPLED: Final = 0x01
RANDOM: Final = 0x02
_KNOWN_FLAGS: Final = SAMPLED | RANDOM

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_KEY: Final = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_VALUE: Final = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER: Final = re.compile(rf"({_KEY})=({_VALUE})")
_BLANKS: Final = " \t"
_MEMBERS, _STATE_CHARS, _LONG_MEMBER = 32, 512, 128


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A place in a distributed trace.

    Attributes:
        trace_id: 32 lower-case hex digits, not all zero.
        span_id: 16 lower-case hex digits, not all zero: the span that whoever is called gets as its parent.
        flags: `SAMPLED` and `RANDOM`; other bits are not passed on.
        state: the header `tracestate`, well formed; empty where there is none.
    """

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header of that name, in version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def headers(self) -> dict[str, str]:
        """Both headers, the second only where there is one."""
        state = {TRACESTATE: self.state} if self.state else {}
        return {TRACEPARENT: self.traceparent, **state}

    def at(self, span_id: str) -> TraceContext:
        """The same trace at another span."""
        return replace(self, span_id=span_id)


def read_trace(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """The context that the headers tell; `None` where there is none, or `traceparent` is not well formed.

    What is no text is not well formed. A version above 00 is read as far as version 00 goes. A malformed `tracestate` is
    left out, and costs no more than itself.
    """
    found = _PARENT.fullmatch(traceparent.strip(_BLANKS)) if isinstance(traceparent, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest is not None) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id, span_id, int(flags, 16) & _KNOWN_FLAGS, read_tracestate(tracestate))


def read_tracestate(text: str | None) -> str:
    """The header in its short form, or `""` where it is not well formed: a key twice, more than 32 members, odd characters.

    Of one that is longer than 512 characters first the members of more than 128 go, then the last ones.
    """
    said = text if isinstance(text, str) else ""
    members = [member for part in said.split(",") if (member := part.strip(_BLANKS))]
    matches = [_MEMBER.fullmatch(member) for member in members]
    keys = {match[1] for match in matches if match is not None}
    if len(members) > _MEMBERS or len(keys) != len(members):
        return ""
    if len(",".join(members)) > _STATE_CHARS:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while len(",".join(members)) > _STATE_CHARS:
        members.pop()
    return ",".join(members)
