"""The tools that a model asks for in its answer, and their results in the next request, in each form that providers speak.

Chat completions (`tool_calls`, messages of role `tool`), OpenAI Responses (items `function_call`, `function_call_output`, their
custom twins, and calls of shells, patches and computers that the program runs), Anthropic messages (blocks `tool_use`,
`tool_result`), Converse of Bedrock (blocks `toolUse`, `toolResult`) and Gemini (parts `functionCall`, `functionResponse`, which mostly
have no ids). What runs at the provider is not among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from agentloupe.words.jsontext import Json

__all__ = ["AskedTool", "asked_tools", "forced_tool", "newest_results"]

_SAID = ("arguments", "input", "action", "operation")
"""Members of an item that say what is wanted, by its type."""


@dataclass(frozen=True, slots=True)
class AskedTool:
    """A tool that a model asks for.

    Attributes:
        call_id: ties it to its result.
        name: of the tool.
        arguments: as the model wrote them: text or an object.
    """

    call_id: str
    name: str
    arguments: Json


def asked_tools(answer: Json) -> list[AskedTool]:
    """The tools that an answer asks for, in order."""
    found = list(_chat_calls(answer))
    if isinstance(answer, dict):
        found += _item_calls(_listed(answer, "output")) if "output" in answer else ()
        found += _block_calls(_listed(answer, "content")) if "content" in answer else ()
        found += _converse_calls(answer.get("output"))
        found += _part_calls(answer) if "candidates" in answer else ()
    return found


def newest_results(request: Json) -> list[tuple[str, Json]]:
    """Call ids and results of what stands behind the last word of the model in a request, in order."""
    found = [*_message_results(_listed(request, "messages")), *_item_results(_listed(request, "input"))]
    return [*found[::-1], *_part_results(_listed(request, "contents"))]


def forced_tool(request: Json) -> str | None:
    """The tool that a request names as the one to ask for."""
    choice = request.get("tool_choice") if isinstance(request, dict) else None
    if not isinstance(choice, dict):
        return None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return name if isinstance(name, str) else None


def _listed(value: Json, name: str) -> list[dict[str, Json]]:
    """The objects of a list in an object; none where there is no such list."""
    listed = value.get(name) if isinstance(value, dict) else None
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


# --- what is asked for ------------------------------------------------------------------------------------------------


def _chat_calls(answer: Json) -> Iterator[AskedTool]:
    for choice in _listed(answer, "choices"):
        for call in _listed(choice.get("message"), "tool_calls"):
            for kind, field in (("function", "arguments"), ("custom", "input")):
                said = call.get(kind)
                if isinstance(said, dict):
                    yield AskedTool(str(call.get("id")), str(said.get("name")), said.get(field))


def _item_calls(items: list[dict[str, Json]]) -> Iterator[AskedTool]:
    """Calls among the items of a response: those with a `call_id`, unless the provider answered them right there."""
    done = {str(item.get("call_id")) for item in items if _is_result(item)}
    for item in items:
        call_id = item.get("call_id")
        if _is_call(item) and isinstance(call_id, str) and call_id not in done:
            said = next((item[name] for name in _SAID if name in item), None)
            yield AskedTool(call_id, str(item.get("name") or str(item.get("type")).removesuffix("_call")), said)


def _is_call(item: dict[str, Json]) -> bool:
    return str(item.get("type")).endswith("_call")


def _is_result(item: dict[str, Json]) -> bool:
    return str(item.get("type")).endswith("_output")


def _block_calls(blocks: list[dict[str, Json]]) -> Iterator[AskedTool]:
    for block in blocks:
        if block.get("type") == "tool_use":
            yield AskedTool(str(block.get("id")), str(block.get("name")), block.get("input"))


def _converse_calls(output: Json) -> Iterator[AskedTool]:
    for block in _listed(output.get("message"), "content") if isinstance(output, dict) else ():
        said = block.get("toolUse")
        if isinstance(said, dict):
            yield AskedTool(str(said.get("toolUseId")), str(said.get("name")), said.get("input"))


# --- what came back, the last first -----------------------------------------------------------------------------------


def _message_results(messages: list[dict[str, Json]]) -> Iterator[tuple[str, Json]]:
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return
        if message.get("role") == "tool":
            yield str(message.get("tool_call_id")), message.get("content")
        for block in reversed(_listed(message, "content")):
            if block.get("type") == "tool_result":
                yield str(block.get("tool_use_id")), block.get("content")
            elif isinstance(said := block.get("toolResult"), dict):
                yield str(said.get("toolUseId")), said.get("content")


def _item_results(items: list[dict[str, Json]]) -> Iterator[tuple[str, Json]]:
    for item in reversed(items):
        if item.get("role") == "assistant" or _is_call(item) or item.get("type") == "reasoning":
            return
        if _is_result(item):
            yield str(item.get("call_id")), item.get("output")


# --- Gemini -----------------------------------------------------------------------------------------------------------


def _part_calls(answer: dict[str, Json]) -> list[AskedTool]:
    """Calls of all candidates. Ids are rare and programs make up their own, so a call is known by its name and which it is."""
    parts = [part for one in _listed(answer, "candidates") for part in _listed(one.get("content"), "parts")]
    called = [said for part in parts if isinstance(said := part.get("functionCall"), dict)]
    return [
        AskedTool(key, str(said.get("name")), said.get("args")) for key, said in zip(_keys(called), called, strict=True)
    ]


def _part_results(contents: list[dict[str, Json]]) -> Iterator[tuple[str, Json]]:
    """Results behind the last word of the model, in order."""
    after = next((at for at in range(len(contents), 0, -1) if contents[at - 1].get("role") == "model"), len(contents))
    parts = [part for content in contents[after:] for part in _listed(content, "parts")]
    told = [said for part in parts if isinstance(said := part.get("functionResponse"), dict)]
    yield from zip(_keys(told), (said.get("response") for said in told), strict=True)


def _keys(said: list[dict[str, Json]]) -> list[str]:
    """`name#0`, `name#1` ...: which call of its name it is."""
    seen: Counter[str] = Counter()
    keys: list[str] = []
    for one in said:
        name = str(one.get("name"))
        keys.append(f"{name}#{seen[name]}")
        seen[name] += 1
    return keys
