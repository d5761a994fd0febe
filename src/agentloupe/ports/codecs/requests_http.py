"""Requests and responses of the library `requests`: its exceptions hold them. It is never imported here."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any, cast

from agentloupe.ports.codecs.objects import bare
from agentloupe.ports.codecs.scalars import bytes_of, bytes_wire
from agentloupe.ports.codecs.walk import Codec, Inner, Value, add_codec, items
from agentloupe.words.canonical import Json
from agentloupe.words.errors import NotRebuildable

__all__ = ["add_codecs"]

_LIBRARY = "requests"


def _class(name: str) -> Any:
    return getattr(sys.modules.get("requests.models"), name, None)


def _is(value: object, name: str) -> bool:
    cls = _class(name)
    return isinstance(cls, type) and isinstance(value, cls)


def _inside(wire: Json, name: str) -> tuple[dict[str, Json], Any]:
    """The members of a wire, and an empty object of the class."""
    cls = _class(name)
    if not isinstance(wire, dict) or not isinstance(cls, type):
        raise NotRebuildable("a message of requests was recorded, which is not loaded here")
    return wire, bare(cls)


def _headers(value: Any) -> Json:
    held: dict[object, object] = dict(value.headers or {})
    return [[_text(name), _text(item)] for name, item in held.items()]


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _read_headers(wire: Json) -> Any:
    kind: Any = sys.modules["requests.structures"]
    return kind.CaseInsensitiveDict(dict(cast("list[tuple[str, str]]", wire)))


def _content(value: object) -> Json:
    if isinstance(value, str):
        return {"utf-8": value}
    return bytes_wire(value) if isinstance(value, bytes) else None


def _write_request(value: Any, _: Inner) -> Json:
    about: dict[str, Json] = {"module": _LIBRARY, "method": value.method, "url": value.url, "headers": _headers(value)}
    return {**about, "content": _content(value.body), "text": isinstance(value.body, str)}


def _read_request(wire: Json, _: Value) -> object:
    about, made = _inside(wire, "PreparedRequest")
    content = about["content"]
    body = None if content is None else bytes_of(content)
    state = {"method": about["method"], "url": about["url"], "headers": _read_headers(about["headers"])}
    state["body"] = body.decode() if body is not None and about.get("text") is True else body
    made.__dict__.update(state, _cookies=None, _body_position=None, hooks={"response": []})
    return made


def _write_response(value: Any, inner: Inner) -> Json:
    """As far as it was read: asking for what was not would go to the network."""
    about: dict[str, Json] = {"module": _LIBRARY, "status": value.status_code, "url": value.url}
    about |= {"headers": _headers(value), "encoding": value.encoding, "reason": _reason(value)}
    about["content"] = _content(value.__dict__.get("_content"))
    elapsed: object = value.elapsed
    about["elapsed"] = elapsed.total_seconds() if isinstance(elapsed, dt.timedelta) else None
    about["request"] = inner(value.request, "request")
    about["history"] = [inner(one, f"history[{i}]") for i, one in enumerate(value.history)]
    return about


def _reason(value: Any) -> Json:
    reason: object = value.reason
    return None if reason is None else _text(reason)


def _read_response(wire: Json, value: Value) -> object:
    about, made = _inside(wire, "Response")
    content = about["content"]
    jar: Any = sys.modules["requests.cookies"]
    made.__dict__.update(
        _content=None if content is None else bytes_of(content),
        _content_consumed=True,
        _next=None,
        status_code=about["status"],
        url=about["url"],
        headers=_read_headers(about["headers"]),
        encoding=about["encoding"],
        reason=about["reason"],
        elapsed=dt.timedelta(seconds=cast("float", about["elapsed"] or 0)),
        request=value(about["request"]),
        history=items(about["history"], value),
        cookies=jar.cookiejar_from_dict({}),
        raw=None,
        connection=None,
    )
    return made


def add_codecs() -> None:
    """Adds the codecs of this module."""
    add_codec(Codec("$requests_request", lambda v: _is(v, "PreparedRequest"), _write_request, _read_request))
    add_codec(Codec("$requests_response", lambda v: _is(v, "Response"), _write_response, _read_response))
