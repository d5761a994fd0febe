"""What can be set for the server: `[server]` of `loupe.toml`, `LOUPE_SERVER_*` variables over it.

Further names in `hosts` are those that a proxy hands on.

[server]
max_body = 2000000       # LOUPE_SERVER_MAX_BODY; bytes of a JSON request
max_upload = 200000000   # LOUPE_SERVER_MAX_UPLOAD; bytes of an import
max_depth = 100          # LOUPE_SERVER_MAX_DEPTH; how deep JSON may be nested
max_ratio = 100          # LOUPE_SERVER_MAX_RATIO; how many times larger a compressed request may become
hosts = ["loupe.example"]  # LOUPE_SERVER_HOSTS (commas); further names that the server is reached by, behind a proxy
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["SERVER_READERS", "ServerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Limits of what is taken in, and names that the server answers to.

    Attributes:
        max_body: bytes of a JSON request, after decompression.
        max_upload: bytes of all files of an import together.
        max_depth: how deep the JSON of a request may be nested.
        max_ratio: how many times larger a compressed request may become.
        hosts: names beside `localhost` and the loopback addresses that a request may be made to.
    """

    max_body: int = 2_000_000
    max_upload: int = 200_000_000
    max_depth: int = 100
    max_ratio: int = 100
    hosts: tuple[str, ...] = ()


def _count(value: Any) -> int:
    count = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError("must be a whole number, at least 1")
    return count


def _hosts(value: Any) -> tuple[str, ...]:
    parts: list[Any] = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):  # type: ignore[redundant-expr]
        raise TypeError("must be a list of names")
    return tuple(name for part in parts if (name := part.strip().lower()))


SERVER_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "max_body": _count,
    "max_upload": _count,
    "max_depth": _count,
    "max_ratio": _count,
    "hosts": _hosts,
}
"""How each setting is read; raises `ValueError` or `TypeError` for what it cannot be."""
