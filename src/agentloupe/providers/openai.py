"""OpenAI clients under the boundary: `wrap(OpenAI())`, also async and Azure, `openai` 2 (on httpx) and 3 (on httpx2).

The client that comes out is the one that went in: it gets a subclass of its own class, so `isinstance` holds, type
checkers see the same type, and what it makes of itself (`with_options`, `copy`) is wrapped too. Two of the SDK's own
methods are the door:

- `chat.completions.create` decides from its arguments alone, so a replay does none of the SDK's work for sending;
- `request`, which every other method of the SDK ends in, takes what did not come by `create`: `parse` and
  `beta.chat.completions` are recorded there, streams, raw responses and other endpoints pass as `not_recorded` calls.

Outside a run nothing is recorded and nothing is changed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from agentloupe import ambient
from agentloupe.errors import UsageError
from agentloupe.providers import openai_calls as calls

__all__ = ["PLACEHOLDER", "install", "placeholder_environment", "uninstall", "wrap", "wrap_openai"]

Client = TypeVar("Client")

_RAW = "x-stainless-raw-response"  # how the SDK's own `with_raw_response` tells its `create` what is wanted


def wrap(client: Client) -> Client:
    """Puts an OpenAI client under the boundary, in place, and returns it. Wrapping again changes nothing.

    Raises:
        UsageError: it is no `OpenAI` or `AsyncOpenAI` client.
    """
    kind = type(client)
    if issubclass(kind, _Mark):
        return client
    wrapped = _wrapped_client(kind)
    cast("Any", client).__class__ = wrapped
    made = vars(client).get("chat")
    if made is not None:
        _wrap_chat(made)
    return client


wrap_openai = wrap


def install() -> None:
    """Wraps every client that is made from now on, for programs that do not call `wrap` themselves. Idempotent.

    Does nothing where the SDK is not installed.
    """
    try:
        import openai
    except ImportError:
        return
    for kind in (openai.OpenAI, openai.AsyncOpenAI):
        if kind not in _installed:
            _installed[kind] = kind.__init__
            kind.__init__ = _wrapping(kind.__init__)


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


PLACEHOLDER = "loupe-replays-and-sends-nothing"


def placeholder_environment() -> dict[str, str]:
    """Variables to set where they are not set, so that clients can be made in a replay: the SDK wants a key at once.

    The key opens nothing, and no request is sent with it.
    """
    import os

    return {name: PLACEHOLDER for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY") if not os.environ.get(name)}


# --- classes ----------------------------------------------------------------------------------------------------------


class _Mark:
    """Base of everything that is wrapped."""


_lock = threading.Lock()
_made: dict[type, type] = {}


def _subclass(kind: type, mixin: type) -> type:
    """A class between the object and its own class; one for each, made once."""
    with _lock:
        if kind not in _made:
            names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
            _made[kind] = type(kind.__name__, (mixin, kind), names)
        return _made[kind]


def _wrapped_client(kind: type) -> type:
    import sys

    sdk = sys.modules.get("openai")
    if sdk is not None and issubclass(kind, sdk.OpenAI):
        return _subclass(kind, _Client)
    if sdk is not None and issubclass(kind, sdk.AsyncOpenAI):
        return _subclass(kind, _AsyncClient)
    raise UsageError(
        f"{kind.__module__}.{kind.__qualname__} is no client that can be wrapped",
        hint="wrap(...) takes openai.OpenAI and openai.AsyncOpenAI clients",
    )


def _wrap_chat(chat: Any) -> Any:
    completions: object = chat.completions
    kind = type(completions)
    if not issubclass(kind, _Mark):
        asynchronous = "Async" in kind.__name__
        completions.__class__ = _subclass(kind, _AsyncCompletions if asynchronous else _Completions)
    return chat


class _Common(_Mark):
    """What sync and async clients share: the request is watched while it is built and retried."""

    @functools.cached_property
    def chat(self) -> Any:
        return _wrap_chat(cast("Any", super()).chat)

    def _build_request(self, options: Any, *args: Any, **kwargs: Any) -> Any:
        request = cast("Any", super())._build_request(options, *args, **kwargs)
        sending = calls.SENDING.get()
        if sending is not None:
            sending.goes_out(request)
        return request


class _Client(_Common):
    def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        send = functools.partial(cast("Any", super()).request, stream=stream, stream_cls=stream_cls)
        if ambient.current() is None or calls.SENDING.get() is not None:
            return send(cast_to, options)
        known = calls.from_options(self, send, cast_to, options, stream)
        answer = ambient.call(known.call, lambda: known.send(options))
        return known.after(answer)

    def _sleep_for_retry(self, *args: Any, **kwargs: Any) -> Any:
        calls.try_ended(kwargs.get("response"))
        return cast("Any", super())._sleep_for_retry(*args, **kwargs)

    def _process_response(self, *args: Any, **kwargs: Any) -> Any:
        calls.answered(kwargs.get("response"))
        return cast("Any", super())._process_response(*args, **kwargs)


class _AsyncClient(_Common):
    async def request(self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        send = functools.partial(cast("Any", super()).request, stream=stream, stream_cls=stream_cls)
        if ambient.current() is None or calls.SENDING.get() is not None:
            return await send(cast_to, options)
        known = calls.from_options(self, send, cast_to, options, stream)
        answer = await ambient.acall(known.call, lambda: known.asend(options))
        return known.after(answer)

    async def _sleep_for_retry(self, *args: Any, **kwargs: Any) -> Any:
        calls.try_ended(kwargs.get("response"))
        return await cast("Any", super())._sleep_for_retry(*args, **kwargs)

    async def _process_response(self, *args: Any, **kwargs: Any) -> Any:
        calls.answered(kwargs.get("response"))
        return await cast("Any", super())._process_response(*args, **kwargs)


class _Completions(_Mark):
    def create(self, *args: Any, **kwargs: Any) -> Any:
        create = cast("Any", super()).create
        if ambient.current() is None or not _plain(args, kwargs):
            return create(*args, **kwargs)
        known = calls.from_arguments(cast("Any", self)._client, create, kwargs)
        return ambient.call(known.call, known.send)


class _AsyncCompletions(_Mark):
    async def create(self, *args: Any, **kwargs: Any) -> Any:
        create = cast("Any", super()).create
        if ambient.current() is None or not _plain(args, kwargs):
            return await create(*args, **kwargs)
        known = calls.from_arguments(cast("Any", self)._client, create, kwargs)
        return await ambient.acall(known.call, known.asend)


def _plain(args: tuple[Any, ...], arguments: Mapping[str, Any]) -> bool:
    """Whether these arguments of `create` ask for a whole answer; anything else is met again in `request`."""
    if args or calls.SENDING.get() is not None or "messages" not in arguments or "model" not in arguments:
        return False
    if arguments.get("stream") is True:
        return False
    headers: object = arguments.get("extra_headers")
    if not headers:
        return True
    return isinstance(headers, Mapping) and all(
        str(n).lower() != _RAW for n in cast("Mapping[object, object]", headers)
    )
