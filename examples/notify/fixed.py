"""The same agent, mended: one e-mail. And a sandbox in the place of the real mail."""

from __future__ import annotations

from typing import Any

import agentloupe as loupe
from examples.notify.agent import read_ticket, send_email


@loupe.agent(name="notifier")
def notifier(number: str) -> str:
    ticket = read_ticket(number=number)
    if ticket["severity"] == "high":
        send_email(to=ticket["owner"], subject=f"{number} is high")
        loupe.state("escalated", number)
        return "told"
    return "waits for a person"


def sandbox(to: str, subject: str) -> dict[str, Any]:
    """Stands in for `send_email` in a fork: nothing leaves the machine."""
    return {"receipt": f"sandbox: {subject} to {to}"}
