"""HTTP APIs that are asked through `requests`.

    session = requests.Session()
    session.mount("https://", loupe.requests_adapter())

What comes back in a replay is what an adapter gives: the same status, headers and bytes, read at once or in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from http.client import HTTPMessage
from types import SimpleNamespace
from typing import Any, cast

from agentloupe.ports.streams import Stream, open_stream
from agentloupe.providers.httpcall import HttpCall, bytes_of_body, json_bytes
from agentloupe.providers.sending import passes_on
from agentloupe.words.canonical import Json
from agentloupe.words.exchange import content_of, exchange, headers_of

__all__ = ["requests_adapter", "send_recorded"]


def requests_adapter(**options: Any) -> Any:
    """A transport adapter for a `requests.Session` that records and replays what goes through it.

    Args:
        options: as of `requests.adapters.HTTPAdapter`, which it is one of (`max_retries`, `pool_maxsize` ...).
    """
    return _adapter_class()(**options)


@cache
def _adapter_class() -> Any:
    from requests.adapters import HTTPAdapter

    class RecordedAdapter(HTTPAdapter):
        """Answers the requests of a session."""

        def send(self, request: Any, stream: bool = False, *args: Any, **options: Any) -> Any:
            def really(wanted: Any) -> Any:
                return super(RecordedAdapter, self).send(wanted, stream, *args, **options)

            if passes_on():
                return really(request)
            return send_recorded(self, request, really, stream)

    return RecordedAdapter


def send_recorded(adapter: Any, request: Any, really: Callable[[Any], Any], streamed: bool) -> Any:
    """Sends a request as a call of the boundary: what the session gets from its adapter.

    Args:
        adapter: whose request it is; makes responses.
        request: prepared.
        really: sends a request.
        streamed: whether the body is left to be read.
    """
    wanted = HttpCall(request.method, request.url, bytes_of_body(request.body), request.headers.get("Content-Type", ""))

    def send(asked: Any = request) -> Any:
        with wanted.tried(asked.headers) as seen:
            response = really(asked)
            seen.append(response.status_code)
            if not streamed:
                assert response.content is not None, "read now"
        return response

    def again(answer: dict[str, Json]) -> Any:
        return adapter.build_response(request, _Raw(answer, None, content_of(answer)))

    call = wanted.call(_stored, again, lambda body, url: send(_edited(request, body, url)))
    reply = open_stream(call, send, lambda response: _head(response) if streamed else None, wanted.done)
    if reply.stream is None:
        return reply.value
    if reply.raw is None:
        return adapter.build_response(request, _Raw(cast("dict[str, Json]", reply.stream.head), reply.stream, None))
    reply.raw.raw = _Raw(_head(reply.raw), reply.stream, reply.raw.raw)
    return reply.raw


def _edited(request: Any, body: Json, url: str | None) -> Any:
    changed = request.copy()
    changed.url = url or changed.url
    changed.prepare_body(json_bytes(body), None)
    return changed


def _head(response: Any) -> dict[str, Json]:
    headers: list[Json] = [[name, value] for name, value in response.raw.headers.items()]
    about: dict[str, Json] = {"status": response.status_code, "headers": headers}
    version = "HTTP/1.0" if getattr(response.raw, "version", 11) == 10 else "HTTP/1.1"
    return {**about, "http_version": version, "reason_phrase": response.reason or ""}


def _stored(response: Any) -> Json:
    head = _head(response)
    named = {name: str(head[name]) for name in ("http_version", "reason_phrase")}
    return exchange(response.status_code, headers_of(head), response.content, **named)


def _message(head: dict[str, Json]) -> HTTPMessage:
    message = HTTPMessage()
    for name, value in headers_of(head):
        message.add_header(name, value)
    return message


class _Raw:
    """What `requests` reads an answer from, in place of urllib3's response: bytes that are decoded already.

    Args:
        head: status and headers.
        stream: of a streamed answer.
        source: what there is to read: urllib3's response, the whole content, or `None` in a replay of a stream.
    """

    def __init__(self, head: dict[str, Json], stream: Stream | None, source: Any) -> None:
        from urllib3 import HTTPHeaderDict

        self.status = head["status"]
        self.reason = head["reason_phrase"]
        self.version = 10 if head["http_version"] == "HTTP/1.0" else 11
        self.headers = HTTPHeaderDict(headers_of(head))
        self._original_response = SimpleNamespace(msg=_message(head))  # where cookies are looked for
        self.decode_content = True
        self._stream = stream
        self._source = source
        self._left: Iterator[bytes] | None = None

    def stream(self, amt: int | None = None, decode_content: bool | None = None) -> Iterator[bytes]:
        """The bytes, as they come."""
        del decode_content  # they are
        if self._stream is None:
            return iter([cast("bytes", self._source)])
        return self._stream.bytes(None if self._source is None else self._source.stream(amt, decode_content=True))

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        """The next bytes: all that are left, or some piece where a number is asked for; nothing at the end."""
        self._left = self._left or self.stream(amt, decode_content)
        return b"".join(self._left) if amt is None else next(self._left, b"")

    def close(self) -> None:
        """The program reads no more."""
        if self._stream is not None:
            self._stream.close(getattr(self._source, "close", None))

    def release_conn(self) -> None:
        """The connection is free for another request."""
        if (release := getattr(self._source, "release_conn", None)) is not None:
            release()

    def isclosed(self) -> bool:
        """Whether the real answer is closed."""
        return bool(getattr(self._source, "closed", False))
