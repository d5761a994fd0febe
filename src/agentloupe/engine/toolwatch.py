"""Finds tools that a model asked for and that were not seen at the boundary.

Their results, where they come back in the messages of a later request, are all that is known of them; a tool that was
asked for last has not even that.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentloupe.words.exchange import answer_in
from agentloupe.words.jsontext import Json
from agentloupe.words.toolcalls import AskedTool, asked_tools, forced_tool, newest_results

__all__ = ["SeenResult", "ToolWatch"]

_MANY = 10_000


@dataclass(frozen=True, slots=True)
class SeenResult:
    """A tool's result as a message says it, of a tool that did not go through the boundary.

    Attributes:
        name: of the tool.
        arguments: as the model wrote them: text, unless the client gave something else.
        result: content of the message.
    """

    name: str
    arguments: Json
    result: Json


class ToolWatch:
    """Follows one run: what models ask for, what is performed at the boundary, what comes back in messages."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[AskedTool, bool]] = {}
        self._performed: set[str] = set()
        self._outside: dict[str, None] = {}

    def answered(self, response: Json, request: Json = None) -> None:
        """A model answered: remembers the tools that it asks for. Takes a stored answer, and what it answers.

        A tool that the request named as the one to ask for is a form to answer in, and need not be run.
        """
        forced = forced_tool(request)
        for asked in asked_tools(answer_in(response)):
            if len(self._asked) < _MANY:
                self._asked[asked.call_id] = asked, asked.name == forced

    def performed(self, name: str) -> None:
        """A tool went through the boundary."""
        self._performed.add(name)

    def requested(self, request: Json) -> list[SeenResult]:
        """A model is asked again: results of tools that nobody saw run ran outside. Looks at the newest messages only."""
        seen: list[SeenResult] = []
        for call_id, result in newest_results(request) if self._asked else ():
            asked, _ = self._asked.pop(call_id, (None, False))
            if asked is not None and asked.name not in self._performed:
                self._outside[asked.name] = None
                seen.append(SeenResult(asked.name, asked.arguments, result))
        return seen

    def undecorated(self) -> tuple[str, ...]:
        """Names of tools that ran outside, in the order in which they were found."""
        return tuple(name for name in self._outside if name not in self._performed)

    def never_seen(self) -> tuple[str, ...]:
        """Names of tools that were asked for and of which nothing was seen since, neither a run nor a result."""
        left = (asked.name for asked, forced in self._asked.values() if not forced)
        return tuple(dict.fromkeys(name for name in left if name not in self._performed and name not in self._outside))
