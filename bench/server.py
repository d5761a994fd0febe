"""A server that gives every chat completion the same answer, as quickly as it can. Prints its port.

A stream has as many chunks as the request allows tokens, one every so many milliseconds as its seed says.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bench.agents import answer

_BODY = json.dumps(answer(512, 1)).encode()
_REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)

_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.partition(b":")[2])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            body = await reader.readexactly(length)
            if b'"stream":true' in body.replace(b" ", b""):
                await _stream(writer, json.loads(body))
            else:
                writer.write(_REPLY)
    except (asyncio.IncompleteReadError, ConnectionError, StopIteration):
        writer.close()


async def _stream(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
    writer.write(_STREAM)
    for n in range(asked["max_tokens"]):
        delta = {"index": 0, "delta": {"content": f"word {n} "}, "finish_reason": None}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [delta]}
        _send(writer, b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await writer.drain()
        await asyncio.sleep(asked["seed"] / 1000)
    _send(writer, b"data: [DONE]\n\n")
    _send(writer, b"")


def _send(writer: asyncio.StreamWriter, part: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(part), part))


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
