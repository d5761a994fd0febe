"""Two runs step by step, several in a table with the tree of their paths, and the family of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentloupe.engine.compare import Comparison, Path, Row, summarise
from agentloupe.engine.views.lines import lines_of
from agentloupe.ports.recording import Recording
from agentloupe.server.context import Context, First, Here, RunId
from agentloupe.server.documents import page, run_document, run_short
from agentloupe.server.reply import reply
from agentloupe.server.schemas import compare as schemas
from agentloupe.verbs.comparing import compare, detail, side_of
from agentloupe.verbs.pricing import price_table
from agentloupe.words.errors import NotFound, UsageError
from agentloupe.words.run import Run, RunFilter
from agentloupe.words.step import Step

__all__ = ["router"]

router = APIRouter(prefix="/api", tags=["comparing"])

_FAMILY: Final = 500
_MANY: Final = 50
_LINED: Final = 40
"""Steps of a stretch that say what they did: for that their bodies are read."""
Id = Annotated[str, Query(max_length=500)]


def _compared(here: Context, a: str, b: str) -> Comparison:
    """The comparison of two runs as they are now; the last few are kept, since it is read page by page."""
    left, right = here.reader.run(a), here.reader.run(b)
    key, version = f"{a}\n{b}", (left.events, left.head, right.events, right.head)
    kept = here.comparisons.get(key, version)
    if kept is not None:
        return kept
    made = compare(a, b, store=here.store)
    assert isinstance(made, Comparison)
    return here.comparisons.put(key, version, made, len(made.rows) + 1)


@router.get("/compare", response_model=schemas.ComparePage)
def compare_runs(
    here: Here,
    a: Id,
    b: Id,
    only: Annotated[schemas.Only | None, Query(description="Only rows that are not `same`.")] = None,
    first: First = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Two runs aligned; rows name steps, what differs in a row is asked for by its number."""
    found = _compared(here, a, b)
    numbered = list(enumerate(found.rows))
    chosen = numbered if only is None else [(at, row) for at, row in numbered if row.status != "same"]
    shown = chosen[first : first + limit]
    lines = _lines(here, [row for _, row in shown])
    rows = [_row(at, row, lines) for at, row in shown]
    return reply(page(rows, len(chosen), first) | {"header": _header(here, found)})


def _header(here: Context, found: Comparison) -> dict[str, Any]:
    """What stands above the rows."""
    told: dict[str, Any] = found.head_json()
    return told | {"left": run_document(here, found.left), "right": run_document(here, found.right)}


def _lines(here: Context, rows: Sequence[Row]) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """What the steps of some rows did, by side and index."""
    left = [row.left for row in rows if row.left is not None]
    right = [row.right for row in rows if row.right is not None]
    return _lines_of(here, left), _lines_of(here, right)


def _lines_of(here: Context, steps: Sequence[Step]) -> Mapping[int, str]:
    if not steps:
        return {}
    return lines_of(steps, Recording(steps[0].run_id, (), here.store.get, f"run {steps[0].run_id}"))


def _row(at: int, row: Row, lines: tuple[Mapping[int, str], Mapping[int, str]]) -> dict[str, Any]:
    told: dict[str, Any] = {"row": at, **row.as_json()}
    for side, step, known in (("left", row.left, lines[0]), ("right", row.right, lines[1])):
        if step is not None:
            told[side]["line"] = known.get(step.idx, "")
            told[side]["effect"] = step.effect
    return told


@router.get("/compare/row", response_model=schemas.RowDetail)
def compare_row(here: Here, a: Id, b: Id, row: Annotated[int, Query(ge=0)]) -> Response:
    """What differs in one row, down to the words."""
    found = _compared(here, a, b)
    if row >= len(found.rows):
        raise NotFound(f"the comparison has no row {row}", hint=f"rows are 0 to {len(found.rows) - 1}", reason="no_row")
    told = detail(found, found.rows[row], store=here.store)
    none: dict[str, Any] = dict.fromkeys(("input", "output", "words", "messages", "answer", "tools"))
    return reply(none | told | {"row": row})


@router.get("/summary", response_model=schemas.Summary)
def summary(here: Here, run: Annotated[list[str], Query(min_length=1, max_length=_MANY)]) -> Response:
    """Several runs in a table: figures, final answers in groups, and the tree of the paths that they took."""
    ids = list(dict.fromkeys(run))
    table = price_table()
    sides = [side_of(here.store, here.reader.run(one).id, table) for one in ids]
    if not sides:
        raise UsageError("a summary needs runs", reason="no_runs")
    found = summarise(sides)
    told: dict[str, Any] = found.as_json()
    for path, shown in zip(found.paths, told["paths"], strict=True):
        _line_stretches(here, path, shown)
    return reply(told)


def _line_stretches(here: Context, path: Path, shown: dict[str, Any]) -> None:
    """Puts beside the first steps of each stretch what they did. As deep as roads part, at most the number of runs."""
    known = _lines_of(here, path.stretch[:_LINED])
    for step, told in zip(path.stretch, shown["stretch"], strict=True):
        told["line"] = known.get(step.idx, "")
        told["effect"] = step.effect
    for child, below in zip(path.children, shown["children"], strict=True):
        _line_stretches(here, child, below)


# --- family -----------------------------------------------------------------------------------------------------------


@router.get("/runs/{run_id}/lineage", response_model=schemas.Family)
def lineage(here: Here, run_id: RunId) -> Response:
    """The whole family of a run: where all of it comes from, and every fork, as far as 500 runs go."""
    first = here.reader.run(run_id)
    seen = {first.id}
    while first.parent_run_id is not None and first.parent_run_id not in seen:
        above = here.store.run(first.parent_run_id)
        if above is None:
            break
        first = above
        seen.add(first.id)
    found, capped = _descendants(here, first)
    nodes = [run_short(run) | {"cost": _text(run.cost)} for run in here.reader.priced(found)]
    edges = [_edge(run) for run in found if run.parent_run_id is not None and run.id != first.id]
    return reply({"root": first.id, "nodes": nodes, "edges": edges, "capped": capped})


def _descendants(here: Context, first: Run) -> tuple[list[Run], bool]:
    found, waiting = {first.id: first}, [first.id]
    for parent in waiting:
        room = _FAMILY - len(found)
        for child in here.store.runs(RunFilter(parent_run_id=parent, limit=room + 1)):
            if len(found) >= _FAMILY:
                return list(found.values()), True
            if child.id not in found:
                found[child.id] = child
                waiting.append(child.id)
    return list(found.values()), False


def _edge(run: Run) -> dict[str, Any]:
    return {
        "parent": run.parent_run_id,
        "child": run.id,
        "step": run.forked_from_step,
        "arm": run.arm,
        "overrides": [dict(one) for one in run.overrides],
    }


def _text(value: Decimal | None) -> str | None:
    return None if value is None else str(value)
