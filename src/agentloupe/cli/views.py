"""Runs and steps as JSON documents and as lines of a table; shared by the verbs that show them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from agentloupe.engine.views.documents import plain, run_json, step_json
from agentloupe.words.run import Run

__all__ = ["cost_text", "counts_text", "plain", "run_json", "seconds_text", "status_style", "step_json", "tokens_text"]

_STYLES = {
    "ok": "green",
    "error": "red",
    "running": "cyan",
    "waiting": "yellow",
    "cancelled": "yellow",
    "interrupted": "magenta",
}


def status_style(status: str) -> str:
    """Colour of a status."""
    return _STYLES.get(status, "")


def tokens_text(input_tokens: int | None, output_tokens: int | None, complete: bool = True) -> str:
    """`1204 in, 87 out`; unknown is said, and a sum that lacks a part is marked."""
    if input_tokens is None and output_tokens is None:
        return "unknown"
    mark = "" if complete else "+"
    known = (
        f"{'?' if count is None else count}{mark} {side}"
        for count, side in ((input_tokens, "in"), (output_tokens, "out"))
    )
    return ", ".join(known)


def cost_text(cost: Decimal | None, complete: bool = True) -> str:
    """`$0.0021`; unknown is said, never shown as free; an incomplete sum is a lower bound."""
    if cost is None:
        return "unknown"
    shown = f"{cost:.6f}".rstrip("0")
    shown = shown + "0" * max(0, 2 - len(shown.partition(".")[2]))
    return f"{'' if complete else 'at least '}${shown}"


def counts_text(run: Run) -> str:
    """`cassette 1, live 0, miss 1` and whatever else is not 0; empty for a run that is no fork."""
    if run.parent_run_id is None:
        return ""
    always = ("cassette", "live", "miss")
    return ", ".join(f"{name} {count}" for name, count in run.counts.as_dict().items() if count or name in always)


def seconds_text(started_at: str, ended_at: str | None) -> str:
    """`1.24 s`, `35 ms`, or empty while it is open."""
    if ended_at is None:
        return ""
    seconds = (datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)).total_seconds()
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
