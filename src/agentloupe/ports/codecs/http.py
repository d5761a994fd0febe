"""Requests and responses of httpx and httpx2, URLs and headers of these and of aiohttp: exceptions of clients hold them.

No such library is imported here: a value of their types means that it is loaded.
"""

from __future__ import annotations

import datetime as dt
import sys
from types import ModuleType
from typing import Any, cast

from agentloupe.ports.codecs.scalars import bytes_of, bytes_wire
from agentloupe.ports.codecs.walk import Codec, Inner, Value, add_codec, only
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["add_codecs", "elapsed_of", "put_elapsed"]

_FAMILIES = ("httpx", "httpx2")


def _library(value: object, name: str) -> str | None:
    """The library whose class `name` the value is an instance of."""
    for family in _FAMILIES:
        cls = getattr(sys.modules.get(family), name, None)
        if isinstance(cls, type) and isinstance(value, cls):
            return family
    return None


def _module(wire: dict[str, Json]) -> ModuleType:
    name = wire.get("module")
    if name not in _FAMILIES or name not in sys.modules:
        raise NotRebuildable(
            f"a message of {name if name in _FAMILIES else 'another library'} was recorded, which is not loaded here"
        )
    return sys.modules[cast("str", name)]


def _headers(value: Any) -> Json:
    return [[name.decode("latin-1"), text.decode("latin-1")] for name, text in value.headers.raw]


def _read_headers(module: Any, wire: Json) -> Any:
    pairs = cast("list[list[str]]", wire)
    return module.Headers([(name.encode("latin-1"), text.encode("latin-1")) for name, text in pairs])


def _content(value: Any) -> Json:
    """The body as far as it was read; `None` when it was not."""
    content: object = value.__dict__.get("_content")
    return bytes_wire(content) if isinstance(content, bytes) else None


def _put_content(made: Any, wire: Json) -> Any:
    """What was never read stays unread: asking for it raises what it raised then."""
    if wire is None:
        made.__dict__.pop("_content", None)
    return made


def _write_request(value: Any, _: Inner) -> Json:
    return {
        "module": _library(value, "Request"),
        "method": str(value.method),
        "url": str(value.url),
        "headers": _headers(value),
        "content": _content(value),
    }


def _read_request(wire: Json, _: Value) -> object:
    if not isinstance(wire, dict):
        raise NotRebuildable("a recorded request is no object")
    module: Any = _module(wire)
    content = wire.get("content")
    made = module.Request(wire["method"], wire["url"], content=b"" if content is None else bytes_of(content))
    made.headers = _read_headers(module, wire["headers"])
    return _put_content(made, content)


def elapsed_of(response: Any) -> float | None:
    """Seconds that a response took, where the client measured it."""
    held = response.__dict__
    elapsed: object = held.get("_elapsed", getattr(held.get("stream"), "elapsed", None))
    return elapsed.total_seconds() if isinstance(elapsed, dt.timedelta) else None


def put_elapsed(response: Any, seconds: object) -> None:
    """Gives a response what `elapsed_of` said of one."""
    if isinstance(seconds, int | float):
        response.elapsed = dt.timedelta(seconds=seconds)


def _write_response(value: Any, inner: Inner) -> Json:
    request: object = value.__dict__.get("_request")
    return {
        "module": _library(value, "Response"),
        "status": int(value.status_code),
        "headers": _headers(value),
        "content": _content(value),
        "http_version": str(value.http_version),
        "reason": str(value.reason_phrase),
        "elapsed": elapsed_of(value),
        "request": None if request is None else inner(request, "request"),
    }


def _read_response(wire: Json, value: Value) -> object:
    if not isinstance(wire, dict):
        raise NotRebuildable("a recorded response is no object")
    module: Any = _module(wire)
    extensions = {
        "http_version": cast("str", wire["http_version"]).encode("ascii"),
        "reason_phrase": cast("str", wire["reason"]).encode("ascii", "replace"),
    }
    # The recorded content is decoded already: headers that say otherwise are put on afterwards.
    content = wire.get("content")
    body = b"" if content is None else bytes_of(content)
    made = module.Response(wire["status"], content=body, request=value(wire.get("request")), extensions=extensions)
    made.headers = _read_headers(module, wire["headers"])
    put_elapsed(made, wire.get("elapsed"))
    return _put_content(made, content)


_TEXTS = ("URL", "QueryParams")


_OF_AIOHTTP = {
    "yarl": ("URL",),
    "multidict": ("istr", "CIMultiDictProxy", "CIMultiDict", "MultiDictProxy", "MultiDict"),
}


def _of_aiohttp(value: object) -> tuple[str, str] | None:
    """Library and class of a URL, of headers or of a header's name, as aiohttp has them."""
    for library, kinds in _OF_AIOHTTP.items():
        for kind in kinds:
            if type(value) is getattr(sys.modules.get(library), kind, None):
                return library, kind
    return None


def _value_kind(value: object) -> str | None:
    """`URL`, `QueryParams` or `Headers`, if it is one."""
    return next((name for name in (*_TEXTS, "Headers") if _library(value, name) is not None), None)


def _is_value(value: object) -> bool:
    return _value_kind(value) is not None or _of_aiohttp(value) is not None


def _write_value(value: Any, inner: Inner) -> Json:
    if (found := _of_aiohttp(value)) is not None:
        library, kind = found
        if kind in ("URL", "istr"):
            return [library, kind, str(value)]
        return [library, kind, {"headers": [[str(name), inner(item, str(name))] for name, item in value.items()]}]
    kind = _value_kind(value) or ""
    pairs: Json = (
        [[name.decode("latin-1"), text.decode("latin-1")] for name, text in value.raw] if kind == "Headers" else None
    )
    return [_library(value, kind), kind, str(value) if pairs is None else {"headers": pairs}]


def _read_value(wire: Json, value: Value) -> object:
    name, kind, inside = only(wire, str, str, object)
    if kind in _OF_AIOHTTP.get(name, ()):
        return _read_of_aiohttp(name, kind, inside, value)
    module: Any = _module({"module": name})
    if kind == "Headers" and isinstance(inside, dict):
        return _read_headers(module, cast("dict[str, Json]", inside)["headers"])
    if kind not in _TEXTS or not isinstance(inside, str):
        raise NotRebuildable("a recorded value of an HTTP library is of a kind that this version does not know")
    return getattr(module, kind)(inside)


def _read_of_aiohttp(library: str, kind: str, inside: object, value: Value) -> object:
    module: Any = sys.modules.get(library)
    if module is None:
        raise NotRebuildable(f"a {kind} of {library} was recorded, which is not loaded here")
    if isinstance(inside, str):
        return module.URL(inside, encoded=True) if kind == "URL" else module.istr(inside)
    pairs = [(name, value(item)) for name, item in cast("dict[str, list[tuple[str, Json]]]", inside)["headers"]]
    made = getattr(module, kind.removesuffix("Proxy"))(pairs)
    return getattr(module, kind)(made) if kind.endswith("Proxy") else made


def add_codecs() -> None:
    """Adds the codecs of this module."""
    add_codec(Codec("$http_value", _is_value, _write_value, _read_value))
    add_codec(Codec("$http_request", lambda v: _library(v, "Request") is not None, _write_request, _read_request))
    add_codec(Codec("$http_response", lambda v: _library(v, "Response") is not None, _write_response, _read_response))
