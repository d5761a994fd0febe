"""The transcript of a run: what was asked, what the model answered, which tools it called, what they gave.

`layout` says which cards there are; here they are filled with what was said. Texts are cut, and say how much is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agentloupe.engine.news import GROWING, News
from agentloupe.engine.project import outcome_of
from agentloupe.engine.views.bodies import held, whole_ones
from agentloupe.engine.views.flags import Flags
from agentloupe.engine.views.layout import Unit
from agentloupe.engine.views.messages import Message, answer_of, messages_of, text_in
from agentloupe.engine.views.outline import Outline
from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import Json, dumps, key_of
from agentloupe.words.errors import Damaged
from agentloupe.words.step import Step

__all__ = ["CUT", "Transcript", "cut_text"]

CUT: Final = 2000
"""Characters of a text that a card holds."""
_CALLS: Final = 50
_ASKING: Final = frozenset({"system", "developer", "user"})


def cut_text(text: str, most: int = CUT) -> dict[str, Json]:
    """A text's beginning, and how many characters are missing."""
    return {"text": text[:most], "missing": max(len(text) - most, 0)}


def as_text(value: Json) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class Transcript:
    """Fills cards.

    Attributes:
        bodies: the way to what was said.
        level: all steps of the level that the cards are of.
        outline, flags: of the whole run.
        nearest: of a miss what came nearest to it, as it was told when it happened.
    """

    bodies: Recording
    level: Sequence[Step]
    outline: Outline
    flags: Flags
    nearest: Callable[[Step], str | None]

    def cards(self, units: Iterable[tuple[int, Unit]]) -> list[dict[str, Any]]:
        """Cards with their numbers."""
        listed = list(units)
        get = held(self.bodies.get, (digest for _, unit in listed for digest in _shown_digests(unit)))
        filler = replace(self, bodies=replace(self.bodies, get=get))
        news = self._news([unit.steps[0] for _, unit in listed if unit.card == "model"])
        return [{"at": at, "kept": unit.kept, **filler._filled(unit, news)} for at, unit in listed]

    def _filled(self, unit: Unit, news: Mapping[int, Sequence[Message]]) -> dict[str, Any]:
        first = unit.steps[0]
        match unit.card:
            case "question":
                return self._question(first)
            case "model":
                return self._model(unit, news.get(first.idx, ()))
            case "agent":
                return self._agent(first)
            case "group" | "kept":
                return self._many(unit)
            case "limit" | "step":
                return {"card": unit.card, "step": first.idx, **self._step(first)}

    # --- asking -------------------------------------------------------------------------------------------------------

    def _question(self, step: Step) -> dict[str, Any]:
        request, problem = self._body(step.input_digest)
        asked = [m for m in messages_of(request) if m.role in _ASKING]
        return {"card": "question", "step": step.idx, "messages": _told(asked), "problem": problem}

    def _news(self, models: Sequence[Step]) -> dict[int, list[Message]]:
        """What a person or the program said anew before each model step but the first."""
        if not models:
            return {}
        all_models = [step for step in self.level if step.kind == "llm"]
        places = {step.idx: at for at, step in enumerate(all_models)}
        before = places[models[0].idx] - 1
        chosen = ([all_models[before]] if before >= 0 else []) + list(models)
        news = News(chosen, whole_ones(self.bodies.get))
        found: dict[int, list[Message]] = {}
        for step in chosen[1:]:
            fresh = news(step)
            items: list[Json] = [value for name, value in fresh.parts if name in GROWING] if fresh is not None else []
            found[step.idx] = [m for m in messages_of({"messages": items}) if m.role in _ASKING]
        return found

    # --- models -------------------------------------------------------------------------------------------------------

    def _model(self, unit: Unit, asked: Sequence[Message]) -> dict[str, Any]:
        step, tools = unit.steps[0], unit.steps[1:]
        came, problem = self._body(step.output_digest)
        answer = answer_of(outcome_of(step, came)) if came is not None and step.status in {"ok", "open"} else None
        parts = answer.parts if answer is not None else ()
        calls = [part for part in parts if part.type == "tool_call"]
        others = "\n".join(f"[{part.type}] {part.text}".strip() for part in parts if part.type in {"image", "other"})
        said = "\n".join(text for text in (text_in(answer) if answer is not None else "", others) if text)
        rows = self._rows([(c.call_id, c.name, c.text) for c in calls], tools)
        return {
            "card": "model",
            "step": step.idx,
            "name": step.name,
            "status": step.status,
            "source": step.source,
            "text": cut_text(said),
            "reasoning": cut_text("\n".join(part.text for part in parts if part.type == "reasoning")),
            "asked": _told(asked),
            "calls": rows[:_CALLS],
            "calls_missing": max(len(rows) - _CALLS, 0),
            "misses": sum(tool.source == "miss" for tool in tools),
            "errors": sum(tool.status not in {"ok", "open"} and tool.source != "miss" for tool in tools),
            "parallel": len(calls) > 1,
            "prompt_flag": step.idx in self.flags.prompt,
            "tools_flag": step.idx in self.flags.tools,
            "error": self._error(step, came),
            "problem": problem,
        }

    def _rows(self, calls: Sequence[tuple[str | None, str | None, str]], tools: Sequence[Step]) -> list[dict[str, Any]]:
        """Calls with their results; tools that nobody asked for here follow."""
        left = list(tools)
        rows: list[dict[str, Any]] = []
        for call_id, name, given in calls:
            step = _result_of(left, call_id, name, given)
            if step is not None:
                left.remove(step)
            filled = len(rows) < _CALLS
            rows.append(self._row(call_id, name, given, step) if filled else {"call_id": call_id})
        for step in left:
            given = self._body(step.input_digest)[0] if len(rows) < _CALLS else None
            text = "" if given is None else as_text(given)
            rows.append(self._row(None, step.name, text, step) if len(rows) < _CALLS else {"call_id": None})
        return rows

    def _row(self, call_id: str | None, name: str | None, given: str, step: Step | None) -> dict[str, Any]:
        row: dict[str, Any] = {"call_id": call_id, "name": name or "", "arguments": cut_text(given)}
        if step is None:
            unknown = dict.fromkeys(("step", "status", "source", "effect", "result", "error", "nearest"))
            return {**row, **unknown, "reused": False, "inside": 0}
        came, _ = self._body(step.output_digest)
        ok = step.status in {"ok", "open"}
        return {
            **row,
            "step": step.idx,
            "status": step.status,
            "source": step.source,
            "effect": step.effect,
            "result": cut_text(as_text(outcome_of(step, came))) if ok and came is not None else None,
            "error": self._error(step, came),
            "nearest": self.nearest(step) if step.source == "miss" else None,
            "reused": step.attrs.get("reused") is True,
            "inside": self.outline.children[step.idx],
        }

    # --- others -------------------------------------------------------------------------------------------------------

    def _agent(self, step: Step) -> dict[str, Any]:
        came, problem = self._body(step.output_digest)
        text = "" if came is None else as_text(outcome_of(step, came))
        return {
            "card": "agent",
            "step": step.idx,
            "name": step.name,
            "status": step.status,
            "source": step.source,
            "inside": self.outline.children[step.idx],
            "text": cut_text(text if step.status in {"ok", "open"} else ""),
            "error": self._error(step, came),
            "problem": problem,
        }

    def _many(self, unit: Unit) -> dict[str, Any]:
        first, last = unit.steps[0], unit.steps[-1]
        facts: dict[str, Any] = {
            "card": unit.card,
            "step": first.idx,
            "first": first.idx,
            "last": last.idx,
            "count": len(unit.steps),
            "misses": sum(step.source == "miss" for step in unit.steps),
            "errors": sum(step.error_class is not None for step in unit.steps),
        }
        if unit.card == "group":
            return {**facts, "kind": first.kind, "name": first.name}
        kinds = [step.kind for step in unit.steps]
        return {**facts, "model_calls": kinds.count("llm"), "tool_calls": kinds.count("tool")}

    def _step(self, step: Step) -> dict[str, Any]:
        given, problem = self._body(step.input_digest)
        came, worse = self._body(step.output_digest)
        ok = step.status in {"ok", "open"}
        return {
            "kind": step.kind,
            "name": step.name,
            "status": step.status,
            "source": step.source,
            "input": cut_text("" if given is None else as_text(given)),
            "output": cut_text(as_text(outcome_of(step, came)) if ok and came is not None else ""),
            "error": self._error(step, came),
            "inside": self.outline.children[step.idx],
            "problem": problem or worse,
        }

    def _error(self, step: Step, came: Json) -> dict[str, Json] | None:
        if step.status in {"ok", "open"}:
            return None
        return cut_text(as_text(outcome_of(step, came)))

    def _body(self, digest: str | None) -> tuple[Json, str | None]:
        """A body, and what is wrong with it: one that is gone or damaged costs its own card and no other."""
        try:
            return self.bodies.body(digest), None
        except Damaged as wrong:
            return None, wrong.message


def _shown_digests(unit: Unit) -> Iterable[str | None]:
    """Digests of what a card shows."""
    if unit.card in {"group", "kept"}:
        return ()
    shown = unit.steps[: _CALLS + 1]
    given = () if unit.card == "model" else (step.input_digest for step in shown)
    came = () if unit.card == "question" else (step.output_digest for step in shown)
    return (*given, *came)


def _told(messages: Iterable[Message]) -> list[dict[str, Json]]:
    shown = [(message.role, _shown(message)) for message in messages]
    return [{"role": role, **cut_text(text)} for role, text in shown if text]


def _shown(message: Message) -> str:
    """A message's text; what is no text is named, and results of tools are told with their calls."""
    named = {"image": "[image] "}
    parts = (part for part in message.parts if part.type not in {"tool_result", "tool_call"})
    return "\n".join(f"{named.get(part.type, '')}{part.text}" for part in parts)


def _result_of(tools: Sequence[Step], call_id: str | None, name: str | None, given: str) -> Step | None:
    """The tool step that answered a call: by the call's id, else by its arguments, else the next one of its name."""
    mine = [step for step in tools if step.name == name]
    by_id = next((s for s in tools if call_id is not None and s.attrs.get("tool_call_id") == call_id), None)
    if by_id is not None:
        return by_id
    free = [step for step in mine if step.attrs.get("tool_call_id") is None]
    key = key_of("tool", name, given) if name is not None and free else None
    return next((step for step in free if step.input_key == key), free[0] if free else None)
