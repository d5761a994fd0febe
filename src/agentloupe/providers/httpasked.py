"""What an HTTP request says, as it is stored and compared: by what it means, not by how it happens to be written.

    {"path": "/v1/chat", "query": "?lang=no&page=2", "body": {"json": {"q": "hi"}}}
    {"path": "/v1/files", "query": "", "body": {"multipart": [{"purpose": "vision"}, {"file": {"filename": "a.bin", ...}}]}}

The order of a query's parameters says nothing, so they are sorted by name; the boundary between the parts of a form is chance, so
it is left out. Parts stand under their names, by which secrets are found. What is no strict JSON and no whole form is kept as
`text` or `base64`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from typing import Final, cast
from urllib.parse import parse_qsl, urlencode

from agentloupe.words.canonical import Json
from agentloupe.words.exchange import body_members
from agentloupe.words.jsontext import loads

__all__ = ["body_asked", "query_asked", "query_in_order", "query_text"]

_HEADER: Final = re.compile(rb"([!-9;-~]+):[ \t]*([^\r\n]*)")


def query_in_order(query: str) -> str:
    """The query with its question mark, its parameters sorted by name; those of one name keep their order."""
    return "?" + "&".join(sorted(query.split("&"), key=lambda one: one.partition("=")[0])) if query else ""


def query_asked(query: str) -> dict[str, Json]:
    """Parameters by name; one that comes several times has the list of its values."""
    if not query:
        return {}
    found: dict[str, list[Json]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, errors="surrogateescape"):
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def query_text(query: Mapping[str, Json]) -> str:
    """The reverse of `query_asked`."""
    return urlencode(query, doseq=True, errors="surrogateescape")


def body_asked(content: bytes, content_type: str) -> dict[str, Json]:
    """A body as one member: `json`, `multipart`, `text` or `base64`."""
    if content[:1] in (b"{", b"["):
        try:
            return {"json": loads(content)}
        except ValueError:
            return dict(body_members(content))
    parts = _parts(content, content_type)
    return dict(body_members(content)) if parts is None else {"multipart": cast("Json", parts)}


def _parts(content: bytes, content_type: str) -> list[dict[str, Json]] | None:
    """The parts of a form in their order, each under its name; `None` for what is no whole form."""
    told = Message()
    told["content-type"] = content_type
    boundary = told.get_param("boundary")
    if told.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        return None
    between = b"\r\n--" + boundary.encode("utf-8", "replace")
    first, *pieces = (b"\r\n" + content).split(between)
    if first or not pieces or pieces.pop().rstrip(b"\r\n \t") != b"--":
        return None
    parts = [_part(piece) for piece in pieces]
    return None if None in parts else cast("list[dict[str, Json]]", parts)


def _part(piece: bytes) -> dict[str, Json] | None:
    """`{name: text}`, or `{name: {filename, content-type ..., text or base64}}`."""
    head, empty, content = piece.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    told = Message()
    for line in lines[1:]:
        header = _HEADER.fullmatch(line)
        if header is None:
            return None
        told[header[1].decode("ascii")] = header[2].decode("utf-8", "surrogateescape")
    name = told.get_param("name", header="content-disposition")
    if lines[0].strip(b" \t") or not empty or not isinstance(name, str):
        return None
    about: dict[str, Json] = dict(body_members(content))
    headers = {key.lower(): value for key, value in told.items() if key.lower() != "content-disposition"}
    filename = told.get_filename()
    if not headers and filename is None and "text" in about:
        return {name: about["text"]}
    return {name: {**({} if filename is None else {"filename": filename}), **headers, **about}}
