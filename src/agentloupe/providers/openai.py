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
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from agentloupe.ports import ambient
from agentloupe.providers import openai_calls as calls
from agentloupe.words.errors import UsageError

__all__ = ["install", "uninstall", "wrap", "wrap_openai"]

Client = TypeVar("Client")


def wrap(client: Client) -> Client:
    """Puts an OpenAI client under the boundary, in place, and returns it. Wrapping again changes nothing.

    Raises:
        UsageError: it is no `OpenAI` or `AsyncOpenAI` client.
    """
    kind = type(client)
    if _is_wrapped(kind):
        return client
    cast("Any", client).__class__ = _wrapped_client(kind)
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


# --- classes ----------------------------------------------------------------------------------------------------------
#
# An object may only change to a class whose first base is its own class, so the methods below are closures over that
# class and go into the subclass itself; a mixin in front would change the layout.

_lock = threading.Lock()
_made: dict[type, type] = {}
_wrapped: set[type] = set()


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
    sdk = sys.modules.get("openai")
    if sdk is not None and issubclass(kind, sdk.OpenAI):
        return _subclass(kind, _client)
    if sdk is not None and issubclass(kind, sdk.AsyncOpenAI):
        return _subclass(kind, _async_client)
    raise UsageError(
        f"{kind.__module__}.{kind.__qualname__} is no client that can be wrapped",
        hint="wrap(...) takes openai.OpenAI and openai.AsyncOpenAI clients",
    )


def _wrap_chat(chat: Any) -> Any:
    completions: object = chat.completions
    kind = type(completions)
    if not _is_wrapped(kind):
        asynchronous = inspect.iscoroutinefunction(inspect.unwrap(kind.create))  # type: ignore[attr-defined]
        cast("Any", completions).__class__ = _subclass(kind, _async_completions if asynchronous else _completions)
    return chat


def _common(kind: Any) -> dict[str, Any]:
    """What sync and async clients share: the request is watched while it is built."""

    def chat(self: Any) -> Any:
        return _wrap_chat(cast("Any", super(_made[kind], self)).chat)

    def _build_request(self: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        request = kind._build_request(self, options, *args, **kwargs)
        sending = calls.SENDING.get()
        if sending is not None:
            sending.goes_out(request)
        return request

    return {"chat": functools.cached_property(chat), "_build_request": _build_request}


def _client(kind: Any) -> dict[str, Any]:
    def request(self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        send = functools.partial(kind.request, self, stream=stream, stream_cls=stream_cls)
        if ambient.current() is None or calls.SENDING.get() is not None:
            return send(cast_to, options)
        known = calls.from_options(self, send, cast_to, options, stream)
        return known.after(ambient.call(known.call, known.send))

    def _sleep_for_retry(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.try_ended(kwargs.get("response"))
        return kind._sleep_for_retry(self, *args, **kwargs)

    def _process_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.answered(kwargs.get("response"))
        return kind._process_response(self, *args, **kwargs)

    ours = {"request": request, "_sleep_for_retry": _sleep_for_retry, "_process_response": _process_response}
    return {**_common(kind), **ours}


def _async_client(kind: Any) -> dict[str, Any]:
    async def request(self: Any, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None) -> Any:
        send = functools.partial(kind.request, self, stream=stream, stream_cls=stream_cls)
        if ambient.current() is None or calls.SENDING.get() is not None:
            return await send(cast_to, options)
        known = calls.from_options(self, send, cast_to, options, stream)
        return known.after(await ambient.acall(known.call, known.asend))

    async def _sleep_for_retry(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.try_ended(kwargs.get("response"))
        return await kind._sleep_for_retry(self, *args, **kwargs)

    async def _process_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.answered(kwargs.get("response"))
        return await kind._process_response(self, *args, **kwargs)

    ours = {"request": request, "_sleep_for_retry": _sleep_for_retry, "_process_response": _process_response}
    return {**_common(kind), **ours}


def _completions(kind: Any) -> dict[str, Any]:
    @functools.wraps(kind.create)
    def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ambient.current() is None or not _plain(args, kwargs):
            return kind.create(self, *args, **kwargs)
        known = calls.from_arguments(self._client, kind.create, self, kwargs)
        return ambient.call(known.call, known.send)

    return {"create": create}


def _async_completions(kind: Any) -> dict[str, Any]:
    @functools.wraps(kind.create)
    async def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        if ambient.current() is None or not _plain(args, kwargs):
            return await kind.create(self, *args, **kwargs)
        known = calls.from_arguments(self._client, kind.create, self, kwargs)
        return await ambient.acall(known.call, known.asend)

    return {"create": create}


def _plain(args: tuple[Any, ...], arguments: Mapping[str, Any]) -> bool:
    """Whether these arguments of `create` ask for a whole answer; anything else is met again in `request`."""
    if args or calls.SENDING.get() is not None or "messages" not in arguments or "model" not in arguments:
        return False
    return not arguments.get("stream") and not calls.asks_raw(arguments.get("extra_headers"))
