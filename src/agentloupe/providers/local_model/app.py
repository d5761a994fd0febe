"""The chat completions API over an engine: request in, reply out."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from agentloupe.ports.ambient import now, random_hex
from agentloupe.providers.local_model.engine import Completion, Engine, PromptTooLong
from agentloupe.providers.local_model.grammar import Choice, grammar, read_choice, read_tools
from agentloupe.providers.local_model.render import Parsed, parse, render, render_examples
from agentloupe.providers.local_model.worked import examples_for
from agentloupe.providers.loopback import (
    HttpReply,
    HttpRequest,
    RequestError,
    completion,
    error_reply,
    json_reply,
    models_reply,
    read_chat_request,
)

__all__ = ["DEFAULT_TEMPERATURE", "DEFAULT_TOKENS", "MAX_TOKENS", "ChatApp"]

DEFAULT_TOKENS = 160
MAX_TOKENS = 512
DEFAULT_TEMPERATURE = 0.7
"""Where the request says nothing; a small model goes astray at the usual 1.0."""

_MAX_WAITING = 32
_LABEL_TOKENS = 4  # a cut text shorter than this may end inside its first label


class ChatApp:
    """Answers `/v1/chat/completions`, `/v1/models` and `/health`, one completion at a time, others waiting in line."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._turn = threading.Lock()
        self._line = threading.BoundedSemaphore(_MAX_WAITING)

    def __call__(self, request: HttpRequest) -> HttpReply:
        """One HTTP request."""
        if request.path in ("/health", "/v1/health"):
            return json_reply({"status": "ok", "model": self._engine.name})
        if request.path == "/v1/models":
            return models_reply(self._engine.name, "local")
        if request.path != "/v1/chat/completions" or request.method != "POST":
            return error_reply(404, f"no such route: {request.method} {request.path}")
        return json_reply(self.chat(read_chat_request(request.body)))

    def chat(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The whole `chat.completion` of a request body.

        Raises:
            RequestError: with the HTTP status and the parameter that is wrong.
        """
        if request.get("stream"):
            raise RequestError("this model answers whole, not in a stream", param="stream")
        if request.get("n") not in (None, 1):
            raise RequestError("this model gives one choice", param="n")
        tools = read_tools(request)
        choice = read_choice(request, tools)
        shown = tools if choice.calls else []
        shared = render_examples(examples_for(tools))
        made = self._complete(request, shared, render(request["messages"], shown), grammar(shown, choice))
        return self._reply(made, _parsed(made, {str(tool["name"]) for tool in shown}, choice))

    def _complete(self, request: Mapping[str, Any], shared: str, prompt: str, rules: str) -> Completion:
        arguments: dict[str, Any] = {
            "max_tokens": min(
                int(_number(request, ("max_completion_tokens", "max_tokens"), 1, 1e9) or DEFAULT_TOKENS), MAX_TOKENS
            ),
            "temperature": _or(_number(request, ("temperature",), 0, 2), DEFAULT_TEMPERATURE),
            "top_p": _number(request, ("top_p",), 0, 1),
            "seed": _seed(request.get("seed")),
            "stop": (*_stop(request.get("stop")), "Question:"),  # where a new conversation would begin
        }
        if not self._line.acquire(blocking=False):
            raise RequestError(f"more than {_MAX_WAITING} requests wait in line", status=503, code="busy")
        try:
            with self._turn:
                return self._engine.complete(shared, prompt, grammar=rules, **arguments)
        except PromptTooLong as error:
            raise RequestError(
                f"the conversation is too long: {error}", param="messages", code="context_length_exceeded"
            ) from None
        finally:
            self._line.release()

    def _reply(self, made: Completion, parsed: Parsed) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": parsed.content}
        if parsed.calls:
            message["tool_calls"] = [
                {"id": f"call_{random_hex(12)}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for name, arguments in parsed.calls
            ]
        whole = parsed.whole or made.finish_reason != "length"
        usage = {
            "prompt_tokens": made.prompt_tokens,
            "completion_tokens": made.completion_tokens,
            "total_tokens": made.prompt_tokens + made.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": made.cached_tokens},
        }
        return completion(
            id=f"chatcmpl-{random_hex(24)}",
            model=self._engine.name,
            created=int(datetime.fromisoformat(now()).timestamp()),
            message=message,
            finish_reason="length" if not whole else "tool_calls" if parsed.calls else "stop",
            usage=usage,
            fingerprint=self._engine.fingerprint,
        )


def _parsed(made: Completion, names: set[str], choice: Choice) -> Parsed:
    """The message. A text outside the grammar means that the engine did not understand a schema and ignored it."""
    parsed = parse(made.text)
    cut = made.finish_reason == "length" and not (parsed and parsed.whole)
    if cut and (parsed is not None or made.completion_tokens < _LABEL_TOKENS):
        return parsed or Parsed("", (), whole=False)
    if parsed is None or not _held(parsed, names, choice):
        raise RequestError(
            "a JSON schema of the request uses something that this model's grammar lacks", code="unsupported_schema"
        )
    return parsed


def _held(parsed: Parsed, names: set[str], choice: Choice) -> bool:
    """Whether the text keeps to what the grammar asked for, as far as that can be seen."""
    if parsed.content is not None:
        return choice.answers and (choice.answer_schema is None or _is_json(parsed.content))
    return bool(parsed.calls) and all(name in names and _is_json(arguments) for name, arguments in parsed.calls)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _number(request: Mapping[str, Any], names: tuple[str, ...], low: float, high: float) -> float | None:
    """The first of these parameters that is set."""
    for name in names:
        value: object = request.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise RequestError(f"`{name}` must be a number from {low:g} to {high:g}", param=name)
        return value
    return None


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _seed(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise RequestError("`seed` must be an integer", param="seed")


def _stop(value: object) -> tuple[str, ...]:
    """Up to four texts."""
    texts = cast("list[object]", value) if isinstance(value, list) else [] if value is None else [value]
    if len(texts) > 4 or not all(isinstance(text, str) and text for text in texts):
        raise RequestError("`stop` must be up to four texts", param="stop")
    return tuple(cast("list[str]", texts))
