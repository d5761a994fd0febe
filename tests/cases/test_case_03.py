"""Case 03: network reads that cut a character in half."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

import agentloupe as loupe
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import digest_bytes
from tests.stream_support import answer_of, http_client, playing, stored_bytes

HTTP = "httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx"


def _agent(url: str, *, asynchronous: bool) -> Callable[[], Any]:
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}

    def given() -> Any:
        return {"api_key": "k", "base_url": f"{url}/v1", "http_client": http_client(HTTP, asynchronous=asynchronous)}

    def worker() -> str:
        with openai.OpenAI(**given()) as client:
            stream: Any = client.chat.completions.create(**asked)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    async def worker_later() -> str:
        async with openai.AsyncOpenAI(**given()) as client:
            stream: Any = await client.chat.completions.create(**asked)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    return worker_later if asynchronous else worker


@pytest.mark.usefixtures("workdir")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_character_is_lost(shared_case: Callable[[str], Path], asynchronous: bool) -> None:
    case = shared_case("03")
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    reads = [bytes.fromhex(line) for line in (case / "reads.hex").read_text("ascii").split()]
    assert len(reads) == expected["reads"]
    with playing(reads) as server:
        done = loupe.record(_agent(server.url, asynchronous=asynchronous))
        report = replay(done.run_id, _agent(server.url, asynchronous=asynchronous))
        assert server.asked == 1
    assert done.result == expected["content"]
    assert answer_of(done.run_id)["choices"][0]["message"]["content"] == expected["content"]
    stored = stored_bytes(done.run_id)
    assert digest_bytes(stored) == expected["stored_body_sha256"]
    assert "\ufffd" not in stored.decode("utf-8")
    assert report.passed, report.text()
