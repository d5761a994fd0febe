"""Recorded exchanges of the field (`../shared/data`), in the five dialects in which they are kept."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

__all__ = ["Exchange", "cassettes", "exchanges_of", "read_cassette"]

_KEPT = frozenset({"content-type", "content-encoding", "x-request-id", "request-id", "anthropic-organization-id"})
_AT_A_MODEL = re.compile(rb"uri: \S+/(chat/completions|responses|responses/compact|messages)(\?\S*)?\s")
_MODEL_PATHS = ("/chat/completions", "/responses", "/messages", "/responses/compact")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer.

    Attributes:
        host, path: of the request.
        asked: its JSON body.
        betas: which betas of an API it asked for.
        status, headers, body: of the answer, as it travelled: with `content-encoding` the body is encoded.
    """

    host: str
    path: str
    asked: dict[str, Any]
    betas: str | None
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> bytes:
        """The body, decoded."""
        return gzip.decompress(self.body) if "content-encoding" in self.headers else self.body


@lru_cache(2)
def cassettes(data: Path) -> list[Path]:
    """All files that hold exchanges with a model of the forms of OpenAI and Anthropic; looks at text only."""
    found = sorted(p for p in data.glob("cassettes_*/*.y*ml*"))
    return [path for path in found if _AT_A_MODEL.search(_text(path))]


def _text(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


@lru_cache(256)
def read_cassette(path: Path) -> tuple[Exchange, ...]:
    """The exchanges of one file, in order, of any host; bodies that are no JSON object are left out."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = (_exchange(one) for one in yaml.load(_text(path), Loader=loader)["interactions"])  # a safe loader
    return tuple(one for one in found if one is not None)


def exchanges_of(path: Path) -> list[Exchange]:
    """Those that a client of OpenAI or Anthropic could have made."""
    return [one for one in read_cassette(path) if one.path.endswith(_MODEL_PATHS) and "model" in one.asked]


def _exchange(one: dict[str, Any]) -> Exchange | None:
    request, response = one["request"], one["response"]
    where = urlsplit(request["uri"])
    asked = request.get("parsed_body") or _json(request.get("body"))
    if not isinstance(asked, dict):
        return None
    given = {str(n).lower(): _first(v) for n, v in response["headers"].items()}
    body = _body(response)
    if not body.startswith(b"\x1f\x8b"):
        given.pop("content-encoding", None)  # taken off when it was kept
    betas = {str(n).lower(): _first(v) for n, v in request["headers"].items()}.get("anthropic-beta")
    kept = {name: value for name, value in given.items() if name in _KEPT}
    status = response["status"]
    return Exchange(
        host=where.hostname or "",
        path=where.path,
        asked=cast("dict[str, Any]", asked),
        betas=betas,
        status=status["code"] if isinstance(status, dict) else status,
        headers=kept,
        body=body,
    )


def _body(response: dict[str, Any]) -> bytes:
    if "parsed_body" in response:
        return json.dumps(response["parsed_body"], ensure_ascii=False).encode()
    string = (response.get("body") or {}).get("string") or b""
    return string if isinstance(string, bytes) else string.encode()


def _json(body: object) -> Any:
    text = body.get("string") if isinstance(body, dict) else body
    try:
        return json.loads(cast("Any", text)) if text else None
    except ValueError:
        return None


def _first(value: Any) -> str:
    return str(value[0]) if isinstance(value, list) else str(value)
