"""Which HTTP requests ask a model: by the hosts of well-known providers, by the paths at which models answer, by setting.

Paths are the same wherever a model is served, so a server on this machine (vLLM, Ollama, llama.cpp) or a gateway is known by
them; since another service may have such a path too, the body has to be what a model is asked with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, cast
from urllib.parse import urlsplit

from agentloupe.providers.chat import names_a_model, operation_of
from agentloupe.words.canonical import Json
from agentloupe.words.jsontext import parsed

__all__ = ["asks_with", "at_model", "may_ask"]

_HOSTS: Final = (
    "api.openai.com",
    "openai.azure.com",
    "cognitiveservices.azure.com",
    "services.ai.azure.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "aiplatform.googleapis.com",
    "api.mistral.ai",
    "codestral.mistral.ai",
    "api.cohere.com",
    "api.cohere.ai",
    "api.groq.com",
    "api.deepseek.com",
    "openrouter.ai",
    "api.together.xyz",
    "api.together.ai",
    "api.fireworks.ai",
    "api.x.ai",
    "api.perplexity.ai",
    "api.cerebras.ai",
    "api.sambanova.ai",
    "api.moonshot.ai",
    "api.moonshot.cn",
    "open.bigmodel.cn",
    "api.z.ai",
    "api.minimax.io",
    "dashscope.aliyuncs.com",
    "dashscope-intl.aliyuncs.com",
    "integrate.api.nvidia.com",
    "router.huggingface.co",
    "api-inference.huggingface.co",
    "models.github.ai",
    "models.inference.ai.azure.com",
    "api.replicate.com",
    "api.voyageai.com",
    "api.jina.ai",
)
"""Hosts of which every request is one to a model API; those below them too (`eu.api.openai.com`)."""

_REGIONAL: Final = re.compile(r"(.+-aiplatform\.googleapis|bedrock-(runtime|mantle)[.-].+\.amazonaws)\.com")
_BESIDE: Final = "openrouter.ai"
"""A host with pages for people beside its API, which stands below `/api/`."""


def at_model(url: str, added: Sequence[str] = ()) -> bool:
    """Whether every request to this address is one to a model API.

    Args:
        url: of the request.
        added: further addresses of models, each a host, `host:port` or the beginning of a URL.
    """
    address = urlsplit(url)
    return _known(address.hostname or "", address.path) or any(_is_below(url, place) for place in added)


def may_ask(method: str, url: str) -> bool:
    """Whether models answer at such a path, so that the body decides (`asks_with`)."""
    return method.upper() == "POST" and operation_of(urlsplit(url).path) is not None


def asks_with(url: str, content: bytes | None) -> bool:
    """Whether this is what a model is asked with at this path; a body that cannot be read is not."""
    try:
        body = parsed(content or b"")
    except ValueError:
        return False
    return isinstance(body, dict) and names_a_model(urlsplit(url).path, cast("dict[str, Json]", body))


@lru_cache(256)
def _known(host: str, path: str) -> bool:
    if host == _BESIDE and not path.startswith("/api/"):
        return False
    listed = any(host == known or host.endswith(f".{known}") for known in _HOSTS)
    return listed or _REGIONAL.fullmatch(host) is not None


def _is_below(url: str, place: str) -> bool:
    """Whether a URL begins with what was given, at a boundary of its parts."""
    asked, given = urlsplit(url), urlsplit(place if "://" in place else f"//{place}")
    if given.scheme and given.scheme != asked.scheme:
        return False
    if (given.hostname, given.port or asked.port) != (asked.hostname, asked.port):
        return False
    path = given.path.rstrip("/")
    return asked.path == path or asked.path.startswith(f"{path}/")
