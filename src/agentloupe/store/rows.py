"""Rows of the projection as bytes and back. Positional JSON: small, quick, and only ever read by the code that wrote it.

The projection can be made anew from the events at any time, so its form is no promise: when `FORM` is raised, a store
that holds another form makes its rows anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, cast

import orjson

from agentloupe.store import envelopes
from agentloupe.words.call import NO_ATTRS
from agentloupe.words.canonical import Json, loads
from agentloupe.words.jsontext import quick_text
from agentloupe.words.quick import maker
from agentloupe.words.run import COUNTED, Counts, Run
from agentloupe.words.step import Step

__all__ = ["FORM", "run_bytes", "run_from", "step_from", "steps_bytes"]

FORM = 1

_NOT_KEPT = frozenset({"run_id", "input", "output", "error", "loaded", "cost"})
"""Fields of a step that come from bodies, prices or the key of the row."""
_STEP_FIELDS = tuple(f.name for f in fields(Step) if f.name not in _NOT_KEPT)
_ATTRS_AT = _STEP_FIELDS.index("attrs")
_step_values = cast("Any", attrgetter(*_STEP_FIELDS))

_COMPUTED = frozenset({"cost", "new_cost", "cost_complete", "owner", "elsewhere", "counts", "events", "head"})
"""Fields of a run that are computed on reading, kept in columns, or need a form of their own."""
_RUN_FIELDS = tuple(f.name for f in fields(Run) if f.name not in _COMPUTED)
_run_values = cast("Any", attrgetter(*_RUN_FIELDS))
_OVERRIDES_AT = _RUN_FIELDS.index("overrides")
_counted = cast("Any", attrgetter(*COUNTED))
_LARGE = float(2**63)
_TUPLES = ("tags", "overrides", "coverage_notes")
_TUPLES_AT = tuple(_RUN_FIELDS.index(name) for name in _TUPLES if name != "overrides")


def _values(data: bytes) -> list[Json]:
    return cast("list[Json]", loads(data))


def steps_bytes(steps: Sequence[Step]) -> list[bytes]:
    """Headers of steps as bytes, without their run."""
    return envelopes.pack_steps([quick_text(_header(step)) for step in steps])


def _header(step: Step) -> list[Json]:
    values: list[Json] = list(_step_values(step))
    values[_ATTRS_AT] = dict(step.attrs) if step.attrs else None
    return values


def step_from(run_id: str, stored: bytes) -> Step:
    """A step's header from its bytes. Raises `ValueError` for what is none."""
    data = envelopes.unpack_step(stored)
    try:
        values: list[Any] = orjson.loads(data)
    except ValueError:
        values = cast("list[Any]", _values(data))  # lone surrogates, of which the strict reader knows
    if len(values) != len(_STEP_FIELDS):
        raise ValueError("no header of a step")
    attrs = values[_ATTRS_AT]
    if attrs is None:
        values[_ATTRS_AT] = NO_ATTRS
    elif not isinstance(attrs, dict):
        raise ValueError("no header of a step")  # one kind of error for everything that is none
    else:
        for value in cast("dict[str, object]", attrs).values():
            if type(value) is float and value >= _LARGE:
                # orjson reads integers beyond 64 bits as floats; the strict reader keeps them.
                values = cast("list[Any]", _values(data))
                break
    return _make_step((*values, run_id, None, None, None, False, None))


_make_step = maker(Step, (*_STEP_FIELDS, "run_id", "input", "output", "error", "loaded", "cost"))


def run_bytes(run: Run) -> bytes:
    """A run's row as bytes: what its events say, nothing that is computed on reading."""
    row: list[Json] = list(_run_values(run))
    row[_OVERRIDES_AT] = [dict(o) for o in run.overrides]
    for at in _TUPLES_AT:
        row[at] = list(cast("tuple[str, ...]", row[at]))
    return quick_text([row, list(_counted(run.counts))])


def run_from(data: bytes, **columns: Any) -> Run:
    """A run from its bytes; `columns` are fields that are kept elsewhere or have changed since."""
    values, counts = cast("tuple[list[Any], list[int]]", _values(data))
    # A row of an earlier version lacks the fields that came since, which stand last.
    row: dict[str, Any] = dict(zip(_RUN_FIELDS[: len(values)], values, strict=True))
    row |= columns
    for name in _TUPLES:
        row[name] = tuple(row[name])
    return Run(**row, counts=Counts(*counts))
