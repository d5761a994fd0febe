"""Runs and steps as the page gets them: the documents of the command line, and what a list of them needs besides."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from agentloupe.engine.compare import seconds
from agentloupe.engine.costs import price_step
from agentloupe.engine.views.documents import run_json, step_json
from agentloupe.engine.views.flags import Flags
from agentloupe.server.context import Context
from agentloupe.server.reading import Opened
from agentloupe.verbs.pricing import price_table
from agentloupe.words.run import Run, RunFilter
from agentloupe.words.step import Step

__all__ = ["fork_reason", "page", "run_document", "run_short", "seconds_between", "step_documents"]


def page(items: Sequence[Any], total: int, first: int, **more: Any) -> dict[str, Any]:
    """A part of a list."""
    after = first + len(items)
    return {
        "items": list(items),
        "total": total,
        "first": first,
        "next": after if items and after < total else None,
    } | more


def run_document(context: Context, run: Run) -> dict[str, Any]:
    """A run's row, with costs, as a document."""
    verdict = context.verdicts.get(run.id, (run.events, run.head))
    chain = "not_checked" if verdict is None else "ok" if verdict["ok"] else "broken"
    return run_json(run) | {
        "seconds": seconds(run),
        "children": context.store.count(RunFilter(parent_run_id=run.id)),
        "misses": run.counts.miss,
        "badges": {"chain": chain, "replay": None},
        "erased": run.erased,
        "open_effects": run.open_effects,
    }


def run_short(run: Run) -> dict[str, Any]:
    """A relative of a run."""
    return {
        "id": run.id,
        "name": run.name,
        "status": run.status,
        "arm": run.arm,
        "parent_run_id": run.parent_run_id,
        "forked_from_step": run.forked_from_step,
        "label": run.label,
        "steps": run.step_count,
        "misses": run.counts.miss,
        "started_at": run.started_at,
    }


def seconds_between(started_at: str, ended_at: str | None) -> float | None:
    """How long something took; `None` while it is open, or where a time is not in our form."""
    if ended_at is None:
        return None
    try:
        return (datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)).total_seconds()
    except (ValueError, TypeError):
        return None


def step_documents(opened: Opened, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Headers of some steps of a run."""
    flags, table = opened.flags_among(steps), price_table()
    return [_header(opened, price_step(step, table), flags) for step in steps]


def _header(opened: Opened, step: Step, flags: Flags) -> dict[str, Any]:
    why = fork_reason(opened.run, step)
    return step_json(step) | {
        "seconds": seconds_between(step.started_at, step.ended_at),
        "depth": opened.outline.depth[step.idx],
        "children": opened.outline.children[step.idx],
        "prompt_changed": step.idx in flags.prompt,
        "tools_changed": step.idx in flags.tools,
        "forkable": why is None,
        "fork_reason": None if why is None else why[1],
        "fork_reason_code": None if why is None else why[0],
    }


def fork_reason(run: Run, step: Step) -> tuple[str, str] | None:
    """Why no fork can start at a step, as far as its header tells: a stable word and a sentence; `None` where one can."""
    if step.kind != "llm":
        return "not_llm", "a fork starts at a model step: what a tool was asked for was decided there"
    if run.erased:
        return "deleted", "the run was deleted; its requests are gone"
    if step.partial is not None:
        return "cut_request", f"the stored request is not complete: {step.partial}"
    return None if step.input_digest is not None else ("no_request", "the request was not recorded")
