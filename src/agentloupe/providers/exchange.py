"""Responses of httpx and httpx2 as stored exchanges, and back to responses that hold the same bytes."""

from __future__ import annotations

import sys
from typing import Any, cast

from agentloupe.ports.codecs.http import elapsed_of, put_elapsed
from agentloupe.providers import chat
from agentloupe.words.call import Attrs
from agentloupe.words.canonical import Json
from agentloupe.words.errors import UsageError
from agentloupe.words.exchange import answer_in, content_of, exchange, header_of, headers_of, is_exchange

__all__ = ["FAMILIES", "facts_of", "library_of", "rebuilt", "stored"]

FAMILIES = ("httpx", "httpx2")
_OF_THE_WIRE = (b"content-encoding", b"transfer-encoding")  # they say how bytes travelled, not what they are
_REQUEST_ID = ("x-request-id", "request-id")


def library_of(request: object) -> Any:
    """The module that a request is made by. Raises `UsageError` for a request of another library."""
    name = type(request).__module__.partition(".")[0]
    if name not in FAMILIES:
        raise UsageError(f"a request of {type(request).__module__} cannot be sent by this transport")
    return sys.modules[name]


def stored(response: Any) -> dict[str, Json]:
    """A response that was read, as a stored exchange; `elapsed` (seconds) is kept where the client measured it."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw]
    about = exchange(
        response.status_code,
        headers,
        response.content,
        http_version=response.http_version,
        reason_phrase=response.reason_phrase,
    )
    seconds = elapsed_of(response)
    return about if seconds is None else {**about, "elapsed": seconds}


def rebuilt(answer: dict[str, Json], request: Any) -> Any:
    """The response that a stored exchange tells of, read already.

    Args:
        answer: the stored exchange.
        request: the request that it answers now; it decides between httpx and httpx2.
    """
    library = library_of(request)
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers_of(answer)]
    kept = [(name, value) for name, value in headers if name.lower() not in _OF_THE_WIRE]
    extensions = {name: str(answer.get(name) or "").encode("latin-1") for name in ("http_version", "reason_phrase")}
    response = library.Response(
        cast("int", answer["status"]), headers=kept, content=content_of(answer), request=request, extensions=extensions
    )
    response.headers = library.Headers(headers)  # as they were, also those that were acted upon already
    put_elapsed(response, answer.get("elapsed"))
    return response


def facts_of(answer: Json) -> Attrs:
    """Structural facts of a stored result, an exchange or a provider's own answer."""
    facts: dict[str, Json] = dict(chat.response_facts(answer_in(answer)))
    if isinstance(answer, dict) and is_exchange(answer):
        facts["status_code"] = answer["status"]
        request_id = header_of(answer, *_REQUEST_ID)
        if request_id is not None:
            facts["request_id"] = request_id
    return facts
