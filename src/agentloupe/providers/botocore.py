"""Services of AWS that are asked through `botocore`, on which boto3 stands: Bedrock's models above all.

    client = loupe.wrap(boto3.client("bedrock-runtime"))

A call is what the client's endpoint is asked for, whole: where botocore tries again, its tries stand in one step. Below it a try is
one request that the endpoint sends. In a replay the endpoint sends nothing and signs nothing, so it needs no credentials; the rest
is botocore's own: it reads the recorded status, headers and bytes, and raises of them the exceptions of that client.

An answer that comes in no stream is read when it comes, so what breaks it is raised by the call and not by a later read.
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from agentloupe.ports.streams import Stream, open_stream
from agentloupe.providers.httpcall import HttpCall, bytes_of_body, json_bytes
from agentloupe.providers.httpstream import is_stream
from agentloupe.providers.sending import Sending, on_its_way, one_try, passes_on
from agentloupe.words.canonical import Json
from agentloupe.words.exchange import content_of, exchange, headers_of

__all__ = ["endpoint_class", "recorded_send", "recorded_send_request"]

_RETRIED = ("RetryAttempts", "MaxAttemptsReached")
"""What botocore says of its tries beside an answer, and in the text of its exception."""


def endpoint_class() -> Any:
    """The class of what sends a client's requests; `None` where botocore is not loaded."""
    return getattr(sys.modules.get("botocore.endpoint"), "Endpoint", None)


def recorded_send_request(original: Any, asks: Callable[[dict[str, Any]], bool] = lambda _: True) -> Any:
    """What takes the place of `Endpoint._send_request`: one call, with all of its tries.

    Args:
        original: the method.
        asks: whether a request, as a dictionary of botocore's, is to be a call; the others pass.
    """

    def _send_request(self: Any, request_dict: dict[str, Any], operation_model: Any) -> Any:
        if passes_on() or _reads_its_first_event(operation_model) or not asks(request_dict):
            return original(self, request_dict, operation_model)
        return _Asking(self, request_dict, operation_model).answer(original)

    return _send_request


def recorded_send(original: Any) -> Any:
    """What takes the place of `Endpoint._send`: one try of a call."""

    def _send(self: Any, request: Any) -> Any:
        asking = _ASKING.get()
        if asking is None or asking.endpoint is not self:  # of a service that is asked meanwhile, for credentials
            return original(self, request)
        return asking.tried(request, functools.partial(original, self))

    return _send


def _reads_its_first_event(operation: Any) -> bool:
    """Whether botocore reads in a stream before the program has it: there is no handle yet, so it passes unrecorded.

    None of Bedrock's does; services that are asked by a name in a header do (`SubscribeToShard` of Kinesis).
    """
    protocol = str(operation.service_model.metadata.get("protocol", ""))
    return bool(operation.has_event_stream_output) and not protocol.startswith("rest")


class _Asking:
    """One call on its way through an endpoint, or coming back from a recording."""

    def __init__(self, endpoint: Any, request_dict: dict[str, Any], operation: Any) -> None:
        self.endpoint = endpoint
        self._request_dict = request_dict
        self._operation = operation
        request = self._unsigned()
        kind = request.headers.get("Content-Type", "")
        self._wanted = HttpCall(
            request.method,
            request.url,
            bytes_of_body(request.body),
            kind.decode("latin-1") if isinstance(kind, bytes) else str(kind),
        )
        self._sending: Sending | None = None
        self._recorded: Any = None
        self._broken: Exception | None = None

    def _unsigned(self) -> Any:
        made: Any = sys.modules["botocore.awsrequest"]
        return made.create_request_object(self._request_dict).prepare()

    def answer(self, original: Any) -> Any:
        """What the client gets of its endpoint: the response, and what botocore has read in it."""

        def send(request_dict: dict[str, Any] = self._request_dict) -> Any:
            with self._here(), on_its_way(Sending(None)) as self._sending:
                found = original(self.endpoint, request_dict, self._operation)
            if self._broken is not None:
                raise self._broken
            return found

        def resend(body: Json, url: str | None) -> Any:
            return send({**self._request_dict, "body": json_bytes(body), "url": url or self._request_dict["url"]})

        def again(answer: dict[str, Json]) -> Any:
            return self._read(answer, _whole(answer, content_of(answer)))

        reply = open_stream(self._wanted.call(_stored, again, resend), send, _head_of_stream, self._wanted.done)
        if reply.stream is None:
            return reply.value
        if reply.raw is None:
            return self._read(cast("dict[str, Json]", reply.stream.head), _Raw(None, reply.stream))
        reply.raw[0].raw.recorded(reply.stream)
        return reply.raw

    @contextmanager
    def _here(self) -> Generator[None]:
        token = _ASKING.set(self)
        try:
            yield
        finally:
            _ASKING.reset(token)

    def tried(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """The answer to one request of the endpoint."""
        if self._recorded is not None:
            return self._recorded
        assert self._sending is not None, "a request is sent on behalf of a call"
        with one_try(self._sending, request.headers) as seen:
            response = send(request)
            seen.append(response.status_code)
            self._take(response)
        return response

    def _take(self, response: Any) -> None:
        """Reads an answer, or makes one that streams ready to be recorded while it is read."""
        kind = response.headers.get("content-type", "")
        if is_stream(response.status_code, kind, asked=bool(self._operation.has_event_stream_output)):
            response.raw = _Raw(response.raw, None)
            return
        head = _head(response)
        try:
            content = response.content
        except Exception as error:  # noqa: BLE001  # the program gets it of the call, whatever it is; botocore does not try again
            content = response._content = b""
            self._broken = _as_a_reader_says(error, response.url)
        response.raw = _whole(head, content)

    def _read(self, answer: dict[str, Json], raw: Any) -> Any:
        """What botocore makes of a recorded answer, with its own parsers and hooks; nothing is signed for it."""
        made: Any = sys.modules["botocore.awsrequest"]
        request = self._unsigned()
        self._recorded = made.AWSResponse(request.url, answer["status"], dict(headers_of(answer)), raw)
        try:
            with self._here():
                found, error = self.endpoint._get_response(request, self._operation, self._request_dict["context"])
        finally:
            self._recorded = None  # it holds a stream, which holds this call
        if error is not None:
            raise error
        if "ResponseMetadata" in found[1]:
            found[1]["ResponseMetadata"].update(answer.get("tried") or {"RetryAttempts": 0})
        return found


_ASKING: ContextVar[_Asking | None] = ContextVar("agentloupe_asking_aws", default=None)


def _as_a_reader_says(error: Exception, url: str) -> Exception:
    """What a program is told that reads a body whose connection breaks."""
    broken: Any = sys.modules["urllib3.exceptions"]
    ours: Any = sys.modules["botocore.exceptions"]
    if isinstance(error, broken.ReadTimeoutError):
        return ours.ReadTimeoutError(endpoint_url=url, error=error)
    return ours.ResponseStreamingError(error=error) if isinstance(error, broken.ProtocolError) else error


def _head(response: Any) -> dict[str, Json]:
    headers: list[Json] = [[name, value] for name, value in response.headers.items()]
    version = "HTTP/1.0" if getattr(response.raw, "version", 11) == 10 else "HTTP/1.1"
    about: dict[str, Json] = {"status": response.status_code, "headers": headers}
    return {**about, "http_version": version, "reason_phrase": str(getattr(response.raw, "reason", None) or "")}


def _tried(parsed: Any) -> dict[str, Json]:
    about = parsed.get("ResponseMetadata", {})
    said: dict[str, Json] = {name: about[name] for name in _RETRIED if about.get(name)}
    return {"tried": {"RetryAttempts": 0, **said}} if said else {}


def _head_of_stream(found: Any) -> Json:
    response, parsed = found
    return {**_head(response), **_tried(parsed)} if isinstance(response.raw, _Raw) else None


def _stored(found: Any) -> Json:
    response, parsed = found
    head = _head(response)
    named = {name: str(head[name]) for name in ("http_version", "reason_phrase")}
    return {**exchange(response.status_code, headers_of(head), response.content, **named), **_tried(parsed)}


def _whole(head: dict[str, Json], content: bytes) -> Any:
    """What a body that is there already is read from: urllib3's own response."""
    made: Any = sys.modules["urllib3.response"]
    about: dict[str, Any] = {"headers": headers_of(head), "status": head["status"], "reason": head["reason_phrase"]}
    about["version"] = 10 if head["http_version"] == "HTTP/1.0" else 11
    how = {"preload_content": False, "decode_content": False, "enforce_content_length": False}
    return made.HTTPResponse(io.BytesIO(content), **about, **how)


class _Raw:
    """What botocore reads a stream from, in place of urllib3's response.

    Args:
        source: urllib3's response; `None` in a replay.
        stream: of the recording; is told later where the answer is a real one (`recorded`).
    """

    def __init__(self, source: Any, stream: Stream | None) -> None:
        self.version = getattr(source, "version", 11)
        self.reason = getattr(source, "reason", None)
        self._source = source
        self._stream = stream
        self._left: Iterator[bytes] | None = None
        self._rest = b""

    def recorded(self, stream: Stream | None) -> None:
        """From here on what is read is told to the boundary; `None`: there is none that keeps streams."""
        self._stream = stream

    def _pieces(self, amt: int) -> Iterator[bytes]:
        if self._left is None:
            source = None if self._source is None else self._source.stream(amt)
            self._left = iter(source or ()) if self._stream is None else self._stream.bytes(source)
        return self._left

    def stream(self, amt: int = 2**16, decode_content: bool | None = None) -> Iterator[bytes]:
        """The bytes, as they come."""
        del decode_content  # botocore takes bytes as they travel
        if rest := self._taken(None):
            yield rest
        yield from self._pieces(amt)

    def read(self, amt: int | None = None) -> bytes:
        """As many bytes as are asked for, fewer at the end; all without a number."""
        while amt is None or len(self._rest) < amt:
            piece = next(self._pieces(2**16 if amt is None else amt), None)
            if piece is None:
                break
            self._rest += piece
        return self._taken(amt)

    def readinto(self, buffer: Any) -> int:
        """Reads into a buffer; how many bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _taken(self, amt: int | None) -> bytes:
        size = len(self._rest) if amt is None else amt
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """The program reads no more."""
        close = getattr(self._source, "close", None)
        if self._stream is not None:
            self._stream.close(close)
        elif close is not None:
            close()
