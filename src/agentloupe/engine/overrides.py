"""What a fork changes, and how the change gets into a request. What is not overridden is sent exactly as recorded.

`compile_overrides` turns overrides into guarded edits of step N's request (see `edits`); the very same edits are then
applied to N and to later requests. Five forms of request are known, see `dialects.form_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, cast

from agentloupe.engine.edits import ABSENT, Edit, Path, apply_edits, nearest, parse_path, same, show_path, value_at
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import Form, form_of, tools_in
from agentloupe.words.errors import UsageError
from agentloupe.words.jsontext import loads

__all__ = [
    "NO_OVERRIDES",
    "Applied",
    "MessageEdit",
    "Overrides",
    "ToolEdit",
    "apply_overrides",
    "apply_to_request",
    "compile_overrides",
    "further_instructions",
    "overrides_as_json",
    "overrides_from_json",
    "parse_set",
    "tool_name",
    "tool_names",
]

INSTRUCTIONS = frozenset({"system", "developer"})
"""Roles of messages that instruct the model."""


@dataclass(frozen=True, slots=True)
class MessageEdit:
    """One change of the recorded history: `index` means the recorded list, whatever else is edited.

    `set` replaces the whole message, `insert` puts `message` before it (at the end, too), `remove` takes it out.
    """

    index: int
    op: Literal["set", "insert", "remove"] = "set"
    message: Json = None


@dataclass(frozen=True, slots=True)
class ToolEdit:
    """One change of the tools that the model is told of: `add` a definition, `remove` one, or `set` a changed one."""

    op: Literal["add", "remove", "set"]
    name: str
    definition: Json = None


@dataclass(frozen=True, slots=True)
class Overrides:
    """Everything that a fork changes. `None` (or nothing) means: not overridden.

    Attributes:
        system_prompt: replaces the content of the leading instruction message; `""` is a prompt, `None` is no override.
        model, temperature, top_p, seed, max_tokens, tool_choice, response_format: parameters of the request, under the
            name that the recorded request uses for them (`max_completion_tokens` stays that).
        extra: further top-level fields, also ones that Loupe does not know.
        messages, tools: see `MessageEdit` and `ToolEdit`.
        tool_results: index of a recorded tool step -> the result it shall have had.
        set_paths: (path, value) for anything else, also null; see `edits.parse_path`.
        unset_paths: paths to take out.
    """

    system_prompt: str | None = None
    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    tool_choice: Json = None
    response_format: Json = None
    extra: Mapping[str, Json] = field(default_factory=dict[str, Json])
    messages: tuple[MessageEdit, ...] = ()
    tools: tuple[ToolEdit, ...] = ()
    tool_results: Mapping[int, Json] = field(default_factory=dict[int, Json])
    set_paths: tuple[tuple[str, Json], ...] = ()
    unset_paths: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is overridden."""
        return all(getattr(self, f.name) == getattr(NO_OVERRIDES, f.name) for f in fields(self))


NO_OVERRIDES = Overrides()

PARAMETERS = ("model", "temperature", "top_p", "seed", "max_tokens", "tool_choice", "response_format")

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "max_tokens": (
        *("max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("generationConfig.maxOutputTokens", "inferenceConfig.maxTokens"),
    ),
    "temperature": ("temperature", "generationConfig.temperature", "inferenceConfig.temperature"),
    "top_p": ("top_p", "generationConfig.topP", "inferenceConfig.topP"),
    "seed": ("seed", "generationConfig.seed"),
}
_MAX_TOKENS: Mapping[Form, int] = {"chat": 0, "anthropic": 0, "responses": 2}
_CONFIGS: Mapping[Form, str] = {"gemini": "generationConfig", "converse": "inferenceConfig"}
"""The member of a request that holds its parameters, where they do not stand in the request itself."""

KNOWN_FIELDS = frozenset(
    [
        "model",
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "stream",
        "stream_options",
        "response_format",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "user",
        "metadata",
        "store",
        "parallel_tool_calls",
        "service_tier",
        "reasoning_effort",
        "verbosity",
        "modalities",
        "audio",
        "prediction",
        "functions",
        "function_call",
        "system",
        "thinking",
        "stop_sequences",
        "input",
        "instructions",
        "max_output_tokens",
        "reasoning",
        "text",
        "truncation",
        "include",
        "previous_response_id",
        "contents",
        "systemInstruction",
        "generationConfig",
        "safetySettings",
        "toolConfig",
        "inferenceConfig",
        "additionalModelRequestFields",
        "guardrailConfig",
        "min_p",
        "repetition_penalty",
        "prompt_cache_key",
        "safety_identifier",
        "chat_template_kwargs",
        "enable_thinking",
        "web_search_options",
        "extra_body",
    ]
)
"""Top-level fields of requests that may be set without having been recorded; others are given as `extra`."""


# --- compiling --------------------------------------------------------------------------------------------------------


def compile_overrides(overrides: Overrides, request: Mapping[str, Json], form: Form | None = None) -> tuple[Edit, ...]:
    """The edits that overrides make on this request; nothing for what is that way already.

    `tool_results` are not part of it (they need the recorded steps).

    Raises:
        UsageError: an index, a tool or a path that the request does not have; names the nearest one.
    """
    form = form or form_of(request)
    wanted = [*_message_edits(overrides.messages, request)]
    if overrides.system_prompt is not None:
        wanted.append(_system_edit(overrides.system_prompt, request, form))
    for name in PARAMETERS:
        value: Json = getattr(overrides, name)
        if value is not None:
            wanted.append(_set(_parameter_path(name, request, form), value, request))
    wanted += [_set((name,), value, request) for name, value in overrides.extra.items()]
    wanted += _tool_edits(overrides.tools, request, form)
    wanted += [_set_edit(text, value, request) for text, value in overrides.set_paths]
    wanted += [_unset_edit(text, request) for text in overrides.unset_paths]
    return tuple(edit for edit in wanted if _changes(edit, request))


def _set(path: Path, value: Json, request: Mapping[str, Json]) -> Edit:
    return Edit(path, "set", value, path, value_at(dict(request), path))


def _changes(edit: Edit, request: Mapping[str, Json]) -> bool:
    return edit.op != "set" or not same(value_at(dict(request), edit.path), edit.value)


def _parameter_path(name: str, request: Mapping[str, Json], form: Form) -> Path:
    known = [parse_path(text) for text in _ALIASES.get(name, (name,))]
    for path in known:
        if value_at(dict(request), path) is not ABSENT:
            return path
    if form in _CONFIGS:
        return next((path for path in known if path[0] == _CONFIGS[form]), known[0])
    return known[_MAX_TOKENS[form]] if name == "max_tokens" else known[0]


def _system_edit(prompt: str, request: Mapping[str, Json], form: Form) -> Edit:
    return _SYSTEM_EDITS[form](prompt, request)


def _in_messages(prompt: str, request: Mapping[str, Json]) -> Edit:
    return _instruct("messages", prompt, request) or Edit(
        ("messages", 0),
        "insert",
        {"role": "system", "content": prompt},
        ("messages", 0),
        value_at(dict(request), ("messages", 0)),
    )


def _instruct(history: str, prompt: str, request: Mapping[str, Json]) -> Edit | None:
    """Replaces the content of a leading instruction message; `None` where the first message is none."""
    first = value_at(dict(request), (history, 0))
    instructs = isinstance(first, dict) and first.get("role") in INSTRUCTIONS
    return _set((history, 0, "content"), prompt, request) if instructs else None


def _in_system(prompt: str, request: Mapping[str, Json]) -> Edit:
    """Blocks become the text, or one block where something stands beside the text of the first (a mark of the cache)."""
    given = request.get("system")
    first = given[0] if isinstance(given, list) and given else None
    marked = isinstance(first, dict) and first.keys() > {"type", "text"}
    value: Json = [{**first, "text": prompt}] if marked and isinstance(first, dict) and prompt else prompt
    return _set(("system",), value, request)


def _in_instructions(prompt: str, request: Mapping[str, Json]) -> Edit:
    leading = None if request.get("instructions") is not None else _instruct("input", prompt, request)
    return leading or _set(("instructions",), prompt, request)


def _in_system_instruction(prompt: str, request: Mapping[str, Json]) -> Edit:
    name = "system_instruction" if "system_instruction" in request else "systemInstruction"
    kept = request.get(name)
    parts: Json = [{"text": prompt}]
    return _set((name,), {**kept, "parts": parts} if isinstance(kept, dict) else {"parts": parts}, request)


_SYSTEM_EDITS: Mapping[Form, Callable[[str, Mapping[str, Json]], Edit]] = {
    "chat": _in_messages,
    "anthropic": _in_system,
    "responses": _in_instructions,
    "gemini": _in_system_instruction,
    "converse": lambda prompt, request: _set(("system",), [{"text": prompt}], request),
}


def _history(request: Mapping[str, Json]) -> tuple[str, list[Json]]:
    name = next((n for n in ("messages", "input", "contents") if isinstance(request.get(n), list)), None)
    if name is None:
        raise UsageError("this request holds no list of messages to edit")
    return name, cast("list[Json]", request[name])


def _message_edits(edits: Sequence[MessageEdit], request: Mapping[str, Json]) -> list[Edit]:
    if not edits:
        return []
    name, history = _history(request)
    return [_message_edit(edit, name, history) for edit in edits]


def _message_edit(edit: MessageEdit, name: str, history: list[Json]) -> Edit:
    end = len(history) + (edit.op == "insert")
    if not 0 <= edit.index < end:
        last = f"the nearest is {name}[{len(history) - 1}]" if history else "it has none"
        raise UsageError(f"{name}[{edit.index}] is not there: the request has {len(history)} of them", hint=last)
    # An insert at the end is tied to the message before it: later requests have an answer at that index.
    guard = edit.index - 1 if edit.index == len(history) and history else edit.index
    was = history[guard] if guard < len(history) else ABSENT
    return Edit((name, edit.index), edit.op, edit.message, (name, guard), was)


def tool_name(definition: Json) -> str | None:
    """Name of a tool definition, in the chat form (`function.name`), the one of Converse (`toolSpec.name`) or the flat one (`name`)."""
    if not isinstance(definition, dict):
        return None
    function = definition.get("function", definition.get("toolSpec"))
    name = function.get("name") if isinstance(function, dict) else definition.get("name")
    return name if isinstance(name, str) else None


def tool_names(definitions: Sequence[Json]) -> list[str]:
    """Names of all tools that a request tells of; Gemini lists them inside of one."""
    found: list[str] = []
    for one in definitions:
        inner = one.get("functionDeclarations", one.get("function_declarations")) if isinstance(one, dict) else None
        listed = inner if isinstance(inner, list) else [one]
        found += [name for tool in listed if (name := tool_name(tool))]
    return found


def _tool_edits(edits: Sequence[ToolEdit], request: Mapping[str, Json], form: Form) -> list[Edit]:
    """One edit of the whole list: it is sent on every call, and a list that becomes empty has to go."""
    if not edits:
        return []
    if form == "gemini":
        raise UsageError("tools of this form of request are changed by path", hint="--set tools[0]....=VALUE")
    holder, place = (("toolConfig",), ("toolConfig", "tools")) if form == "converse" else (("tools",), ("tools",))
    tools = list(tools_in(request))
    for edit in edits:
        at = next((i for i, tool in enumerate(tools) if tool_name(tool) == edit.name), None)
        if edit.op == "add" and at is None:
            tools.append(edit.definition)
        elif at is None:
            close = nearest(edit.name, [name for name in map(tool_name, tools) if name])
            raise UsageError(
                f"the request has no tool {edit.name!r}", hint=f"did you mean {close!r}?" if close else None
            )
        elif edit.op == "remove":
            del tools[at]
        else:
            tools[at] = edit.definition
    if not tools:
        return [_removal(holder, request)] if holder[0] in request else []
    return [_set(place, tools, request)]


def _removal(path: Path, request: Mapping[str, Json]) -> Edit:
    return Edit(path, "remove", None, path, value_at(dict(request), path))


def _set_edit(text: str, value: Json, request: Mapping[str, Json]) -> Edit:
    path = parse_path(text)
    if path[0] in ("extra", "extra_body") and path[0] not in request and len(path) > 1:
        return _set(path[1:], value, request)
    _check_path(path, request, reach=len(path) - 1)
    return _set(path, value, request)


def _unset_edit(text: str, request: Mapping[str, Json]) -> Edit:
    path = parse_path(text)
    _check_path(path, request, reach=len(path))
    return _removal(path, request)


def _check_path(path: Path, request: Mapping[str, Json], *, reach: int) -> None:
    """The first `reach` parts must be there (a set may add a leaf); a new top-level field must be a known one."""
    whole = dict(request)
    if path[0] not in whole:
        if reach < len(path) and path[0] in KNOWN_FIELDS and not any(isinstance(p, int) for p in path):
            return
        raise _no_such(path, 1, whole)
    for depth in range(1, len(path) + 1):
        there = value_at(whole, path[:depth]) is not ABSENT
        holder = value_at(whole, path[: depth - 1])
        may_be_new = depth > reach and isinstance(holder, dict) and isinstance(path[depth - 1], str)
        if not there and not may_be_new:
            raise _no_such(path, depth, whole)


def _no_such(path: Path, depth: int, whole: dict[str, Json]) -> UsageError:
    holder = value_at(whole, path[: depth - 1]) if depth > 1 else whole
    part, before = path[depth - 1], path[: depth - 1]
    hint: str | None = None
    if isinstance(holder, dict):
        known = [*holder, *(KNOWN_FIELDS if depth == 1 else ())]
        close = nearest(str(part), known) if part not in known else None  # left out of this request, and no slip
        hint = f"did you mean {show_path((*before, close))}?" if close else None
        if depth == 1 and not close and part not in known:
            hint = f"a field that only this provider knows is given as extra.{part}"
    elif isinstance(holder, list):
        hint = f"the nearest is {show_path((*before, len(holder) - 1))}" if holder else f"{show_path(before)} is empty"
    elif before:
        hint = f"{show_path(before)} is a single value"
    return UsageError(f"unknown override {show_path(path)}: the request has no {show_path(path[:depth])}", hint=hint)


# --- applying ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    """A request after overriding.

    Attributes:
        request: what is to be sent.
        edits: what was really changed.
        notes: what a person should know about it, one line each.
    """

    request: dict[str, Json]
    edits: tuple[Edit, ...]
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> list[dict[str, Json]]:
        """`[{path, op, value}]`, as it is recorded on the fork."""
        return [edit.as_json() for edit in self.edits]


def apply_to_request(request: Mapping[str, Json], overrides: Overrides, form: Form | None = None) -> Applied:
    """Applies overrides to the request they are made for. Raises `UsageError` like `compile_overrides`."""
    edits = compile_overrides(overrides, request, form)
    changed, applied = apply_edits(request, edits)
    notes: tuple[str, ...] = ()
    further = further_instructions(request, form)
    if overrides.system_prompt is not None and further:
        places = ", ".join(str(i) for i in further)
        plural = (
            "messages {} are further instructions that stay"
            if len(further) > 1
            else "message {} is a further instruction that stays"
        )
        notes = (plural.format(places),)
    return Applied(changed, applied, notes)


def apply_overrides(messages: Sequence[Json], overrides: Overrides) -> list[Json]:
    """The messages of a chat request with the overrides that concern messages; the given list is not touched."""
    concerned = Overrides(system_prompt=overrides.system_prompt, messages=overrides.messages)
    changed = apply_to_request({"messages": list(messages)}, concerned, "chat").request["messages"]
    return cast("list[Json]", changed)


def further_instructions(request: Mapping[str, Json], form: Form | None = None) -> list[int]:
    """Indices of instruction messages beside the one that a system prompt override replaces."""
    form = form or form_of(request)
    history = request.get("input" if form == "responses" else "messages")
    if not isinstance(history, list):
        return []
    leads = form == "chat" or (form == "responses" and request.get("instructions") is None)
    own = 1 if leads else 0
    return [i for i, m in enumerate(history) if i >= own and isinstance(m, dict) and m.get("role") in INSTRUCTIONS]


# --- from text and JSON -----------------------------------------------------------------------------------------------


def parse_set(text: str) -> tuple[str, Json]:
    """Reads `PATH=VALUE` of the command line: the value is JSON, or else text. `extra.NAME` sets a field unknown to Loupe.

    Raises:
        UsageError: no `=`, or no path before it.
    """
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not path:
        raise UsageError(f"--set wants PATH=VALUE, not {text!r}", hint="for instance --set temperature=0.2")
    parse_path(path)
    try:
        return path, loads(value)
    except ValueError:
        return path, value


def overrides_from_json(value: Mapping[str, Json]) -> Overrides:
    """Reads overrides from a JSON object with the fields of `Overrides` (messages and tools as objects of their fields).

    Raises:
        UsageError: an unknown name; names the nearest one. Or a value of a wrong shape.
    """
    known = [f.name for f in fields(Overrides)]
    for name in value:
        if name not in known:
            close = nearest(name, known)
            raise UsageError(
                f"unknown override {name!r}", hint=f"did you mean {close!r}?" if close else "see the guide on forks"
            )
    given: dict[str, Any] = {name: v for name, v in value.items() if v is not None}
    try:
        if "messages" in given:
            given["messages"] = tuple(MessageEdit(**edit) for edit in given["messages"])
        if "tools" in given:
            given["tools"] = tuple(ToolEdit(**edit) for edit in given["tools"])
        if "tool_results" in given:
            given["tool_results"] = {int(idx): result for idx, result in given["tool_results"].items()}
        if "set_paths" in given:
            given["set_paths"] = tuple((str(path), v) for path, v in given["set_paths"])
        if "unset_paths" in given:
            given["unset_paths"] = tuple(map(str, given["unset_paths"]))
        return Overrides(**given)
    except (AttributeError, TypeError, ValueError) as wrong:
        raise UsageError(f"overrides have a wrong shape: {wrong}") from wrong


def overrides_as_json(overrides: Overrides) -> dict[str, Json]:
    """Overrides as a JSON object with what is set; `overrides_from_json` reads it back."""
    given: dict[str, Json] = {}
    for name in (f.name for f in fields(Overrides)):
        value = getattr(overrides, name)
        if value == getattr(NO_OVERRIDES, name):
            continue
        if name in ("messages", "tools"):
            given[name] = [asdict(edit) for edit in value]
        elif name == "tool_results":
            given[name] = {str(idx): result for idx, result in value.items()}
        elif name == "set_paths":
            given[name] = [[path, v] for path, v in value]
        else:
            given[name] = _plain(value)
    return given


def _plain(value: Any) -> Json:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Json]", value))
    return list(cast("tuple[Json, ...]", value)) if isinstance(value, tuple) else cast("Json", value)
