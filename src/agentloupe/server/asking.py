"""What several routes ask of a run: a model step and the one before it, its request, its tools, what came near a miss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentloupe.engine.project import load_step
from agentloupe.engine.views.messages import Message, is_new, messages_of
from agentloupe.ports.recording import Recording
from agentloupe.providers.assembling import assembled
from agentloupe.server.context import Context
from agentloupe.server.documents import fork_reason
from agentloupe.server.reading import Opened
from agentloupe.words.dialects import Form, form_in, form_of
from agentloupe.words.errors import ForkRefused, UsageError
from agentloupe.words.exchange import answer_in
from agentloupe.words.jsontext import Json
from agentloupe.words.step import Step

__all__ = ["fresh", "loaded", "model_step", "nearest_of", "place_of_fork", "sources_of"]


def model_step(opened: Opened, idx: int) -> Step:
    """A model step. Raises `StepNotFound`, `UsageError`."""
    step = opened.step(idx)
    if step.kind != "llm":
        raise UsageError(f"step {idx} of {opened.run.id} is of kind {step.kind}, it is no model step", reason="not_llm")
    return step


def loaded(here: Context, opened: Opened, step: Step) -> Step:
    """A step with its bodies; of a stream that has not ended what came so far. Raises `Damaged`: a body is gone."""
    unended = step.status == "open" and "opened_ms" in step.attrs
    bodies = here.store.recording(opened.run.id) if unended else opened.bodies()
    whole = load_step(bodies, step, assembled)
    if not whole.loaded:
        opened.bodies().body(step.input_digest)  # raises, and says which body
        opened.bodies().body(step.output_digest)
    return whole


def fresh(opened: Opened, step: Step, messages: Sequence[Message]) -> tuple[Step | None, list[bool]]:
    """The model step before, and for each message whether that one was not asked it."""
    before = opened.before(step)
    if before is None:
        return None, [True] * len(messages)
    asked = messages_of(opened.bodies().body_if_there(before.input_digest))
    return before, is_new(messages, asked)


def sources_of(opened: Opened, step: Step, messages: Sequence[Message]) -> list[str | None]:
    """Of each message that is a tool's result: who answered, as far as the call can be found."""
    tools = [s for s in opened.steps[: step.idx] if s.kind == "tool"]
    by_id = {call: s.source for s in tools if isinstance(call := s.attrs.get("tool_call_id"), str)}
    by_name: dict[str, list[Step]] = {}
    for tool in tools:
        by_name.setdefault(tool.name, []).append(tool)
    names = {part.call_id: part.name for m in messages for part in m.parts if part.type == "tool_call"}
    found: list[str | None] = []
    for message in messages:
        part = next((p for p in message.parts if p.type == "tool_result"), None)
        if part is None:
            found.append(None)
            continue
        source = by_id.get(part.call_id or "")
        if source is None and (left := by_name.get(part.name or names.get(part.call_id) or "")):
            source = left.pop(0).source
        found.append(source)
    return found


def nearest_of(here: Context, run_id: str, step: Step) -> str | None:
    """Of a miss: the recorded call that came nearest and its difference, as it was told when it happened."""
    for event in here.store.events(run_id, first=step.first_seq, limit=step.last_seq - step.first_seq + 1):
        digest = event.bodies.get("nearest")
        if digest is not None:
            said = Recording(run_id, (), here.store.get, run_id).body_if_there(digest)
            return said if isinstance(said, str) else None
    return None


def place_of_fork(opened: Opened, asked: str) -> tuple[int | None, Json, Form | None]:
    """The step that a fork starts from with its request and its form; none of them at the start."""
    if asked == "start":
        return None, {}, None
    step = model_step(opened, int(asked))
    why = fork_reason(opened.run, step)
    if why is not None:
        raise ForkRefused(f"step {step.idx} of {opened.run.id}: {why[1]}", reason=why[0])
    request = opened.bodies().body(step.input_digest)
    return step.idx, request, _form(opened, step, request if isinstance(request, dict) else {})


def _form(opened: Opened, step: Step, request: Mapping[str, Json]) -> Form | None:
    """Which form the request has, as a fork will see it."""
    answer = opened.bodies().body_if_there(step.output_digest) if step.status == "ok" else None
    provider = step.attrs.get("provider")
    return form_in(answer_in(answer)) or form_of(dict(request), provider if isinstance(provider, str) else None, None)
