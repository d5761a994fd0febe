"""Finds tools that a model asked for and that were not seen at the boundary.

Their results, where they come back in the messages of a later request, are all that is known of them; a tool that was
asked for last has not even that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentloupe.words.jsontext import Json

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


@dataclass(frozen=True, slots=True)
class _Asked:
    name: str
    arguments: Json
    forced: bool


class ToolWatch:
    """Follows one run: what models ask for, what is performed at the boundary, what comes back in messages."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}
        self._performed: set[str] = set()
        self._outside: dict[str, None] = {}

    def answered(self, response: Json, request: Json = None) -> None:
        """A model answered: remembers the tools that it asks for. Takes a chat completion, and what it answers.

        A tool that the request named as the one to ask for is a form to answer in, and need not be run.
        """
        forced = _forced_by(request)
        for message in _messages_of(response):
            for call_id, name, arguments in _asked_in(message):
                if len(self._asked) < _MANY:
                    self._asked[call_id] = _Asked(name, arguments, name == forced)

    def performed(self, name: str) -> None:
        """A tool went through the boundary."""
        self._performed.add(name)

    def requested(self, request: Json) -> list[SeenResult]:
        """A model is asked again: results of tools that nobody saw run ran outside. Looks at the newest messages only."""
        messages = request.get("messages") if isinstance(request, dict) and self._asked else None
        if not isinstance(messages, list):
            return []
        seen: list[SeenResult] = []
        for message in _newest_tool_messages(messages):
            asked = self._asked.pop(str(message.get("tool_call_id")), None)
            if asked is not None and asked.name not in self._performed:
                self._outside[asked.name] = None
                seen.append(SeenResult(asked.name, asked.arguments, message.get("content")))
        return seen[::-1]

    def undecorated(self) -> tuple[str, ...]:
        """Names of tools that ran outside, in the order in which they were found."""
        return tuple(name for name in self._outside if name not in self._performed)

    def never_seen(self) -> tuple[str, ...]:
        """Names of tools that were asked for and of which nothing was seen since, neither a run nor a result."""
        left = (asked.name for asked in self._asked.values() if not asked.forced)
        return tuple(dict.fromkeys(name for name in left if name not in self._performed and name not in self._outside))


def _newest_tool_messages(messages: list[Json]) -> Iterator[dict[str, Json]]:
    for message in reversed(messages):
        if not isinstance(message, dict) or message.get("role") == "assistant":
            return
        if message.get("role") == "tool":
            yield message


def _forced_by(request: Json) -> str | None:
    choice = request.get("tool_choice") if isinstance(request, dict) else None
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _messages_of(response: Json) -> list[dict[str, Json]]:
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list):
        return []
    messages = [choice.get("message") for choice in choices if isinstance(choice, dict)]
    return [message for message in messages if isinstance(message, dict)]


def _asked_in(message: dict[str, Json]) -> list[tuple[str, str, Json]]:
    calls = message.get("tool_calls")
    found: list[tuple[str, str, Json]] = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(function, dict):
            found.append((str(call.get("id")), str(function.get("name")), function.get("arguments")))
    return found
