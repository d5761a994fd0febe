"""Model clients under the boundary: `wrap(OpenAI())`, `wrap(AsyncAnthropic())`, also those of clouds (Azure, Bedrock ...).

The client that comes out is the one that went in: it gets a subclass of its own class, so `isinstance` holds, type
checkers see the same type, and what it makes of itself (`with_options`, `copy`) is wrapped too. Two of the SDK's own
methods are the door:

- `request`, which every method of these SDKs ends in (`sdk_request`): `openai` 2 and 3, `anthropic` on httpx and httpx2;
- `chat.completions.create` decides from its arguments alone (`openai_chat`), so a replay does none of the SDK's work.

Of a client of AWS (`boto3.client("bedrock-runtime")`) it is its endpoint that gets such a class, see `botocore`.

Outside a run nothing is recorded and nothing is changed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from agentloupe.ports import ambient
from agentloupe.providers import openai_chat
from agentloupe.providers.botocore import recorded_send, recorded_send_request
from agentloupe.providers.sdk_asked import asks_raw
from agentloupe.providers.sdk_request import request_call
from agentloupe.providers.sending import SENDING, answered, passes_on, try_ended
from agentloupe.words.errors import UsageError

__all__ = ["SDKS", "install", "uninstall", "wrap", "wrap_openai"]

Client = TypeVar("Client")

SDKS = ("openai", "anthropic")
"""Distributions whose clients are known."""


def wrap(client: Client) -> Client:
    """Puts a client of a model SDK under the boundary, in place, and returns it. Wrapping again changes nothing.

    Takes `OpenAI`, `Anthropic`, their async twins and the variants for clouds (`AzureOpenAI`, `AnthropicBedrock` ...), and
    clients of boto3, of which everything is recorded that they ask for.

    Raises:
        UsageError: it is no such client.
    """
    kind = type(client)
    if _is_wrapped(kind):
        return client
    base = getattr(sys.modules.get("botocore.client"), "BaseClient", None)
    if base is not None and isinstance(client, base):
        _wrap_aws(client)
        return client
    cast("Any", client).__class__ = _wrapped_client(kind)
    made = vars(client).get("chat")
    if made is not None:
        _wrap_chat(made)
    return client


wrap_openai = wrap


def install() -> None:
    """Wraps every client that is made from now on, for programs that do not call `wrap` themselves. Idempotent.

    Only of SDKs that are loaded; none is imported for it.
    """
    for sdk in SDKS:
        for kind in _bases(sdk):
            if kind not in _installed:
                _installed[kind] = kind.__init__
                cast("Any", kind).__init__ = _wrapping(kind.__init__)
    made = getattr(sys.modules.get("openai"), "_client", None)
    if isinstance(made, _bases("openai")):
        wrap(made)  # the one behind `openai.chat.completions`, if it is there already


def uninstall() -> None:
    """Takes `install` back for clients that are made from now on."""
    for kind, init in list(_installed.items()):
        cast("Any", kind).__init__ = init
        del _installed[kind]


_installed: dict[type, Any] = {}


def _wrapping(init: Any) -> Any:
    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        wrap(self)

    return wrapped


# --- classes ----------------------------------------------------------------------------------------------------------
#
# An object may only change to a class whose first base is its own class, so the methods below are closures over that
# class and go into the subclass itself; a mixin in front would change the layout.

_NEEDED = ("request", "_build_request", "_process_response", "_sleep_for_retry", "_maybe_override_cast_to")
"""What the door hangs on; a version of an SDK without one of these is refused rather than half recorded."""

_lock = threading.Lock()
_made: dict[type, type] = {}
_wrapped: set[type] = set()


def _bases(sdk: str) -> tuple[type, ...]:
    """The classes that all clients of an SDK are of, the sync one first; empty where the SDK is not loaded."""
    module = sys.modules.get(f"{sdk}._base_client")
    found = (getattr(module, name, None) for name in ("SyncAPIClient", "AsyncAPIClient"))
    return tuple(kind for kind in found if isinstance(kind, type))


def _subclass(kind: type, methods: Callable[[Any], dict[str, Any]]) -> type:
    """A class between an object and its own class; one for each, made once."""
    with _lock:
        if kind not in _made:
            about = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
            made = _made[kind] = type(kind.__name__, (kind,), {**about, **methods(kind)})
            _wrapped.add(made)
        return _made[kind]


def _is_wrapped(kind: type) -> bool:
    return not _wrapped.isdisjoint(kind.__mro__)


def _wrapped_client(kind: type) -> type:
    for sdk in SDKS:
        bases = _bases(sdk)
        if issubclass(kind, bases):
            absent = next((name for name in _NEEDED if not hasattr(kind, name)), None)
            if absent is not None:
                raise UsageError(
                    f"this version of {sdk} is not known: its clients have no {absent}",
                    hint="an http client with agentloupe.http_transport() under it records too",
                )
            return _subclass(kind, _client if issubclass(kind, bases[0]) else _async_client)
    raise UsageError(
        f"{kind.__module__}.{kind.__qualname__} is no client that can be wrapped",
        hint="wrap(...) takes clients of openai, anthropic and boto3; others record with agentloupe.http_transport()",
    )


# --- clients of AWS ---------------------------------------------------------------------------------------------------


def _wrap_aws(client: Any) -> None:
    endpoint = client._endpoint
    kind = cast("Any", type(endpoint))
    if _is_wrapped(kind):
        return
    sends = [getattr(kind, name, None) for name in ("_send_request", "_send", "_get_response")]
    if None in sends or inspect.iscoroutinefunction(sends[0]):
        raise UsageError(
            f"{kind.__module__}.{kind.__qualname__} is no endpoint that can be wrapped",
            hint="what aiobotocore sends through aiohttp is recorded under agentloupe run",
        )
    endpoint.__class__ = _subclass(
        kind,
        lambda kind: {
            "_send_request": recorded_send_request(kind._send_request),
            "_send": recorded_send(kind._send),
        },
    )


# --- the door: request ------------------------------------------------------------------------------------------------

_READING: ContextVar[bool] = ContextVar("agentloupe_reading", default=False)


@contextmanager
def _reading() -> Generator[None]:
    """While a request is built to be answered from a recording: it needs no credentials."""
    token = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(token)


class _Sdk:
    """What a client's own class does with one request."""

    def __init__(self, kind: Any, client: Any, cast_to: Any, stream: bool, stream_cls: Any) -> None:
        self._kind = kind
        self._client = client
        self._cast_to = cast_to
        self._stream = stream
        self._stream_cls = stream_cls

    def send(self, options: Any) -> Any:
        """Sends the request as the SDK does."""
        how: dict[str, Any] = {"stream": self._stream, "stream_cls": self._stream_cls}
        return self._kind.request(self._client, self._cast_to, options, **how)

    def read(self, options: Any, answer: Callable[[Any], Any], retries: int) -> Any:
        """What the SDK makes of a recorded response."""
        options = options.model_copy()
        cast_to = self._client._maybe_override_cast_to(self._cast_to, options)
        with _reading():
            request = self._client._build_request(options, retries_taken=retries)
        return self._kind._process_response(
            self._client,
            cast_to=cast_to,
            options=options,
            response=answer(request),
            stream=self._stream,
            stream_cls=self._stream_cls,
            retries_taken=retries,
        )


def _common(kind: Any) -> dict[str, Any]:
    """What sync and async clients share: a request is watched while it is built."""

    def _build_request(self: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        request = kind._build_request(self, options, *args, **kwargs)
        sending = SENDING.get()
        if sending is not None and not _READING.get():
            sending.goes_out(request)
        return request

    def _validate_headers(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if _READING.get() else kind._validate_headers(self, *args, **kwargs)

    ours: dict[str, Any] = {"_build_request": _build_request, "_validate_headers": _validate_headers}
    if hasattr(kind, "chat"):

        def chat(self: Any) -> Any:
            return _wrap_chat(cast("Any", super(_made[kind], self)).chat)

        ours["chat"] = functools.cached_property(chat)
    return ours


def _client(kind: Any) -> dict[str, Any]:
    prepare = getattr(kind, "_copy_and_prepare", None)

    def request(self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        sdk = _Sdk(kind, self, cast_to, stream, stream_cls)
        if passes_on():
            return sdk.send(options)
        return request_call(self, sdk, cast_to, prepare(self, options) if prepare else options, stream).ask()

    def _sleep_for_retry(self: Any, *args: Any, **kwargs: Any) -> Any:
        try_ended(kwargs.get("response"))
        return kind._sleep_for_retry(self, *args, **kwargs)

    def _process_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        answered(kwargs.get("response"), kwargs.get("retries_taken", 0))
        return kind._process_response(self, *args, **kwargs)

    ours = {"request": request, "_sleep_for_retry": _sleep_for_retry, "_process_response": _process_response}
    return {**_common(kind), **ours}


def _async_client(kind: Any) -> dict[str, Any]:
    prepare = getattr(kind, "_copy_and_prepare", None)

    async def request(self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        sdk = _Sdk(kind, self, cast_to, stream, stream_cls)
        if passes_on():
            return await sdk.send(options)
        options = await prepare(self, options) if prepare else options
        return await request_call(self, sdk, cast_to, options, stream).aask()

    async def _sleep_for_retry(self: Any, *args: Any, **kwargs: Any) -> Any:
        try_ended(kwargs.get("response"))
        return await kind._sleep_for_retry(self, *args, **kwargs)

    async def _process_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        answered(kwargs.get("response"), kwargs.get("retries_taken", 0))
        return await kind._process_response(self, *args, **kwargs)

    ours = {"request": request, "_sleep_for_retry": _sleep_for_retry, "_process_response": _process_response}
    return {**_common(kind), **ours}


# --- the short way of plain chat completions --------------------------------------------------------------------------


def _wrap_chat(chat: Any) -> Any:
    completions: object = chat.completions
    kind = type(completions)
    if not _is_wrapped(kind):
        asynchronous = inspect.iscoroutinefunction(inspect.unwrap(kind.create))  # type: ignore[attr-defined]
        cast("Any", completions).__class__ = _subclass(kind, _async_completions if asynchronous else _completions)
    return chat


def _completions(kind: Any) -> dict[str, Any]:
    @functools.wraps(kind.create)
    def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ambient.current() is None or not _plain(args, kwargs):
            return kind.create(self, *args, **kwargs)
        known = openai_chat.from_arguments(self._client, kind.create, self, kwargs)
        return ambient.call(known.call(), known.send)

    return {"create": create}


def _async_completions(kind: Any) -> dict[str, Any]:
    @functools.wraps(kind.create)
    async def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ambient.current() is None or not _plain(args, kwargs):
            return await kind.create(self, *args, **kwargs)
        known = openai_chat.from_arguments(self._client, kind.create, self, kwargs)
        return await ambient.acall(known.call(), known.asend)

    return {"create": create}


def _plain(args: tuple[Any, ...], arguments: Mapping[str, Any]) -> bool:
    """Whether these arguments of `create` ask for a whole answer; anything else is met again in `request`."""
    if args or SENDING.get() is not None or "messages" not in arguments or "model" not in arguments:
        return False
    return not arguments.get("stream") and asks_raw(arguments.get("extra_headers")) is None
