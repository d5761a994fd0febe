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


@pytest.mark.usefixtures("workdir")
def test_no_character_is_lost(shared_case: Callable[[str], Path]) -> None:
    case = shared_case("03")
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    reads = [bytes.fromhex(line) for line in (case / "reads.hex").read_text("ascii").split()]
    assert len(reads) == expected["reads"]
    with playing(reads) as server:

        def worker() -> str:
            http: Any = http_client(HTTP, asynchronous=False)
            client = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1", http_client=http)
            messages: list[Any] = [{"role": "user", "content": "hi"}]
            stream = client.chat.completions.create(model="m", messages=messages, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

        done = loupe.record(worker)
        report = replay(done.run_id, worker)
    assert done.result == expected["content"]
    assert answer_of(done.run_id)["choices"][0]["message"]["content"] == expected["content"]
    stored = stored_bytes(done.run_id)
    assert digest_bytes(stored) == expected["stored_body_sha256"]
    assert "\ufffd" not in stored.decode("utf-8")
    assert report.passed, report.text()
