"""The three experiments on an agent that mails twice: the same code, the mended code on the same events, a new run with a sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support import ROOT

FIXED = "examples.notify.fixed:notifier"


def loupe(folder: Path, *words: str, code: int = 0) -> str:
    """Runs `agentloupe` (or, with `agent`, the agent itself) in the repository, with the recordings and mails of a folder."""
    command = ["examples/notify/agent.py", *words[1:]] if words[0] == "agent" else ["-m", "agentloupe", *words]
    own = {"LOUPE_DB": str(folder / "loupe.db"), "NOTIFY_OUTBOX": str(folder / "outbox.jsonl")}
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, **own, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def mails(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "outbox.jsonl").read_text("utf-8").splitlines()]


def test_the_three_experiments(tmp_path: Path) -> None:
    assert loupe(tmp_path, "agent", "T-7") == "told\n"
    assert [mail["receipt"] for mail in mails(tmp_path)] == ["M-1", "M-2"]

    # The old logic on its own events.
    same = json.loads(loupe(tmp_path, "replay", "last", "--code", "examples.notify.agent:notifier", "--json"))
    assert (same["verdict"], same["levels"]) == ("pass", {"flow": True, "state": True, "content": True})

    # The mended code on the same events leaves exactly the second mail over.
    left = json.loads(loupe(tmp_path, "replay", "last", "--code", FIXED, "--json", code=1))["divergence"]
    assert (left["kind"], left["expected"]["name"], left["actual"]) == ("unconsumed", "send_email", None)
    meant = ["replay", "last", "--code", FIXED, "--expect", "examples/notify/fix.json", "--json"]
    passed = json.loads(loupe(tmp_path, *meant))
    assert passed["verdict"] == "pass"
    (difference,) = passed["expected_differences"]
    assert (difference["kind"], difference["sequence"]) == ("unconsumed", left["sequence"])

    # A file of expectations that the old code does not fulfil is no pass.
    loupe(tmp_path, "replay", "last", "--code", "examples.notify.agent:notifier", *meant[4:], code=1)

    # A new run of the mended code, with a sandbox in the place of the mail.
    tool = "send_email=sandbox:examples.notify.fixed:sandbox"
    loupe(tmp_path, "fork", "last", "--from", "start", "--code", FIXED, "--tool", tool)
    steps = json.loads(loupe(tmp_path, "show", "last", "--json"))["steps"]
    sent = [step for step in steps if step["name"] == "send_email"]
    assert [(step["source"], step["output"]) for step in sent] == [
        ("sandbox", {"receipt": "sandbox: T-7 is high to kim@example.com"})
    ]
    assert len(mails(tmp_path)) == 2
