"""What is taken in has a size, a depth, and a ratio of decompression. Over it is a 4xx that names the setting."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentloupe.ports.serving import ServerSettings
from agentloupe.server.errors import answer_to
from agentloupe.words.errors import LoupeError, UsageError

__all__ = ["UPLOADS", "Limits", "TooLarge", "depth_of"]

UPLOADS: Final = frozenset({"/api/import"})
"""Paths whose bodies are files: larger, and taken in piece by piece."""

_PLACES = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_PIECE: Final = 1 << 16


class TooLarge(LoupeError):
    """A request is larger than a limit allows. `setting` names the limit."""

    code = "too_large"

    def __init__(self, what: str, setting: str, limit: int) -> None:
        variable = f"LOUPE_SERVER_{setting.upper()}"
        super().__init__(f"{what} (limit {limit:,})", hint=f"{variable}, or server.{setting} in loupe.toml, raises it")
        self.place = f"server.{setting}"


def depth_of(text: bytes, most: int) -> int:
    """How deep JSON is nested, as far as `most` + 1; its strings are passed over."""
    depth = deepest = 0
    for found in _PLACES.finditer(text):
        first = found[0][:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if deepest > most:
                break
        elif first in b"]}":
            depth -= 1
    return deepest


@dataclass(frozen=True, slots=True)
class Limits:
    """Middleware: reads the body of a request whole before a route sees it; of an upload only counts it."""

    app: ASGIApp
    settings: ServerSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers itself what is over a limit, and hands on all else."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        upload = scope["path"] in UPLOADS
        try:
            self._check_length(headers, upload=upload)
            if upload:
                await self.app(scope, self._counted(receive), send)
                return
            body = await self._whole(headers, receive)
            self._check_depth(body)
        except LoupeError as error:
            await answer_to(error)(scope, receive, send)
            return
        plain = [pair for pair in scope["headers"] if pair[0] not in {b"content-encoding", b"content-length"}]
        plain.append((b"content-length", str(len(body)).encode()))
        await self.app({**scope, "headers": plain}, _given(body, receive), send)

    def _limit(self, *, upload: bool) -> tuple[str, int]:
        return ("max_upload", self.settings.max_upload) if upload else ("max_body", self.settings.max_body)

    def _check_length(self, headers: Headers, *, upload: bool) -> None:
        said = headers.get("content-length")
        if said is None:
            return
        if not said.isdecimal():
            raise UsageError("Content-Length is not a number", reason="length")
        setting, limit = self._limit(upload=upload)
        if int(said[:20]) > limit:
            raise TooLarge(f"the request has {int(said[:20]):,} bytes", setting, limit)

    def _counted(self, receive: Receive) -> Receive:
        taken = 0
        setting, limit = self._limit(upload=True)

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise TooLarge("the files have too many bytes", setting, limit)
            return message

        return counted

    async def _whole(self, headers: Headers, receive: Receive) -> bytes:
        coding = headers.get("content-encoding", "identity").strip().lower()
        parts = _parts(receive)
        if coding == "gzip":
            parts = self._unzipped(parts)
        elif coding != "identity":
            raise UsageError(
                "the coding of the request is not known", hint="send it plain, or with gzip", reason="coding"
            )
        whole = bytearray()
        async for part in parts:
            whole += part
            if len(whole) > self.settings.max_body:
                raise TooLarge("the request has too many bytes", "max_body", self.settings.max_body)
        return bytes(whole)

    async def _unzipped(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The plain text, piece by piece: a small request that would become a huge one is stopped on the way."""
        zipped = zlib.decompressobj(31)
        taken = given = 0
        async for part in parts:
            taken += len(part)
            while part:
                try:
                    plain = zipped.decompress(part, _PIECE)
                except zlib.error as wrong:
                    raise UsageError("the request is not gzip, as it says", reason="coding") from wrong
                given += len(plain)
                if given > max(taken, 1) * self.settings.max_ratio:
                    raise TooLarge("the request grows too much when unpacked", "max_ratio", self.settings.max_ratio)
                yield plain
                part = zipped.unconsumed_tail  # noqa: PLW2901  # the rest of this very part
        if not zipped.eof:
            raise UsageError("the gzip of the request ends too early", reason="coding")

    def _check_depth(self, body: bytes) -> None:
        most = self.settings.max_depth
        if depth_of(body, most) > most:
            raise TooLarge("the JSON of the request is nested too deep", "max_depth", most)


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        yield message.get("body", b"")
        more = message.get("more_body", False)


def _given(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives a body that was read already, then waits for the client to leave."""
    first = True

    async def given() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return given
