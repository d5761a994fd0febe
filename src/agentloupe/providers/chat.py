"""What model calls say about themselves: structure of requests and answers, for the headers of steps.

Names follow the public API references; what a provider does not send is unknown, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json
from agentloupe.words.dialects import finish_reason_of, hosted_tools, server_held

__all__ = [
    "QUERY",
    "endpoint_of",
    "host_of",
    "operation_of",
    "provider_of",
    "request_facts",
    "response_facts",
    "step_name",
]

QUERY = "extra_query"
"""Member of a stored request that was no part of the body: what the caller put into the URL (an API version ...)."""
_NAME = re.compile(r"[a-z]{2,16}(_[a-z]{2,16})?")
_OPERATIONS = (
    ("/chat/completions", "chat"),
    ("/responses", "chat"),
    ("/responses/compact", "compact"),
    ("/messages", "chat"),
    ("/completions", "completion"),
    ("/embeddings", "embeddings"),
    ("/moderations", "moderation"),
    ("/images/generations", "image"),
    ("/audio/speech", "speech"),
)
"""Endpoints at which a model answers, by the end of their paths."""


def operation_of(path: str) -> str | None:
    """What a model does at this path (`chat`, `embeddings` ...); `None` where no model answers."""
    path = path.partition("?")[0].rstrip("/")
    return next((operation for end, operation in _OPERATIONS if path.endswith(end)), None)


def step_name(request: Mapping[str, Json], operation: str = "chat") -> str:
    """`<operation> <model>`."""
    model = request.get("model")
    return f"{operation} {model}" if isinstance(model, str) and model else operation


def request_facts(request: Mapping[str, Json]) -> dict[str, Json]:
    """Model asked for, seed, and whether the provider keeps state or runs tools of its own."""
    facts: dict[str, Json] = {}
    if isinstance(model := request.get("model"), str):
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
    for ours, theirs in (("model", "model"), ("fingerprint", "system_fingerprint"), ("service_tier", "service_tier")):
        if isinstance(text := response.get(theirs), str):
            facts[ours] = text
    if (reason := finish_reason_of(response)) is not None:
        facts["finish_reason"] = reason
    usage = response.get("usage")
    if isinstance(usage, dict):
        facts["usage"] = usage
        _tokens(usage, facts)
    return facts


def _tokens(usage: Mapping[str, Json], facts: dict[str, Json]) -> None:
    for ours, names in (
        ("input_tokens", ("prompt_tokens", "input_tokens")),
        ("output_tokens", ("completion_tokens", "output_tokens")),
    ):
        counts = [usage[n] for n in names if isinstance(usage.get(n), int) and not isinstance(usage[n], bool)]
        if counts:
            facts[ours] = counts[0]


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
    return _provider_of(str(address))


@lru_cache(256)
def _provider_of(address: str) -> str:
    host = host_of(address)
    if host == "api.openai.com" or host.endswith(".api.openai.com"):
        return "openai"
    if host.endswith((".openai.azure.com", ".cognitiveservices.azure.com")):
        return "azure"
    return host or "unknown"
