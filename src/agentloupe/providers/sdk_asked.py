"""What a request of a model SDK asks, as data: of a model call its body, of any other request all that goes out.

Files are read here and put back where they were; what can be read only once is not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from agentloupe.ports import codecs
from agentloupe.providers import chat, sdk_body
from agentloupe.providers.chat import QUERY
from agentloupe.providers.sdk_body import Body
from agentloupe.words.call import Attrs, Kind
from agentloupe.words.canonical import Json

__all__ = ["Asked", "asked", "asks_raw", "name_of"]

_RAW = "x-stainless-raw-response"  # how the SDK's own `with_raw_response` tells its methods what is wanted
_CAST = "____stainless_override_cast_to"  # how it tells them the type that the caller wants instead
_QUIET = ("x-stainless-", "____stainless")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks: `body` is its JSON body, `None` where it has none."""

    kind: Kind
    name: str
    input: Json
    facts: Attrs
    body: Body | None


def asks_raw(headers: object) -> str | None:
    """Whether these headers of a request ask the SDK for its raw response: `true`, `stream` or another mark of its own."""
    for name, value in _members(headers).items() if headers else ():
        if str(name).lower() == _RAW:
            return str(value)
        if str(name).lower() == _CAST:
            return "cast"
    return None


def asked(options: Any) -> Asked | str:
    """What the request asks, or why that cannot be said."""
    path, _, in_url = str(options.url).partition("?")
    query = _json_of(options.params or {})
    body = _body(options)
    operation = chat.operation_of(path)
    if body is not None and operation is not None and isinstance(body.value.get("model"), str):
        facts = {**chat.request_facts(body.value), "endpoint": chat.endpoint_of(path), **_headers(options)}
        whole: Json = {**body.value, QUERY: query} if query else body.value
        return Asked("llm", chat.step_name(body.value, operation), whole, facts, body)
    content = _content(options)
    if isinstance(content, str):
        return content
    about: dict[str, Json] = {"method": options.method.upper(), "path": path, "query": query}
    given: dict[str, Json] = {**about, **({"in_url": in_url} if in_url else {}), "body": body.value if body else None}
    if content is not None:
        given["content"] = content
    return Asked("other", name_of(options), given, {"method": options.method.upper(), **_headers(options)}, body)


def name_of(options: Any) -> str:
    """`<METHOD> <endpoint>`, without ids."""
    return f"{options.method.upper()} {chat.endpoint_of(urlsplit(str(options.url)).path)}"


def _body(options: Any) -> Body | None:
    parts: list[Any] = [part for part in (options.json_data, options.extra_json) if part is not None]
    if options.method.lower() == "get" or not parts or not all(isinstance(part, Mapping) for part in parts):
        return None
    merged: dict[str, Any] = {**(options.json_data or {}), **(options.extra_json or {})}
    return sdk_body.json_copy({name: value for name, value in merged.items() if not sdk_body.left_out(value)})


def _json_of(members: Mapping[str, Any]) -> dict[str, Json]:
    return sdk_body.json_copy({n: v for n, v in members.items() if not sdk_body.left_out(v)}).value if members else {}


def _content(options: Any) -> dict[str, Json] | str | None:
    """A body that is no JSON object, as data; text that says why where it cannot be read."""
    given: dict[str, Json] = {}
    raw: Any = getattr(options, "content", None)
    listed: Any = options.json_data
    if raw is not None:
        if not isinstance(raw, bytes | bytearray | str):
            return "a body that is read while it is sent is not recorded"
        given["bytes"] = codecs.encode(bytes(raw) if isinstance(raw, bytearray) else raw).wire
    elif isinstance(listed, list):
        given["json"] = sdk_body.json_copy({"": listed}).value[""]
    if options.files:
        given_files: object = options.files
        pairs: Any = _members(options.files).items() if isinstance(given_files, Mapping) else given_files
        files = [_file(name, file) for name, file in pairs]
        if any(file is None for file in files):
            return "files that can be read only once are not recorded"
        given["files"] = files
    return given or None


def _file(name: str, file: Any) -> Json:
    """`[field, file name, media type, content]`; `None` where reading would use it up."""
    named = (getattr(file, "name", None), file)
    parts: list[Any] = list(cast("tuple[Any, ...]", file) if isinstance(file, tuple) else named)
    label, content, media = parts[0], parts[1], parts[2] if len(parts) > 2 else None
    if hasattr(content, "read"):
        if not (hasattr(content, "seekable") and content.seekable()):
            return None
        at = content.tell()
        data = content.read()
        content.seek(at)
        content = data
    return [name, None if label is None else str(label).rpartition("/")[2], media, codecs.encode(content).wire]


def _members(given: object) -> Mapping[Any, Any]:
    return cast("Mapping[Any, Any]", given) if isinstance(given, Mapping) else {}


def _headers(options: Any) -> dict[str, Json]:
    """Names of the headers that the caller added, and which betas of the API are asked for."""
    headers = _members(options.headers)
    names: list[Json] = [str(n) for n in headers if not str(n).lower().startswith(_QUIET)]
    beta = next((v for n, v in headers.items() if str(n).lower() in ("anthropic-beta", "openai-beta")), None)
    found: dict[str, Json] = {"extra_headers": names} if names else {}
    return {**found, "beta": beta} if isinstance(beta, str) else found
