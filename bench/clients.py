"""OpenAI clients on a loopback server, bare and under our boundary."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agentloupe.providers.clients import wrap
from bench.agents import MODEL, answer, conversations, text

_ANSWER = json.dumps(answer(512, 1)).encode()


@contextmanager
def server() -> Generator[str]:
    """A server in a process of its own that gives every request the same answer; its base URL."""
    child = subprocess.Popen([sys.executable, "-m", "bench.server"], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        child.terminate()
        child.communicate()


def bare(url: str, transport: Any = None) -> Any:
    """A client as it comes; `transport` in place of the network."""
    import httpx2
    from openai import OpenAI

    http = httpx2.Client(transport=transport) if transport is not None else None
    return OpenAI(base_url=url, api_key="none", max_retries=0, http_client=http)


def wrapped(url: str, transport: Any = None) -> Any:
    """A client under the boundary."""
    return wrap(bare(url, transport))


def canned() -> Any:
    """A transport that answers by itself, at once."""
    import httpx2

    headers = {"content-type": "application/json"}
    return httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=_ANSWER))


@lru_cache(1)
def _pacer() -> Any:
    return bare("http://127.0.0.1:9/v1", canned())


def small_calls(count: int) -> int:
    """Calls of the bare SDK that are answered at once."""
    create = _pacer().chat.completions.create
    for _ in range(count):
        create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
    return count


@dataclass(frozen=True, slots=True)
class Talk:
    """What is asked.

    Attributes:
        name: of the kind of talk.
        requests: all of them, made before anything is timed.
    """

    name: str
    requests: tuple[dict[str, Any], ...]

    def by(self, client: Any) -> int:
        """Asks everything; how many calls that was."""
        create = client.chat.completions.create
        for request in self.requests:
            create(**request)
        return len(self.requests)


def short(calls: int, seed: int = 0) -> Talk:
    """Requests of 1 KB of text, all of it new."""
    return Talk("1 KB a request", tuple(_one(seed + i) for i in range(calls)))


def _one(seed: int) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text(1024, seed)}]}


def growing(calls: int, seed: int = 0) -> Talk:
    """Conversations that grow by 1 KB a call up to 20 KB, with four tools offered."""
    return Talk("growing to 20 KB", tuple(conversations(calls, seed=seed)))
