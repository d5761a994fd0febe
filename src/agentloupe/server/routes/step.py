"""One step: what is known of it, its conversation, what fills its window, what changed since the one before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.engine.overrides import tool_names
from agentloupe.engine.views import context as window
from agentloupe.engine.views.messages import Message, Part, answer_of, messages_of
from agentloupe.engine.views.transcript import cut_text
from agentloupe.server.asking import fresh, loaded, model_step, nearest_of, sources_of
from agentloupe.server.context import Context, First, Here, Idx, RunId
from agentloupe.server.documents import step_documents
from agentloupe.server.reading import Opened
from agentloupe.server.reply import reply
from agentloupe.server.schemas import views as schemas
from agentloupe.verbs.comparing import request_changes
from agentloupe.words.dialects import tools_in, without_tools
from agentloupe.words.errors import Damaged, UsageError
from agentloupe.words.jsontext import Json
from agentloupe.words.prompts import prompt_of
from agentloupe.words.step import Step

__all__ = ["router"]

router = APIRouter(prefix="/api/runs/{run_id}/steps/{idx}", tags=["steps"])

_PART: Final = 200_000
"""Characters of a part of a message; what is longer is a download."""
_SAMPLES: Final = 200
_TOKENS: Final = 3_000_000
"""Tokens of requests that are read to tell their parts; where all samples have more, evenly chosen ones tell them."""
_LEAST: Final = 10
_UNKNOWN: Final = 4000
"""Tokens that a request is taken for that nobody counted."""
_APART: Final = frozenset({"messages", "input", "contents", "tools", "system", "instructions", "systemInstruction"})


@router.get("", response_model=schemas.StepDetail)
def one_step(here: Here, run_id: RunId, idx: Idx) -> Response:
    """A step with what is known of it; what was said stands in its other parts."""
    opened = here.reader.open(run_id)
    step = opened.step(idx)
    return reply(step_documents(opened, [step])[0] | {"overview": _overview(here, opened, step)})


def _overview(here: Context, opened: Opened, step: Step) -> dict[str, Any]:
    problem = None
    try:
        whole = loaded(here, opened, step)
    except Damaged as wrong:
        whole, problem = step, wrong.message
    request = whole.input if step.kind == "llm" and isinstance(whole.input, dict) else {}
    attrs = step.attrs
    begins = opened.run.parent_run_id is not None and opened.run.forked_from_step == step.idx
    return {
        "asked_for": _word(request.get("model")) or _model_in_path(step),
        "answered_by": _word(attrs.get("model")) if step.ended_at else None,
        "given_by": _word(attrs.get("answered_by")),
        "provider": _word(attrs.get("provider")),
        "prompt": prompt_of(attrs),
        "parameters": {name: value for name, value in without_tools(request).items() if name not in _APART},
        "tools": _tool_names(tools_in(request)),
        "stop_reason": _word(attrs.get("finish_reason")),
        "request_digest": step.input_digest,
        "tries": [_try(one) for one in _objects(attrs.get("tries"))],
        "server_held": attrs.get("server_held") is True,
        "hosted_tools": [name for name in _listed(attrs.get("hosted")) if isinstance(name, str)],
        "partial": whole.partial,
        "provenance": _word(attrs.get("provenance")),
        "nearest": nearest_of(here, opened.run.id, step) if step.source == "miss" else None,
        "played_from": _word(attrs.get("played_from")),
        "played_step": played if isinstance(played := attrs.get("played_step"), int) else None,
        "overrides": [dict(one) for one in opened.run.overrides] if begins else [],
        "time_flag": _word(attrs.get("time_flag")),
        "removed": [place for place in _listed(attrs.get("removed")) if isinstance(place, str)],
        "error": whole.error,
        "problem": problem,
    }


def _try(one: Mapping[str, Json]) -> dict[str, Any]:
    status, ms, error = one.get("status"), one.get("ms"), one.get("error")
    return {
        "status": status if isinstance(status, int) else None,
        "ms": ms if isinstance(ms, int | float) else None,
        "error": None if error is None else str(error),
    }


def _model_in_path(step: Step) -> str | None:
    """The model that a request names in its address and not in its body: the step is called after it."""
    named = step.name.partition(" ")[2]
    return named if named and step.kind == "llm" and "endpoint" in step.attrs and named[0] != "/" else None


def _tool_names(tools: Json) -> list[str]:
    return [name for tool in _objects(tools) for name in tool_names([tool]) or [str(tool.get("type"))]]


@router.get("/messages", response_model=schemas.Messages)
def step_messages(
    here: Here, run_id: RunId, idx: Idx, first: First = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> Response:
    """What a model was asked and what it answered, message by message; what is new in this step's input is marked."""
    opened = here.reader.open(run_id)
    whole = loaded(here, opened, model_step(opened, idx))
    messages = messages_of(whole.input)
    before, new = fresh(opened, whole, messages)
    sources = sources_of(opened, whole, messages)
    told = [_message(at, m, new[at], sources[at]) for at, m in enumerate(messages[first : first + limit], first)]
    answer = answer_of(whole.output)
    after = first + len(told)
    return reply(
        {
            "items": told,
            "total": len(messages),
            "first": first,
            "next": after if told and after < len(messages) else None,
            "answer": None if answer is None else _message(len(messages), answer, True, None),
            "before": None if before is None else before.idx,
        }
    )


def _message(at: int, message: Message, new: bool, source: str | None) -> dict[str, Any]:
    parts = [_part(part) for part in message.parts]
    return {"index": at, "role": message.role, "path": message.path, "parts": parts, "new": new, "source": source}


def _part(part: Part) -> dict[str, Any]:
    return {"type": part.type, **cut_text(part.text, _PART), "call_id": part.call_id, "name": part.name}


@router.get("/context", response_model=schemas.Context)
def step_context(here: Here, run_id: RunId, idx: Idx) -> Response:
    """What fills the window of a model step, by who said it, and how that grew over the run."""
    opened = here.reader.open(run_id)
    step = model_step(opened, idx)
    models = [one for one in opened.steps if one.kind == "llm"]
    at = next(place for place, one in enumerate(models) if one.idx == idx)
    total, parts = _filled(opened, step)
    growth = [models[place] for place in window.sampled(len(models), _SAMPLES, at)]
    tokens = sum(one.input_tokens or _UNKNOWN for one in growth)
    fits = max(len(growth) * _TOKENS // tokens, _LEAST) if tokens > _TOKENS else len(growth)
    filled = {growth[place].idx for place in window.sampled(len(growth), fits, 0)}
    return reply(
        {
            "total": total,
            "reported": step.input_tokens is not None,
            "estimated": True,
            "parts": [asdict(part) for part in parts],
            "growth": [_grown(opened, one, parts=one.idx in filled) for one in growth],
            "growth_of": len(models),
        }
    )


def _grown(opened: Opened, step: Step, *, parts: bool) -> dict[str, Any]:
    """What filled the window of another step: its total from its header; what of, only where that is wanted."""
    total, shares = step.input_tokens or 0, None
    if parts:
        try:
            request = opened.bodies().body(step.input_digest)
        except Damaged:
            return {"idx": step.idx, "total": total, "parts": None}
        messages = messages_of(request)
        said = window.parts_of(request, messages, [False] * len(messages), ["program"] * len(messages))
        total, shares = window.shares(said, step.input_tokens)
    return {"idx": step.idx, "total": total, "parts": None if shares is None else [asdict(one) for one in shares]}


def _filled(opened: Opened, step: Step) -> tuple[int, list[window.Share]]:
    request = opened.bodies().body(step.input_digest)
    messages = messages_of(request)
    _, new = fresh(opened, step, messages)
    sources = [source or "program" for source in sources_of(opened, step, messages)]
    return window.shares(window.parts_of(request, messages, new, sources), step.input_tokens)


@router.get("/diff", response_model=schemas.StepDiff)
def step_diff(
    here: Here,
    run_id: RunId,
    idx: Idx,
    against: Annotated[
        str, Query(alias="with", pattern="^(prev|[0-9]{1,9})$", description="`prev`, or the index of a model step.")
    ] = "prev",
) -> Response:
    """What differs from another model step of the run, down to the words."""
    opened = here.reader.open(run_id)
    step = model_step(opened, idx)
    other = opened.before(step) if against == "prev" else model_step(opened, int(against))
    if other is None:
        none: dict[str, list[Json]] = {"messages": [], "answer": [], "tools": [], "parameters": []}
        return reply({"left": None, "right": idx, **none})
    if other.idx == idx:
        raise UsageError(f"step {idx} does not differ from itself", reason="same_step")
    found = request_changes(loaded(here, opened, other), loaded(here, opened, step))
    return reply({"left": other.idx, "right": idx, **found})


def _word(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in _listed(value) if isinstance(item, dict)]
