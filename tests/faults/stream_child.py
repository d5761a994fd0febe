"""A program that is in the middle of a stream when it is killed. Says on its output when the first pieces came.

usage: stream_child.py URL
"""

from __future__ import annotations

import sys
from typing import Any

import httpx

import agentloupe as loupe


def main(url: str) -> None:
    def worker() -> None:
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        transport: Any = loupe.http_transport(httpx.HTTPTransport(verify=False))
        with httpx.Client(transport=transport) as client, client.stream("POST", url, json=body) as response:
            for part in response.iter_raw():
                print(len(part), flush=True)

    loupe.record(worker)


if __name__ == "__main__":
    main(*sys.argv[1:])
