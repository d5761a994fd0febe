"""Case 26 whole, on ledgers: torn, fused, blank, unknown, newer; strict reading, salvage, appending behind a torn line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.cli.app import run as cli
from agentloupe.verbs.ledger import append_event, salvage_folder
from tests.ledger.foreign import as_ledger

LOGS = ("torn", "fused", "torn_then_blank", "unknown_type", "newer_schema")


@pytest.fixture
def ledger(shared_case: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    def made(name: str) -> Path:
        folder = tmp_path / name
        as_ledger((shared_case("26") / f"{name}.jsonl").read_bytes(), folder)
        return folder

    return made


Ledger = Callable[[str], Path]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def expected(shared_case: Callable[[str], Path]) -> Any:
    return json.loads((shared_case("26") / "expected.json").read_text("utf-8"))


@pytest.mark.parametrize("name", ["torn", "fused", "torn_then_blank"])
def test_strict_reading_stops_after_sequence_3_and_gives_the_byte(
    ledger: Ledger, expected: Any, capsys: Capture, name: str
) -> None:
    folder = ledger(name)
    begins = sum(map(len, (folder / "events.jsonl").read_bytes().splitlines(keepends=True)[:3]))
    assert expected["strict"][name].startswith("stop after sequence 3")
    assert cli(["ledger", "replay", str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"line 4, byte {begins}: not " in said
    assert "the last whole event is sequence 3 [json]" in said
    assert not (folder / "replay_report.json").exists()


@pytest.mark.parametrize(
    ("name", "sequence", "words"),
    [
        ("unknown_type", 3, "kind tool.teleported is not known"),
        ("newer_schema", 1, "schema 9 is newer than this reader"),
    ],
)
def test_what_is_not_known_stops_it_and_is_never_skipped(
    ledger: Ledger, expected: Any, capsys: Capture, name: str, sequence: int, words: str
) -> None:
    assert expected["strict"][name].startswith(f"stop at sequence {sequence}: ")
    folder = ledger(name)
    assert cli(["ledger", "replay", str(folder)]) == 3
    said = capsys.readouterr().err
    assert f"line {sequence}, sequence {sequence}" in said
    assert words in said
    assert not (folder / "replay_report.json").exists(), "never a computed final state"


@pytest.mark.parametrize(
    ("name", "whole", "recovered", "unread"),
    [
        ("torn", 3, 0, 0),
        ("fused", 3, 1, 0),
        ("torn_then_blank", 3, 0, 0),
        ("unknown_type", 2, 0, 4),
        ("newer_schema", 0, 0, 6),
    ],
)
def test_salvage_reads_what_there_is_and_is_marked_partial(
    ledger: Ledger, expected: Any, tmp_path: Path, capsys: Capture, name: str, whole: int, recovered: int, unread: int
) -> None:
    if name in expected["salvage"]:
        more = f" + {recovered} recovered from the fused line" if recovered else ""
        assert expected["salvage"][name] == f"{whole} events{more}, marked partial"
    out = tmp_path / "out.jsonl"
    assert cli(["ledger", "salvage", str(ledger(name)), "-o", str(out), "--json"]) == 2
    head = json.loads(capsys.readouterr().out)
    assert (head["partial"], head["whole"], head["recovered"], head["unread"]) == (True, whole, recovered, unread)
    assert "state" not in head
    rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert rows[0] == head
    assert [row["salvaged"] for row in rows[1:]] == ["whole"] * whole + ["recovered"] * recovered


@pytest.mark.parametrize("name", LOGS)
def test_no_command_takes_a_salvage_for_a_report_a_ledger_or_a_run(
    ledger: Ledger, tmp_path: Path, capsys: Capture, name: str
) -> None:
    folder, out = ledger(name), tmp_path / "out.jsonl"
    salvage_folder(folder, out)
    assert cli(["ledger", "compare", str(out), str(out)]) == 3
    assert "it is partial, and no report" in capsys.readouterr().err
    (folder / "events.jsonl").write_bytes(out.read_bytes())
    for rules in ("0", "1"):
        assert cli(["ledger", "replay", str(folder), "--rules", rules]) == 2
    assert cli(["ledger", "import", str(folder), "--db", str(tmp_path / "x.db")]) == 2
    assert cli(["import", str(out), "--db", str(tmp_path / "x.db")]) != 0
    capsys.readouterr()
    assert cli(["list", "--db", str(tmp_path / "x.db"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(("name", "readable"), [("torn", 4), ("torn_then_blank", 4), ("fused", 5)])
def test_appending_behind_a_torn_line_keeps_it_and_is_readable(ledger: Ledger, name: str, readable: int) -> None:
    log = ledger(name) / "events.jsonl"
    before = log.read_bytes()
    line: Any = append_event(log.parent, "clock_read", {"call_id": "9"})
    after = log.read_bytes()
    assert after.startswith(before), "damaged bytes are kept, not overwritten"
    assert json.loads(after.splitlines()[-1]) == line
    assert (line["seq"], after.count(b"\n") - before.count(b"\n")) == (readable, 2 if name == "torn" else 1)
    damage = line["payload"]["after_damage"]
    assert damage[0]["byte"] == sum(map(len, before.splitlines(keepends=True)[:3]))
    found = salvage_folder(log.parent)
    assert [kept.event["seq"] for kept in found.kept] == list(range(1, readable + 1))
    again: Any = append_event(log.parent, "clock_read", {"call_id": "10"})
    assert again["prev_hash"] == line["hash"]
    assert "after_damage" not in again["payload"], "told once"
    assert cli(["ledger", "replay", str(log.parent)]) == 2, "a ledger that was damaged never passes"


def test_nothing_is_appended_behind_what_is_not_known(ledger: Ledger) -> None:
    for name in ("unknown_type", "newer_schema"):
        log = ledger(name) / "events.jsonl"
        before = log.read_bytes()
        with pytest.raises(Exception, match="nothing can be appended"):
            append_event(log.parent, "clock_read", {"call_id": "9"})
        assert log.read_bytes() == before
