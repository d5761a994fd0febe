"""Finds tools that a model asked for and that were not seen at the boundary.

Their results, where they come back in the messages of a later request, are all that is known of them; a tool that was
asked for last has not even that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from agentloupe.words.canonical import key_of
from agentloupe.words.exchange import answer_in
from agentloupe.words.jsontext import Json
from agentloupe.words.toolcalls import AskedTool, asked_tools, forced_tool, newest_results

__all__ = ["SeenResult", "ToolWatch"]

_MANY = 10_000
_OPEN = 100
"""Proposals of one tool that are remembered."""


@dataclass(frozen=True, slots=True)
class SeenResult:
    """A tool's result as a message says it, of a tool that did not go through the boundary.

    Attributes:
        name: of the tool.
        arguments: as the model wrote them: text, unless the client gave something else.
        result: content of the message.
        cause: number of the event with the answer that asked for it, where that is known.
    """

    name: str
    arguments: Json
    result: Json
    cause: int | None = None


class _Proposal(NamedTuple):
    """A tool that an answer asks for, and that nobody has run so far: the answer's number and lane."""

    asked: AskedTool
    sequence: int
    lane: str


class ToolWatch:
    """Follows one run: what models ask for, what is performed at the boundary, what comes back in messages.

    Args:
        control_tools: names, or patterns of them (`transfer_to_*`), of tools that control logic answers itself: hand-offs,
            forms to answer in. Nobody has to see them run.
    """

    def __init__(self, control_tools: Sequence[str] = ()) -> None:
        self._control_tools = tuple(control_tools)
        self._control: dict[str, None] = {}
        self._asked: dict[str, tuple[AskedTool, bool]] = {}
        self._proposed: dict[str, list[_Proposal]] = {}
        self._performed: set[str] = set()
        self._outside: dict[str, None] = {}

    def answered(self, response: Json, request: Json = None, sequence: int | None = None, lane: str = "0") -> None:
        """A model answered: remembers the tools that it asks for. Takes a stored answer, and what it answers.

        A tool that the request named as the one to ask for is a form to answer in, and need not be run.

        Args:
            response: the answer.
            request: what it answers.
            sequence: number of the event that holds the answer; `None` where it is not stored.
            lane: of the call.
        """
        forced = forced_tool(request)
        for asked in asked_tools(answer_in(response)):
            if any(fnmatchcase(asked.name, pattern) for pattern in self._control_tools):
                self._control[asked.name] = None
            elif len(self._asked) < _MANY:
                self._asked[asked.call_id] = asked, asked.name == forced
            if sequence is not None and (asked.name in self._proposed or len(self._proposed) < _MANY):
                proposed = self._proposed.setdefault(asked.name, [])
                if len(proposed) >= _OPEN:
                    del proposed[0]
                proposed.append(_Proposal(asked, sequence, lane))

    def claimed(self, name: str, key: str, lane: str, call_id: Json = None) -> int | None:
        """Number of the answer that asked for a tool call which is made now; another call cannot claim it again.

        With the id of the tool call that is certain. Without, it is the newest answer that asked for this tool with these
        arguments, else the newest one in a lane above or below that asked for it at all; `None` where there is none.

        Args:
            name: of the tool.
            key: matching key of the call.
            lane: of the call.
            call_id: id that the model gave to it, where the caller knows it.
        """
        proposed = self._proposed.get(name)
        if not proposed:
            return None
        last = proposed[-1]
        if call_id is None and last.lane == lane and last.sequence == proposed[0].sequence:
            return proposed.pop().sequence  # what programs mostly do: the tools of the last answer, one after the other
        found = next((one for one in proposed if one.asked.call_id == call_id), None) or _nearest(proposed, key, lane)
        if found is None:
            return None
        proposed.remove(found)
        return found.sequence

    def _cause(self, asked: AskedTool) -> int | None:
        """Number of the answer that asked for this very call, which has its result now."""
        proposed = self._proposed.get(asked.name, [])
        found = next((one for one in proposed if one.asked is asked), None)
        if found is None:
            return None
        proposed.remove(found)
        return found.sequence

    def performed(self, name: str) -> None:
        """A tool went through the boundary."""
        self._performed.add(name)

    def requested(self, request: Json) -> list[SeenResult]:
        """A model is asked again: results of tools that nobody saw run ran outside. Looks at the newest messages only."""
        seen: list[SeenResult] = []
        for call_id, result in newest_results(request) if self._asked else ():
            asked, _ = self._asked.pop(call_id, (None, False))
            cause = None if asked is None else self._cause(asked)
            if asked is not None and asked.name not in self._performed:
                self._outside[asked.name] = None
                seen.append(SeenResult(asked.name, asked.arguments, result, cause))
        return seen

    @property
    def control(self) -> tuple[str, ...]:
        """Names of the tools that were asked for and that control logic answers itself."""
        return tuple(name for name in self._control if name not in self._performed)

    def undecorated(self) -> tuple[str, ...]:
        """Names of tools that ran outside, in the order in which they were found."""
        return tuple(name for name in self._outside if name not in self._performed)

    def never_seen(self) -> tuple[str, ...]:
        """Names of tools that were asked for and of which nothing was seen since, neither a run nor a result."""
        left = (asked.name for asked, forced in self._asked.values() if not forced)
        return tuple(dict.fromkeys(name for name in left if name not in self._performed and name not in self._outside))


def _nearest(proposed: Sequence[_Proposal], key: str, lane: str) -> _Proposal | None:
    """The proposal that a call in this lane most likely makes good; see `ToolWatch.claimed`."""
    inside, _, path = lane.rpartition("~")
    near = [one for one in reversed(proposed) if one.lane.rpartition("~")[0] == inside]
    related = [one for one in near if _in_line(one.lane.rpartition("~")[2], path)]
    if related and len({one.sequence for one in near}) == 1:
        return related[0]
    exact = (one for one in (*related, *near) if key_of("tool", one.asked.name, one.asked.arguments) == key)
    return next(exact, related[0] if related else None)


def _in_line(one: str, other: str) -> bool:
    """Whether of two lanes one is the other, or was begun by it or by what it began."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(f"{short}/")
