"""Any HTTP API of a model under the boundary: a transport for `httpx` and `httpx2` clients, sync and async.

    client = httpx.Client(transport=http_transport())
    client = httpx2.AsyncClient(transport=http_transport(httpx2.AsyncHTTPTransport(retries=1)))

One call for each request: kind `llm` where a JSON body names a model, else `other`. What comes back in a replay are the
same bytes under the same status and headers. Below a wrapped SDK client it stays out of the way: the SDK's call is the
call. Streams are passed on as they come, and come back in the same pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

from agentloupe.ports.codecs.http import put_elapsed
from agentloupe.ports.streams import Reply, aopen_stream, open_stream
from agentloupe.providers.exchange import library_of, rebuilt, stored
from agentloupe.providers.httpcall import HttpCall, json_bytes
from agentloupe.providers.httpstream import head_of, is_stream, played, teed
from agentloupe.providers.sending import passes_on
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json

__all__ = ["HttpTransport", "http_transport"]

_OF_THE_BODY = (b"content-length", b"transfer-encoding")


def http_transport(inner: Any = None) -> HttpTransport:
    """A transport that records and replays what goes through it.

    Args:
        inner: the transport that really sends; default: the library's own `HTTPTransport` or `AsyncHTTPTransport`.
    """
    return HttpTransport(inner)


class HttpTransport:
    """See `http_transport`. Fits both libraries and both kinds of client, since they ask for methods, not for a class."""

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner
        self._made: dict[str, Any] = {}

    def handle_request(self, request: Any) -> Any:
        """Answers a request of a sync client."""
        inner = self._inner or self._default(request, "HTTPTransport")
        if passes_on():
            return inner.handle_request(request)
        request.read()
        wanted = _Exchange(request)

        def send(request: Any = request) -> Any:
            with wanted.tried(request.headers) as seen:
                began = time.perf_counter()
                response = inner.handle_request(request)
                seen.append(response.status_code)
                if not is_stream(response.status_code, response.headers.get("content-type", ""), asked=wanted.asked):
                    response.read()
                    put_elapsed(response, time.perf_counter() - began)  # the client has nothing to read
            return response

        return wanted.answer(open_stream(wanted.made(send), send, wanted.head, wanted.done))

    async def handle_async_request(self, request: Any) -> Any:
        """Answers a request of an async client."""
        inner = self._inner or self._default(request, "AsyncHTTPTransport")
        if passes_on():
            return await inner.handle_async_request(request)
        await request.aread()
        wanted = _Exchange(request, asynchronous=True)

        async def send(request: Any = request) -> Any:
            with wanted.tried(request.headers) as seen:
                began = time.perf_counter()
                response = await inner.handle_async_request(request)
                seen.append(response.status_code)
                if not is_stream(response.status_code, response.headers.get("content-type", ""), asked=wanted.asked):
                    await response.aread()
                    put_elapsed(response, time.perf_counter() - began)
            return response

        return wanted.answer(await aopen_stream(wanted.made(send), send, wanted.head, wanted.done))

    def _default(self, request: Any, kind: str) -> Any:
        library = library_of(request)
        if kind not in self._made:
            self._made[kind] = getattr(library, kind)()
        return self._made[kind]

    def close(self) -> None:
        """Closes the transport that really sends."""
        for transport in (self._inner, *self._made.values()):
            if hasattr(transport, "close"):
                transport.close()

    async def aclose(self) -> None:
        """Async twin of `close`."""
        for transport in (self._inner, *self._made.values()):
            if hasattr(transport, "aclose"):
                await transport.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Exchange(HttpCall):
    """One request of `httpx` or `httpx2`."""

    def __init__(self, request: Any, *, asynchronous: bool = False) -> None:
        super().__init__(request.method, str(request.url), request.content, request.headers.get("content-type", ""))
        self._request = request
        self._asynchronous = asynchronous

    def made(self, send: Callable[[Any], object]) -> Call:
        """The call; `send` sends a request."""
        return self.call(
            stored, lambda answer: rebuilt(answer, self._request), lambda body, url: send(self._edited(body, url))
        )

    def _edited(self, body: Json, url: str | None) -> Any:
        """The same request with another JSON body, and to another URL."""
        request = self._request
        headers = [(name, value) for name, value in request.headers.raw if name.lower() not in _OF_THE_BODY]
        return library_of(request).Request(
            request.method, url or request.url, headers=headers, content=json_bytes(body), extensions=request.extensions
        )

    def head(self, response: Any) -> Json:
        """What came before the first piece of a stream; `None` for an answer that was read."""
        return None if hasattr(response, "_content") else head_of(response)

    def answer(self, reply: Reply[Any]) -> Any:
        """The response that the client gets."""
        if reply.stream is None:
            return reply.value
        if reply.raw is not None:
            return teed(reply.raw, reply.stream)
        return played(reply.stream, self._request, asynchronous=self._asynchronous)
