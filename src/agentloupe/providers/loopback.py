"""A small HTTP server on 127.0.0.1 for models that live on this machine, and the shapes of OpenAI's chat completions.

    with serve(app) as server:            # app: HttpRequest -> HttpReply
        print(server.url)                 # http://127.0.0.1:PORT

It binds to loopback only, answers each connection in a thread of its own, refuses bodies over a limit and never lets an
exception of the app out as anything but a JSON error. Shapes follow the public API reference of chat completions
(`chat.completion` objects and `{"error": {message, type, param, code}}`).
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

__all__ = [
    "MAX_BODY",
    "HttpReply",
    "HttpRequest",
    "LoopbackServer",
    "RequestError",
    "completion",
    "error_reply",
    "json_reply",
    "mapping",
    "models_reply",
    "read_chat_request",
    "serve",
]

MAX_BODY = 8 * 1024 * 1024
"""Bytes of the largest request body that is read."""

_IDLE_SECONDS = 60.0


class RequestError(Exception):
    """The request cannot be answered as it stands; becomes an HTTP error with the reason as text."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request: header names in lower case, the path without its query, the query as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """One reply. `body` is whole bytes, or chunks that are sent as they come (chunked transfer coding, for streams)."""

    status: int
    body: bytes | Iterable[bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


App = Callable[[HttpRequest], HttpReply]


def json_reply(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpReply:
    """A JSON body; ASCII with escapes, so that lone surrogates of a script arrive as they are."""
    body = json.dumps(value).encode("ascii")
    return HttpReply(status, body, {"content-type": "application/json", **(headers or {})})


def error_reply(
    status: int,
    message: str,
    *,
    kind: str | None = None,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> HttpReply:
    """An error in OpenAI's shape; `kind` is its `type` and follows from the status if it is not given."""
    kind = kind or ("invalid_request_error" if status < 500 else "server_error")
    return json_reply({"error": {"message": message, "type": kind, "param": param, "code": code}}, status, headers)


def models_reply(name: str, owner: str) -> HttpReply:
    """The list of models: one."""
    return json_reply({"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": owner}]})


def completion(
    *,
    id: str,
    model: str,
    created: int,
    message: Mapping[str, object],
    finish_reason: str,
    usage: Mapping[str, object] | None,
    fingerprint: str | None = None,
) -> dict[str, object]:
    """A whole `chat.completion` object with one choice; without `usage` where that is None."""
    choice = {"index": 0, "message": dict(message), "logprobs": None, "finish_reason": finish_reason}
    whole: dict[str, object] = {
        "id": id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
    }
    if usage is not None:
        whole["usage"] = dict(usage)
    if fingerprint is not None:
        whole["system_fingerprint"] = fingerprint
    return whole


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object; anything else is an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def read_chat_request(body: bytes) -> dict[str, Any]:
    """The body of a chat request as a JSON object whose `messages` is a list of objects with roles.

    Raises:
        RequestError: it is something else.
    """
    try:
        value: object = json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError("the body must be a JSON object")
    request = cast("dict[str, Any]", value)
    messages: object = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError("`messages` must be a list with at least one message", param="messages")
    for at, message in enumerate(cast("list[object]", messages)):
        if not isinstance(message, dict) or not isinstance(cast("dict[str, object]", message).get("role"), str):
            raise RequestError(f"message {at} must be an object with a `role`", param=f"messages[{at}]")
    return request


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = True

    @property
    def _loopback(self) -> LoopbackServer:
        return cast("LoopbackServer", self.server)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps quiet: what was asked is nobody's log line."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        body = self._body()
        if body is not None:
            self._answer(body)

    def _body(self) -> bytes | None:
        """The body, or None after the refusal has been sent."""
        length = self.headers.get("content-length", "")
        if not length.isdecimal():
            self._refuse(411, "the request needs a Content-Length")
        elif int(length) > self._loopback.max_body:
            self._refuse(413, f"the body has {length} bytes, {self._loopback.max_body} are allowed")
        else:
            return self.rfile.read(int(length))
        return None

    def _refuse(self, status: int, message: str) -> None:
        """Answers without reading the body, so the connection cannot be used again."""
        self.close_connection = True
        self._send(error_reply(status, message, headers={"connection": "close"}))

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        path, _, query = self.path.partition("?")
        request = HttpRequest(self.command, path, headers, body, query)
        try:
            reply = self._loopback.app(request)
        except RequestError as error:
            reply = error_reply(error.status, error.message, param=error.param, code=error.code)
        except Exception as error:  # noqa: BLE001 - a fault of the app is the client's 500, with the place on stderr
            traceback.print_exc(file=sys.stderr)
            reply = error_reply(500, f"the model failed: {type(error).__name__}: {error}")
        self._send(reply)

    def _send(self, reply: HttpReply) -> None:
        try:
            self._send_head(reply)
            if isinstance(reply.body, bytes):
                self.wfile.write(reply.body)
            else:
                self._send_chunks(reply.body)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True  # the client left; there is nobody to tell

    def _send_head(self, reply: HttpReply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if isinstance(reply.body, bytes):
            self.send_header("content-length", str(len(reply.body)))
        else:
            self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _send_chunks(self, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            if chunk:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class LoopbackServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1 at `port` (0: any free one); `app` answers each request, in several threads at once."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, app: App, *, port: int = 0, max_body: int = MAX_BODY) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.app = app
        self.max_body = max_body

    @property
    def url(self) -> str:
        """The base address without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is the client's matter; anything else goes to stderr."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc(file=sys.stderr)


@contextmanager
def serve(app: App, *, port: int = 0, max_body: int = MAX_BODY) -> Generator[LoopbackServer]:
    """Runs the server in a thread while the block runs."""
    server = LoopbackServer(app, port=port, max_body=max_body)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="loopback", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
