"""Finds tools that a model asked for and that ran outside the boundary: their results are seen in messages only."""

from __future__ import annotations

from agentloupe.words.jsontext import Json

__all__ = ["ToolWatch"]

_MANY = 10_000


class ToolWatch:
    """Follows one run: what models ask for, what is performed at the boundary, what comes back in messages."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        self._performed: set[str] = set()
        self._outside: dict[str, None] = {}

    def answered(self, response: Json) -> None:
        """A model answered: remembers the tools that it asks for. Takes a chat completion."""
        for message in _messages_of(response):
            for call_id, name in _asked_in(message):
                if len(self._asked) < _MANY:
                    self._asked[call_id] = name

    def performed(self, name: str) -> None:
        """A tool went through the boundary."""
        self._performed.add(name)

    def requested(self, request: Json) -> None:
        """A model is asked again: results of tools that nobody saw run ran outside. Looks at the newest messages only."""
        messages = request.get("messages") if isinstance(request, dict) and self._asked else None
        if not isinstance(messages, list):
            return
        for message in reversed(messages):
            if not isinstance(message, dict) or message.get("role") == "assistant":
                break
            if message.get("role") == "tool":
                name = self._asked.pop(str(message.get("tool_call_id")), None)
                if name is not None and name not in self._performed:
                    self._outside[name] = None

    def undecorated(self) -> tuple[str, ...]:
        """Names of tools that ran outside, in the order in which they were found."""
        return tuple(name for name in self._outside if name not in self._performed)


def _messages_of(response: Json) -> list[dict[str, Json]]:
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list):
        return []
    messages = [choice.get("message") for choice in choices if isinstance(choice, dict)]
    return [message for message in messages if isinstance(message, dict)]


def _asked_in(message: dict[str, Json]) -> list[tuple[str, str]]:
    calls = message.get("tool_calls")
    found: list[tuple[str, str]] = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(call, dict) and isinstance(function, dict):
            found.append((str(call.get("id")), str(function.get("name"))))
    return found
