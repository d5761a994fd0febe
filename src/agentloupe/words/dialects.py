"""What requests and answers of models say, in each of the forms that providers speak. Reads, never decides.

Chat completions (`messages`, `choices`), OpenAI Responses (`input`, `output`), Anthropic messages (`messages` with
content blocks, `content`), Gemini (`contents`, `candidates`) and Converse of Bedrock (`messages` with blocks that have no type,
`output.message`). A form that is not known says nothing, which is never taken for "there is none". The tools that a model asks the
program for stand in `toolcalls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from agentloupe.words.canonical import Json

__all__ = [
    "Form",
    "finish_reason_of",
    "form_in",
    "form_of",
    "hosted_tools",
    "message_in",
    "server_held",
    "text_in",
    "tools_in",
    "without_tools",
]

Form = Literal["chat", "anthropic", "responses", "gemini", "converse"]
"""A dialect: the form in which a provider is asked and answers."""

_RUN_HERE: Final = frozenset({"function", "custom", "local_shell", "apply_patch", "computer", "computer_use_preview"})
_RUN_HERE_DATED: Final = ("bash_", "text_editor_", "computer_", "memory_")
"""Beginnings of tool types that a provider describes and the program runs; behind them stands a date."""
_OF_CONVERSE: Final = frozenset({"inferenceConfig", "toolConfig", "additionalModelRequestFields", "guardrailConfig"})
_HOLDERS: Final = ("previous_response_id", "conversation", "container")


# --- which form -------------------------------------------------------------------------------------------------------

_ENDPOINTS: Final[tuple[tuple[str, Form], ...]] = (
    ("/chat/completions", "chat"),
    ("/messages", "anthropic"),
    ("/responses", "responses"),
)


def form_of(request: Mapping[str, Json], provider: str | None = None, endpoint: str | None = None) -> Form:
    """Which provider's form a request has, by where it was sent, else by its fields.

    `contents` is Gemini's; `input` without `messages` the Responses form; blocks that have no type, or settings of its
    own, are Converse's; `system` or `anthropic_version` beside `messages` Anthropic's (or its provider says so); anything
    else is a chat completion.
    """
    for end, form in _ENDPOINTS:
        if endpoint is not None and endpoint.endswith(end):
            return form
    if "contents" in request:
        return "gemini"
    if "messages" not in request and ("input" in request or "instructions" in request):
        return "responses"
    if _is_converse(request):
        return "converse"
    if "system" in request or "anthropic_version" in request or provider == "anthropic":
        return "anthropic"
    return "chat"


def _is_converse(request: Mapping[str, Json]) -> bool:
    if "anthropic_version" in request:
        return False
    if not _OF_CONVERSE.isdisjoint(request):
        return True
    messages = request.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    blocks = first.get("content") if isinstance(first, dict) else None
    block = blocks[0] if isinstance(blocks, list) and blocks else None
    return isinstance(block, dict) and "type" not in block


def form_in(answer: Json) -> Form | None:
    """Which form an answer has, by its members; `None` where they do not tell."""
    if not isinstance(answer, dict):
        return None
    if isinstance(answer.get("choices"), list):
        return "chat"
    if answer.get("object") == "response":
        return "responses"
    if isinstance(answer.get("candidates"), list):
        return "gemini"
    if _converse_message(answer) is not None:
        return "converse"
    return "anthropic" if answer.get("type") == "message" else None


# --- tools that a model is told of ------------------------------------------------------------------------------------


def tools_in(request: Mapping[str, Json]) -> list[Json]:
    """Definitions of the tools that a request tells of: its `tools`, or those in the `toolConfig` of Converse."""
    listed = request.get("tools")
    held = request.get("toolConfig")
    if listed is None and isinstance(held, dict):
        listed = held.get("tools")
    return listed if isinstance(listed, list) else []


def without_tools(request: Mapping[str, Json]) -> dict[str, Json]:
    """A request without the definitions of its tools. Whatever else is said of them stays."""
    rest = {name: value for name, value in request.items() if name != "tools"}
    if "tools" not in request and isinstance(held := rest.get("toolConfig"), dict) and "tools" in held:
        del rest["toolConfig"]
        if further := {name: value for name, value in held.items() if name != "tools"}:
            rest["toolConfig"] = further
    return rest


# --- what a provider does and keeps -----------------------------------------------------------------------------------


def hosted_tools(request: Mapping[str, Json]) -> list[str]:
    """Types of the tools that run at the provider (web search, code, MCP), in order; nothing of theirs passes by here."""
    listed = request.get("tools")
    found = [kind for tool in listed if (kind := _hosted(tool))] if listed and isinstance(listed, list) else []
    if request.get("web_search_options") is not None:
        found.append("web_search")
    if request.get("mcp_servers"):
        found.append("mcp")
    return list(dict.fromkeys(found)) if found else found


def _hosted(tool: Json) -> str | None:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind == "function" or not isinstance(tool, dict) or not isinstance(kind, str):
        return None
    if kind in _RUN_HERE or kind.startswith(_RUN_HERE_DATED):
        return None
    place = tool.get("environment")
    here = tool.get("execution") == "client" or (isinstance(place, dict) and place.get("type") == "local")
    return None if here else kind


def server_held(request: Mapping[str, Json]) -> bool:
    """Whether the provider holds a part of what is asked: a conversation, a stored prompt, files."""
    for name in _HOLDERS:
        if request.get(name) is not None:
            return True
    prompt = request.get("prompt")
    if isinstance(prompt, dict) and prompt.get("id") is not None:
        return True
    history = request.get("messages") or request.get("input")
    if not isinstance(history, list):
        return False
    said = cast("list[Any]", history)  # most say no more than a text, which is seen here without a call
    odd = [m for m in said if m.__class__ is not dict or "type" in m or m.get("content").__class__ is list]
    return any(map(_names_a_holding, odd))


def _names_a_holding(item: Json) -> bool:
    """Whether a message, an item or a part of one stands for something that lies at the provider. Texts are not read."""
    if not isinstance(item, dict):
        return False
    inner = item.get("content")
    if inner.__class__ is list and any(map(_names_a_holding, cast("list[Json]", inner))):
        return True
    kind = item.get("type")
    if kind is None:
        return False  # a plain message
    held = (item, item.get("file"), item.get("source"))
    return kind == "item_reference" or any(isinstance(part, dict) and "file_id" in part for part in held)


# --- answers ----------------------------------------------------------------------------------------------------------


def finish_reason_of(answer: Json) -> str | None:
    """Why a model stopped, in the provider's word; `None` where it does not say."""
    if not isinstance(answer, dict):
        return None
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    said = (
        first.get("finish_reason") if isinstance(first, dict) else answer.get("stop_reason", answer.get("stopReason"))
    )
    if (candidate := _candidate(answer)) is not None:
        said = candidate.get("finishReason")
    if answer.get("object") == "response":
        cut = answer.get("incomplete_details")
        said = (cut.get("reason") if isinstance(cut, dict) else None) or answer.get("status")
    return said if isinstance(said, str) else None


def _candidate(answer: Mapping[str, Json]) -> dict[str, Json] | None:
    """The first of Gemini's answers."""
    listed = answer.get("candidates")
    first = listed[0] if isinstance(listed, list) and listed else None
    return first if isinstance(first, dict) else None


def _converse_message(answer: Mapping[str, Json]) -> dict[str, Json] | None:
    """The message of Converse's answer."""
    output = answer.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    return message if isinstance(message, dict) else None


def message_in(answer: Json) -> Json:
    """What a model said, without what the provider says about it; another form of answer as it is.

    The assistant message of a chat completion, role and content of an Anthropic message, the output of a response, the content
    of Gemini's first candidate, the message of Converse's output.
    """
    if not isinstance(answer, dict):
        return answer
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and "message" in first:
        return first["message"]
    if (candidate := _candidate(answer)) is not None and isinstance(content := candidate.get("content"), dict):
        return content
    if answer.get("object") == "response" and isinstance(answer.get("output"), list):
        return {"role": "assistant", "output": answer["output"]}
    if (message := _converse_message(answer)) is not None:
        return message
    if answer.get("type") == "message" and isinstance(answer.get("content"), list):
        return {"role": answer.get("role", "assistant"), "content": answer["content"]}
    return answer


def text_in(message: Json) -> Json:
    """The text of an assistant message, in each form; where it holds anything else, or has no text, the value as it is."""
    if not isinstance(message, dict) or message.get("role", "assistant") not in ("assistant", "model"):
        return message
    said = message.get("content", message.get("output", message.get("parts", message)))
    if not isinstance(said, list):
        return message if said is message else said
    texts = [text for part in said if isinstance(part, dict) for text in _texts(part)]
    return "".join(texts) if texts else said


def _texts(part: Mapping[str, Json]) -> list[str]:
    """Texts of a part of a message, or of an item that is one."""
    inner = part.get("content")
    if part.get("type") == "message" and isinstance(inner, list):
        return [text for one in inner if isinstance(one, dict) for text in _texts(one)]
    text = part.get("text")
    plain = part.get("type") in ("text", "output_text") or ("type" not in part and part.get("thought") is not True)
    return [text] if plain and isinstance(text, str) else []
