"""A chat completion out of its chunks; also legacy text completions, and the many servers that speak this dialect.

Names follow the public API reference of chat completions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from agentloupe.words.canonical import Json

__all__ = ["assemble", "last", "says", "speaks"]

_OBJECTS = {"chat.completion.chunk": "chat.completion"}
_SET = frozenset({"role", "id", "type", "index"})  # told once or again and again, never in parts


def speaks(chunk: Mapping[str, Json]) -> bool:
    """Whether this is a chunk of a chat completion."""
    return isinstance(chunk.get("choices"), list)


def last(chunk: Mapping[str, Json]) -> bool:
    """Never: more choices, usage and `[DONE]` may follow. An error is the last thing."""
    return bool(chunk.get("error"))


def says(chunk: Mapping[str, Json]) -> bool:
    """Whether there is text, reasoning or a tool call in it."""
    for choice in _objects(chunk.get("choices")):
        delta = choice.get("delta")
        told = delta if isinstance(delta, dict) else {"content": choice.get("text")}
        if any(value for name, value in told.items() if name != "role"):
            return True
    return False


def assemble(chunks: Iterable[Mapping[str, Json]]) -> Json:
    """The whole completion. Usage that nobody sent is null; arguments of tools stay the text that they were."""
    whole: dict[str, Json] = {"choices": []}
    choices: dict[int, dict[str, Json]] = {}
    for chunk in chunks:
        for name, value in chunk.items():
            if name != "choices" and (value is not None or name not in whole):
                whole[name] = value
        for choice in _objects(chunk.get("choices")):
            index = choice.get("index")
            key = index if isinstance(index, int) else 0
            _add_choice(choices.setdefault(key, {"index": key}), choice)
    if isinstance(kind := whole.get("object"), str):
        whole["object"] = _OBJECTS.get(kind, kind)
    whole["choices"] = [_settled(choices[key]) for key in sorted(choices)]
    whole.setdefault("usage", None)
    return whole


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _add_choice(choice: dict[str, Json], part: Mapping[str, Json]) -> None:
    for name, value in part.items():
        if name == "delta":
            message = cast("dict[str, Json]", choice.setdefault("message", {"role": "assistant", "content": None}))
            _add_delta(message, value if isinstance(value, dict) else {})
        elif name == "text" and isinstance(value, str):
            choice["text"] = str(choice.get("text") or "") + value
        elif name == "logprobs" and isinstance(value, dict):
            _merge(cast("dict[str, Json]", choice.setdefault("logprobs", {}) or {}), value, choice, "logprobs")
        elif name != "index" and (value is not None or name not in choice):
            choice[name] = value


def _merge(into: dict[str, Json], part: Mapping[str, Json], holder: dict[str, Json], name: str) -> None:
    holder[name] = into
    _add_delta(into, part)


def _add_delta(message: dict[str, Json], delta: Mapping[str, Json]) -> None:
    """Texts grow, lists grow, objects are merged; what is told once is set."""
    for name, value in delta.items():
        held = message.get(name)
        if name == "tool_calls":
            _add_tool_calls(cast("list[Json]", message.setdefault("tool_calls", [])), value)
        elif value is None:
            message.setdefault(name, None)
        elif name not in _SET and isinstance(held, str) and isinstance(value, str):
            message[name] = held + value
        elif isinstance(held, list) and isinstance(value, list):
            message[name] = [*held, *value]
        elif isinstance(value, dict):
            _merge(dict(held) if isinstance(held, dict) else {}, value, message, name)
        else:
            message[name] = value


def _add_tool_calls(calls: list[Json], parts: Json) -> None:
    for part in _objects(parts):
        call = _call_of(calls, part)
        for name, value in part.items():
            if name == "function" and isinstance(value, dict):
                _add_function(cast("dict[str, Json]", call.setdefault("function", {})), value)
            elif name != "index" and value is not None and (value != "" or name not in call):
                call[name] = value
    calls.sort(key=lambda call: cast("int", cast("dict[str, Json]", call).get("index", 0)))


def _settled(choice: dict[str, Json]) -> dict[str, Json]:
    """Tool calls of a whole message have no index: their order says it."""
    message = choice.get("message")
    for call in _objects(message.get("tool_calls")) if isinstance(message, dict) else ():
        call.pop("index", None)
    return choice


def _call_of(calls: list[Json], part: Mapping[str, Json]) -> dict[str, Json]:
    """The tool call that this part belongs to: by index; where that is missing or used for two, by id."""
    index, call_id = part.get("index"), part.get("id")
    known = _objects(calls)
    same = [c for c in known if c.get("index") == index] if isinstance(index, int) else known
    if call_id:
        named = [c for c in same if c.get("id") == call_id]
        same = named or [c for c in same if not c.get("id")]
    if same:
        return same[-1]
    made: dict[str, Json] = {"index": index if isinstance(index, int) else len(calls)}
    calls.append(made)
    return made


def _add_function(function: dict[str, Json], part: Mapping[str, Json]) -> None:
    for name, value in part.items():
        held = function.get(name)
        if not isinstance(value, str) or not isinstance(held, str):
            if value is not None or name not in function:
                function[name] = value
        elif name != "name" or value != held:  # some servers repeat the name in every part
            function[name] = held + value
