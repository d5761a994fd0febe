"""The scripted model: plays a list of answers, or answers by a rule; keeps what it was asked."""

from __future__ import annotations

import copy
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agentloupe.providers.loopback import (
    HttpReply,
    HttpRequest,
    RequestError,
    completion,
    error_reply,
    json_reply,
    mapping,
    models_reply,
    read_chat_request,
)
from agentloupe.providers.scripted.answers import Answer, Ask, ToolCall, as_object
from agentloupe.providers.scripted.streamed import events_of
from agentloupe.words.canonical import digest

__all__ = ["CREATED", "MAX_REQUESTS", "Rule", "ScriptedModel"]

Rule = Callable[[Ask], Answer]
"""A pure function from what is asked to the answer."""

CREATED = 1_700_000_000
"""`created` of every answer: the same always, so that equal scripts make equal recordings."""

MAX_REQUESTS = 10_000
"""A model answers this many requests and then refuses, so that a loop without end is found."""

_DEFAULT_NAME = "scripted-1"


class ScriptedModel:
    """A model without chance: the n-th request gets the n-th answer of the list, or what the rule says.

    `requests` holds every request body, whole and in order, also those that were refused for a finished script.
    Safe with threads. A list that is used up answers 400 (which no client retries) and says so.
    """

    def __init__(self, script: Sequence[Answer] | Rule, *, name: str = _DEFAULT_NAME) -> None:
        self.name = name
        self.requests: list[dict[str, Any]] = []
        self._script = script
        self._lock = threading.Lock()
        self._played = 0
        self._seen: dict[str, int] = {}
        self._open: OrderedDict[str, None] = OrderedDict()

    @property
    def played(self) -> int:
        """How many answers were given."""
        return self._played

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The whole `chat.completion` for a request body.

        Raises:
            RequestError: the script is used up, or says that this request fails (with its status).
        """
        made, whole = self._play(request)
        if made.status >= 400 or whole is None:
            raise RequestError(f"scripted status {made.status}", status=made.status)
        return whole

    def llm_call(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        model: str | None,
        temperature: float | None,
    ) -> tuple[dict[str, Any], int | None, int | None]:
        """The same as a plain function: the assistant message, input tokens and output tokens (None: unknown)."""
        request: dict[str, Any] = {"model": model or self.name, "messages": messages}
        if tools:
            request["tools"] = tools
        if temperature is not None:
            request["temperature"] = temperature
        whole = self.answer(request)
        usage = cast("dict[str, Any]", whole.get("usage") or {})
        return whole["choices"][0]["message"], usage.get("prompt_tokens"), usage.get("completion_tokens")

    def app(self, request: HttpRequest) -> HttpReply:
        """The HTTP form: `/v1/chat/completions` (whole, or as a stream), `/v1/models` and `/health`."""
        if request.path in ("/health", "/v1/health"):
            return json_reply({"status": "ok", "model": self.name})
        if request.path == "/v1/models":
            return models_reply(self.name, "agentloupe")
        if request.path != "/v1/chat/completions" or request.method != "POST":
            return error_reply(404, f"no such route: {request.method} {request.path}")
        asked = read_chat_request(request.body)
        made, whole = self._play(asked)
        if isinstance(made.body, bytes):
            return HttpReply(made.status, made.body, {"content-type": "application/json", **made.headers})
        if whole is not None and made.status < 400 and asked.get("stream"):
            counted = mapping(asked.get("stream_options")).get("include_usage") is True
            headers = {"content-type": "text/event-stream", **made.headers}
            return HttpReply(made.status, events_of(whole, usage=counted), headers)
        return json_reply(whole if made.body is None else made.body, made.status, made.headers)

    def _play(self, request: Mapping[str, Any]) -> tuple[Answer, dict[str, Any] | None]:
        """The answer and its whole form (None where the answer brings its own body)."""
        with self._lock:
            if len(self.requests) >= MAX_REQUESTS:
                raise RequestError(f"the scripted model answers {MAX_REQUESTS} requests, no more")
            self.requests.append(copy.deepcopy(dict(request)))
            key = digest(request.get("messages"))
            asked = self._ask(request, key)
            made = self._next(asked)
            self._played += 1
            if made.body is not None:
                return made, None
            return made, self._whole(made, request, digest([key, asked.asked_before]))

    def _ask(self, request: Mapping[str, Any], key: str) -> Ask:
        before = self._seen.get(key, 0)
        self._seen[key] = before + 1
        messages = tuple(cast("list[Mapping[str, Any]]", request.get("messages") or []))
        offered = (
            [] if request.get("tool_choice") == "none" else cast("list[Mapping[str, Any]]", request.get("tools") or [])
        )
        return Ask(
            messages=messages,
            tools=frozenset(str(as_object(tool.get("function")).get("name")) for tool in offered),
            params={name: value for name, value in request.items() if name not in ("messages", "tools")},
            asked_before=before,
            continues=self._continues(messages),
        )

    def _continues(self, messages: tuple[Mapping[str, Any], ...]) -> bool:
        """Whether the last answer in the conversation is ours and goes on for the first time."""
        last = next((m for m in reversed(messages) if m.get("role") == "assistant"), None)
        ids = [str(call.get("id")) for call in cast("list[Mapping[str, Any]]", (last or {}).get("tool_calls") or [])]
        ours = [call_id for call_id in ids if call_id in self._open]
        for call_id in ours:
            del self._open[call_id]
        return bool(ours)

    def _next(self, asked: Ask) -> Answer:
        if callable(self._script):
            return self._script(asked)
        if self._played >= len(self._script):
            raise RequestError(f"the script is used up after {len(self._script)} answers", code="script_used_up")
        return self._script[self._played]

    def _whole(self, made: Answer, request: Mapping[str, Any], seed: str) -> dict[str, Any]:
        calls = [_call(call, f"call_{seed[:12]}{at}") for at, call in enumerate(made.calls)]
        for call in calls:
            self._open[str(call["id"])] = None
        while len(self._open) > MAX_REQUESTS:
            self._open.popitem(last=False)
        message: dict[str, object] = {"role": "assistant", "content": made.content, **made.extra}
        if calls:
            message["tool_calls"] = calls
        usage = _estimate(request, message) if made.usage == "estimated" else made.usage
        return cast(
            "dict[str, Any]",
            completion(
                id=f"chatcmpl-{seed[:24]}",
                model=made.model or str(request.get("model") or self.name),
                created=CREATED,
                message=message,
                finish_reason=made.finish_reason or ("tool_calls" if calls else "stop"),
                usage=cast("Mapping[str, object] | None", usage),
            ),
        )


def _call(call: ToolCall, given_id: str) -> dict[str, object]:
    return {"id": call.id or given_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _estimate(request: Mapping[str, Any], message: Mapping[str, object]) -> dict[str, object]:
    """Plausible token counts: a quarter of the characters of the JSON, which is about what tokenizers give."""
    prompt = _quarter([request.get("messages"), request.get("tools")])
    answered = _quarter([message.get("content"), message.get("tool_calls")])
    return {"prompt_tokens": prompt, "completion_tokens": answered, "total_tokens": prompt + answered}


def _quarter(value: object) -> int:
    return max(1, len(json.dumps(value, ensure_ascii=False)) // 4)
