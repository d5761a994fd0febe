"""How the bytes of an HTTP answer travel: gzip, deflate, zstd, br. Recordings hold what they mean.

A replay encodes again, piece by piece, so that a program which reads raw bytes gets some that mean the same. Where the
way to decode is not installed here, bytes are kept as they travelled.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

from agentloupe.ports.streams import Coding

__all__ = ["coding_of"]


def coding_of(header: str | None) -> Coding | None:
    """The coding that a `content-encoding` header names; `None` where there is none, or one of it cannot be undone here."""
    names = [name.strip().lower() for name in (header or "").split(",")]
    made = [_KNOWN[name]() for name in names if name in _KNOWN]
    if not made or len(made) < len([name for name in names if name not in ("", "identity")]):
        return None
    found: list[Coding] = [coding for coding in made if coding is not None]
    return None if len(found) < len(made) else found[0] if len(found) == 1 else _Chain(found)


class _Zlib:
    def __init__(self, window: int) -> None:
        self._decoder = zlib.decompressobj(window)
        self._encoder = zlib.compressobj(wbits=window)

    def decode(self, data: bytes) -> bytes:
        return self._decoder.decompress(data)

    def encode(self, data: bytes) -> bytes:
        return self._encoder.compress(data) + self._encoder.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        return self._encoder.flush()


class _Deflate(_Zlib):
    """`deflate` is zlib by the book, and raw deflate from some servers: the first bytes decide."""

    def __init__(self) -> None:
        super().__init__(zlib.MAX_WBITS)
        self._first = True

    def decode(self, data: bytes) -> bytes:
        first, self._first = self._first and bool(data), self._first and not data
        try:
            return super().decode(data)
        except zlib.error:
            if not first:
                raise
            self._decoder = zlib.decompressobj(-zlib.MAX_WBITS)
            return super().decode(data)


class _Zstd:
    def __init__(self) -> None:
        import zstandard

        self._decoder = zstandard.ZstdDecompressor().decompressobj()
        self._encoder = zstandard.ZstdCompressor().compressobj()
        self._flush: int = zstandard.COMPRESSOBJ_FLUSH_BLOCK

    def decode(self, data: bytes) -> bytes:
        return self._decoder.decompress(data)

    def encode(self, data: bytes) -> bytes:
        return self._encoder.compress(data) + self._encoder.flush(self._flush)

    def end(self) -> bytes:
        return self._encoder.flush()


class _Brotli:
    """A client asks for `br` only where one of the two libraries is loaded."""

    def __init__(self, library: Any) -> None:
        self._decoder = library.Decompressor()
        self._encoder = library.Compressor()

    def decode(self, data: bytes) -> bytes:
        decode = getattr(self._decoder, "decompress", None) or self._decoder.process
        return decode(data) if data else b""

    def encode(self, data: bytes) -> bytes:
        write = getattr(self._encoder, "process", None) or self._encoder.compress
        return write(data) + self._encoder.flush()

    def end(self) -> bytes:
        return self._encoder.finish()


def _brotli() -> _Brotli | None:
    library = sys.modules.get("brotli") or sys.modules.get("brotlicffi")
    return None if library is None else _Brotli(library)


class _Chain:
    """Several codings, in the order in which they were applied."""

    def __init__(self, codings: list[Coding]) -> None:
        self._codings = codings

    def decode(self, data: bytes) -> bytes:
        for coding in reversed(self._codings):
            data = coding.decode(data)
        return data

    def encode(self, data: bytes) -> bytes:
        for coding in self._codings:
            data = coding.encode(data)
        return data

    def end(self) -> bytes:
        data = b""
        for coding in self._codings:
            data = (coding.encode(data) if data else b"") + coding.end()
        return data


_KNOWN = {
    "gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "x-gzip": lambda: _Zlib(16 + zlib.MAX_WBITS),
    "deflate": _Deflate,
    "zstd": _Zstd,
    "br": _brotli,
}
