"""Writes runs as JSON Lines for people and other programs: `{"run": {...}}`, then one `{"step": {...}}` line for each step.

This is the view of a recording, not the recording: numbers, hashes, snapshot and overrides' values stay behind (a `.loupe`
file has them). Fields that an imported source did not have are left out again; what it had beyond them comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import BinaryIO, cast

from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import Json, dumps
from agentloupe.words.run import Run
from agentloupe.words.step import Step, Trace

__all__ = ["JsonLinesExporter"]

_READING = frozenset({"absent", "end_unknown", "time_flag", "time_unknown", "source_idx", "model", "partial_step"})
"""Facts of an imported step that stand in its fields, or tell only how it was read."""


@dataclass(frozen=True, slots=True)
class JsonLinesExporter:
    """Writes any number of runs.

    Attributes:
        load: the view of a recording, bodies loaded.
    """

    load: Callable[[Recording], Trace]
    format: str = "jsonl"

    def write(self, recordings: Iterator[Recording], out: BinaryIO) -> None:
        """Writes recordings one after another.

        Raises:
            Damaged: a body is not there, or not what its digest says.
        """
        for recording in recordings:
            trace = self.load(recording)
            out.write(dumps({"run": _run(recording, trace.run)}) + b"\n")
            out.writelines(dumps({"step": _step(recording, step)}) + b"\n" for step in trace.steps)


def _run(recording: Recording, run: Run) -> dict[str, Json]:
    first, last = recording.events[0], recording.events[-1]
    unknown_end = last.attrs.get("time_unknown") is True
    record: dict[str, Json] = {
        "id": run.id,
        "name": run.name,
        "agent": run.agent,
        "status": run.status,
        "started_at": None if first.attrs.get("time_unknown") else run.started_at,
        "ended_at": None if unknown_end else run.ended_at,
        "model": run.model,
        "tags": list(run.tags),
        "total_input_tokens": run.total_input_tokens,
        "total_output_tokens": run.total_output_tokens,
        "cost": _number(run.cost),
        "parent_run_id": run.parent_run_id,
        "forked_from_step": run.forked_from_step,
        "step_count": run.step_count,
    }
    optional: dict[str, Json] = {
        "task_id": run.task_id,
        "arm": run.arm,
        "error": run.error,
        "overrides": [dict(one) for one in run.overrides] or None,
        "result": _result(recording),
    }
    record.update({name: value for name, value in optional.items() if value is not None})
    extra = recording.body(first.bodies.get("extra"))
    return _as_it_was(record, extra, first.attrs.get("absent"))


def _result(recording: Recording) -> Json:
    last = recording.events[-1]
    if last.type != "run.finished" or last.output_digest is None:
        return None
    output = recording.body(last.output_digest)
    return output.get("result") if isinstance(output, dict) else None


def _step(recording: Recording, step: Step) -> dict[str, Json]:
    attrs = step.attrs
    unknown_end = attrs.get("end_unknown") is True
    record: dict[str, Json] = {
        "run_id": step.run_id,
        "idx": step.idx,
        "parent_idx": step.parent_idx,
        "kind": step.kind,
        "name": step.name,
        "started_at": None if attrs.get("time_unknown") else step.started_at,
        "ended_at": None if unknown_end else step.ended_at,
        "input": step.input,
        "output": step.output,
        "error": _error(recording, step),
        "input_tokens": step.input_tokens,
        "output_tokens": step.output_tokens,
        "model": step.model,
        "cost": _number(step.cost),
    }
    facts: dict[str, Json] = {
        name: attrs[name] for name in sorted(attrs) if name not in _READING and attrs[name] is not None
    }
    optional: dict[str, Json] = {
        "source": None if step.source == "live" else step.source,
        "effect": step.effect,
        "partial_step": step.partial,
        "attrs": facts or None,
    }
    record.update({name: value for name, value in optional.items() if value is not None})
    event = recording.events[step.first_seq - 1]
    root = event.type == "run.started"
    return _as_it_was(record, None if root else recording.body(event.bodies.get("extra")), attrs.get("absent"))


def _error(recording: Recording, step: Step) -> Json:
    """A recorded exception in one line; an error that was only a text, as it was."""
    if step.error is None:
        return None
    came = recording.body(step.output_digest)
    return came if isinstance(came, str) else step.error


def _as_it_was(record: dict[str, Json], extra: Json, absent: Json) -> dict[str, Json]:
    """Leaves out what an imported source did not have, and puts back what it had beyond the known fields."""
    gone = [name for name in absent if isinstance(name, str)] if isinstance(absent, list) else []
    kept = {name: value for name, value in record.items() if name not in gone or value is not None}
    more = dict(cast("Mapping[str, Json]", extra)) if isinstance(extra, dict) else {}
    if more.get("cost") is not None and kept.get("cost") is not None:
        del more["cost"]  # computed from prices; the source's own figure serves where there is none
    known, given = kept.get("attrs"), more.get("attrs")
    if isinstance(known, dict) and isinstance(given, dict):
        more["attrs"] = {**given, **known}
    return {**kept, **more}


def _number(cost: Decimal | None) -> float | None:
    return None if cost is None else float(cost)
