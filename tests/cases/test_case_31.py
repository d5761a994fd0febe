"""Case 31: naive, offset, repeated and very precise times give one instant, whatever zone the importing machine is in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentloupe.importers.times import moment
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file

CHILD = """
import json, sys
from agentloupe.verbs.exchange import import_file
from agentloupe.store import open_url
store = open_url("memory:")
report = import_file(store, sys.argv[1])
steps = [[s.started_at, s.attrs.get("time_flag"), bool(s.attrs.get("time_unknown"))] for s in store.steps("times")]
print(json.dumps([steps, list(report.runs[0].found.warnings), report.fidelity]))
"""


@pytest.fixture
def rows(shared_case: Callable[[str], Path]) -> list[dict[str, Any]]:
    return json.loads((shared_case("31") / "rows.json").read_text("utf-8"))


@pytest.fixture
def source(rows: list[dict[str, Any]], tmp_path: Path) -> Path:
    steps = [
        {"idx": n, "kind": "tool", "name": "t", "input": {}, "output": n, "started_at": row["in"]}
        for n, row in enumerate(rows)
    ]
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"run": {"id": "times"}, "steps": steps}), "utf-8")
    return path


def imported_under(zone: str, path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def padded(utc: str) -> str:
    """The case's instants with our six digits of a second."""
    head, _, fraction = utc.rstrip("Z").partition(".")
    return f"{head}.{fraction.ljust(6, '0')}Z"


def test_one_instant_under_three_zones(rows: list[dict[str, Any]], source: Path) -> None:
    steps, warnings, fidelity = imported_under("UTC", source)
    for zone in ("Asia/Shanghai", "Europe/Berlin"):
        again = imported_under(zone, source)
        assert [one for one in again[0] if not one[2]] == [one for one in steps if not one[2]]
        assert again[1:] == [warnings, fidelity]
    for row, (at, flag, unknown) in zip(rows, steps, strict=True):
        if row["utc"] is not None:
            assert (at, unknown) == (padded(row["utc"]), False)
            assert (flag is None) == (row["flag"] is None)
    assert steps[0][1] == "assumed UTC"
    assert steps[5][1] == "epoch milliseconds"
    assert steps[6][1] == "epoch nanoseconds"
    assert steps[7][:2] == ["2027-01-01T00:00:00.000000Z", "leap second"]  # the documented choice
    assert steps[8][2] is True  # "yesterday" is no time, the step is kept
    assert warnings == ["step 8: not a time"]
    assert "times without a zone were taken as UTC (1)" in fidelity


def test_the_repeated_hour_stays_apart_and_in_order(rows: list[dict[str, Any]]) -> None:
    early, late = (datetime.fromisoformat(moment(rows[n]["in"]).at) for n in (3, 4))
    assert (late - early).total_seconds() == 3600


def test_steps_stand_by_sequence_not_by_time(source: Path) -> None:
    store = open_url("memory:")
    import_file(store, source)
    times = [step.started_at for step in store.steps("times")]
    assert times != sorted(times)
    assert [step.idx for step in store.steps("times")] == list(range(len(times)))


def test_an_export_always_has_an_offset(source: Path, tmp_path: Path) -> None:
    store = open_url("memory:")
    import_file(store, source)
    export_run(store, "times", tmp_path / "out.jsonl")
    steps = [json.loads(line)["step"] for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()[1:]]
    assert [step["started_at"] is None for step in steps] == [False] * 8 + [True]
    assert all(step["started_at"].endswith("Z") for step in steps[:8])
    assert steps[6]["started_at"] == "2026-03-29T02:30:00.000000001Z"


@pytest.mark.parametrize(
    "value",
    ["", "12", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "0001-01-01T00:00:00+23:59", True, [], 12, -1e12,
     float("nan"), "2026-01-01T00:00:00+99:00", "2026-01-01T00:00:00+01:75", "1e12", "２０２６-01-01"],
)  # fmt: skip
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="time"):
        moment(value)


@pytest.mark.parametrize(
    ("value", "at", "flag"),
    [
        ("2026-04-01", "2026-04-01T00:00:00.000000Z", "assumed UTC"),
        ("2026-04-01 10:00", "2026-04-01T10:00:00.000000Z", "assumed UTC"),
        ("2026-04-01t10:00:00,5z", "2026-04-01T10:00:00.500000Z", None),
        ("2026-04-01T10:00:00+0530", "2026-04-01T04:30:00.000000Z", None),
        (1774751400, "2026-03-29T02:30:00.000000Z", "epoch seconds"),
        (1774751400.25, "2026-03-29T02:30:00.250000Z", "epoch seconds"),
        (1774751400000001, "2026-03-29T02:30:00.000001Z", "epoch microseconds"),
        ("2026-12-31T23:59:60", "2027-01-01T00:00:00.000000Z", "leap second, assumed UTC"),
    ],
)
def test_spellings_of_times(value: Any, at: str, flag: str | None) -> None:
    found = moment(value)
    assert (found.at, found.flag) == (at, flag)
