"""A replay needs no key: clients that insist on one when they are made find a placeholder. A recording never gets one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from agentloupe.engine.guard import KEYS, PLACEHOLDER
from agentloupe.providers.loopback import HttpReply, HttpRequest, json_reply, serve
from agentloupe.verbs.isolated import replay_command
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.testing import Case, check

PROGRAM = """
import os
import agentloupe as loupe
from anthropic import Anthropic
from openai import AsyncOpenAI, OpenAI

URL = os.environ.get("MODEL_AT", "http://127.0.0.1:9")
AT_IMPORT = OpenAI(base_url=URL + "/v1", max_retries=0), AsyncOpenAI(base_url=URL + "/v1"), Anthropic(base_url=URL)
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

@loupe.agent
def assistant():
    loupe.wrap(AT_IMPORT[0]), loupe.wrap(AT_IMPORT[2])
    with OpenAI(base_url=URL + "/v1", max_retries=0) as made_here, Anthropic(base_url=URL, max_retries=0) as other:
        asked = AT_IMPORT[0], loupe.wrap(made_here)
        said = [client.chat.completions.create(**ASK).choices[0].message.content for client in asked]
        loupe.wrap(other)
        return said + [other.messages.create(max_tokens=9, **ASK).content[0].text]

if __name__ == "__main__":
    print(assistant())
"""


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one variable that looks like a key is set."""
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_TOKEN", "_AUTH"))] + list(KEYS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url() -> Iterator[str]:
    def app(request: HttpRequest) -> HttpReply:
        if request.path.endswith("/messages"):
            block = {"type": "text", "text": "moin"}
            usage = {"input_tokens": 1, "output_tokens": 1}
            about = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
            return json_reply({**about, "content": [block], "usage": usage})
        assert request.headers["authorization"] == "Bearer real", "a placeholder is never sent"
        message = {"role": "assistant", "content": json.loads(request.body)["messages"][0]["content"]}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return json_reply({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})

    with serve(app) as server:
        yield server.url


def _close(program: Any) -> None:
    """The clients that a program made when it was imported; it never ends them itself."""
    if program is not None:
        first, later, other = program.AT_IMPORT
        first.close()
        asyncio.run(later.close())
        other.close()


@pytest.fixture
def recorded(workdir: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A recording that was made with keys; now there are none, and the program is not imported."""
    pytest.importorskip("anthropic")
    (workdir / "keyless.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(workdir)
    file = workdir / "it.loupe"
    with monkeypatch.context() as keys:
        for name, value in {"OPENAI_API_KEY": "real", "ANTHROPIC_API_KEY": "real", "MODEL_AT": url}.items():
            keys.setenv(name, value)
        told = check(Case(path=file, agent="keyless:assistant", arguments=((), {}), mode="all"))
        assert told.passed, told.text
    _close(sys.modules.pop("keyless"))
    yield file
    _close(sys.modules.pop("keyless", None))


@pytest.mark.parametrize("way", ["command", "test", "verb"])
def test_a_replay_needs_no_key(recorded: Path, way: str) -> None:
    if way == "command":
        report = replay_command(recorded, ["python", "keyless.py"])
    elif way == "test":
        report = check(Case(path=recorded, agent="keyless:assistant")).report
    else:
        report = replay(recorded, "keyless:assistant")
    assert report is not None
    assert report.passed, report
    assert PLACEHOLDER not in os.environ.values()


def test_a_recording_is_given_no_key(recorded: Path) -> None:
    with pytest.raises(openai.OpenAIError, match="api_key"):
        check(Case(path=recorded, agent="keyless:assistant", mode="all"))


def test_a_variable_that_is_empty_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentloupe.engine.guard import placeholder_keys

    monkeypatch.setenv("OPENAI_API_KEY", "")
    monkeypatch.setenv("GROQ_API_KEY", "mine")
    with placeholder_keys():
        assert os.environ["OPENAI_API_KEY"] == PLACEHOLDER
        assert os.environ["GROQ_API_KEY"] == "mine"
    assert os.environ["OPENAI_API_KEY"] == ""
    assert "MISTRAL_API_KEY" not in os.environ
