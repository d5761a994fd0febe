"""Case 31, more of the kind: days and ages mean the same everywhere, and a bound is an instant, not a text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine

from agentloupe.cli import main
from agentloupe.store import open_url
from agentloupe.verbs.exchange import import_file

ZONES = ["UTC", "Asia/Shanghai", "Europe/Berlin"]


@pytest.fixture(params=ZONES)
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The zone of the machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


@pytest.fixture(scope="module")
def db(shared_case: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run for every row of the case that is a time, named after its row."""
    rows: list[dict[str, Any]] = json.loads((shared_case("31") / "rows.json").read_text("utf-8"))
    folder = tmp_path_factory.mktemp("times")
    path = folder / "times.db"
    store = open_url(path)
    for n, row in enumerate(rows[:7]):
        step = {"idx": 0, "kind": "tool", "name": "t", "input": {}, "output": n, "started_at": row["in"]}
        source = folder / f"{n}.json"
        run = {"id": f"row-{n}", "started_at": row["in"], "ended_at": row["in"]}
        source.write_text(json.dumps({"run": run, "steps": [step]}), "utf-8")
        import_file(store, source)
    store.close()
    return path


def listed(capsys: pytest.CaptureFixture[str], db: Path, *more: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["list", "--db", str(db), "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def ids(runs: list[dict[str, Any]]) -> set[str]:
    return {run["id"] for run in runs}


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("bounds", "rows"),
    [
        # the days of UTC, whatever the zone of the machine
        (("2026-03-28", "2026-03-29"), "2"),
        (("2026-03-29", "2026-03-30"), "0156"),
        (("2026-10-25", "2026-10-26"), "34"),
        # the same instants, written with other offsets: a day of Shanghai holds other runs
        (("2026-03-29T00:00:00+08:00", "2026-03-30T00:00:00+08:00"), "01256"),
        (("2026-03-28T16:00:00Z", "2026-03-29T16:00:00Z"), "01256"),
        (("2026-03-29T03:30:00+01:00", "2026-03-29T03:30:01+01:00"), "0156"),
        # a bound is an instant: at or after it, and before it, to the last digit
        (("2026-03-29T02:30:00Z", "2026-03-29T02:30:00.000001Z"), "0156"),
        (("2026-03-29T02:30:00.000001Z", "2026-03-29T02:30:01"), ""),
        (("2026-03-28T18:30:00", "2026-03-29T02:30:00"), "2"),
        (("2026-10-25T02:30:00+01:00", "2026-10-26"), "4"),
        (("1774751400", "1774751401"), "0156"),
    ],
)
def test_a_day_holds_the_same_runs_in_every_zone(
    db: Path, capsys: pytest.CaptureFixture[str], bounds: tuple[str, str], rows: str
) -> None:
    found = listed(capsys, db, "--since", bounds[0], "--until", bounds[1])
    assert ids(found) == {f"row-{n}" for n in rows}


@pytest.mark.usefixtures("zone")
def test_what_is_shown_names_its_zone_and_what_is_exported_has_an_offset(
    db: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert all(run["started_at"].endswith("Z") for run in listed(capsys, db))
    assert main(["list", "--db", str(db)]) == 0
    table = capsys.readouterr().out
    assert "(UTC)" in table.splitlines()[0]
    (line,) = [line for line in table.splitlines() if line.startswith("row-2 ")]
    assert "2026-03-28 18:30:00" in line
    assert main(["show", "row-2", "--db", str(db)]) == 0
    assert "started 2026-03-28 18:30:00 UTC" in capsys.readouterr().out
    assert main(["export", "row-2", "--db", str(db), "-o", str(tmp_path / "out.jsonl")]) == 0
    run, step = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert run["run"]["started_at"] == step["step"]["started_at"] == "2026-03-28T18:30:00.000000Z"


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "2026-03-29T25:00:00Z"])
def test_a_bound_that_is_no_time_is_wrong_usage(db: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["list", "--db", str(db), "--since", text]) == 64
    error = capsys.readouterr().err
    assert "--since" in error
    assert "time" in error


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("midnight", "old"),
    [
        ("2026-03-30T00:00:00+08:00", ""),
        ("2026-03-30T00:00:00+05:30", ""),
        ("2026-03-30T00:00:00+02:00", "2"),
        ("2026-03-30T00:00:00Z", "2"),
        ("2026-03-30T00:00:00-02:30", "2"),  # the others are a day old to the instant, which is not older
        ("2026-03-30T00:00:00-03:00", "01256"),
        (
            "2026-10-26T00:00:00+01:00",
            "01256",
        ),  # the night in which Berlin sets its clocks back is no longer than others
        ("2026-10-26T01:00:00Z", "012563"),
        ("2026-10-26T02:00:00Z", "0125634"),
    ],
)
def test_retention_at_a_local_midnight_takes_what_is_older_than_a_day(
    db: Path, capsys: pytest.CaptureFixture[str], midnight: str, old: str
) -> None:
    with time_machine.travel(datetime.fromisoformat(midnight), tick=False):
        assert main(["prune", "--db", str(db), "--older-than", "1d", "--dry-run", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
    assert set(said["runs"]) == {f"row-{n}" for n in old}
