"""Case 25, as ledgers: the last events are gone and every link still fits. What is proven, and what is not, is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.cli.app import run as cli
from tests.ledger.foreign import BUDGET, CONTRACT, cut_ledger, lines_by_sequence
from tests.tapes import files_below


class Case:
    """The six events as a ledger, and the four damaged copies of it, each with a checkpoint that was made to fit."""

    def __init__(self, shared: Path, folder: Path) -> None:
        self.shared, self.folder = shared, folder
        self.lines = lines_by_sequence((shared / "events.jsonl").read_bytes())
        foreign = json.loads((shared / "anchor.json").read_text("utf-8"))
        assert foreign["count"] == len(self.lines)
        self.anchor = f"{foreign['count']}:{self.lines[foreign['count']]['hash']}"

    def ledger(self, name: str) -> Path:
        """The lines that the case's file of that name still has."""
        left = [json.loads(line)["sequence"] for line in (self.shared / f"{name}.jsonl").read_bytes().splitlines()]
        place = self.folder / name
        if left:
            cut_ledger([self.lines[n] for n in left], place)
        else:
            place.mkdir()
            for file, data in (("events.jsonl", b""), ("budget.json", BUDGET), ("contract.json", CONTRACT)):
                (place / file).write_bytes(data)
        return place


@pytest.fixture
def case(shared_case: Callable[[str], Path], tmp_path: Path) -> Case:
    return Case(shared_case("25"), tmp_path)


@pytest.mark.parametrize(
    ("name", "anchored", "code", "said"),
    [
        ("events", True, 0, "events=6"),
        ("events", False, 0, "events=6"),
        ("tail_cut", True, 2, "the anchor knows 6 events, 4 are there"),
        ("tail_cut", False, 0, "events=4"),
        ("head_cut", True, 2, "line 1, sequence 3, kind call_finished: sequence 1 was expected here"),
        ("head_cut", False, 2, "line 1, sequence 3"),
        ("middle_cut", False, 2, "line 3, sequence 4, kind call_finished: sequence 3 was expected here"),
        ("empty", True, 2, "the log is empty: no event"),
        ("empty", False, 2, "the log is empty: no event"),
    ],
)
def test_each_copy_with_and_without_an_anchor(
    case: Case, capsys: pytest.CaptureFixture[str], name: str, anchored: bool, code: int, said: str
) -> None:
    words = ["--anchor", case.anchor] if anchored else []
    assert cli(["ledger", "replay", str(case.ledger(name)), *words]) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err


def _report(case: Case, name: str, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli(["ledger", "replay", str(case.ledger(name)), "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_report_says_what_was_not_proven_and_who_read_it(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    whole = _report(case, "events", capsys, "--anchor", case.anchor)
    cut = _report(case, "tail_cut", capsys)
    assert not [note for note in whole["notes"] if "anchored" in note]
    assert (whole["anchor"], whole["state"]) == (case.anchor, "succeeded")
    assert "end not anchored: only the folder itself says where it ends" in cut["notes"]
    assert "no run_finished: the run goes on, was interrupted, or its end is not here" in cut["notes"]
    assert cut["state"] == "running"
    assert cut["reader"].startswith("agentloupe ")


def test_the_checkpoint_alone_finds_a_cut_that_nobody_covered_up(
    case: Case, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = case.ledger("events")
    log = folder / "events.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:4]))
    assert cli(["ledger", "replay", str(folder)]) == 2
    assert "checkpoint.json: its events is not that of the folder [checkpoint]" in capsys.readouterr().err


def test_reading_only_reads(case: Case, tmp_path: Path) -> None:
    folder = case.ledger("events")
    before = files_below(folder)
    assert cli(["ledger", "replay", str(folder), "-o", str(tmp_path / "report.json")]) == 0
    assert files_below(folder) == before
