"""How a conversation goes on in each form that providers speak: what a model said goes back, results of its tools behind it.

One `Dialect` for each form; who runs a loop asks it and knows no form itself. What a model said goes back as it came:
reasoning, signatures and members that nobody knows among it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from agentloupe.words.dialects import Form, message_in
from agentloupe.words.errors import LoupeError
from agentloupe.words.jsontext import Json, dumps, loads

__all__ = ["CHAT", "DIALECTS", "Asked", "Dialect", "Result", "Told", "calls_in_message", "final_message", "message_of"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One tool call that a model asks for.

    Attributes:
        id: of the call; `None` in the old `function_call` form of chat completions.
        name: the tool.
        raw: the arguments as they were sent, mostly text.
        kind: type of the call in its form.
    """

    id: str | None
    name: str
    raw: str | dict[str, Json] | None
    kind: str = "function"

    @property
    def free(self) -> bool:
        """Whether its argument is one text in no form (a custom tool), never parsed."""
        return self.kind.startswith("custom")


@dataclass(frozen=True, slots=True)
class Told:
    """What the model is told of a tool call: the content of the result, and whether it is an error.

    `marked` says what the result's own mark of errors is to be; `None`: it has none. `members` are those of the result, in
    order; none: as it is plainly written.
    """

    asked: Asked
    content: Json
    marked: bool | None = None
    members: tuple[str, ...] = ()

    def in_order(self, result: dict[str, Json]) -> dict[str, Json]:
        """The result with its members in that order; others behind them."""
        return {name: result[name] for name in self.members if name in result} | result if self.members else result


@dataclass(frozen=True, slots=True)
class Result:
    """A result in a history: the id (or, in the old form, the name) of its call, and what it says."""

    said: str
    content: Json
    by_name: bool = False
    marked: bool | None = None


class Dialect(Protocol):
    """One form, as a conversation goes on in it. An *item* is a member of the request's history."""

    @property
    def form(self) -> Form:
        """Its name."""
        ...

    @property
    def history(self) -> str:
        """The member of a request that holds the history."""
        ...

    def items(self, request: Mapping[str, Json]) -> list[Json]:
        """The history of a request."""
        ...

    def turn(self, answer: Json) -> list[dict[str, Json]]:
        """What the model said, as items of the next request. Raises `LoupeError` for an answer of another form."""
        ...

    def asked(self, answer: Json) -> list[Asked]:
        """The tools that an answer asks for, in order."""
        ...

    def goes_on(self, answer: Json) -> bool:
        """Whether the model wants to be asked again although it asks for no tool."""
        ...

    def told(self, results: Sequence[Told]) -> list[Json]:
        """Results as items of the next request, in order."""
        ...

    def begins(self, item: Mapping[str, Json]) -> bool:
        """Whether an item begins a turn of the user's."""
        ...

    def calls(self, item: Mapping[str, Json]) -> list[Asked]:
        """The tool calls in an item of a history."""
        ...

    def results(self, item: Mapping[str, Json]) -> list[Result]:
        """The results in an item of a history."""
        ...

    def with_result(self, item: Mapping[str, Json], call_id: str, content: Json) -> dict[str, Json]:
        """The item with another result of this call."""
        ...


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _history(given: Json, alone: Callable[[str], Json]) -> list[Json]:
    """The history of a request, which may be a text `alone`."""
    if isinstance(given, str):
        return [alone(given)]
    return list(given) if isinstance(given, list) else []


def _raw(value: Json) -> str | dict[str, Json] | None:
    return value if isinstance(value, str | dict) else None


def _other_form(said: str) -> LoupeError:
    return LoupeError(f"the model's answer is {said}", reason="answer")


# --- chat completions -------------------------------------------------------------------------------------------------


def message_of(response: Json) -> dict[str, Json]:
    """The assistant message of a chat completion.

    Raises:
        LoupeError: the response has none.
    """
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if not isinstance(message, dict):
        raise _other_form("no chat completion: choices[0].message is not there")
    return message


def calls_in_message(message: Mapping[str, Json]) -> list[Asked]:
    """The tool calls of an assistant message in order, also a `function_call` of the old form."""
    found = [_chat_call(call) for call in _objects(message.get("tool_calls"))]
    old = message.get("function_call")
    if isinstance(old, dict) and not found:
        found.append(Asked(None, str(old.get("name") or ""), _raw(old.get("arguments"))))
    return found


def _chat_call(call: Mapping[str, Json]) -> Asked:
    call_id, custom = str(call.get("id") or ""), call.get("custom")
    if isinstance(custom, dict):
        return Asked(call_id, str(custom.get("name") or ""), _raw(custom.get("input")), "custom")
    function = call.get("function")
    members = function if isinstance(function, dict) else call
    return Asked(call_id, str(members.get("name") or ""), _raw(members.get("arguments")))


class _Chat:
    form: Form = "chat"
    history = "messages"

    def items(self, request: Mapping[str, Json]) -> list[Json]:
        return list(cast("list[Json]", request.get("messages") or []))

    def turn(self, answer: Json) -> list[dict[str, Json]]:
        return [message_of(answer)]

    def asked(self, answer: Json) -> list[Asked]:
        return calls_in_message(message_of(answer))

    def goes_on(self, answer: Json) -> bool:
        return False

    def told(self, results: Sequence[Told]) -> list[Json]:
        return [self._told(one) for one in results]

    def _told(self, one: Told) -> Json:
        asked = one.asked
        if asked.id is None:
            return {"role": "function", "name": asked.name, "content": one.content}
        plain: dict[str, Json] = {"role": "tool", "tool_call_id": asked.id, "content": one.content}
        return one.in_order({**plain, "name": asked.name} if "name" in one.members else plain)

    def begins(self, item: Mapping[str, Json]) -> bool:
        return item.get("role") == "user"

    def calls(self, item: Mapping[str, Json]) -> list[Asked]:
        return calls_in_message(item)

    def results(self, item: Mapping[str, Json]) -> list[Result]:
        for role, member in (("tool", "tool_call_id"), ("function", "name")):
            said = item.get(member)
            if item.get("role") == role and isinstance(said, str):
                return [Result(said, item.get("content"), by_name=role == "function")]
        return []

    def with_result(self, item: Mapping[str, Json], call_id: str, content: Json) -> dict[str, Json]:
        return {**item, "content": content}


# --- Anthropic messages -----------------------------------------------------------------------------------------------


class _Anthropic:
    form: Form = "anthropic"
    history = "messages"

    def items(self, request: Mapping[str, Json]) -> list[Json]:
        return list(cast("list[Json]", request.get("messages") or []))

    def turn(self, answer: Json) -> list[dict[str, Json]]:
        content = answer.get("content") if isinstance(answer, dict) else None
        if not isinstance(content, list):
            raise _other_form("no Anthropic message: its content is not there")
        return [{"role": "assistant", "content": content}] if content else []

    def asked(self, answer: Json) -> list[Asked]:
        return [call for item in self.turn(answer) for call in self.calls(item)]

    def goes_on(self, answer: Json) -> bool:
        return isinstance(answer, dict) and answer.get("stop_reason") == "pause_turn"

    def told(self, results: Sequence[Told]) -> list[Json]:
        return [{"role": "user", "content": [self._block(one) for one in results]}]

    def _block(self, one: Told) -> Json:
        block: dict[str, Json] = {"type": "tool_result", "tool_use_id": one.asked.id, "content": one.content}
        return one.in_order(block if one.marked is None else {**block, "is_error": one.marked})

    def begins(self, item: Mapping[str, Json]) -> bool:
        return item.get("role") == "user" and not self.results(item)

    def calls(self, item: Mapping[str, Json]) -> list[Asked]:
        blocks = _objects(item.get("content"))
        return [
            Asked(str(b.get("id") or ""), str(b.get("name") or ""), _raw(b.get("input")), "tool_use")
            for b in blocks
            if b.get("type") == "tool_use"
        ]

    def results(self, item: Mapping[str, Json]) -> list[Result]:
        blocks = [b for b in _objects(item.get("content")) if b.get("type") == "tool_result"]
        return [Result(str(b.get("tool_use_id")), b.get("content"), marked=_switch(b.get("is_error"))) for b in blocks]

    def with_result(self, item: Mapping[str, Json], call_id: str, content: Json) -> dict[str, Json]:
        def other(block: Json) -> Json:
            mine = isinstance(block, dict) and (block.get("type"), block.get("tool_use_id")) == ("tool_result", call_id)
            if not mine or not isinstance(block, dict):
                return block
            changed: dict[str, Json] = {**block, "content": content}
            return {**changed, "is_error": False} if block.get("is_error") is True else changed

        return {**item, "content": [other(block) for block in cast("list[Json]", item.get("content") or [])]}


def _switch(value: Json) -> bool | None:
    return value if isinstance(value, bool) else None


# --- OpenAI Responses -------------------------------------------------------------------------------------------------

_INPUTS: Final = ("arguments", "input", "action", "operation")
"""Members of an item that say what is wanted, by its type."""


class _Responses:
    form: Form = "responses"
    history = "input"

    def items(self, request: Mapping[str, Json]) -> list[Json]:
        return _history(request.get("input"), lambda text: {"role": "user", "content": text})

    def turn(self, answer: Json) -> list[dict[str, Json]]:
        output = answer.get("output") if isinstance(answer, dict) else None
        if not isinstance(output, list):
            raise _other_form("no response: its output is not there")
        return _objects(cast("Json", output))

    def asked(self, answer: Json) -> list[Asked]:
        items = self.turn(answer)
        done = {result.said for item in items for result in self.results(item)}  # by the provider, right there
        return [call for item in items for call in self.calls(item) if call.id not in done]

    def goes_on(self, answer: Json) -> bool:
        return False

    def told(self, results: Sequence[Told]) -> list[Json]:
        return [
            one.in_order({"type": f"{one.asked.kind}_output", "call_id": one.asked.id, "output": one.content})
            for one in results
        ]

    def begins(self, item: Mapping[str, Json]) -> bool:
        return item.get("role") == "user"

    def calls(self, item: Mapping[str, Json]) -> list[Asked]:
        kind, call_id = str(item.get("type")), item.get("call_id")
        if not kind.endswith("_call") or not isinstance(call_id, str):
            return []
        raw = next((_raw(item[name]) for name in _INPUTS if name in item), None)
        return [Asked(call_id, str(item.get("name") or kind.removesuffix("_call")), raw, kind)]

    def results(self, item: Mapping[str, Json]) -> list[Result]:
        call_id = item.get("call_id")
        if not str(item.get("type")).endswith("_call_output") or not isinstance(call_id, str):
            return []
        return [Result(call_id, item.get("output"))]

    def with_result(self, item: Mapping[str, Json], call_id: str, content: Json) -> dict[str, Json]:
        return {**item, "output": content}


# --- Gemini -----------------------------------------------------------------------------------------------------------


class _Gemini:
    form: Form = "gemini"
    history = "contents"

    def items(self, request: Mapping[str, Json]) -> list[Json]:
        return _history(request.get("contents"), lambda text: {"role": "user", "parts": [{"text": text}]})

    def turn(self, answer: Json) -> list[dict[str, Json]]:
        first = next(iter(_objects(answer.get("candidates"))), None) if isinstance(answer, dict) else None
        if first is None:
            raise _other_form("none of Gemini's: candidates[0] is not there")
        content = first.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        return [{"role": "model", **content, "parts": parts}] if isinstance(content, dict) and parts else []

    def asked(self, answer: Json) -> list[Asked]:
        return [call for item in self.turn(answer) for call in self.calls(item)]

    def goes_on(self, answer: Json) -> bool:
        return False

    def told(self, results: Sequence[Told]) -> list[Json]:
        return [{"role": "user", "parts": [{"functionResponse": self._response(one)} for one in results]}]

    def _response(self, one: Told) -> Json:
        named = {"id": one.asked.id} if one.asked.id is not None else {}
        return {**named, "name": one.asked.name, "response": _an_object(one.content)}

    def begins(self, item: Mapping[str, Json]) -> bool:
        return item.get("role", "user") == "user" and not self.results(item)

    def calls(self, item: Mapping[str, Json]) -> list[Asked]:
        said = [one for part in _objects(item.get("parts")) if isinstance(one := part.get("functionCall"), dict)]
        return [Asked(_id(one), str(one.get("name") or ""), _raw(one.get("args", {})), "functionCall") for one in said]

    def results(self, item: Mapping[str, Json]) -> list[Result]:
        said = [one for part in _objects(item.get("parts")) if isinstance(one := part.get("functionResponse"), dict)]
        return [
            Result(_id(one) or str(one.get("name")), dumps(one.get("response")).decode(), by_name=_id(one) is None)
            for one in said
        ]

    def with_result(self, item: Mapping[str, Json], call_id: str, content: Json) -> dict[str, Json]:
        def other(part: Json) -> Json:
            said = part.get("functionResponse") if isinstance(part, dict) else None
            if not isinstance(part, dict) or not isinstance(said, dict) or (_id(said) or "") != call_id:
                return part
            return {**part, "functionResponse": {**said, "response": _an_object(content)}}

        return {**item, "parts": [other(part) for part in cast("list[Json]", item.get("parts") or [])]}


def _id(said: Mapping[str, Json]) -> str | None:
    call_id = said.get("id")
    return call_id if isinstance(call_id, str) and call_id else None


def _an_object(content: Json) -> Json:
    """A result as the object that Gemini wants: one that is spelled is itself, anything else its member `result`."""
    try:
        value = loads(content) if isinstance(content, str) else content
    except ValueError:
        value = content
    return value if isinstance(value, dict) else {"result": value}


# --- Converse of Bedrock ----------------------------------------------------------------------------------------------


class _Converse:
    form: Form = "converse"
    history = "messages"

    def items(self, request: Mapping[str, Json]) -> list[Json]:
        return list(cast("list[Json]", request.get("messages") or []))

    def turn(self, answer: Json) -> list[dict[str, Json]]:
        output = answer.get("output") if isinstance(answer, dict) else None
        message = output.get("message") if isinstance(output, dict) else None
        if not isinstance(message, dict):
            raise _other_form("none of Converse: output.message is not there")
        return [message] if message.get("content") else []

    def asked(self, answer: Json) -> list[Asked]:
        return [call for item in self.turn(answer) for call in self.calls(item)]

    def goes_on(self, answer: Json) -> bool:
        return False

    def told(self, results: Sequence[Told]) -> list[Json]:
        return [{"role": "user", "content": [{"toolResult": self._result(one)} for one in results]}]

    def _result(self, one: Told) -> Json:
        said: dict[str, Json] = {"toolUseId": one.asked.id, "content": _as_blocks(one.content)}
        return one.in_order(said if one.marked is None else {**said, "status": _STATUS[one.marked]})

    def begins(self, item: Mapping[str, Json]) -> bool:
        return item.get("role") == "user" and not self.results(item)

    def calls(self, item: Mapping[str, Json]) -> list[Asked]:
        said = [one for block in _objects(item.get("content")) if isinstance(one := block.get("toolUse"), dict)]
        return [Asked(str(s.get("toolUseId")), str(s.get("name") or ""), _raw(s.get("input")), "toolUse") for s in said]

    def results(self, item: Mapping[str, Json]) -> list[Result]:
        said = [one for block in _objects(item.get("content")) if isinstance(one := block.get("toolResult"), dict)]
        return [
            Result(str(s.get("toolUseId")), _of_blocks(s.get("content")), marked=_MARKED.get(str(s.get("status"))))
            for s in said
        ]

    def with_result(self, item: Mapping[str, Json], call_id: str, content: Json) -> dict[str, Json]:
        def other(block: Json) -> Json:
            said = block.get("toolResult") if isinstance(block, dict) else None
            if not isinstance(block, dict) or not isinstance(said, dict) or said.get("toolUseId") != call_id:
                return block
            changed: dict[str, Json] = {**said, "content": _as_blocks(content)}
            return {**block, "toolResult": {**changed, "status": "success"} if "status" in said else changed}

        return {**item, "content": [other(block) for block in cast("list[Json]", item.get("content") or [])]}


_STATUS: Final[Mapping[bool, str]] = {True: "error", False: "success"}
_MARKED: Final[Mapping[str, bool]] = {status: marked for marked, status in _STATUS.items()}


def _of_blocks(content: Json) -> Json:
    """The content of a result: a text where it is one; a single value as the text of it, in a part of the type `json`."""
    block = content[0] if isinstance(content, list) and len(content) == 1 else None
    if isinstance(block, dict) and block.keys() == {"text"}:
        return block["text"]
    if isinstance(block, dict) and block.keys() == {"json"}:
        return [{"type": "json", "text": dumps(block["json"]).decode("utf-8", "surrogatepass")}]
    return content


def _as_blocks(content: Json) -> Json:
    """The reverse of `_of_blocks`; what is to be a value and is none is a text."""
    if isinstance(content, str):
        return [{"text": content}]
    part = content[0] if isinstance(content, list) and len(content) == 1 else None
    if not isinstance(part, dict) or part.get("type") != "json":
        return content
    try:
        return [{"json": loads(str(part.get("text")))}]
    except ValueError:
        return [{"text": part.get("text")}]


CHAT: Final[Dialect] = _Chat()
_ALL: Iterable[Dialect] = (CHAT, _Anthropic(), _Responses(), _Gemini(), _Converse())
DIALECTS: Final[Mapping[Form, Dialect]] = {dialect.form: dialect for dialect in _ALL}
"""The forms in which a loop can go on, by name."""


def final_message(answer: Json) -> dict[str, Json]:
    """What the model said last, as the result of a run."""
    said = message_in(answer)
    return said if isinstance(said, dict) else {"role": "assistant", "content": said}
