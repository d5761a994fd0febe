"""Runs and steps as JSON documents and as lines of a table; shared by the verbs that show them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from agentloupe.words.run import Run
from agentloupe.words.step import Step

__all__ = ["cost_text", "counts_text", "plain", "run_json", "seconds_text", "status_style", "step_json", "tokens_text"]

_STYLES = {
    "ok": "green",
    "error": "red",
    "running": "cyan",
    "waiting": "yellow",
    "cancelled": "yellow",
    "interrupted": "magenta",
}


def plain(value: Any) -> Any:
    """A value as JSON: decimals as exact text, tuples as lists."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def run_json(run: Run) -> dict[str, Any]:
    """A run's row as a document; costs are exact decimal text, unknown is null."""
    return {
        "id": run.id,
        "name": run.name,
        "agent": run.agent,
        "status": run.status,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "model": run.model,
        "tags": list(run.tags),
        "parent_run_id": run.parent_run_id,
        "forked_from_step": run.forked_from_step,
        "arm": run.arm,
        "overrides": [dict(override) for override in run.overrides],
        "steps": run.step_count,
        "counts": run.counts.as_dict(),
        "label": run.label,
        "hypothetical_from": run.hypothetical_from,
        "total_input_tokens": run.total_input_tokens,
        "total_output_tokens": run.total_output_tokens,
        "usage_complete": run.usage_complete,
        "new_input_tokens": run.new_input_tokens,
        "new_output_tokens": run.new_output_tokens,
        "cost": plain(run.cost),
        "new_cost": plain(run.new_cost),
        "cost_complete": run.cost_complete,
        "engine": run.engine,
        "coverage": run.coverage,
        "coverage_notes": list(run.coverage_notes),
        "fidelity": run.fidelity,
        "task_id": run.task_id,
        "trace_id": run.trace_id,
        "error": run.error,
        "events": run.events,
        "head": run.head,
    }


def step_json(step: Step) -> dict[str, Any]:
    """A step as a document. `input` and `output` are there only when they were loaded."""
    document: dict[str, Any] = {
        "run_id": step.run_id,
        "idx": step.idx,
        "parent_idx": step.parent_idx,
        "kind": step.kind,
        "name": step.name,
        "status": step.status,
        "source": step.source,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
        "effect": step.effect,
        "model": step.model,
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "cost": plain(step.cost),
        "error_class": step.error_class,
        "partial": step.partial,
        "call_id": step.call_id,
        "input_key": step.input_key,
        "input_digest": step.input_digest,
        "output_digest": step.output_digest,
        "attrs": dict(step.attrs),
        "events": [step.first_seq, step.last_seq],
    }
    if step.loaded:
        document |= {"input": step.input, "output": step.output, "error": step.error}
    return document


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
