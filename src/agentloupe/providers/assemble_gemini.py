"""An answer of Gemini out of its stream: each chunk is an answer that holds the next parts. Names follow the public API reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentloupe.words.canonical import Json

__all__ = ["assemble", "last", "says", "speaks"]

_TEXT = frozenset({"text", "thought", "thoughtSignature"})
"""Members of a part that is a piece of a text."""


def speaks(chunk: Mapping[str, Json]) -> bool:
    """Whether this is a chunk of such an answer."""
    return isinstance(chunk.get("candidates"), list) or "promptFeedback" in chunk or "usageMetadata" in chunk


def last(chunk: Mapping[str, Json]) -> bool:
    """Whether nothing follows: the model says why it ended, or the prompt was refused."""
    return any("finishReason" in one for one in _candidates(chunk)) or "promptFeedback" in chunk


def says(chunk: Mapping[str, Json]) -> bool:
    """Whether it brings something that the model made."""
    return any(_parts(one) for one in _candidates(chunk))


def assemble(chunks: Iterable[Mapping[str, Json]]) -> Json:
    """The whole answer: texts that belong together in one part, of all else what was told last."""
    answer: dict[str, Json] = {}
    candidates: dict[int, dict[str, Json]] = {}
    for chunk in chunks:
        for position, one in enumerate(_candidates(chunk)):
            index = one.get("index")
            _add(candidates.setdefault(index if isinstance(index, int) else position, {}), one)
        answer |= {name: value for name, value in chunk.items() if name != "candidates"}
    return {"candidates": [candidates[index] for index in sorted(candidates)], **answer} if candidates else answer


def _candidates(chunk: Mapping[str, Json]) -> list[dict[str, Json]]:
    listed = chunk.get("candidates")
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _parts(candidate: Mapping[str, Json]) -> list[Json]:
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    return parts if isinstance(parts, list) else []


def _add(candidate: dict[str, Json], more: Mapping[str, Json]) -> None:
    """What a chunk says of one candidate."""
    had = _parts(candidate)
    for part in _parts(more):
        if not _goes_on(had, part) and part != {"text": ""}:
            had.append(dict(part) if isinstance(part, dict) else part)
    before, content = candidate.get("content"), more.get("content")
    candidate |= {name: value for name, value in more.items() if name != "content"}
    named = {**(before if isinstance(before, dict) else {}), **(content if isinstance(content, dict) else {})}
    if named:
        candidate["content"] = {**named, "parts": had}


def _goes_on(had: list[Json], part: Json) -> bool:
    """Adds a piece of a text to the one before, where it belongs to that; a signature ends a part."""
    before = had[-1] if had else None
    if not (isinstance(before, dict) and isinstance(part, dict)):
        return False
    said, more = before.get("text"), part.get("text")
    if not (isinstance(said, str) and isinstance(more, str) and before.keys() | part.keys() <= _TEXT):
        return False
    if "thoughtSignature" in before or before.get("thought") != part.get("thought"):
        return False
    before |= {**part, "text": said + more}
    return True
