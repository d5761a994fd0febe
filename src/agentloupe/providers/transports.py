"""Raw requests to model APIs, made through `httpx`, `httpx2`, `requests`, `aiohttp` or `botocore` by a program that wraps nothing itself.

What sends in these libraries is one method each (of botocore: what sends one request, and what tries it again); while installed, a request that asks a model (`model_urls`) is a call of the
boundary, as if the program had put `http_transport()`, `requests_adapter()` or `aiohttp_middleware()` there. Every other request passes as
it is, and so does what a call that is recorded already sends (a wrapped SDK client, a transport of ours).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from agentloupe.providers.botocore import endpoint_class, recorded_send, recorded_send_request
from agentloupe.providers.exchange import FAMILIES
from agentloupe.providers.http import HttpTransport
from agentloupe.providers.httpcall import bytes_of_body
from agentloupe.providers.model_urls import asks_with, at_model, may_ask
from agentloupe.providers.requests import send_recorded
from agentloupe.providers.sending import passes_on

__all__ = ["install", "uninstall"]

_installed: dict[tuple[type, str], Any] = {}
_added: list[str] = []


def install(added: Sequence[str] = ()) -> None:
    """Records requests to models from now on, those of clients that are there already too. Idempotent.

    Only of libraries that are loaded; none is imported for it.

    Args:
        added: further addresses of models; see `at_model`.
    """
    _added[:] = added
    for library in FAMILIES:
        module = sys.modules.get(library)
        _replace(getattr(module, "HTTPTransport", None), "handle_request", _handling)
        _replace(getattr(module, "AsyncHTTPTransport", None), "handle_async_request", _handling_async)
    _replace(getattr(sys.modules.get("requests.adapters"), "HTTPAdapter", None), "send", _sending)
    client = sys.modules.get("aiohttp.client")
    if hasattr(client, "build_client_middlewares"):  # older ones have no place to stand in
        _replace(getattr(client, "ClientSession", None), "_request", _requesting)
    _replace(endpoint_class(), "_send", recorded_send)
    _replace(endpoint_class(), "_send_request", lambda original: recorded_send_request(original, _asks_aws))


def uninstall() -> None:
    """Takes `install` back."""
    for (kind, name), original in _installed.items():
        setattr(kind, name, original)
    _installed.clear()


def _replace(kind: Any, name: str, make: Callable[[Any], Any]) -> None:
    if kind is not None and (kind, name) not in _installed:
        original = _installed[kind, name] = getattr(kind, name)
        setattr(kind, name, functools.wraps(original)(make(original)))


def _handling(original: Any) -> Any:
    def handle_request(self: Any, request: Any) -> Any:
        url = str(request.url)
        asks = not passes_on() and (
            at_model(url, _added) or (may_ask(request.method, url) and asks_with(url, request.read()))
        )
        if not asks:
            return original(self, request)
        return HttpTransport(SimpleNamespace(handle_request=functools.partial(original, self))).handle_request(request)

    return handle_request


def _handling_async(original: Any) -> Any:
    async def handle_async_request(self: Any, request: Any) -> Any:
        url = str(request.url)
        asks = not passes_on() and (
            at_model(url, _added) or (may_ask(request.method, url) and asks_with(url, await request.aread()))
        )
        if not asks:
            return await original(self, request)
        real = SimpleNamespace(handle_async_request=functools.partial(original, self))
        return await HttpTransport(real).handle_async_request(request)

    return handle_async_request


def _sending(original: Any) -> Any:
    def send(self: Any, request: Any, stream: bool = False, *args: Any, **options: Any) -> Any:
        url = request.url
        asks = not passes_on() and (
            at_model(url, _added) or (may_ask(request.method, url) and asks_with(url, bytes_of_body(request.body)))
        )
        if not asks:
            return original(self, request, stream, *args, **options)
        return send_recorded(self, request, lambda asked: original(self, asked, stream, *args, **options), stream)

    return send


def _requesting(original: Any) -> Any:
    def request(self: Any, *args: Any, middlewares: Any = None, **options: Any) -> Any:
        given = self._middlewares if middlewares is None else middlewares
        return original(self, *args, middlewares=(*given, _to_models), **options)

    return request


async def _to_models(request: Any, handler: Callable[[Any], Any]) -> Any:
    from agentloupe.providers import aiohttp  # which is loaded: this is a request of it

    url = str(request.url)
    asks = not passes_on() and (
        at_model(url, _added)
        or (may_ask(request.method, url) and asks_with(url, await aiohttp.content_of_request(request)))
    )
    return await (aiohttp.send_recorded(request, handler) if asks else handler(request))


def _asks_aws(request: dict[str, Any]) -> bool:
    method, url = request["method"], request["url"]
    return at_model(url, _added) or (may_ask(method, url) and asks_with(url, bytes_of_body(request["body"])))
