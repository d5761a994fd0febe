"""Reads JSON Lines of runs (`{"run": {...}}`, then `{"step": {...}}` lines), and traces: `{"run": {...}, "steps": [...]}`.

The fields are those that the exporter writes; none is needed. Steps stand in the order of their `idx`, never of their
times. A line that is no strict JSON, or no run and no step, is set apart and named; the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from agentloupe.importers.building import (
    MARKS,
    Raw,
    RunBuilder,
    Said,
    class_of,
    known_effect,
    known_kind,
    known_source,
    raw_of,
    step_name,
)
from agentloupe.importers.files import content_of, top_keys
from agentloupe.ports.protocols import Imported, ImportedRun
from agentloupe.words.call import Kind, OutcomeStatus
from agentloupe.words.canonical import Json, digest, loads
from agentloupe.words.errors import Corrupt

__all__ = ["JsonLinesImporter"]

STEP_FIELDS = (
    *("idx", "parent_idx", "kind", "name", "started_at", "ended_at", "input", "output", "error"),
    *("input_tokens", "output_tokens", "model"),
)
RUN_FIELDS = (
    *("id", "name", "started_at", "ended_at", "model", "tags", "status", "total_input_tokens", "total_output_tokens"),
    *("parent_run_id", "forked_from_step", "step_count"),
)
_STRUCTURE = frozenset(
    (
        *("finish_reason", "usage", "provider", "request_id", "fingerprint", "seed", "stream", "hosted", "server_held"),
        *("tool_call_id", "version", "source_digest", "decision", "effect_unstated", "parse_error", "idempotency_key"),
        *("external_id", "reused", "played_from", "replayed_write", "was_source", "copied_source", "origin"),
        *("tries", "ms", "passed", "orphan", "pending"),
    )
)
"""Facts of a step's `attrs` that are taken over; what else stands there may be a value of a user, and is kept as one."""

_STATUSES: Mapping[str, OutcomeStatus] = {
    **dict.fromkeys(("ok", "completed", "complete", "success", "succeeded", "finished", "done"), "ok"),
    **dict.fromkeys(("error", "failed", "failure", "errored"), "error"),
    **dict.fromkeys(("cancelled", "canceled", "aborted"), "cancelled"),
}
_OPEN = frozenset({"running", "waiting", "interrupted"})


@dataclass(slots=True)
class _Found:
    """What a file says of one run."""

    run: dict[str, Json]
    steps: list[dict[str, Json]] = field(default_factory=list[dict[str, Json]])


@dataclass(frozen=True, slots=True)
class JsonLinesImporter:
    """JSON Lines of runs and traces."""

    format: str = "jsonl"

    def detects(self, head: bytes) -> bool:
        """Whether the first object is or holds a run, a step, or a run's steps."""
        opening, keys = top_keys(head)
        return opening == "{" and ("run" in keys or "step" in keys)

    def read(self, path: Path) -> Imported:
        """Reads all runs.

        Raises:
            Corrupt: there is no run in it.
        """
        content = content_of(path)
        raw = raw_of(content)
        quarantined: list[str] = []
        whole = _whole(content)
        found = list(_runs(content, quarantined) if whole is None else _of_record(whole, [], "trace", quarantined))
        if not found:
            raise Corrupt(f"{path}: no run in it; {'; '.join(quarantined[:3]) or 'it is empty'}", reason="no_run")
        runs = tuple(_built(one, raw) for one in found)
        return Imported(format=self.format if whole is None else "trace", runs=runs, quarantined=tuple(quarantined))


# --- lines to records -------------------------------------------------------------------------------------------------


def _whole(content: bytes) -> Json:
    """The file as one object, when it is one that is spread over lines."""
    first = content.lstrip().split(b"\n", 1)[0]
    try:
        loads(first)
    except ValueError:
        try:
            return loads(content)
        except ValueError:
            return None
    return None


def _runs(content: bytes, quarantined: list[str]) -> Iterator[_Found]:
    found: list[_Found] = []
    offset = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        where = f"line {number} (byte {offset})"
        offset += len(line) + 1
        if not line.strip():
            continue
        try:
            record = loads(line.removesuffix(b"\r"))
        except ValueError as wrong:
            quarantined.append(f"{where}: not strict JSON: {_why(wrong)}")
            continue
        found.extend(_of_record(record, found, where, quarantined))
    yield from found


def _why(wrong: ValueError) -> str:
    return "not UTF-8" if isinstance(wrong, UnicodeDecodeError) else str(wrong)


def _of_record(record: Json, found: list[_Found], where: str, quarantined: list[str]) -> Iterator[_Found]:
    """The run that a record begins; a step goes to its run."""
    run = record.get("run") if isinstance(record, dict) else None
    if isinstance(record, dict) and isinstance(run, dict):
        steps = record.get("steps")
        listed = steps if isinstance(steps, list) else []
        rest = {name: value for name, value in record.items() if name not in ("run", "steps")}
        good = [step for step in listed if isinstance(step, dict)]
        if len(good) < len(listed):
            quarantined.append(f"{where}: {len(listed) - len(good)} steps are no objects")
        yield _Found({**run, **({"beside": rest} if rest else {})}, good)
        return
    step = record.get("step") if isinstance(record, dict) else None
    if not isinstance(step, dict):
        quarantined.append(f"{where}: neither a run nor a step")
        return
    owner = next((one for one in found if one.run.get("id") == step["run_id"]), None) if "run_id" in step else None
    owner = owner or (found[-1] if found else None)
    if owner is None:
        quarantined.append(f"{where}: a step before any run")
        return
    owner.steps.append(step)


_ROOT_FIELDS = frozenset({"run_id", "idx", "parent_idx", "kind", "name", "started_at", "ended_at", "input", "output"})
"""What the root step of a run can hold; its error is the run's."""


# --- records to events ------------------------------------------------------------------------------------------------


def _built(found: _Found, raw: Raw) -> ImportedRun:
    run = found.run
    part: Json = {"run": run, "steps": cast("Json", found.steps)}
    name = _text(run.get("name"))
    run_id = _text(run.get("id")) or f"{name or 'run'}-{digest(part)[:8]}"
    builder = RunBuilder(run_id, "jsonl", raw, part)
    steps = _ordered(found.steps, builder)
    root = steps[0] if steps and _is_root(steps[0]) else None
    builder.start(
        agent=_text(run.get("agent")) or name or "imported",
        name=name or run_id,
        started_at=run.get("started_at"),
        near=next((at for step in steps if (at := step.get("started_at")) is not None), None),
        arguments=root.get("input") if root else None,
        tags=_tags(run.get("tags")),
        root=root is not None,
        facts=_run_facts(run),
        extra=_run_extra(run, steps, builder),
    )
    _add_steps(steps[1:] if root else steps, builder, 1 if root else 0)
    status = run.get("status")
    if not _is_open(status):
        said = _STATUSES.get(status.lower(), "ok") if isinstance(status, str) else "ok"
        facts: dict[str, Json] = {}
        if said != "ok" and (name := class_of(run.get("error"))):
            facts["error_class"] = name
        result = root.get("output") if root else run.get("result")
        builder.finish(status=said, ended_at=run.get("ended_at"), result=result, facts=facts)
    return builder.made(_fidelity(steps))


def _is_open(status: Json) -> bool:
    return isinstance(status, str) and status in _OPEN


def _ordered(steps: list[dict[str, Json]], builder: RunBuilder) -> list[dict[str, Json]]:
    """Steps by `idx`; those without one stay where they stand in the file."""
    keyed: list[tuple[int, int, dict[str, Json]]] = []
    last = -1
    for at, step in enumerate(steps):
        idx = step.get("idx")
        last = idx if isinstance(idx, int) and not isinstance(idx, bool) else last
        keyed.append((last, at, step))
    ordered = [step for _, _, step in sorted(keyed, key=lambda one: one[:2])]
    stated = [step.get("idx") for step in ordered]
    if stated != list(range(len(ordered))) and any(idx is not None for idx in stated):
        builder.warnings.append("idx of the steps is not 0, 1, 2 ...; they were numbered anew in that order")
    return ordered


def _number(idx: Json, otherwise: int) -> int:
    return idx if isinstance(idx, int) and not isinstance(idx, bool) else otherwise


def _is_root(step: Mapping[str, Json]) -> bool:
    """Whether it is the run itself. One that says more than a run can keep stays a step like the others."""
    if step.get("kind") != "agent" or step.get("name") != "agent.run" or step.get("parent_idx") is not None:
        return False
    return not any(value is not None for name, value in step.items() if name not in _ROOT_FIELDS)


def _add_steps(steps: list[dict[str, Json]], builder: RunBuilder, first: int) -> None:
    """Adds steps in order; `first` is the index of the first of them (1 below a root step)."""
    place = {_number(step.get("idx"), at): at for at, step in enumerate(steps, first)}
    inside: dict[int, int] = {}
    parents: list[int | None] = []
    for at, step in enumerate(steps, first):
        wanted = step.get("parent_idx")
        parent = place.get(wanted) if isinstance(wanted, int) else None
        if parent is None or parent >= at:
            if wanted is not None and not (first and wanted == 0):
                builder.warnings.append(f"step {at}: its parent is not among the steps before it")
            parents.append(None)
            continue
        parents.append(parent)
        around: int | None = parent
        while around is not None:
            inside[around] = at
            around = parents[around - first]
    for at, (step, parent) in enumerate(zip(steps, parents, strict=True), first):
        said = _said(step, at, None if parent is None else parent - first)
        builder.step(said, last_inside=inside[at] - first if at in inside else None)


def _said(step: dict[str, Json], at: int, parent: int | None) -> Said:
    kind = known_kind(step.get("kind"))
    attrs, more = _structure(step)
    extra = {name: v for name, v in step.items() if name not in (*STEP_FIELDS, "run_id", "attrs", "source", "effect")}
    if more is not None:
        extra["attrs"] = more
    if step.get("kind") != kind:
        extra["kind"] = step.get("kind")
    idx = step.get("idx")
    if idx is not None and idx != at:
        attrs["source_idx"] = idx
    error, error_class = _error(step.get("error"))
    if isinstance(step.get("error"), dict | list):
        extra["error"] = step["error"]
    if error is not None and step.get("output") is not None:
        extra["output"] = step["output"]
    extra.pop("partial_step", None)
    source = known_source(step.get("source"))
    effect = known_effect(step.get("effect")) if kind == "tool" else None
    ended = not all(step.get(name) is None for name in ("ended_at", "output", "error"))
    for name, known in (("source", source if ended else None), ("effect", effect)):
        if step.get(name) is not None and known is None:
            extra[name] = step[name]
    # Only a model step that was answered has a model and tokens of its own.
    answered = kind == "llm" and error is None and ended
    for name in () if answered else ("input_tokens", "output_tokens", *(() if kind == "llm" else ("model",))):
        attrs.pop(name, None)
        if step.get(name) is not None:
            extra[name] = step[name]
    return Said(
        kind=kind,
        name=_name(step, kind, attrs),
        input=step.get("input"),
        output=step.get("output"),
        error=error,
        error_class=error_class,
        started_at=step.get("started_at"),
        ended_at=step.get("ended_at"),
        parent=parent,
        source=source,
        effect=effect,
        ended=ended,
        attrs=attrs,
        extra=extra,
        absent=tuple(name for name in STEP_FIELDS if name not in step),
    )


def _structure(step: dict[str, Json]) -> tuple[dict[str, Json], Json]:
    """Structural facts of a step, and the rest of its `attrs`."""
    given = step.get("attrs")
    attrs: dict[str, Json] = {}
    rest: Json = given
    if isinstance(given, dict):
        attrs = {name: value for name, value in given.items() if name in _STRUCTURE}
        rest = {name: value for name, value in given.items() if name not in _STRUCTURE | MARKS} or None
    for name in ("input_tokens", "output_tokens", "model"):
        if step.get(name) is not None:
            attrs[name] = step[name]
    partial = step.get("partial_step")
    if isinstance(partial, str) and partial:
        attrs["partial_step"] = partial[:200]
    elif partial or step.get("truncated"):
        attrs["partial_step"] = "the exporter cut the step"
    return attrs, rest


def _name(step: Mapping[str, Json], kind: Kind, attrs: dict[str, Json]) -> str:
    """The step's name; a model step without a model takes that of its request."""
    request = step.get("input")
    if kind == "llm" and "model" not in attrs and isinstance(request, dict) and isinstance(request.get("model"), str):
        attrs["model"] = request["model"]
    return _text(step.get("name")) or (step_name(attrs.get("model")) if kind == "llm" else kind)


def _error(value: Json) -> tuple[str | None, str | None]:
    """An error as text, and its class where the source names one."""
    if value is None or value is False:
        return None, None
    if isinstance(value, str):
        return value or "Error", None
    if isinstance(value, dict):
        name, message = value.get("type") or value.get("class") or value.get("name"), value.get("message")
        text = ": ".join(str(part) for part in (name, message) if part)
        return text or "Error", str(name) if name else None
    return "Error", None


def _run_facts(run: Mapping[str, Json]) -> dict[str, Json]:
    facts: dict[str, Json] = {
        name: run[name] for name in ("parent_run_id", "task_id", "arm") if isinstance(run.get(name), str)
    }
    if isinstance(run.get("forked_from_step"), int):
        facts["forked_from_step"] = run["forked_from_step"]
    overrides = run.get("overrides")
    if isinstance(overrides, list):
        facts["overrides"] = [p for one in overrides if isinstance(p := _path(one), str)]
    absent: list[Json] = [name for name in RUN_FIELDS if name not in run]
    return {**facts, **({"absent": absent} if absent else {})}


def _path(override: Json) -> Json:
    """What an override changes; never what it changes it to."""
    return override.get("path") if isinstance(override, dict) else override


def _run_extra(run: Mapping[str, Json], steps: list[dict[str, Json]], builder: RunBuilder) -> dict[str, Json]:
    """What the source says of the run beyond what its steps say again."""
    kept = {name: v for name, v in run.items() if name not in (*RUN_FIELDS, "agent", "overrides", "result")}
    kept = {name: v for name, v in kept.items() if name not in ("task_id", "arm") or not isinstance(v, str)}
    computed: dict[str, Json] = {"step_count": len(steps), "model": next((m for s in steps if (m := _model(s))), None)}
    for ours, theirs in (("total_input_tokens", "input_tokens"), ("total_output_tokens", "output_tokens")):
        numbers = [n for s in steps if s.get("kind") == "llm" and isinstance(n := s.get(theirs), int)]
        computed[ours] = sum(numbers) if numbers else None
    for name, value in computed.items():
        if name in run and run[name] != value:
            kept[name] = run[name]
            if name == "step_count":
                builder.warnings.append(f"the run says that it has {run[name]} steps; {value} are there")
    status = run.get("status")
    if status is not None and not _is_open(status) and _STATUSES.get(str(status)) != status:
        kept["status"] = status
    return kept


def _model(step: Mapping[str, Json]) -> Json:
    request = step.get("input")
    return step.get("model") or (request.get("model") if isinstance(request, dict) else None)


def _fidelity(steps: list[dict[str, Json]]) -> list[str]:
    models = [step for step in steps if step.get("kind") == "llm"]
    unknown = sum(1 for step in models if not _model(step))
    return [f"the model is not known in {unknown} of {len(models)} model steps"] if unknown else []


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def _tags(value: Json) -> list[str]:
    return [tag for tag in value if isinstance(tag, str)] if isinstance(value, list) else []
