"""Streamed answers of `httpx` and `httpx2`: which are streams, how they are recorded on their way, how they come back."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

from agentloupe.ports.streams import Stream, Streamed
from agentloupe.providers.assembling import assembled, first_token_ms
from agentloupe.providers.codings import coding_of
from agentloupe.providers.exchange import library_of
from agentloupe.words.canonical import Json
from agentloupe.words.exchange import STREAMS, exchange, header_of, headers_of, media_type

__all__ = ["head_of", "is_stream", "played", "teed", "told"]


def is_stream(status: int, content_type: str, *, asked: bool) -> bool:
    """Whether an answer is to be passed on as it comes. `asked`: the request wanted a stream.

    Errors, and answers of servers that do not stream though they were asked to, are short and read whole.
    """
    kind = media_type(content_type)
    return status < 400 and (kind in STREAMS or (asked and kind != "application/json"))


def head_of(response: Any) -> dict[str, Json]:
    """What is known of an answer before its first piece: an exchange without its body."""
    headers: list[Json] = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.headers.raw]
    about: dict[str, Json] = {"status": response.status_code, "headers": headers}
    return {**about, "http_version": response.http_version, "reason_phrase": response.reason_phrase}


def told(streamed: Streamed, *, model: bool) -> Json:
    """A streamed answer as the result of its call: of a model the whole answer in the provider's form, else an exchange."""
    answer = assembled(streamed.data) if model else None
    if answer is None:
        return _whole(streamed)
    if (ms := first_token_ms(streamed)) is not None:
        streamed.facts["first_token_ms"] = ms
    return answer


def _whole(streamed: Streamed) -> dict[str, Json]:
    """A streamed answer as an exchange: what it would be had it been read in one."""
    head = _head(streamed.head)
    named = {name: str(head.get(name) or "") for name in ("http_version", "reason_phrase")}
    status = head.get("status")
    return exchange(status if isinstance(status, int) else 0, headers_of(head), streamed.data, **named)


def teed(response: Any, stream: Stream) -> Any:
    """A real response, unread, whose bytes are recorded while they are read."""
    stream.coding = coding_of(response.headers.get("content-encoding"))
    made = _classes(library_of(response))
    response.stream = made[hasattr(response.stream, "__aiter__")](stream, response.stream)
    return response


def played(stream: Stream, request: Any, *, asynchronous: bool) -> Any:
    """The recorded response to a request, unread."""
    head = _head(stream.head)
    stream.coding = coding_of(header_of(head, "content-encoding"))
    library = library_of(request)
    extensions = {name: str(head.get(name) or "").encode("latin-1") for name in ("http_version", "reason_phrase")}
    body = _classes(library)[asynchronous](stream, None)
    return library.Response(
        head["status"], headers=headers_of(head), stream=body, request=request, extensions=extensions
    )


def _head(head: Json) -> dict[str, Json]:
    return head if isinstance(head, dict) else {}


def _classes(library: Any) -> tuple[Any, Any]:
    return _made(library.__name__)


@cache
def _made(name: str) -> tuple[Any, Any]:
    """Bodies of responses, sync and async, of the classes that this library asks for."""
    library: Any = sys.modules[name]

    class Body(library.SyncByteStream):
        def __init__(self, stream: Stream, source: Any) -> None:
            self._stream = stream
            self._source = source

        def __iter__(self) -> Iterator[bytes]:
            return self._stream.bytes(self._source)

        def close(self) -> None:
            self._stream.close(None if self._source is None else self._source.close)

    class AsyncBody(library.AsyncByteStream):
        def __init__(self, stream: Stream, source: Any) -> None:
            self._stream = stream
            self._source = source

        def __aiter__(self) -> AsyncIterator[bytes]:
            return self._stream.abytes(self._source)

        async def aclose(self) -> None:
            await self._stream.aclose(None if self._source is None else self._source.aclose)

    return Body, AsyncBody
