"""Case 22: cached and reasoning tokens, unknown models, free models."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentloupe.engine.costs import PriceTable, price_trace
from agentloupe.words.run import Run
from agentloupe.words.step import Step, Trace


@pytest.fixture(scope="module")
def case(shared_case: Callable[[str], Path]) -> Path:
    return shared_case("22")


@pytest.fixture(scope="module")
def trace(case: Path) -> Trace:
    """All rows as the model steps of one run, priced."""
    rows: list[dict[str, Any]] = json.loads((case / "rows.json").read_text("utf-8"))
    steps = tuple(_step(idx, row) for idx, row in enumerate(rows))
    run = Run(id="r", name="r", agent="a", status="ok", started_at="2026-02-01T00:00:00.000000Z")
    return price_trace(Trace(run, steps), PriceTable.load(case / "prices.json"))


def _step(idx: int, row: dict[str, Any]) -> Step:
    usage = dict(row["usage"]) if row["usage"] is not None else None
    source = usage.pop("_source", "live") if usage else "live"
    return Step(
        run_id="r",
        idx=idx,
        parent_idx=None,
        kind="llm",
        name=f"chat {row['model']}",
        started_at="2026-02-01T00:00:00.000000Z",
        status="ok",
        model=row["model"],
        source=source,
        attrs={"usage": usage} if usage else {},
    )


def test_every_row_costs_what_it_should_exactly(case: Path, trace: Trace) -> None:
    rows: list[dict[str, Any]] = json.loads((case / "rows.json").read_text("utf-8"))
    costs = {row["name"]: step.cost for row, step in zip(rows, trace.steps, strict=True)}
    wanted = {row["name"]: None if row["expected_cost"] is None else Decimal(row["expected_cost"]) for row in rows}
    assert costs == wanted
    shown = {row["name"]: row["expected_cost"] for row in rows}
    assert {name: None if cost is None else str(cost) for name, cost in costs.items()} == shown


def test_the_run_says_what_is_known_and_that_it_is_not_all(case: Path, trace: Trace) -> None:
    rows: list[dict[str, Any]] = json.loads((case / "rows.json").read_text("utf-8"))
    expected = json.loads((case / "expected.json").read_text("utf-8"))
    assert trace.run.cost == Decimal(expected["known_total"])
    unknown = [row["name"] for row, step in zip(rows, trace.steps, strict=True) if step.cost is None]
    assert unknown == expected["rows_without_cost"]
    assert trace.run.cost_complete is not expected["run_total_is_marked_incomplete"]


def test_an_answer_from_the_cassette_costs_nothing_now_and_its_recorded_price_is_still_known(
    case: Path, trace: Trace
) -> None:
    rows: list[dict[str, Any]] = json.loads((case / "rows.json").read_text("utf-8"))
    at = next(i for i, row in enumerate(rows) if row["usage"] and "_source" in row["usage"])
    assert trace.steps[at].cost == 0
    then = PriceTable.load(case / "prices.json").cost(rows[at]["model"], trace.steps[at].attrs["usage"])
    assert then == Decimal("0.0028")
