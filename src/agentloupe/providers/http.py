"""Any HTTP API of a model under the boundary: a transport for `httpx` and `httpx2` clients, sync and async.

    client = httpx.Client(transport=http_transport())
    client = httpx2.AsyncClient(transport=http_transport(httpx2.AsyncHTTPTransport(retries=1)))

One call for each request: kind `llm` where a JSON body names a model, else `other`. What comes back in a replay are the
same bytes under the same status and headers. Below a wrapped SDK client it stays out of the way: the SDK's call is the
call. Streams are passed on as they come, and come back in the same pieces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Self

from agentloupe.ports import ambient
from agentloupe.ports.streams import Reply, Streamed, aopen_stream, open_stream
from agentloupe.providers import chat
from agentloupe.providers.assembling import is_done
from agentloupe.providers.exchange import facts_of, library_of, rebuilt, stored
from agentloupe.providers.httpstream import head_of, is_stream, played, teed, told
from agentloupe.providers.sending import SENDING
from agentloupe.providers.tries import Tries
from agentloupe.words.call import Attrs, Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable
from agentloupe.words.exchange import body_members

__all__ = ["HttpTransport", "http_transport"]

_OF_THE_BODY = (b"content-length", b"transfer-encoding")
_CHAT_PATHS = ("/chat/completions", "/messages", "/responses", "/completions")


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
        if ambient.current() is None or SENDING.get() is not None:
            return inner.handle_request(request)
        request.read()
        wanted = _Exchange(request)

        def send(request: Any = request) -> Any:
            with wanted.tried() as seen:
                response = inner.handle_request(request)
                seen.append(response.status_code)
                if not is_stream(response, asked=wanted.asked):
                    response.read()
            return response

        call = wanted.call(stored, lambda body: send(wanted.edited(body)))
        return wanted.answer(open_stream(call, send, wanted.head, wanted.done))

    async def handle_async_request(self, request: Any) -> Any:
        """Answers a request of an async client."""
        inner = self._inner or self._default(request, "AsyncHTTPTransport")
        if ambient.current() is None or SENDING.get() is not None:
            return await inner.handle_async_request(request)
        await request.aread()
        wanted = _Exchange(request, asynchronous=True)

        async def send(request: Any = request) -> Any:
            with wanted.tried() as seen:
                response = await inner.handle_async_request(request)
                seen.append(response.status_code)
                if not is_stream(response, asked=wanted.asked):
                    await response.aread()
            return response

        call = wanted.call(stored, lambda body: send(wanted.edited(body)))
        return wanted.answer(await aopen_stream(call, send, wanted.head, wanted.done))

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


class _Exchange:
    """One request, and the call that it is."""

    def __init__(self, request: Any, *, asynchronous: bool = False) -> None:
        self._request = request
        self._asynchronous = asynchronous
        self._path = str(request.url.path)
        body = _json_of(request.content)
        self._body: dict[str, Json] = body if isinstance(body, dict) else {}
        self._model = isinstance(self._body.get("model"), str) and self._path.endswith(_CHAT_PATHS)
        self.asked = self._body.get("stream") is True

    def call(self, encode: Callable[[Any], Json], resend: Callable[[Json], object]) -> Call:
        """The call: of a model where the request names one, else any other."""
        endpoint = chat.endpoint_of(self._path)
        facts: Attrs = {"provider": chat.provider_of(self._request.url), "method": self._request.method}
        if self._model:
            facts = {**chat.request_facts(self._body), **facts, "endpoint": endpoint}
        query = bytes(self._request.url.query).decode("ascii", "replace")
        other: dict[str, Json] = {"path": self._path, "query": query, "body": body_members(self._request.content)}
        return Call(
            kind="llm" if self._model else "other",
            name=chat.step_name(self._body) if self._model else f"{self._request.method} {endpoint}",
            input=self._body if self._model else other,
            attrs=facts,
            encode=lambda answer: told(answer, model=self._model) if isinstance(answer, Streamed) else encode(answer),
            decode=self._decoded,
            facts=facts_of,
            resend=resend if self._model else None,
            streamed=True,
        )

    def edited(self, body: Json) -> Any:
        """The same request with another JSON body."""
        request = self._request
        headers = [(name, value) for name, value in request.headers.raw if name.lower() not in _OF_THE_BODY]
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        return library_of(request).Request(
            request.method, request.url, headers=headers, content=content, extensions=request.extensions
        )

    def head(self, response: Any) -> Json:
        """What came before the first piece of a stream; `None` for an answer that was read."""
        return None if hasattr(response, "_content") else head_of(response)

    def done(self, streamed: Streamed) -> bool:
        """Whether a stream says no more."""
        return self._model and is_done(streamed.data)

    def answer(self, reply: Reply[Any]) -> Any:
        """The response that the client gets."""
        if reply.stream is None:
            return reply.value
        if reply.raw is not None:
            return teed(reply.raw, reply.stream)
        return played(reply.stream, self._request, asynchronous=self._asynchronous)

    @contextmanager
    def tried(self) -> Generator[list[int]]:
        """Lists the try that is made inside; its status is to be put into the list."""
        seen: list[int] = []
        tries = Tries()
        tries.begin()
        try:
            yield seen
        except BaseException as error:
            tries.end(error=type(error).__name__)
            raise
        tries.end(status=seen[0])

    def _decoded(self, answer: Json) -> Any:
        if not isinstance(answer, dict):
            raise NotRebuildable(f"the recorded answer of {self._path} is no exchange")
        return rebuilt(answer, self._request)


def _json_of(content: bytes) -> Json:
    try:
        return json.loads(content)
    except ValueError:
        return None
