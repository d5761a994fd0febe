"""What chat completions say about themselves: structure of requests and answers, for the headers of steps.

Names follow the public API reference of chat completions; a provider that sends less is unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json

__all__ = ["QUERY", "endpoint_of", "host_of", "provider_of", "request_facts", "response_facts", "step_name"]

QUERY = "extra_query"
"""Member of a stored request that was no part of the body: what the caller put into the URL (an API version ...)."""
_OWN_TOOLS = frozenset({"function", "custom"})


def step_name(request: Mapping[str, Json]) -> str:
    """`chat <model>`."""
    model = request.get("model")
    return f"chat {model}" if isinstance(model, str) and model else "chat"


def request_facts(request: Mapping[str, Json]) -> dict[str, Json]:
    """Model asked for, seed, and whether the provider keeps state or runs tools of its own."""
    facts: dict[str, Json] = {}
    if isinstance(model := request.get("model"), str):
        facts["model"] = model
    if isinstance(seed := request.get("seed"), int):
        facts["seed"] = seed
    hosted = _hosted_tools(request)
    if hosted:
        facts["hosted"] = hosted
    if hosted or request.get("previous_response_id") is not None or request.get("conversation") is not None:
        facts["server_held"] = True
    return facts


def _hosted_tools(request: Mapping[str, Json]) -> list[Json]:
    """Types of tools that run at the provider: nothing of theirs passes through the boundary."""
    tools = request.get("tools")
    listed = cast("list[Json]", tools) if isinstance(tools, list) else []
    kinds = [t.get("type") for t in listed if isinstance(t, dict)]
    found: list[Json] = [k for k in kinds if isinstance(k, str) and k not in _OWN_TOOLS]
    if request.get("web_search_options") is not None:
        found.append("web_search")
    return found


def response_facts(response: Json) -> Attrs:
    """Model that answered, finish reason, usage as sent, tokens, fingerprint. What was not sent is absent."""
    if not isinstance(response, dict):
        return {}
    facts: dict[str, Json] = {}
    for ours, theirs in (("model", "model"), ("fingerprint", "system_fingerprint"), ("service_tier", "service_tier")):
        if isinstance(text := response.get(theirs), str):
            facts[ours] = text
    if isinstance(reason := _finish_reason(response), str):
        facts["finish_reason"] = reason
    usage = response.get("usage")
    if isinstance(usage, dict):
        facts["usage"] = usage
        _tokens(usage, facts)
    return facts


def _finish_reason(response: Mapping[str, Json]) -> Json:
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first.get("finish_reason") if isinstance(first, dict) else None


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
        if not part.isalpha():
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
