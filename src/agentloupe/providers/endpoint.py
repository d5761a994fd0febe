"""A model behind an address: whole requests go out exactly as they are given, once.

    endpoint = Endpoint("http://127.0.0.1:8080/v1", api_key="...")
    answer = endpoint.send({"model": "small-chat-1", "messages": [...]})
    claude = Endpoint("https://api.anthropic.com/v1", api_key="...", dialect="anthropic")

Nothing is retried, renamed, dropped or added: what a provider refuses is reported as it refused it. Built on the
standard library, since a fork needs no client library. A dialect is where a request goes and how the key is shown:
chat completions, OpenAI Responses, Anthropic messages or Gemini, by their public API references.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

from agentloupe.ports.ambient import monotonic_ms, now, passed_on
from agentloupe.ports.protocols import Answer
from agentloupe.providers.chat import MODEL_IN_PATH, QUERY, host_of, provider_of, response_facts
from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.dialects import Form
from agentloupe.words.errors import (
    ConfigError,
    ModelRefused,
    ModelUnreachable,
    ProviderError,
    QuotaExhausted,
    RateLimited,
)

__all__ = ["MAX_ANSWER", "Endpoint"]

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of the largest answer that is read."""

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_START = "start a model server there, or set LLM_BASE_URL; `agentloupe demo --model local` starts a small one by itself"


_PATHS: Mapping[Form, str] = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/messages",
    "gemini": "/models",  # and behind it the model, which stands in no body
    "converse": "/model",  # the same
}
_ANTHROPIC_VERSION = "2023-06-01"
_BETAS: Mapping[Form, str] = {"anthropic": "anthropic-beta", "responses": "openai-beta"}
"""The header that names betas of an API."""


@dataclass(frozen=True)
class Endpoint:
    """Sends model requests to one address.

    Attributes:
        base_url: up to and without `/chat/completions` (or `/messages`, `/responses`), for instance
            `https://api.openai.com/v1`; of Gemini without `/models`.
        api_key: sent as a bearer token (Anthropic: as `x-api-key`, Gemini: as `x-goog-api-key`), if there is one; in no
            message and no printed form.
        timeout: seconds to connect, and seconds between two parts of an answer.
        headers: further headers.
        dialect: the form that is spoken there (`chat`, `anthropic`, `responses`, `gemini`, `converse`); `None`: whatever it is asked in, chat
            completions where nobody says.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 600.0
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    dialect: Form | None = None

    def __post_init__(self) -> None:
        if not _is_address(self.base_url):
            raise ConfigError("LLM_BASE_URL is no http(s) address", hint="for instance http://127.0.0.1:8080/v1")
        if "@" in urlsplit(self.base_url).netloc:
            raise ConfigError("LLM_BASE_URL holds a user or password", hint="a key belongs in LLM_API_KEY")
        if self.api_key and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError("LLM_API_KEY holds characters that no key has", hint="a line break, perhaps")

    def speaking(self, form: Form, beta: str | None = None) -> Endpoint:
        """The endpoint as it speaks this form, if it may; `beta` names betas of an API that the request needs."""
        headers = {**self.headers, _BETAS[form]: beta} if beta and form in _BETAS else self.headers
        return replace(self, dialect=self.dialect or form, headers=headers)

    @property
    def url(self) -> str:
        """Where requests go."""
        return f"{self.base_url.rstrip('/')}{_PATHS[self.dialect or 'chat']}"

    @property
    def address(self) -> str:
        """The base address as messages name it: without a query."""
        return self.base_url.partition("?")[0].rstrip("/")

    @property
    def provider(self) -> str:
        """Who answers there."""
        return provider_of(self.base_url)

    @staticmethod
    def facts(response: Json) -> Attrs:
        """Structural facts of a response: model, usage, tokens, finish reason."""
        return response_facts(response)

    def send(self, request: Mapping[str, Json]) -> Answer:
        """Sends one request body, once; its member `extra_query`, as recordings hold it, and Gemini's model go into the URL.

        Raises:
            ModelUnreachable: nobody answers there, or the connection broke.
            ModelRefused: an error status, with the provider's body and what it says about waiting.
            ProviderError: the answer is no JSON object, or too large.
        """
        began = monotonic_ms()
        asked = dict(request)
        query = asked.pop(QUERY, None)
        url = self.url
        if self.dialect in MODEL_IN_PATH:
            url += f"/{urllib.parse.quote(_model_in(asked), safe='')}{MODEL_IN_PATH[self.dialect]}"
        status, headers, body = self._exchange(url, dumps(asked), query if isinstance(query, dict) else {})
        tries: list[Json] = [{"status": status, "started_ms": 0.0, "ms": round(monotonic_ms() - began, 3)}]
        if status >= 400:
            raise _refused(status, headers, self._without_key(body), self.dialect)
        response = self._read(status, body)
        facts: dict[str, Json] = {**response_facts(response), "provider": self.provider, "tries": tries}
        request_id = headers.get("x-request-id") or headers.get("request-id")
        if request_id is not None:
            facts["request_id"] = request_id
        return Answer(response=response, facts=facts)

    def _exchange(self, url: str, body: bytes, query: Mapping[str, Json]) -> tuple[int, Mapping[str, str], bytes]:
        """(status, headers with names in lower case, body)."""
        head = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": "agent-loupe",
            **self._credentials(),
            **passed_on(),
            **{name.lower(): value for name, value in self.headers.items()},
        }
        url = f"{url}?{urllib.parse.urlencode(query, doseq=True)}" if query else url
        asked = urllib.request.Request(url, body, head, method="POST")  # noqa: S310  # http or https, see __post_init__
        try:
            with self._open(asked) as reply:
                return _read_reply(reply)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from None

    def _credentials(self) -> dict[str, str]:
        if self.dialect == "anthropic":
            key = {"x-api-key": self.api_key} if self.api_key else {}
            return {"anthropic-version": _ANTHROPIC_VERSION, **key}
        if self.dialect == "gemini":
            return {"x-goog-api-key": self.api_key} if self.api_key else {}
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def _open(self, asked: urllib.request.Request) -> Any:
        """The reply, whatever its status."""
        try:
            return self._opener().open(asked, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            return error

    def _opener(self) -> urllib.request.OpenerDirector:
        """No redirects (a body must not wander), and no proxy between here and this machine."""
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if host_of(self.base_url) in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        return urllib.request.build_opener(*handlers)

    def _without_key(self, body: bytes) -> bytes:
        """An error body; some providers repeat the key in it."""
        return body.replace(self.api_key.encode(), b"***") if self.api_key else body

    def _unreachable(self, error: Exception) -> ModelUnreachable:
        reason: object = getattr(error, "reason", error)
        if isinstance(reason, ConnectionRefusedError):
            return ModelUnreachable(f"no model answers at {self.address}: the connection was refused", hint=_START)
        if isinstance(reason, TimeoutError):
            return ModelUnreachable(f"the model at {self.address} did not answer within {self.timeout:g} s")
        if isinstance(reason, socket.gaierror):
            return ModelUnreachable(f"the host of {self.address} is not known", hint="check LLM_BASE_URL")
        if isinstance(reason, ssl.SSLError):
            return ModelUnreachable(f"no safe connection to {self.address}: {reason.reason or 'TLS failed'}")
        return ModelUnreachable(f"the connection to {self.address} broke ({type(reason).__name__})")

    def _read(self, status: int, body: bytes) -> dict[str, Json]:
        try:
            value: object = json.loads(body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ProviderError(
                f"the model at {self.address} answered {status} with a body that is no JSON object ({len(body)} bytes)",
                hint="is this the address of a model API, with its /v1?",
                reason="malformed_answer",
            )
        return cast("dict[str, Json]", value)


def _model_in(asked: dict[str, Json]) -> str:
    """Takes the model out of a request. Raises `ConfigError` where it names none."""
    model = asked.pop("model", None)
    if not isinstance(model, str) or not model:
        raise ConfigError("the request names no model, which is wanted in the address", hint="--model, or LLM_MODEL")
    return model


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and url.isascii()
        and url.isprintable()
        and " " not in url
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _read_reply(reply: Any) -> tuple[int, Mapping[str, str], bytes]:
    body = reply.read(MAX_ANSWER + 1)
    if len(body) > MAX_ANSWER:
        raise ProviderError(f"the model's answer is larger than {MAX_ANSWER} bytes", reason="malformed_answer")
    left: object = getattr(reply, "length", None)
    if isinstance(left, int) and left > 0:
        raise http.client.IncompleteRead(body, left)
    return reply.status, {name.lower(): value for name, value in reply.headers.items()}, body


_ABOUT = {
    401: "check LLM_API_KEY",
    403: "this key may not use this model",
    404: "check LLM_MODEL and LLM_BASE_URL (with its /v1)",
    429: "wait, or ask for less at once",
}


def _unspoken(dialect: Form) -> str:
    """What to do where an address is not known that only some providers have."""
    return (
        f"asked was in the form {dialect!r}, at {_PATHS[dialect]}: is that spoken there? If not, name an endpoint where it is"
        f' (LLM_BASE_URL with its /v1, or --endpoint NAME with dialect = "{dialect}"); else check the model\'s name'
    )


def _refused(status: int, headers: Mapping[str, str], body: bytes, dialect: Form | None = None) -> ModelRefused:
    """One line: the status, what the provider says, the parameter it names. The whole body stands beside."""
    try:
        value: object = json.loads(body)
    except ValueError:
        value = body.decode("utf-8", "replace")
    wait = _seconds(headers)
    kind = _kind_of(status, value, wait)
    hint = (
        "look at the account there; waiting does not help"
        if kind is QuotaExhausted
        else f"wait {wait:g} s"
        if wait is not None
        else _unspoken(dialect)
        if status in (404, 405) and dialect not in (None, "chat")
        else _ABOUT.get(status, "the server failed" if status >= 500 else None)
    )
    said = _said(value)
    return kind(
        f"the model answered HTTP {status}{f': {said}' if said else ''}",
        status=status,
        body=value,
        retry_after=wait,
        hint=hint,
    )


_LATER = frozenset({429, 503, 529})
_PAY = ("insufficient_quota", "quota_exceeded", "billing", "credit balance is too low", "exceeded your current quota")
"""What error bodies say of an account that is used up, in their types, codes and messages."""


def _kind_of(status: int, body: object, wait: float | None) -> type[ModelRefused]:
    """Whether a refusal is for now, for want of money, or for good."""
    inner: object = cast("dict[str, object]", body).get("error") if isinstance(body, dict) else None
    error = cast("dict[str, object]", inner) if isinstance(inner, dict) else dict[str, object]()
    words = " ".join(str(error.get(name) or "") for name in ("type", "code", "message")).lower()
    if status == 402 or (status in (400, 403, 429) and any(word in words for word in _PAY)):
        return QuotaExhausted
    return RateLimited if status == 429 or (status in _LATER and wait is not None) else ModelRefused


def _said(body: object) -> str:
    """The provider's own message with the parameter that it names: one line of at most 300 characters."""
    error: object = (
        cast("dict[str, object]", body).get("error", cast("object", body)) if isinstance(body, dict) else None
    )
    if isinstance(error, str):
        return _line(error)
    if not isinstance(error, dict):
        return ""
    members = cast("dict[str, object]", error)
    message, param = members.get("message"), members.get("param")
    text = _line(message) if isinstance(message, str) else ""
    return f"{text} (param {param})" if isinstance(param, str) and param else text


def _line(text: str) -> str:
    """Printable, on one line, without anything that looks like a key (some providers repeat a part of it)."""
    words = ["***" if word.lstrip("\"'(:").startswith(("sk-", "key-", "Bearer")) else word for word in text.split()]
    line = "".join(c for c in " ".join(words) if c.isprintable())
    return line if len(line) <= 300 else f"{line[:299]}…"


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date (RFC 9110)."""
    try:
        if (text := headers.get("retry-after-ms")) is not None:
            return max(float(text) / 1000, 0.0)
        text = headers.get("retry-after")
        if text is None:
            return None
        if text.strip().isdecimal():
            return float(text)
        from datetime import datetime

        return max((parsedate_to_datetime(text) - datetime.fromisoformat(now())).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None
