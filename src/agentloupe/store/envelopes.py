"""Envelopes, headers of steps and short bodies on disk, each kind compressed against a sample of what all of it has in common.

An envelope is some 600 bytes, mostly names and hex digits; alone it hardly shrinks, against the sample it takes less than half.
A short body is an answer, or what a request has of its own: a frame of names around some text.
The samples are part of the file's form: they are never edited. A better one gets another schema of the file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import zstandard

__all__ = ["pack_all", "pack_body", "pack_steps", "unpack", "unpack_body", "unpack_step"]

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
_STEP_SAMPLE = (
    b'"error_class":"","copied_source":"","origin":"","idempotency_key":"","request_id":"","fingerprint":"","stream":false,'
    b'"tries":[{"ms":1.5,"started_ms":0,"status":200}],"reused":true,"parse_error":"","version":"","source_digest":"",'
    b'{"effect":"read","decision":"allowed","tool_call_id":"call_","ms":0.1},null,'
    b'[1,0,"tool","","2026-01-01T00:00:00.000000Z","2026-01-01T00:00:00.000000Z","ok",null,"recorded","read",null,null,null,"0.'
    b'[1,0,"clock","now","2026-01-01T00:00:00.000000Z","2026-01-01T00:00:00.000000Z","ok",null,"live",null,null,null,null,"0.'
    b'[1,0,"llm","chat ","2026-01-01T00:00:00.000000Z","2026-01-01T00:00:00.000000Z","ok",null,"live",null,"",10,5,"0.'
    b'","0",1,"",{"model":"","provider":"openai","finish_reason":"tool_calls","finish_reason":"stop",'
    b'"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15},"input_tokens":10,"ms":0.1},null,1,2]'
)
_BODY_SAMPLE = (
    b'{"type":"response.completed","object":"response","status":"completed","output":[{"type":"function_call","status":"completed"}],'
    b'"http_version":"HTTP/1.1","reason_phrase":"OK","headers":[["content-type","application/json"],["x-request-id","req_"],["date",""]],'
    b'"status":200,"text":"{\\"id\\":\\"chatcmpl-","error":null,"stop_reason":"end_turn","stop_reason":"tool_use","stop_sequence":null,'
    b'"usage":{"input_tokens":1,"output_tokens":1},"content":[{"type":"tool_use","id":"toolu_01","name":"","input":{}},{"type":"text","text":""}]}'
    b'{"model":"","messages":{"$ref":""},"tools":{"$ref":""},"temperature":0.2,"max_tokens":1024,"stream":true}'
    b'{"$list":{"base":"","near":[""],"parts":[[0,10],[{"role":"tool","tool_call_id":"call_","content":""},'
    b'{"role":"assistant","content":""},{"role":"user","content":""}]]}}'
    b'{"id":"chatcmpl-","object":"chat.completion","created":1700000000,"model":"gpt-","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":null,"refusal":null,"annotations":[],"tool_calls":[{"id":"call_","type":"function",'
    b'"function":{"name":"","arguments":"{\\""}}]},"logprobs":null,"finish_reason":"tool_calls"},{"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":1,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0}}}'
)
_LARGEST = 1 << 26
"""Bytes that an envelope or a header may have."""
_LEVEL = -2
"""Quick: half the time of level 1 for a quarter more bytes."""
_STEP_LEVEL = 1
"""Headers are fewer, and a third of them are hex digits, which only levels above 0 make smaller."""
_BODY_LEVEL = 1
"""With the sample it makes short bodies smaller than level 3 does without one, in three quarters of the time."""


_length, _NotReadable = zstandard.frame_content_size, zstandard.ZstdError
"""By short names: they are looked up for every envelope of a run."""


class _Local(threading.local):
    """Compressors are not shared between threads."""

    def __init__(self, sample: bytes, level: int) -> None:
        common = zstandard.ZstdCompressionDict(sample, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self._compressor = zstandard.ZstdCompressor(level=level, dict_data=common, write_dict_id=False)
        self.compress = self._compressor.compress
        self.decompress = zstandard.ZstdDecompressor(dict_data=common).decompress

    def compress_all(self, texts: Sequence[bytes]) -> list[bytes]:
        """Each text compressed, or as it is where that is not smaller.

        All in one call, in this thread: `compress` lets go of the interpreter's lock each time.
        """
        if not texts:
            return []
        packed = self._compressor.multi_compress_to_buffer(list[Any](texts))
        shorter = (packed[i].tobytes() for i in range(len(texts)))
        return [short if len(short) < len(text) else text for text, short in zip(texts, shorter, strict=True)]


_envelopes, _steps = _Local(_SAMPLE, _LEVEL), _Local(_STEP_SAMPLE, _STEP_LEVEL)
_bodies = _Local(_BODY_SAMPLE, _BODY_LEVEL)


def pack_all(envelopes: Sequence[bytes]) -> list[bytes]:
    """Canonical bytes of envelopes as they are stored."""
    return _envelopes.compress_all(envelopes)


def unpack(stored: object) -> bytes:
    """The canonical bytes again.

    Raises:
        ValueError: it is nothing that `pack_all` makes.
    """
    return _unpacked(stored, b"{", _envelopes)


def pack_steps(headers: Sequence[bytes]) -> list[bytes]:
    """Headers of steps (JSON arrays) as they are stored."""
    return _steps.compress_all(headers)


def unpack_step(stored: object) -> bytes:
    """The header again. Raises like `unpack`."""
    return _unpacked(stored, b"[", _steps)


def pack_body(data: bytes) -> bytes:
    """A short body compressed, whether that is smaller or not."""
    return _bodies.compress(data)


def unpack_body(stored: bytes) -> bytes:
    """The body again. Raises like `unpack`."""
    return _unpacked(stored, None, _bodies)


def _unpacked(stored: object, plain: bytes | None, local: _Local) -> bytes:
    if not isinstance(stored, bytes):
        raise ValueError("not bytes")  # noqa: TRY004  # one kind of error for everything that was not packed
    if plain is not None and stored.startswith(plain):
        return stored
    try:
        if not 0 < _length(stored) <= _LARGEST:
            raise ValueError("no length")
        return local.decompress(stored)
    except _NotReadable as error:
        raise ValueError("not readable") from error
