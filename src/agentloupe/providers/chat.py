"""What model calls say about themselves: structure of requests and answers, for the headers of steps.

Names follow the public API references; what a provider does not send is unknown, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote, unquote

from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import Form, finish_reason_of, hosted_tools, server_held

__all__ = [
    "MODEL_IN_PATH",
    "QUERY",
    "asked_at",
    "endpoint_of",
    "former_name",
    "host_of",
    "names_a_model",
    "operation_of",
    "provider_of",
    "request_facts",
    "response_facts",
    "step_name",
    "with_model",
]

QUERY = "extra_query"
"""Member of a stored request that was no part of the body: what the caller put into the URL (an API version ...)."""
MODEL_IN_PATH: Mapping[Form | None, str] = {"gemini": ":generateContent", "converse": "/converse"}
"""What stands behind the model in a path, of the forms whose bodies name none."""
_NAME = re.compile(r"[a-z]{2,16}(_[a-z]{2,16})?")
_IN_PATH = re.compile(r"/(?:models?|deployments|engines)/([^/:]+)[/:]")
_BEDROCK = re.compile(r"/model/(.+)/(converse|converse-stream|invoke|invoke-with-response-stream)$")
"""A path of Bedrock; its model may hold `:` and, where it is an ARN, `/`."""
_INVOKED = {"invoke": "invoke", "invoke-with-response-stream": "stream"}
"""What is done at a path of Bedrock where the body has the form of its model."""
_ASKED_WITH = frozenset({"messages", "prompt", "contents"})
_OPERATIONS = (
    ("/chat/completions", "chat"),
    ("/api/chat", "chat"),  # Ollama
    ("/v1/chat", "chat"),  # Cohere
    ("/v2/chat", "chat"),
    (":generateContent", "chat"),  # Gemini
    (":streamGenerateContent", "stream"),
    ("/converse", "chat"),  # Bedrock
    ("/converse-stream", "stream"),
    ("/responses", "chat"),
    ("/responses/compact", "compact"),
    ("/messages", "chat"),
    ("/completions", "completion"),
    ("/completion", "completion"),  # llama.cpp
    ("/api/generate", "completion"),  # Ollama
    ("/embeddings", "embeddings"),
    ("/api/embed", "embeddings"),
    ("/v1/embed", "embeddings"),
    ("/v2/embed", "embeddings"),
    ("/rerank", "rerank"),
    (":embedContent", "embeddings"),
    (":batchEmbedContents", "embeddings"),
    ("/moderations", "moderation"),
    ("/images/generations", "image"),
    ("/audio/speech", "speech"),
)
"""Endpoints at which a model answers, by the end of their paths."""


@lru_cache(256)
def operation_of(path: str) -> str | None:
    """What a model does at this path (`chat`, `embeddings` ...); `None` where no model answers."""
    path = path.partition("?")[0].rstrip("/")
    named = _BEDROCK.search(path)
    if named is not None and named[2] in _INVOKED:
        return _INVOKED[named[2]]
    return next((operation for end, operation in _OPERATIONS if path.endswith(end)), None)


def names_a_model(path: str, request: Mapping[str, Json]) -> bool:
    """Whether a request at this path is to a model: it names one, there or in its body, or has what one is asked with."""
    return _model_of(request, path) is not None or not _ASKED_WITH.isdisjoint(request)


def _model_of(request: Mapping[str, Json], path: str) -> str | None:
    model = request.get("model")
    if isinstance(model, str) and model:
        return model
    named = _named(path)
    return unquote(named[1]) if named else None


def _named(path: str) -> re.Match[str] | None:
    """The model in a path."""
    return _BEDROCK.search(path) or _IN_PATH.search(path)


def former_name(request: Mapping[str, Json], path: str) -> str | None:
    """What older recordings call a request to Bedrock, where it is another name; empty: they hold it as none to a model.

    `/invoke` was not known, and the model ended at the first `:`.
    """
    named = _BEDROCK.search(path)
    if named is None:
        return None
    if named[2] in _INVOKED:
        return ""
    before = _IN_PATH.search(path)
    if before is None or before[1] == named[1] or request.get("model"):
        return None
    return f"{operation_of(path)} {unquote(before[1])}"


def with_model(path: str, model: Json) -> str | None:
    """The path with another model in it; `None` where it names none, or none is given."""
    named = _named(path)
    if named is None or not isinstance(model, str):
        return None
    return f"{path[: named.start(1)]}{quote(model, safe='')}{path[named.end(1) :]}"


def step_name(request: Mapping[str, Json], operation: str = "chat", path: str = "") -> str:
    """`<operation> <model>`."""
    model = _model_of(request, path)
    return operation if model is None else f"{operation} {model}"


def request_facts(request: Mapping[str, Json], path: str = "") -> dict[str, Json]:
    """Model asked for (in the body, else in the path), seed, and whether the provider keeps state or runs tools of its own."""
    facts: dict[str, Json] = {}
    if (model := _model_of(request, path)) is not None:
        facts["model"] = model
    if isinstance(seed := request.get("seed"), int):
        facts["seed"] = seed
    hosted = list[Json](hosted_tools(request))
    if hosted:
        facts["hosted"] = hosted
    if hosted or server_held(request):
        facts["server_held"] = True
    return facts


def response_facts(response: Json) -> Attrs:
    """Model that answered, finish reason, usage as sent, tokens, fingerprint. What was not sent is absent."""
    if not isinstance(response, dict):
        return {}
    facts: dict[str, Json] = {}
    for ours, theirs in (
        ("model", "model"),
        ("model", "modelVersion"),
        ("fingerprint", "system_fingerprint"),
        ("service_tier", "service_tier"),
    ):
        if isinstance(text := response.get(theirs), str):
            facts[ours] = text
    if (reason := finish_reason_of(response)) is not None:
        facts["finish_reason"] = reason
    usage = response.get("usage", response.get("usageMetadata"))
    if isinstance(usage, dict):
        facts["usage"] = usage
        _tokens(usage, facts)
    return facts


def _tokens(usage: Mapping[str, Json], facts: dict[str, Json]) -> None:
    for ours, names in (
        ("input_tokens", ("prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount")),
        ("output_tokens", ("completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount")),
    ):
        for name in names:
            if type(count := usage.get(name)) is int:
                facts[ours] = count
                break


def asked_at(path: str) -> str:
    """The endpoint of a model as it is told. A path of Bedrock has the model in the middle, which `endpoint_of` would end at."""
    named = _BEDROCK.search(path)
    return endpoint_of(path) if named is None else f"/model/*/{named[2]}"


@lru_cache(256)
def endpoint_of(path: str) -> str:
    """The part of a path that names an endpoint, without ids: they are a user's values."""
    parts = [part for part in path.partition("?")[0].split("/") if part]
    kept = parts[:1]
    for part in parts[1:]:
        if not _NAME.fullmatch(part):
            break
        kept.append(part)
    return "/" + "/".join(kept)


def host_of(address: object) -> str:
    """Host name of an address: no port, no user, no path."""
    from urllib.parse import urlsplit

    try:
        return urlsplit(str(address)).hostname or ""
    except ValueError:
        return ""


def provider_of(address: object) -> str:
    """Who answers at an address: a known name, or the host's."""
    raw = getattr(address, "raw_host", None)  # of a client library's URL, whose whole text is slow to make
    return _provider_at(raw.decode("latin-1")) if isinstance(raw, bytes) else _provider_of(str(address))


@lru_cache(256)
def _provider_of(address: str) -> str:
    return _provider_at(host_of(address))


@lru_cache(256)
def _provider_at(host: str) -> str:
    if host == "api.openai.com" or host.endswith(".api.openai.com"):
        return "openai"
    if host.endswith((".openai.azure.com", ".cognitiveservices.azure.com")):
        return "azure"
    return host or "unknown"
