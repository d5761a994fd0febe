"""A plain list of chat messages as steps: each assistant message is a model call whose request is what stood before it.

A tool result belongs to the nearest earlier message of its own turn that has an unanswered call of its id, and there to
the first of them (a turn begins with a user message); the old `function` messages belong by name. A call without a result stays an open step, a result without a call a step of kind
`other`; both are marked `orphan` and named in the warnings. Nothing is put right: a request is the messages as they stood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentloupe.importers.building import RunBuilder, Said, step_name
from agentloupe.words.arguments import parse_arguments
from agentloupe.words.call import NO_ATTRS, Attrs
from agentloupe.words.canonical import Json

__all__ = ["add_conversation"]

_RESULTS = frozenset({"tool", "function"})


@dataclass(slots=True)
class _Asked:
    """A tool call of an assistant message, and where its result stands."""

    at: int
    id: Json
    name: str
    raw: Json
    result: int | None = None


def add_conversation(
    builder: RunBuilder, messages: list[Json], rest: Mapping[str, Json] = NO_ATTRS, *, pending: bool = True
) -> dict[str, Json]:
    """Adds the steps of a conversation to a run that has started.

    Args:
        builder: of the run.
        messages: the whole conversation.
        rest: the other members of the requests (tools, model ...), as far as they are known.
        pending: messages after the last answer are a request that was not answered yet: an open model step.

    Returns:
        What no step holds: `{"trailing": [...]}`, the messages after the last answer when there is no pending step.
    """
    asked = _joined(messages)
    answered = {call.result for call in asked if call.result is not None}
    last = -1
    for at, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            last = at
            builder.step(_model_step(messages[:at], message, rest))
            for call in asked:
                if call.at == at:
                    builder.step(_tool_step(call, messages, builder))
        elif role in _RESULTS and at not in answered:
            builder.step(_orphan(at, message, builder))
    trailing = messages[last + 1 :]
    if not trailing:
        return {}
    if not pending:
        return {"trailing": trailing}
    builder.step(_model_step(messages, None, rest, {"pending": True}, ended=False))
    return {}


# --- calls and results ------------------------------------------------------------------------------------------------


def _joined(messages: list[Json]) -> list[_Asked]:
    """All tool calls in order, joined to their results."""
    asked: list[_Asked] = []
    turn: list[_Asked] = []
    for at, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        role = message.get("role")
        if role == "user":
            turn = []
        elif role == "assistant":
            new = list(_calls(at, message))
            asked += new
            turn += new
        elif role in _RESULTS:
            waiting = [call for call in turn if call.result is None and _belongs(message, call)]
            if waiting:  # one message may use an id twice: its results come in the order of its calls
                next(call for call in waiting if call.at == waiting[-1].at).result = at
    return asked


def _calls(at: int, message: Mapping[str, Json]) -> Iterator[_Asked]:
    listed = message.get("tool_calls")
    for call in listed if isinstance(listed, list) else []:
        if isinstance(call, dict):
            function = call.get("function")
            inside = function if isinstance(function, dict) else call
            yield _Asked(at, call.get("id"), _name(inside), inside.get("arguments"))
    old = message.get("function_call")
    if isinstance(old, dict):
        yield _Asked(at, None, _name(old), old.get("arguments"))


def _name(function: Mapping[str, Json]) -> str:
    name = function.get("name")
    return name if isinstance(name, str) and name else "unnamed tool"


def _belongs(message: Mapping[str, Json], call: _Asked) -> bool:
    if message.get("role") == "function":
        return call.id is None and message.get("name") == call.name
    return call.id is not None and message.get("tool_call_id") == call.id


# --- steps ------------------------------------------------------------------------------------------------------------


def _model_step(
    before: list[Json], answer: Json, rest: Mapping[str, Json], attrs: Attrs = NO_ATTRS, *, ended: bool = True
) -> Said:
    model = rest.get("model")
    known: dict[str, Json] = {"model": model} if isinstance(model, str) and model else {}
    return Said(
        kind="llm",
        name=step_name(model),
        input={**rest, "messages": before},
        output=answer,
        ended=ended,
        attrs={**known, **attrs},
    )


def _tool_step(call: _Asked, messages: list[Json], builder: RunBuilder) -> Said:
    raw = call.raw if isinstance(call.raw, str | dict) else None
    arguments = parse_arguments(raw)
    attrs: dict[str, Json] = {"tool_call_id": call.id} if isinstance(call.id, str) else {}
    if arguments.error is not None:
        attrs["parse_error"] = True
        builder.warnings.append(f"message {call.at}: the arguments of {call.name} are {arguments.error}")
    result = messages[call.result] if call.result is not None else None
    if result is None:
        attrs["orphan"] = "no_result"
        builder.warnings.append(f"message {call.at}: the call {call.id or call.name} has no result")
    return Said(
        kind="tool",
        name=call.name,
        input=raw if arguments.error is not None else arguments.parsed,
        output=result.get("content") if isinstance(result, dict) else None,
        ended=result is not None,
        attrs=attrs,
    )


def _orphan(at: int, message: Json, builder: RunBuilder) -> Said:
    """A result that no call asked for. Not a tool step: a cassette must not hand it out."""
    inside = message if isinstance(message, dict) else {}
    builder.warnings.append(f"message {at}: a result without its call")
    return Said(
        kind="other",
        name="result without call",
        input={key: value for key, value in inside.items() if key != "content"},
        output=inside.get("content"),
        attrs={"orphan": "no_call"},
    )
