"""What fills a model's window: the tokens of a request, shared out to who said what.

Providers report one number. It is shared out by length of text, so every part is an estimate and labelled so; where
nothing was reported, a token is taken for four characters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentloupe.engine.views.messages import Message
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.dialects import tools_in

__all__ = ["Share", "parts_of", "sampled", "shares", "sized"]

_CHARACTERS: Final = 4
_IMAGE: Final = 3000
"""Characters that an image is taken for: it counts, and its text says nothing of how much."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a request: who said it (`role`), where it comes from (`source`), how many tokens, and what share."""

    role: str
    source: str
    tokens: int
    share: float
    new: bool


def sized(message: Message) -> int:
    """Characters that a message counts for."""
    return sum(_IMAGE if part.type == "image" else len(part.text) + len(part.name or "") for part in message.parts)


def parts_of(
    request: Json, messages: Sequence[Message], new: Sequence[bool], sources: Sequence[str]
) -> Mapping[tuple[str, str, bool], int]:
    """Characters by role, source and whether they are new; tool definitions count as a role of their own."""
    found: dict[tuple[str, str, bool], int] = {}
    tools = tools_in(request) if isinstance(request, dict) else None
    if tools:
        found["tool schemas", "program", False] = len(dumps(tools))
    for message, fresh, source in zip(messages, new, sources, strict=True):
        role = "system" if message.role == "developer" else message.role  # both are instructions
        key = (role, source, fresh)
        found[key] = found.get(key, 0) + sized(message)
    return found


def shares(characters: Mapping[tuple[str, str, bool], int], tokens: int | None) -> tuple[int, list[Share]]:
    """The total, and each part's tokens, which sum up to it; the largest remainders are rounded up."""
    whole = sum(characters.values())
    total = tokens if tokens is not None else -(-whole // _CHARACTERS)
    if not whole:
        return total, []
    exact = {key: total * size / whole for key, size in characters.items()}
    counted = {key: int(value) for key, value in exact.items()}
    left = total - sum(counted.values())
    for key in sorted(exact, key=lambda k: (counted[k] - exact[k], k))[:left]:
        counted[key] += 1
    listed = [
        Share(role, source, counted[role, source, new], size / whole, new)
        for (role, source, new), size in characters.items()
    ]
    return total, listed


def sampled(count: int, most: int, always: int) -> list[int]:
    """Places 0 to `count` - 1, at most `most` of them, evenly, the first and the last and `always` among them."""
    if count <= most:
        return list(range(count))
    even = {round(at * (count - 1) / (most - 2)) for at in range(most - 1)}
    return sorted(even | {always})
