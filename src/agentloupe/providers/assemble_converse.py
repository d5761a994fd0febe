"""An answer of Bedrock's Converse API out of the events of ConverseStream, each under its name. Names follow the public API reference."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import cast

from agentloupe.words.canonical import Json

__all__ = ["assemble", "last", "says", "speaks"]

_EVENTS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)


def speaks(chunk: Mapping[str, Json]) -> bool:
    """Whether this is an event of ConverseStream."""
    return len(chunk) == 1 and not _EVENTS.isdisjoint(chunk)


def last(chunk: Mapping[str, Json]) -> bool:
    """Whether nothing follows: usage comes behind the end of the message."""
    return "metadata" in chunk or chunk.get("type") == "error"


def says(chunk: Mapping[str, Json]) -> bool:
    """Whether it brings something that the model made."""
    return "contentBlockDelta" in chunk


def assemble(chunks: Iterable[Mapping[str, Json]]) -> Json:
    """The whole answer. Usage that did not come is not there; the input of a tool that did not come whole stays its text."""
    message: dict[str, Json] = {}
    blocks: dict[int, dict[str, Json]] = {}
    whole: dict[str, Json] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            said = {n: v for n, v in value.items() if n != "p"} if isinstance(value, dict) else {}
            at = said.get("contentBlockIndex")
            if name == "messageStart":
                message |= said
            elif name in ("contentBlockStart", "contentBlockDelta") and isinstance(at, int):
                _add(blocks.setdefault(at, {}), said.get("start" if name == "contentBlockStart" else "delta"))
            elif name in ("messageStop", "metadata"):
                whole |= said
            elif name == "error":
                whole["error"] = value
    content: list[Json] = [_settled(blocks[at]) for at in sorted(blocks)]
    return {"output": {"message": {"role": "assistant", **message, "content": content}}, **whole}


def _add(block: dict[str, Json], part: Json) -> None:
    """Texts and lists grow, objects are merged, all else is told once."""
    for name, value in part.items() if isinstance(part, dict) else ():
        held = block.get(name)
        if isinstance(held, str) and isinstance(value, str):
            block[name] = held + value
        elif isinstance(held, list) and isinstance(value, list):
            block[name] = [*held, *value]
        elif name == "citation":
            block["citations"] = [*cast("list[Json]", block.get("citations") or []), value]
        elif isinstance(value, dict):
            inner = dict(held) if isinstance(held, dict) else {}
            _add(inner, value)
            block[name] = inner
        else:
            block[name] = value


def _settled(block: dict[str, Json]) -> dict[str, Json]:
    """A block as a whole answer has it: the input of a tool read, reasoning and cited text in objects of their own."""
    tool, thought = block.get("toolUse"), block.get("reasoningContent")
    if isinstance(tool, dict):
        block["toolUse"] = {**tool, "input": _read(tool.get("input", ""))}
    if isinstance(thought, dict) and "redactedContent" not in thought:
        block["reasoningContent"] = {"reasoningText": thought}
    if "citations" in block:
        cited: dict[str, Json] = {"content": [{"text": block.pop("text", "")}], "citations": block.pop("citations")}
        block["citationsContent"] = cited
    return block


def _read(text: Json) -> Json:
    """The input of a tool: none at all is an empty object."""
    if not isinstance(text, str):
        return text
    try:
        return cast("Json", json.loads(text)) if text else {}
    except ValueError:
        return text
