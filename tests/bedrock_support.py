"""Streams as Bedrock sends them, framed here with nothing but `struct` and `zlib`: Anthropic's events in base 64, and ConverseStream."""

from __future__ import annotations

import base64
import json
import string
import struct
import zlib
from collections.abc import Iterable
from typing import Any

KIND = "application/vnd.amazon.eventstream"
INVOKE = "/model/anthropic.claude-v1:0/invoke-with-response-stream"
CONVERSE = "/model/amazon.nova-lite-v1:0/converse-stream"
ALPHABET = string.ascii_letters + string.digits


def framed(headers: bytes, payload: bytes) -> bytes:
    """A message of these bytes."""
    lengths = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    whole = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


def texts(**named: str) -> bytes:
    """Headers that are texts; `event_type` is `:event-type`."""
    made = b""
    for name, value in named.items():
        spelt = f":{name.replace('_', '-')}".encode()
        said = value.encode()
        made += bytes([len(spelt)]) + spelt + b"\x07" + struct.pack(">H", len(said)) + said
    return made


def event(name: str, payload: Any) -> bytes:
    """An event of ConverseStream."""
    headers = texts(event_type=name, content_type="application/json", message_type="event")
    return framed(headers, json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode())


def chunk(said: Any, padding: str | None = "abcdef") -> bytes:
    """An event of the model itself, in base 64."""
    coded: dict[str, str] = {"bytes": base64.b64encode(json.dumps(said, ensure_ascii=False).encode()).decode()}
    return event("chunk", coded if padding is None else {**coded, "p": padding})


def failure(name: str, message: str) -> bytes:
    """An exception in the middle of a stream."""
    headers = texts(exception_type=name, content_type="application/json", message_type="exception")
    return framed(headers, json.dumps({"message": message}).encode())


def events_in(data: bytes) -> list[tuple[dict[str, str], bytes]]:
    """Headers and payloads of a stream, read by a reader of its own that refuses a wrong length or checksum."""
    found: list[tuple[dict[str, str], bytes]] = []
    while data:
        total, length, checksum = struct.unpack(">III", data[:12])
        assert zlib.crc32(data[:8]) == checksum
        assert len(data) >= total
        assert zlib.crc32(data[: total - 4]) == struct.unpack(">I", data[total - 4 : total])[0]
        headers, named = data[12 : 12 + length], dict[str, str]()
        while headers:
            n = headers[0]
            size = struct.unpack(">H", headers[n + 2 : n + 4])[0]
            named[headers[1 : n + 1].decode()] = headers[n + 4 : n + 4 + size].decode()
            headers = headers[n + 4 + size :]
        found.append((named, data[12 + length : total - 4]))
        data = data[total:]
    return found


def meant(payload: bytes) -> Any:
    """What the payload of an event says."""
    said = json.loads(payload)
    return json.loads(base64.b64decode(said["bytes"])) if "bytes" in said else said


def claude(parts: Iterable[str], *, arguments: Iterable[str] = ()) -> list[bytes]:
    """An answer of Claude: a text in parts, and a tool whose arguments come in parts."""
    usage = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4}
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-v1", "stop_sequence": None}
    start = {**told, "content": [], "stop_reason": None, "usage": usage}
    events: list[Any] = [{"type": "message_start", "message": start}, *_block(0, {"type": "text", "text": ""}, parts)]
    tool = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    asked = list(arguments)
    events += _block(1, tool, asked) if asked else []
    reason = "tool_use" if asked else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return [chunk(one, ALPHABET[: 5 + 7 * at % 50]) for at, one in enumerate(events)]


def _block(index: int, begun: dict[str, Any], parts: Iterable[str]) -> list[Any]:
    name, kind = ("text", "text_delta") if begun["type"] == "text" else ("partial_json", "input_json_delta")
    deltas = [{"type": "content_block_delta", "index": index, "delta": {"type": kind, name: part}} for part in parts]
    start = {"type": "content_block_start", "index": index, "content_block": begun}
    return [start, *deltas, {"type": "content_block_stop", "index": index}]


def nova(parts: Iterable[str], *, arguments: Iterable[str] = (), usage: bool = True) -> list[bytes]:
    """An answer by ConverseStream: reasoning, a text in parts, a tool, and how much was used."""
    thought = [{"text": "Look "}, {"text": "first."}, {"signature": "c2ln"}]
    said: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    said += [("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"reasoningContent": one}}) for one in thought]
    said.append(("contentBlockStop", {"contentBlockIndex": 0}))
    said += [("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"text": part}}) for part in parts]
    said.append(("contentBlockStop", {"contentBlockIndex": 1}))
    asked = list(arguments)
    if asked:
        tool = {"toolUse": {"toolUseId": "tooluse_1", "name": "look"}}
        said.append(("contentBlockStart", {"contentBlockIndex": 2, "start": tool}))
        said += [("contentBlockDelta", {"contentBlockIndex": 2, "delta": {"toolUse": {"input": a}}}) for a in asked]
        said.append(("contentBlockStop", {"contentBlockIndex": 2}))
    said.append(("messageStop", {"stopReason": "tool_use" if asked else "end_turn"}))
    if usage:
        counts = {"inputTokens": 11, "outputTokens": 6, "totalTokens": 20, "cacheReadInputTokens": 3}
        said.append(("metadata", {"usage": counts, "metrics": {"latencyMs": 12}}))
    return [event(name, {**one, "p": ALPHABET[: 3 + 11 * at % 50]}) for at, (name, one) in enumerate(said)]
