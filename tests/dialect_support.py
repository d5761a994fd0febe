"""A model server that speaks three dialects, and agents that use the SDK of each: for tests of the generic loop."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anthropic
import openai

import agentloupe as loupe
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply

FORMS = ("chat", "anthropic", "responses")
PATHS = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
PATHS |= {"converse": "/v1/model/small-1/converse"}
HISTORY = {"chat": "messages", "anthropic": "messages", "responses": "input", "converse": "messages"}
ENCRYPTED = "gAAAA-opaque"


class Dialects:
    """The n-th request gets the n-th answer, in the form of the address that it comes to.

    An answer is a text, or a list of (tool, arguments), or an `HttpReply`, or a function of the request that gives one.
    """

    def __init__(self, *answers: Any) -> None:
        self.url = ""
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, request: HttpRequest) -> HttpReply:
        body = json.loads(request.body)
        with self._lock:
            at = len(self.asked)
            self.asked.append(body)
            self.headers.append(request.headers)
            self.paths.append(request.path)
            answer = self.answers[at] if at < len(self.answers) else "done"
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, HttpReply):
            return answer
        form = next(form for form, path in PATHS.items() if request.path == path)
        whole = answered(form, body, answer, turns(form, body))
        return _streamed(form, whole) if body.get("stream") else json_reply(whole)


def turns(form: str, asked: Mapping[str, Any]) -> int:
    """How often a model has spoken in the history of a request: ids and thoughts are numbered by it."""
    history = asked[HISTORY[form]]
    if form != "responses":
        return sum(message["role"] == "assistant" for message in history)
    return sum(item.get("type") == "reasoning" for item in history) if isinstance(history, list) else 0


def answered(form: str, asked: Mapping[str, Any], answer: Any, at: int) -> dict[str, Any]:
    """A whole answer: a text, or reasoning and calls."""
    calls: Sequence[tuple[str, Any]] = [] if isinstance(answer, str) else answer
    text = answer if isinstance(answer, str) else None
    made = {"chat": _chat, "anthropic": _anthropic, "responses": _responses, "converse": _converse}[form]
    return made(asked.get("model", ""), text, calls, at)


def _arguments(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))


def _chat(model: str, text: str | None, calls: Sequence[tuple[str, Any]], at: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["reasoning_content"] = f"thought {at}"
        message["tool_calls"] = [
            {"id": f"c{at}_{i}", "type": "function", "function": {"name": name, "arguments": _arguments(args)}}
            for i, (name, args) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {
        "id": f"x{at}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


def _anthropic(model: str, text: str | None, calls: Sequence[tuple[str, Any]], at: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text is not None else []
    if calls:
        content.append({"type": "thinking", "thinking": f"thought {at}", "signature": f"sig{at}=="})
        content += [
            {"type": "tool_use", "id": f"c{at}_{i}", "name": name, "input": args}
            for i, (name, args) in enumerate(calls)
        ]
    about = {"id": f"msg{at}", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {**about, "content": content, "stop_reason": "tool_use" if calls else "end_turn", "usage": usage}


def _converse(model: str, text: str | None, calls: Sequence[tuple[str, Any]], at: int) -> dict[str, Any]:
    """Members in the order of their names, as Bedrock has them."""
    content: list[dict[str, Any]] = [{"text": text}] if text is not None else []
    if calls:
        content.append({"reasoningContent": {"reasoningText": {"signature": f"sig{at}==", "text": f"thought {at}"}}})
        content += [
            {"toolUse": {"input": args, "name": name, "toolUseId": f"c{at}_{i}"}}
            for i, (name, args) in enumerate(calls)
        ]
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    output = {"message": {"content": content, "role": "assistant"}}
    return {"output": output, "stopReason": "tool_use" if calls else "end_turn", "usage": usage}


def _responses(model: str, text: str | None, calls: Sequence[tuple[str, Any]], at: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if calls:
        output.append({"type": "reasoning", "id": f"rs{at}", "summary": [], "encrypted_content": f"{ENCRYPTED}{at}"})
        output += [
            {
                "type": "function_call",
                "id": f"fc{at}_{i}",
                "call_id": f"c{at}_{i}",
                "name": name,
                "arguments": _arguments(args),
                "status": "completed",
            }
            for i, (name, args) in enumerate(calls)
        ]
    else:
        part = {"type": "output_text", "text": text, "annotations": []}
        output.append(
            {"type": "message", "id": f"m{at}", "role": "assistant", "status": "completed", "content": [part]}
        )
    about = {"id": f"resp{at}", "object": "response", "created_at": 1, "status": "completed", "model": model}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**about, "output": output, "usage": usage, **rest}


# --- streams ----------------------------------------------------------------------------------------------------------


def _streamed(form: str, whole: dict[str, Any]) -> HttpReply:
    events = {"chat": _chat_stream, "anthropic": _anthropic_stream, "responses": _responses_stream}[form](whole)
    return HttpReply(200, [event.encode() for event in events], {"content-type": "text/event-stream"})


def _event(data: Any, name: str | None = None) -> str:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "") + f"data: {text}\n\n"


def _chat_stream(whole: dict[str, Any]) -> list[str]:
    choice = whole["choices"][0]
    about = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": whole["model"]}
    message = {**choice["message"]}
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": i, **call} for i, call in enumerate(message["tool_calls"])]
    first = {**about, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    last = {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    usage = {**about, "choices": [], "usage": whole["usage"]}
    return [_event(first), _event(last), _event(usage), _event("[DONE]")]


def _anthropic_stream(whole: dict[str, Any]) -> list[str]:
    head = {**whole, "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 0}}
    events = [_event({"type": "message_start", "message": head}, "message_start")]
    for index, block in enumerate(whole["content"]):
        events += _block_events(index, block)
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    tail = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}
    return [*events, _event(tail, "message_delta"), _event({"type": "message_stop"}, "message_stop")]


def _block_events(index: int, block: dict[str, Any]) -> list[str]:
    kind = block["type"]
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}[kind]
    deltas: list[dict[str, Any]] = {
        "text": lambda: [{"type": "text_delta", "text": block["text"]}],
        "thinking": lambda: [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ],
        "tool_use": lambda: [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}],
    }[kind]()
    start = {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    events = [_event(start, "content_block_start")]
    events += [
        _event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        for delta in deltas
    ]
    return [*events, _event({"type": "content_block_stop", "index": index}, "content_block_stop")]


def _responses_stream(whole: dict[str, Any]) -> list[str]:
    head = {**whole, "status": "in_progress", "output": []}
    return [
        _event({"type": "response.created", "response": head, "sequence_number": 0}, "response.created"),
        _event({"type": "response.completed", "response": whole, "sequence_number": 1}, "response.completed"),
    ]


# --- agents -----------------------------------------------------------------------------------------------------------

QUESTION = "How warm is it in Oslo and Rome?"
SYSTEM = "Use the tools."
ran: list[tuple[str, Any]] = []
"""What really ran."""


@loupe.tool(effect="read", name="get_weather")
def get_weather(city: str) -> dict[str, Any]:
    ran.append(("get_weather", city))
    return {"city": city, "degrees": {"Oslo": 3.5, "Rome": 17.0}.get(city, 20)}


@loupe.tool(effect="pure", name="add")
def add(a: float, b: float) -> dict[str, Any]:
    ran.append(("add", (a, b)))
    return {"sum": a + b}


@loupe.tool(effect="write", name="send")
def send(text: str) -> str:
    ran.append(("send", text))
    return f"sent {text}"


TOOLS: Mapping[str, Callable[..., Any]] = {"get_weather": get_weather, "add": add, "send": send}
_PROPERTIES = {
    "get_weather": {"city": {"type": "string"}},
    "add": {"a": {"type": "number"}, "b": {"type": "number"}},
    "send": {"text": {"type": "string"}},
}


def definition(form: str, name: str, properties: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A tool's definition in the form of a dialect."""
    schema = {"type": "object", "properties": dict(_PROPERTIES[name] if properties is None else properties)}
    if form == "chat":
        return {"type": "function", "function": {"name": name, "parameters": schema}}
    if form == "anthropic":
        return {"name": name, "input_schema": schema}
    if form == "converse":
        return {"toolSpec": {"name": name, "inputSchema": {"json": schema}}}
    return {"type": "function", "name": name, "parameters": schema}


def weather_answers() -> list[Any]:
    """The weather run: two calls at once, then one, then the answer."""
    return [
        [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})],
        [("add", {"a": 3.5, "b": 17.0})],
        "Together 20.5 degrees.",
    ]


def agent_of(form: str, server: Dialects, *, stream: bool = False, **more: Any) -> Callable[[str], str]:
    """An agent that asks until no tool call is left, as its SDK's guide says."""
    turn = {"chat": _chat_agent, "anthropic": _anthropic_agent, "responses": _responses_agent}[form]
    return loupe.agent(name="weather")(turn(server, stream, more))


def _run(name: str, arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(TOOLS[name](**arguments))
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"}, ensure_ascii=False)


def _asked(form: str, more: Mapping[str, Any]) -> dict[str, Any]:
    tools = [definition(form, name) for name in TOOLS]
    return {"model": "small-1", "tools": tools, "temperature": 0.25, **more}


def _openai(server: Dialects) -> Any:
    http = openai.DefaultHttpxClient(verify=False)
    made = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0, http_client=http)
    return loupe.wrap(made)


def _chat_agent(server: Dialects, stream: bool, more: Mapping[str, Any]) -> Callable[[str], str]:
    def talk(question: str) -> str:
        history: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        with _openai(server) as client:
            while True:
                asked: Any = {"messages": history, "max_tokens": 100, **_asked("chat", more)}
                message = _chat_message(client, asked, stream)
                if not message.get("tool_calls"):
                    return str(message["content"])
                history.append(message)
                for call in message["tool_calls"]:
                    function = call["function"]
                    result = _run(function["name"], json.loads(function["arguments"]))
                    history.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    return talk


def _chat_message(client: Any, asked: dict[str, Any], stream: bool) -> dict[str, Any]:
    if not stream:
        return client.chat.completions.create(**asked).choices[0].message.model_dump(exclude_unset=True)
    chunks = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    message: dict[str, Any] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            message |= {n: v for n, v in choice.delta.model_dump(exclude_unset=True).items() if n not in message}
    for call in message.get("tool_calls") or ():
        call.pop("index")
    return message


def _anthropic_agent(server: Dialects, stream: bool, more: Mapping[str, Any]) -> Callable[[str], str]:
    def talk(question: str) -> str:
        history: list[Any] = [{"role": "user", "content": question}]
        http = anthropic.DefaultHttpxClient(verify=False)
        made = anthropic.Anthropic(api_key="k", base_url=server.url, max_retries=0, http_client=http)
        with loupe.wrap(made) as client:
            while True:
                given = {"max_tokens": 100, "system": SYSTEM, **_asked("anthropic", more)}
                rest = {"temperature": given.pop("temperature")}  # which this SDK has no name for
                asked: Any = {"messages": history, **given, "extra_body": rest}
                answer = _anthropic_answer(client, asked, stream)
                calls = [block for block in answer.content if block.type == "tool_use"]
                if not calls:
                    return str(answer.content[0].text)
                told = [{"type": "tool_result", "tool_use_id": c.id, "content": _run(c.name, c.input)} for c in calls]
                history += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": told}]

    return talk


def _anthropic_answer(client: Any, asked: dict[str, Any], stream: bool) -> Any:
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as coming:
        return coming.get_final_message()


def _responses_agent(server: Dialects, stream: bool, more: Mapping[str, Any]) -> Callable[[str], str]:
    def talk(question: str) -> str:
        history: list[Any] = [{"role": "user", "content": question}]
        with _openai(server) as client:
            while True:
                given = {"max_output_tokens": 100, "instructions": SYSTEM, "store": False, **_asked("responses", more)}
                asked: Any = {"input": history, **given}
                answer = _responses_answer(client, asked, stream)
                calls = [item for item in answer.output if item.type == "function_call"]
                if not calls:
                    return str(answer.output_text)
                history += [item.model_dump(exclude_unset=True) for item in answer.output]
                history += [
                    {
                        "type": "function_call_output",
                        "call_id": c.call_id,
                        "output": _run(c.name, json.loads(c.arguments)),
                    }
                    for c in calls
                ]

    return talk


def _responses_answer(client: Any, asked: dict[str, Any], stream: bool) -> Any:
    if not stream:
        return client.responses.create(**asked)
    last: Any = None
    for event in client.responses.create(**asked, stream=True):
        last = event
    return last.response
