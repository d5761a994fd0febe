"""Sealed envelopes on disk: canonical bytes, compressed against a sample of what all of them have in common.

An envelope is some 600 bytes, mostly names and hex digits; alone it hardly shrinks, against the sample it takes less than half.
The sample is part of the file's form: it is never edited. A better one gets another schema of the file.
"""

from __future__ import annotations

import threading

import zstandard

__all__ = ["pack", "unpack"]

_SAMPLE = (
    b'"error_class":"builtins.ValueError","why":"","finish_reason":"tool_calls","copied_source":"","parse_error":"",'
    b'"idempotency_key":"","request_id":"","fingerprint":"","provider":"openai","stream":false,'
    b'"tries":[{"ms":1.5,"started_ms":0,"status":200}],'
    b'"usage":{"completion_tokens":1,"prompt_tokens":1,"total_tokens":1},"version":"","source_digest":"","reused":true,'
    b'{"attrs":{"decision":"allowed","effect":"write","tool_call_id":"call_"},"bodies":{"snapshot":""},'
    b'"copied_hash":"","call_id":"0.","source":"recorded","source":"cassette",'
    b'"attrs":{"effect":"read","ms":0.1,"finish_reason":"stop","input_tokens":10,"model":"","output_tokens":5},'
    b'"call_id":"0.1","event_id":"019a0000-0000-7000-8000-000000000000","input_digest":"","input_key":"","lane":"0","n":1,'
    b'"name":"chat ","output_digest":"","owner_epoch":1,"parent_span_id":"","recorded_at":"2026-01-01T00:00:00.000000Z",'
    b'"run_id":"","schema_version":1,"sequence":1,"span_id":"","trace_id":"","type":"run.finished"}"type":"clock.read"}'
    b'"type":"tool.allowed"}"type":"tool.started"}"type":"tool.finished"}"type":"model.requested"}"type":"model.responded"}'
)
_LARGEST = 1 << 26
"""Bytes that an envelope may have."""
_LEVEL = -2
"""Quick: half the time of level 1 for a quarter more bytes."""
_PLAIN = b"{"


class _Local(threading.local):
    """Compressors are not shared between threads."""

    def __init__(self) -> None:
        sample = zstandard.ZstdCompressionDict(_SAMPLE, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self.compress = zstandard.ZstdCompressor(level=_LEVEL, dict_data=sample, write_dict_id=False).compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=sample).decompress


_local = _Local()


def pack(envelope: bytes) -> bytes:
    """Canonical bytes as they are stored."""
    packed = _local.compress(envelope)
    return packed if len(packed) < len(envelope) else envelope


def unpack(stored: object) -> bytes:
    """The canonical bytes again.

    Raises:
        ValueError: it is nothing that `pack` makes.
    """
    if not isinstance(stored, bytes):
        raise ValueError("not bytes")  # noqa: TRY004  # one kind of error for everything that is no envelope
    if stored.startswith(_PLAIN):
        return stored
    try:
        if not 0 < zstandard.frame_content_size(stored) <= _LARGEST:
            raise ValueError("no length")
        return _local.decompress(stored)
    except zstandard.ZstdError as error:
        raise ValueError("not readable") from error
