"""A ticket agent with a fault that mails people twice: once when it sees the severity, and once more when it escalates.

    python examples/notify/agent.py T-7

It asks no model, so that the three experiments of the guide to replays run anywhere. Each e-mail that is really sent is one line in
`outbox.jsonl` (NOTIFY_OUTBOX names another file).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import agentloupe as loupe

TICKETS = {
    "T-7": {"severity": "high", "owner": "kim@example.com"},
    "T-8": {"severity": "low", "owner": "lee@example.com"},
}


@loupe.tool(effect="read")
def read_ticket(number: str) -> dict[str, Any]:
    return dict(TICKETS[number])


@loupe.tool(effect="write")
def send_email(to: str, subject: str) -> dict[str, Any]:
    outbox = Path(os.environ.get("NOTIFY_OUTBOX", "outbox.jsonl"))
    sent = len(outbox.read_text("utf-8").splitlines()) if outbox.exists() else 0
    entry = {"receipt": f"M-{sent + 1}", "to": to, "subject": subject, "key": loupe.idempotency_key()}
    with outbox.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(entry) + "\n")
    loupe.receipt(str(entry["receipt"]))
    return {"receipt": entry["receipt"]}


@loupe.agent(name="notifier")
def notifier(number: str) -> str:
    ticket = read_ticket(number=number)
    if ticket["severity"] == "high":
        send_email(to=ticket["owner"], subject=f"{number} is high")
        loupe.state("escalated", number)
        send_email(to=ticket["owner"], subject=f"{number} is high")  # the fault
        return "told"
    return "waits for a person"


if __name__ == "__main__":
    print(notifier(sys.argv[1] if len(sys.argv) > 1 else "T-7"))
