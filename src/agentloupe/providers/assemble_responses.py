"""A response of the Responses API out of its events. Names follow the public API reference.

The last event holds the whole response. What was left before it, or comes from a server that leaves the output out
there, is put together from the items and their deltas; items are told by their place, since their ids may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from agentloupe.words.canonical import Json

__all__ = ["assemble", "last", "says", "speaks"]

_LAST = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_GROWING = {
    "response.output_text.delta": ("content", "content_index", "text"),
    "response.refusal.delta": ("content", "content_index", "refusal"),
    "response.reasoning_text.delta": ("content", "content_index", "text"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index", "text"),
}
"""Deltas of parts: which list of the item holds the part, what says its place there, which member grows."""
_PART = {"content": "output_text", "summary": "summary_text"}
_WHOLE = {
    "response.function_call_arguments": "arguments",
    "response.mcp_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.code_interpreter_call_code": "code",
}
"""Deltas of members of the item itself."""


def speaks(chunk: Mapping[str, Json]) -> bool:
    """Whether this is an event of a streamed response."""
    return str(chunk.get("type")).startswith("response.")


def last(chunk: Mapping[str, Json]) -> bool:
    """Whether nothing follows."""
    return chunk.get("type") in _LAST


def says(chunk: Mapping[str, Json]) -> bool:
    """Whether it brings something that the model made."""
    return str(chunk.get("type")).endswith(".delta")


def assemble(chunks: Iterable[Mapping[str, Json]]) -> Json:
    """The whole response, its items as far as they came. An error that ended the stream stands in `error`."""
    response: dict[str, Json] = {}
    items: dict[int, dict[str, Json]] = {}
    for chunk in chunks:
        if isinstance(told := chunk.get("response"), dict):
            response = {**response, **told}
        if chunk.get("type") == "error":
            response["error"] = {name: value for name, value in chunk.items() if name != "type"}
        _add(items, chunk)
    if items and not response.get("output"):
        response["output"] = [items[index] for index in sorted(items)]
    return response


def _add(items: dict[int, dict[str, Json]], chunk: Mapping[str, Json]) -> None:
    index, kind = chunk.get("output_index"), str(chunk.get("type"))
    if not isinstance(index, int):
        return
    if isinstance(told := chunk.get("item"), dict):
        items[index] = dict(told)
        return
    item = items.setdefault(index, {})
    if kind in _GROWING:
        _grow_part(item, chunk, *_GROWING[kind])
    elif (member := _WHOLE.get(kind.removesuffix(".delta"))) is not None and isinstance(chunk.get("delta"), str):
        item[member] = str(item.get(member) or "") + str(chunk["delta"])
    elif isinstance(part := chunk.get("part"), dict):
        where = "summary" if "summary_index" in chunk else "content"
        place = chunk.get("summary_index", chunk.get("content_index"))
        parts = _parts(item, where, place)
        if parts is not None:
            parts[cast("int", place)] = dict(part)


def _parts(item: dict[str, Json], where: str, place: Json) -> list[Any] | None:
    """The list of parts of an item, long enough for this place; a place that no honest server names is passed over."""
    held = item.get(where)
    parts: list[Any] = held if isinstance(held, list) else []
    if not isinstance(place, int) or not 0 <= place <= len(parts):
        return None
    item[where] = parts
    if place == len(parts):
        parts.append({"type": _PART[where]})
    return parts


def _grow_part(item: dict[str, Json], chunk: Mapping[str, Json], where: str, named: str, member: str) -> None:
    place = chunk.get(named)
    parts = _parts(item, where, place)
    if parts is None or not isinstance(chunk.get("delta"), str):
        return
    part = parts[cast("int", place)]
    part[member] = str(part.get(member) or "") + str(chunk["delta"])
