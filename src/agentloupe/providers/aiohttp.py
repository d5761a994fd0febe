"""HTTP APIs that are asked through `aiohttp`, 3.12 and newer.

    session = aiohttp.ClientSession(middlewares=[loupe.aiohttp_middleware()])

In a replay aiohttp's own class makes the response, of the recorded status and headers, and its own reader gives out the
recorded bytes. The module is imported where aiohttp is loaded only. What is not streamed is read when it opens, so that what breaks it is raised there and not by a later read.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import ClientResponse, HttpVersion, MultipartWriter, hdrs, http_parser
from aiohttp.base_protocol import BaseProtocol
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.payload import BytesPayload, IOBasePayload
from aiohttp.streams import StreamReader
from multidict import CIMultiDict, CIMultiDictProxy

from agentloupe.ports import ambient
from agentloupe.ports.streams import Stream, aopen_stream
from agentloupe.providers.httpcall import HttpCall, json_bytes
from agentloupe.providers.httpstream import is_stream
from agentloupe.providers.sending import passes_on
from agentloupe.words.canonical import Json
from agentloupe.words.exchange import content_of, exchange, headers_of

__all__ = ["aiohttp_middleware", "content_of_request", "send_recorded"]

Handler = Callable[[Any], Awaitable[Any]]

_log = logging.getLogger("agentloupe")


def aiohttp_middleware() -> Any:
    """A client middleware that records and replays what its session sends; of several it is to be the last."""

    async def recorded(request: Any, handler: Handler) -> Any:
        return await (handler(request) if passes_on() else send_recorded(request, handler))

    return recorded


async def send_recorded(request: Any, handler: Handler) -> Any:
    """Sends a request as a call of the boundary: what the session gets from its middleware.

    Args:
        request: an `aiohttp.ClientRequest`.
        handler: sends it.
    """
    if "Upgrade" in request.headers:  # a websocket is no exchange
        return await handler(request)
    content = await content_of_request(request)
    wanted = HttpCall(request.method, str(request.url), content, request.headers.get("Content-Type", ""))

    sent: list[bool] = []

    async def send() -> Any:
        sent.append(True)
        with wanted.tried(request.headers) as seen, _noting_cancels(request):
            response = await handler(request)
            seen.append(response.status)
            if not is_stream(response.status, response.headers.get("content-type", ""), asked=wanted.asked):
                response.content = Reader(request, _chunked(_head(response)), whole=await response.content.read())
        return response

    async def resend(body: Json, url: str | None) -> Any:
        if url is not None:
            request.url = type(request.url)(url, encoded=True)
        await request.update_body(json_bytes(body))
        return await send()

    def again(answer: dict[str, Json]) -> object:
        return Answer(answer, Reader(request, _chunked(answer), whole=content_of(answer)))

    try:
        reply = await aopen_stream(wanted.call(_stored, again, resend), send, _head_of_stream, wanted.done)
    except TimeoutError:
        if not sent and _cancelled(request) and (task := asyncio.current_task()) is not None:
            task.uncancel()  # as the session's own timer did where the request was sent
        raise
    if reply.stream is None:
        return await reply.value.response(request) if isinstance(reply.value, Answer) else reply.value
    head = cast("dict[str, Json]", reply.stream.head)
    if reply.raw is None:
        return await Answer(head, Reader(request, _chunked(head), stream=reply.stream)).response(request)
    reply.raw.content = Reader(request, _chunked(head), stream=reply.stream, source=reply.raw.content)
    return reply.raw


def _cancelled(request: Any) -> bool:
    """Whether the session's time limit has cancelled the task that sends a request."""
    return getattr(request._timer, "_cancelled", False) is True


@contextmanager
def _noting_cancels(request: Any) -> Generator[None]:
    """The session's timer makes an error of its cancel inside of the call: the tape has to tell that there was one."""
    try:
        yield
    except TimeoutError:
        if _cancelled(request):
            ambient.note("cancels", 1)
        raise


async def content_of_request(request: Any) -> bytes | None:
    """The body of a request; `None` where it cannot be read without using it up."""
    body: object = request.body
    if isinstance(body, BytesPayload | IOBasePayload | MultipartWriter):
        return await body.as_bytes()
    return body if isinstance(body, bytes) else None


def _head(response: Any) -> dict[str, Json]:
    """An exchange without its body."""
    headers: list[Json] = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in response.raw_headers]
    version = f"HTTP/{response.version.major}.{response.version.minor}"
    about: dict[str, Json] = {"status": response.status, "headers": headers}
    return {**about, "http_version": version, "reason_phrase": response.reason or ""}


def _head_of_stream(response: Any) -> Json:
    return None if isinstance(response.content, Reader) else _head(response)


def _stored(response: Any) -> Json:
    head = _head(response)
    named = {name: str(head[name]) for name in ("http_version", "reason_phrase")}
    return exchange(response.status, headers_of(head), response.content.whole, **named)


def _chunked(head: dict[str, Json]) -> bool:
    return any(name.lower() == "transfer-encoding" and "chunked" in value for name, value in headers_of(head))


class Answer:
    """A recorded answer, in place of the protocol that a response reads its beginning from."""

    upgraded = False
    transport = None

    def __init__(self, head: dict[str, Json], content: Any) -> None:
        raw = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers_of(head))
        texts = CIMultiDict(
            [
                (_spelled(name.decode("utf-8", "surrogateescape")), value.decode("utf-8", "surrogateescape"))
                for name, value in raw
            ]
        )
        major, _, minor = str(head["http_version"]).removeprefix("HTTP/").partition(".")
        self._content = content
        self._message = SimpleNamespace(
            version=HttpVersion(int(major), int(minor or 0)),
            code=head["status"],
            reason=head["reason_phrase"],
            headers=CIMultiDictProxy(texts),
            raw_headers=raw,
        )

    async def read(self) -> tuple[Any, Any]:
        """Status and headers, and what the body is read from."""
        return self._message, self._content

    async def response(self, request: Any) -> Any:
        """The response to a request."""
        about: dict[str, Any] = {
            "writer": None,
            "continue100": None,
            "timer": request._timer,
            "request_info": request.request_info,
            "traces": request._traces,
            "loop": request.loop,
            "session": request._session,
            "stream_writer": SimpleNamespace(output_size=0),
        }
        known = inspect.signature(ClientResponse).parameters
        made = request.response_class(
            request.method, request.original_url, **{name: about[name] for name in about if name in known}
        )
        await made.start(Connection(cast("Any", _Connector()), cast("Any", None), cast("Any", self), request.loop))
        return made


class _Connector:
    """Where a response gives its connection back."""

    def _release(self, key: object, protocol: object, *, should_close: bool = False) -> None:
        pass


def _spelled(name: str) -> str:
    """The name of a header as aiohttp's parser in C spells it; the one in Python leaves it as it came."""
    if http_parser.HttpResponseParser is http_parser.HttpResponseParserPy:
        return name
    return getattr(hdrs, name.upper().replace("-", "_"), name)


class Reader(StreamReader):
    """aiohttp's reader. It asks for a piece where the program waits for one; after an empty one the next ends an HTTP chunk.

    Args:
        request: whose answer it is.
        chunked: whether it says where HTTP chunks end.
        whole: the body, where it was read already.
        stream: gives out the body.
        source: the real reader behind a stream; `None` in a replay.
    """

    def __init__(
        self, request: Any, chunked: bool, whole: bytes = b"", stream: Stream | None = None, source: Any = None
    ) -> None:
        limit: int = getattr(request._session, "_read_bufsize", 2**16)
        super().__init__(BaseProtocol(request.loop), limit, timer=request._timer, loop=request.loop)
        self.whole = whole
        self._stream = stream
        self._source = source
        if source is not None:
            source._timer = TimerNoop()  # the session's time limit is the program's: it acts here, as in a replay
        self._pieces = None if stream is None else stream.abytes(None if source is None else _pieces_of(source))
        self._pulling = self._ends = False
        if chunked:
            self.begin_http_chunk_receiving()
        if stream is None:
            self.feed_data(whole)
            if chunked:
                self.end_http_chunk_receiving()
            self.feed_eof()

    async def _wait(self, func_name: str) -> None:
        if self._pulling:
            raise RuntimeError(f"{func_name}() called while another coroutine is already waiting for incoming data")
        self._pulling = True
        try:
            with self._timer:
                piece = await self._next()
        finally:
            self._pulling = False
        if piece is None:
            self.feed_eof()
            return
        self.feed_data(piece)
        if self._ends:
            self.end_http_chunk_receiving()
        self._ends = not piece and not self._ends and self._http_chunk_splits is not None

    async def _next(self) -> bytes | None:
        assert self._pieces is not None, "what was read whole has its end"
        try:
            return await anext(self._pieces)
        except StopAsyncIteration:
            if self._source is None or self._source.at_eof():
                return None
        except Exception as error:
            self.set_exception(error)  # what broke the connection is raised by later reads too
            raise
        _log.warning("a program reads on after a read that it cancelled: what comes then is not recorded")
        return await self._source.readany() or None

    async def wait_eof(self) -> None:
        """Reads until the end, which does not come by itself."""
        while not self._eof:
            await self._wait("wait_eof")

    def set_exception(self, exc: BaseException, exc_cause: BaseException | None = None) -> None:
        """Also how a response tells that the program closes it."""
        super().set_exception(exc, *(() if exc_cause is None else (exc_cause,)))
        if self._source is not None and self._source.exception() is None:
            self._source.set_exception(exc)
        if self._stream is not None:
            self._stream.close(None)


async def _pieces_of(source: StreamReader) -> AsyncIterator[bytes]:
    """The bytes of a body as they come; an empty piece before one with which an HTTP chunk ends."""
    while True:
        data, ends = await source.readchunk()
        if ends:
            yield b""
        elif not data:
            return
        yield data
