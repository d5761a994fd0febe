"""A run that `agentloupe run` recorded, replayed and forked by `--code`: its client is wrapped there as well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentloupe.providers.scripted import ScriptedServer, say

CODE = """
import os
import agentloupe as loupe
from openai import OpenAI

@loupe.tool(effect="write")
def pay(amount):
    with open("paid.txt", "a") as book:
        book.write(f"{amount}\\n")
    return amount

@loupe.agent
def agent(text):
    client = OpenAI(base_url=os.environ["URL"], api_key="x", max_retries=0)
    def ask(words):
        asked = [{"role": "user", "content": words}]
        return client.chat.completions.create(model="m", messages=asked).choices[0].message.content
    ask("first")
    pay(1)
    return ask("second")

if __name__ == "__main__":
    agent("x")
"""


def command(workdir: Path, url: str, *words: str) -> Any:
    environment = {**os.environ, "URL": url, "LOUPE_DB": str(workdir / "loupe.db")}
    return subprocess.run(
        [sys.executable, "-m", "agentloupe", *words], env=environment, capture_output=True, text=True, check=False
    )


def test_an_unwrapped_client_asks_no_model_before_the_step(workdir: Path) -> None:
    pytest.importorskip("openai")
    (workdir / "app.py").write_text(CODE, "utf-8")
    with ScriptedServer(lambda _: say("hi")) as server:
        assert command(workdir, server.url, "run", "--", "python", "app.py").returncode == 0
        assert len(server.requests) == 2
        replayed = command(workdir, server.url, "replay", "last", "--code", "app:agent")
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
        assert len(server.requests) == 2
        forked = command(workdir, server.url, "fork", "last", "--from", "3", "--code", "app:agent", "--json")
        assert forked.returncode == 0, forked.stdout + forked.stderr
        assert json.loads(forked.stdout)
        assert len(server.requests) == 3, "only the model step at the cut is asked again"
    assert (workdir / "paid.txt").read_text("utf-8") == "1\n"
