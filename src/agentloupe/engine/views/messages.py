"""What was said in a request and in its answer, the same whichever form the provider speaks.

Chat completions, OpenAI Responses, Anthropic messages, Gemini's contents and Converse's messages become messages of one form: a role, and parts
(text, image, tool call, tool result, reasoning, or something else). A page that draws them knows no provider.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from agentloupe.engine.news import without_ids
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.jsontext import quick_text

__all__ = ["Message", "Part", "PartType", "answer_of", "is_new", "messages_of", "text_in"]

PartType = Literal["text", "image", "tool_call", "tool_result", "reasoning", "other"]

_HISTORIES: Final = ("messages", "input", "contents")
_TOP: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_TEXTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
_IMAGES: Final = frozenset({"image", "image_url", "input_image"})
_ROLES: Final[Mapping[str, str]] = {"model": "assistant", "function": "tool"}
_KNOWN: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_REASONING: Final = frozenset({"thinking", "reasoning", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message.

    Attributes:
        type: what it is.
        text: what it says: of a tool call its arguments as the model wrote them, of an image where it is or how large.
        call_id: ties a tool call to its result.
        name: of the tool.
    """

    type: PartType
    text: str
    call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: `system`, `developer`, `user`, `assistant`, `tool`, or the provider's own word.
        parts: what it holds, in order.
        path: where it stands in the request, as `messages/3`; empty for an answer.
        raw: the message as it was sent.
    """

    role: str
    parts: tuple[Part, ...]
    path: str
    raw: Json


# --- requests ---------------------------------------------------------------------------------------------------------


def messages_of(request: Json) -> list[Message]:
    """The messages of a request, leading instructions first. What is not understood stays, as a part of type `other`."""
    if not isinstance(request, dict):
        return []
    found = [
        Message("system", tuple(_content(value)), name, value)
        for name in _TOP
        if (value := request.get(name)) is not None
    ]
    name = next((n for n in _HISTORIES if request.get(n) is not None), None)
    history = request.get(name) if name is not None else None
    if isinstance(history, str):
        found.append(Message("user", (Part("text", history),), f"{name}", history))
    elif isinstance(history, list):
        found += [_message(item, f"{name}/{at}") for at, item in enumerate(history)]
    return found


def answer_of(output: Json) -> Message | None:
    """What a model answered, from a step's output; `None` where there is none."""
    if output is None:
        return None
    if isinstance(output, dict) and isinstance(items := output.get("output"), list):
        parts = [part for item in items for part in _item_parts(item)]
        return Message("assistant", tuple(parts), "", output)
    if isinstance(output, dict) and isinstance(candidates := output.get("candidates"), list):
        first = candidates[0] if candidates else None
        content = first.get("content") if isinstance(first, dict) else None
        return _message(content, "") if content is not None else Message("assistant", (), "", output)
    return _message(output, "")


def text_in(message: Message) -> str:
    """The plain text of a message."""
    return "\n".join(part.text for part in message.parts if part.type == "text")


def _message(item: Json, path: str) -> Message:
    if not isinstance(item, dict):
        return Message("user", tuple(_content(item)), path, item)
    if "role" not in item and "type" in item:  # an item of a response
        return Message(_role_of_item(item), tuple(_item_parts(item)), path, item)
    given = str(item.get("role") or "assistant")
    role = _ROLES.get(given, given)
    if role not in _KNOWN:
        return Message(role, (Part("other", dumps(item).decode("utf-8", "backslashreplace")),), path, item)
    parts = [*_reasoning(item), *_parts_of(item)]
    if parts and all(part.type == "tool_result" for part in parts):
        role = "tool"  # Anthropic and Gemini send results as the user
    return Message(role, tuple(parts), path, item)


def _parts_of(item: Mapping[str, Json]) -> Iterator[Part]:
    if item.get("role") in ("tool", "function"):
        call_id = item.get("tool_call_id")
        name = item.get("name")
        text = "\n".join(part.text for part in _content(item.get("content")))
        yield Part("tool_result", text, _word(call_id), _word(name))
        return
    yield from _content(item["parts"] if "parts" in item else item.get("content"))
    for call in _listed(item.get("tool_calls")):
        yield _call(call)
    legacy = item.get("function_call")
    if isinstance(legacy, dict):
        yield Part("tool_call", _said(legacy.get("arguments")), None, _word(legacy.get("name")))
    if isinstance(refusal := item.get("refusal"), str) and refusal:
        yield Part("text", refusal)


def _call(call: Json) -> Part:
    whole = call if isinstance(call, dict) else {}
    said = whole.get("function") or whole.get("custom")
    inner = said if isinstance(said, dict) else whole
    given = inner["arguments"] if "arguments" in inner else inner.get("input")
    return Part("tool_call", _said(given), _word(whole.get("id")), _word(inner.get("name")))


def _reasoning(item: Mapping[str, Json]) -> Iterator[Part]:
    for name in ("reasoning_content", "reasoning"):
        said = item.get(name)
        if isinstance(said, str) and said:
            yield Part("reasoning", said)
            return


# --- parts ------------------------------------------------------------------------------------------------------------


def _content(value: Json) -> Iterator[Part]:
    """The parts of a message's content: a text, a list of blocks, or anything else."""
    if value is None:
        return
    if isinstance(value, str):
        if value:
            yield Part("text", value)
    elif isinstance(value, list):
        for block in value:
            yield from _block(block)
    elif isinstance(value, dict) and isinstance(value.get("parts"), list):
        yield from _content(value["parts"])
    else:
        yield from _block(value)


def _block(block: Json) -> Iterator[Part]:
    if not isinstance(block, dict):
        yield Part("text" if isinstance(block, str) else "other", _said(block))
        return
    kind = _word(block.get("type"))
    if kind in _TEXTS or (kind is None and isinstance(block.get("text"), str)):
        said = block.get("text", block.get("refusal"))
        thought = block.get("thought") is True  # Gemini's reasoning
        yield Part("reasoning" if thought else "text", _said(said))
    elif kind in _IMAGES or "inlineData" in block or "inline_data" in block:
        yield Part("image", _image(block))
    elif kind == "tool_use":
        yield Part("tool_call", _said(block.get("input")), _word(block.get("id")), _word(block.get("name")))
    elif kind == "tool_result":
        text = "\n".join(part.text for part in _content(block.get("content")))
        yield Part("tool_result", text, _word(block.get("tool_use_id")))
    elif kind in _REASONING:
        yield Part("reasoning", _said(block.get("thinking") or block.get("text") or ""))
    elif isinstance(asked := block.get("functionCall") or block.get("function_call"), dict):
        yield Part("tool_call", _said(asked.get("args")), _word(asked.get("id")), _word(asked.get("name")))
    elif isinstance(came := block.get("functionResponse") or block.get("function_response"), dict):
        yield Part("tool_result", _said(came.get("response")), _word(came.get("id")), _word(came.get("name")))
    else:
        yield _block_of_converse(block) or Part("other", _said(block), None, kind)


def _block_of_converse(block: Mapping[str, Json]) -> Part | None:
    """A block that has no type, and one member by which it is known."""
    if isinstance(asked := block.get("toolUse"), dict):
        return Part("tool_call", _said(asked.get("input")), _word(asked.get("toolUseId")), _word(asked.get("name")))
    if isinstance(came := block.get("toolResult"), dict):
        content = came.get("content")
        parts = [part["json"] if isinstance(part, dict) and "json" in part else part for part in _listed(content)]
        text = "\n".join(part.text for part in _content(parts))
        return Part("tool_result", text, _word(came.get("toolUseId")))
    if isinstance(thought := block.get("reasoningContent"), dict):
        said = thought.get("reasoningText")
        return Part("reasoning", _said(said.get("text")) if isinstance(said, dict) else "")
    if isinstance(cited := block.get("citationsContent"), dict):
        return Part("text", "".join(part.text for part in _content(cited.get("content"))))
    if isinstance(image := block.get("image"), dict):
        return Part("image", f"image/{image.get('format')}")
    return None


def _role_of_item(item: Mapping[str, Json]) -> str:
    kind = str(item.get("type"))
    return "tool" if kind.endswith("_output") else "assistant"


def _item_parts(item: Json) -> Iterator[Part]:
    """The parts of an item of a response."""
    if not isinstance(item, dict):
        yield from _block(item)
        return
    kind = str(item.get("type"))
    if kind == "message":
        yield from _content(item.get("content"))
    elif kind == "reasoning":
        listed = [*_listed(item.get("summary")), *_listed(item.get("content"))]
        texts = [_said(one.get("text")) for one in listed if isinstance(one, dict)]
        yield Part("reasoning", "\n".join(texts))
    elif kind.endswith("_output"):
        yield Part("tool_result", _said(item.get("output")), _word(item.get("call_id")))
    elif kind.endswith("_call") and "call_id" in item:
        said = next((item[name] for name in ("arguments", "input", "action", "operation") if name in item), None)
        yield Part("tool_call", _said(said), _word(item.get("call_id")), _word(item.get("name")) or kind[:-5])
    else:
        yield Part("other", _said(item), None, kind)


def _image(block: Mapping[str, Json]) -> str:
    """Where an image is, or what of it was sent; never its bytes."""
    place = block.get("image_url")
    url = place.get("url") if isinstance(place, dict) else place
    if isinstance(url, str) and not url.startswith("data:"):
        return url
    named = (block.get(name) for name in ("source", "inlineData", "inline_data"))
    held = next((value for value in named if isinstance(value, dict)), None) or dict[str, Json]()
    kind = held.get("media_type") or held.get("mimeType") or held.get("mime_type") or "image"
    data = url if isinstance(url, str) else held.get("data")
    if isinstance(url, str):
        kind = url[5:].partition(";")[0] or kind
    return f"{kind}, {len(data):,} characters" if isinstance(data, str) else str(held.get("url") or kind)


def _said(value: Json) -> str:
    """A text as it is, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "backslashreplace")


def _word(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


# --- what is new ------------------------------------------------------------------------------------------------------


def is_new(messages: Sequence[Message], before: Iterable[Message]) -> list[bool]:
    """For each message whether the request before does not have it (once more); ids of calls do not count."""
    there = Counter(_text(message) for message in before)
    told: list[bool] = []
    for message in messages:
        text = _text(message)
        told.append(there[text] <= 0)
        there[text] -= 1
    return told


def _text(message: Message) -> bytes:
    return message.role.encode("utf-8", "backslashreplace") + quick_text(without_ids(message.raw))
