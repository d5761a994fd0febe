"""What the model may write next, as a grammar in LLGuidance's dialect of Lark with JSON schemas inside.

The grammar is what makes a model of this size usable: each call names a tool that exists and has arguments that fit
its schema. See https://github.com/guidance-ai/llguidance (docs/syntax.md, docs/json_schema.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentloupe.providers.loopback import RequestError, mapping

__all__ = ["MAX_CALLS", "Choice", "bounded", "grammar", "read_choice", "read_tools"]

MAX_CALLS = 4
"""Tool calls of one answer."""

MAX_TOOLS = 64
MAX_TEXT = 200
"""Characters of an answer without a schema."""

_MAX_STRING, _MAX_ITEMS, _MAX_DEPTH = 80, 8, 32
_ONE = frozenset({"items", "additionalProperties", "not"})  # keywords by what stands under them: a schema,
_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})  # a list of schemas,
_TABLE = frozenset({"properties", "patternProperties", "$defs", "definitions"})  # or schemas by name
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Choice:
    """What the caller leaves to the model: whether it may call tools, may answer, and how many calls it may make."""

    calls: bool
    answers: bool
    max_calls: int
    answer_schema: Mapping[str, Any] | None = None


def read_tools(request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The functions offered (`name`, `parameters`, ...), only the named one where `tool_choice` names one.

    Raises:
        RequestError: a tool that is no function, or a choice that names none of them.
    """
    offered: object = request.get("tools") or []
    if not isinstance(offered, list) or len(cast("list[object]", offered)) > MAX_TOOLS:
        raise RequestError(f"`tools` must be a list of at most {MAX_TOOLS}", param="tools")
    functions = [_function(tool, at) for at, tool in enumerate(cast("list[object]", offered))]
    wanted = _named(request.get("tool_choice"))
    if wanted is None:
        return functions
    named = [function for function in functions if function["name"] == wanted]
    if not named:
        raise RequestError(f"`tool_choice` names {wanted!r}, which is not among the tools", param="tool_choice")
    return named


def _function(tool: object, at: int) -> Mapping[str, Any]:
    made = mapping(mapping(tool).get("function"))
    if mapping(tool).get("type") != "function":
        raise RequestError(f"tool {at} must be of type `function`", param=f"tools[{at}]")
    name = made.get("name")
    if not isinstance(name, str) or not name or not all(c.isalnum() or c in "_-." for c in name):
        raise RequestError(
            f"tool {at} needs a name of letters, digits, `_`, `-` and `.`", param=f"tools[{at}].function.name"
        )
    if not isinstance(made.get("parameters") or {}, dict):
        raise RequestError(f"the parameters of {name} must be a JSON schema", param=f"tools[{at}].function.parameters")
    return made


def _named(choice: object) -> str | None:
    """The function that a `tool_choice` names."""
    if choice is None or choice in ("auto", "none", "required"):
        return None
    name = mapping(mapping(choice).get("function")).get("name")
    if not isinstance(name, str):
        raise RequestError("`tool_choice` must be auto, none, required, or name a function", param="tool_choice")
    return name


def read_choice(request: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> Choice:
    """What is left to the model, from `tool_choice`, `parallel_tool_calls` and `response_format`.

    Raises:
        RequestError: an unknown form of these, or a tool required where none is offered.
    """
    choice = request.get("tool_choice")
    must = choice == "required" or isinstance(choice, dict)
    if must and not tools:
        raise RequestError("`tool_choice` requires a tool, but `tools` is empty", param="tool_choice")
    return Choice(
        calls=bool(tools) and choice != "none",
        answers=not must,
        max_calls=1 if request.get("parallel_tool_calls") is False else MAX_CALLS,
        answer_schema=_answer_schema(request.get("response_format")),
    )


def _answer_schema(response_format: object) -> Mapping[str, Any] | None:
    if response_format is None:
        return None
    form = mapping(response_format)
    match form.get("type"):
        case "text":
            return None
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            schema = mapping(form.get("json_schema")).get("schema")
            if isinstance(schema, dict):
                return mapping(cast("object", schema))
        case _:
            pass
    raise RequestError(
        "`response_format` must be text, json_object, or json_schema with a schema", param="response_format"
    )


def grammar(tools: Sequence[Mapping[str, Any]], choice: Choice) -> str:
    """The grammar for one answer. Calls end with the first label of the results, which shows that they are complete."""
    starts = [name for name, allowed in (("calls", choice.calls), ("answer", choice.answers)) if allowed]
    lines = ["%llguidance {}", f"start: {' | '.join(starts)}"]
    if choice.calls:
        names = " | ".join(f"tool_{at}" for at in range(len(tools)))
        lines += [f'calls: (call "\\n"){{1,{choice.max_calls}}} "Result"', f'call: "Call: " ({names})']
        lines += [
            f"tool_{at}: {_literal(str(t['name']) + ' ')} {_json(t.get('parameters'))}" for at, t in enumerate(tools)
        ]
    if choice.answers:
        text = f"/[^\\n<]{{1,{MAX_TEXT}}}/" if choice.answer_schema is None else _json(choice.answer_schema)
        lines.append(f'answer: "Answer: " {text} "\\n"')
    return "\n".join(lines) + "\n"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json(schema: object) -> str:
    spaced = {**bounded(schema or {"type": "object", "properties": {}}), "x-guidance": _SPACING}
    return f"%json {json.dumps(spaced, ensure_ascii=False)}"


def bounded(schema: object, depth: int = 0) -> dict[str, Any]:
    """The schema with ends where it has none: no unknown properties, strings of 80 characters, lists of 8 items.

    A model of this size does not stop by itself. Whatever the schema says itself is kept.

    Raises:
        RequestError: nested deeper than 32 levels.
    """
    if depth > _MAX_DEPTH:
        raise RequestError(f"a schema is nested deeper than {_MAX_DEPTH}")
    made = {name: _inside(name, value, depth + 1) for name, value in mapping(schema).items()}
    kind = made.get("type")
    if kind == "object" or "properties" in made:
        made.setdefault("additionalProperties", False)
    if kind == "string" and not made.keys() & {"maxLength", "pattern", "enum", "const", "format"}:
        made["maxLength"] = _MAX_STRING
    if kind == "array" and "maxItems" not in made:
        least = made.get("minItems")
        made["maxItems"] = max(_MAX_ITEMS, least if isinstance(least, int) else 0)
    return made


def _inside(keyword: str, value: object, depth: int) -> Any:
    """What stands under a keyword, with the schemas in it bounded; data (`enum`, `const`, `default`) as it is."""
    if keyword in _ONE and isinstance(value, dict):
        return bounded(cast("object", value), depth)
    if keyword in _LIST and isinstance(value, list):
        return [bounded(item, depth) for item in cast("list[object]", value)]
    if keyword in _TABLE:
        return {name: bounded(item, depth) for name, item in mapping(value).items()}
    return value
