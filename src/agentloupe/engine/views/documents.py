"""Runs and steps as JSON documents."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from agentloupe.words.run import Run
from agentloupe.words.step import Step

__all__ = ["plain", "run_json", "step_json"]


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
