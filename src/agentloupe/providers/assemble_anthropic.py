"""A message of the Messages API out of its events. Names follow the public API reference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from agentloupe.words.canonical import Json

__all__ = ["assemble", "last", "says", "speaks"]

_EVENTS = frozenset(
    {
        "message_start",
        "message_delta",
        "message_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "ping",
    }
)
_JSON = "\0json"
"""Where the pieces of a tool's input are gathered until they are whole; no member of a block is called that."""


def speaks(chunk: Mapping[str, Json]) -> bool:
    """Whether this is an event of a streamed message."""
    return chunk.get("type") in _EVENTS


def last(chunk: Mapping[str, Json]) -> bool:
    """Whether nothing follows."""
    return chunk.get("type") in ("message_stop", "error")


def says(chunk: Mapping[str, Json]) -> bool:
    """Whether it brings something that the model made."""
    return chunk.get("type") == "content_block_delta"


def assemble(chunks: Iterable[Mapping[str, Json]]) -> Json:
    """The whole message. The input of a tool that did not come whole stays the text that came of it."""
    message: dict[str, Json] = {}
    content: list[Json] = []
    blocks: dict[int, dict[str, Json]] = {}
    for chunk in chunks:
        kind = chunk.get("type")
        if kind == "message_start" and not message:
            message.update(_object(chunk.get("message")))
        elif kind == "message_delta":
            _end(message, chunk)
        elif kind == "error":
            message["error"] = chunk.get("error")
        elif isinstance(index := chunk.get("index"), int):
            _add(content, blocks, index, chunk)
    for block in content:
        _settle(cast("dict[str, Json]", block))
    message["content"] = content or message.get("content", [])
    return message


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _end(message: dict[str, Json], chunk: Mapping[str, Json]) -> None:
    """Why the message ended, and what it used: counts that are told again replace the earlier ones."""
    message.update(_object(chunk.get("delta")))
    for name, value in chunk.items():
        if name == "usage":
            told = {n: v for n, v in _object(value).items() if v is not None}
            message["usage"] = {**_object(message.get("usage")), **told}
        elif name not in ("type", "delta"):
            message[name] = value


def _add(content: list[Json], blocks: dict[int, dict[str, Json]], index: int, chunk: Mapping[str, Json]) -> None:
    """Blocks stand in the order in which they began; what is told of an index is told of the last block under it."""
    kind = chunk.get("type")
    if kind == "content_block_start" or (kind == "content_block_delta" and index not in blocks):
        blocks[index] = dict(_object(chunk.get("content_block")))
        content.append(blocks[index])
    if kind == "content_block_delta":
        _add_delta(blocks[index], _object(chunk.get("delta")))


def _add_delta(block: dict[str, Json], delta: Mapping[str, Json]) -> None:
    for name, value in delta.items():
        if name == "type":
            continue
        if name == "partial_json":
            block[_JSON] = str(block.get(_JSON) or "") + str(value)
        elif name == "citation":
            cited: Any = block.get("citations")
            block["citations"] = [*cast("list[Json]", cited if isinstance(cited, list) else []), value]
        elif isinstance(value, str) and isinstance(held := block.get(name), str):
            block[name] = held + value
        elif value is not None or name not in block:
            block[name] = value


def _settle(block: dict[str, Json]) -> None:
    text = block.pop(_JSON, None)
    if isinstance(text, str) and text:
        try:
            block["input"] = json.loads(text)
        except ValueError:
            block["input"] = text
