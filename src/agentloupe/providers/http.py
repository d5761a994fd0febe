"""Any HTTP API of a model under the boundary: a transport for `httpx` and `httpx2` clients, sync and async.

    client = httpx.Client(transport=http_transport())
    client = httpx2.AsyncClient(transport=http_transport(httpx2.AsyncHTTPTransport(retries=1)))

One call for each request: kind `llm` where a JSON body names a model, else `other`. What comes back in a replay are the
same bytes under the same status and headers. Below a wrapped SDK client it stays out of the way: the SDK's call is the
call. Streams are passed on and not recorded; a replay refuses them.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Self, cast

from agentloupe.ports import ambient
from agentloupe.providers import chat
from agentloupe.providers.exchange import facts_of, library_of, rebuilt, stored
from agentloupe.providers.openai_calls import SENDING
from agentloupe.providers.tries import Tries
from agentloupe.words.call import Attrs, Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import ReplayRefused
from agentloupe.words.exchange import body_members

__all__ = ["HttpTransport", "http_transport"]

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

        def send() -> Any:
            with wanted.tried() as seen:
                response = inner.handle_request(request)
                if wanted.why is None:
                    response.read()
                seen.append(response.status_code)
            return response

        return ambient.call(wanted.call, send)

    async def handle_async_request(self, request: Any) -> Any:
        """Answers a request of an async client."""
        inner = self._inner or self._default(request, "AsyncHTTPTransport")
        if ambient.current() is None or SENDING.get() is not None:
            return await inner.handle_async_request(request)
        await request.aread()
        wanted = _Exchange(request)

        async def send() -> Any:
            with wanted.tried() as seen:
                response = await inner.handle_async_request(request)
                if wanted.why is None:
                    await response.aread()
                seen.append(response.status_code)
            return response

        return await ambient.acall(wanted.call, send)

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

    def __init__(self, request: Any) -> None:
        self._request = request
        body = _json_of(request.content)
        named = isinstance(body, dict) and isinstance(body.get("model"), str)
        self.why = "streams are not recorded yet" if isinstance(body, dict) and body.get("stream") is True else None
        path = str(request.url.path)
        facts = {"provider": chat.provider_of(request.url), "method": request.method}
        if self.why is not None:
            self.call = self._call("other", f"{request.method} {chat.endpoint_of(path)}", {"not_recorded": self.why})
        elif named and path.endswith(_CHAT_PATHS):
            asked = cast("dict[str, Json]", body)
            about: Attrs = {**chat.request_facts(asked), **facts, "endpoint": chat.endpoint_of(path)}
            self.call = self._call("llm", chat.step_name(asked), about, asked)
        else:
            self.call = self._call("other", f"{request.method} {chat.endpoint_of(path)}", facts)

    def _call(self, kind: Any, name: str, attrs: Attrs, body: Json = None) -> Call:
        if body is None:
            query = bytes(self._request.url.query).decode("ascii", "replace")
            body = {"path": str(self._request.url.path), "query": query, "body": body_members(self._request.content)}
        unrecorded = self.why is not None
        return Call(
            kind=kind,
            name=name,
            input=body,
            attrs=attrs,
            encode=(lambda _: {"not_recorded": self.why}) if unrecorded else stored,
            decode=self._decoded,
            facts=facts_of,
        )

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
        if self.why is not None or not isinstance(answer, dict):
            raise ReplayRefused(
                f"{self.call.name}: {self.why}, so there is nothing to answer it with", reason="not_recorded"
            )
        return rebuilt(answer, self._request)


def _json_of(content: bytes) -> Json:
    try:
        return json.loads(content)
    except ValueError:
        return None
