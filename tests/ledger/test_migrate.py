"""`agentloupe ledger migrate`: a plain ledger sealed, both readings side by side, the old one untouched."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentloupe.cli.app import run as cli
from agentloupe.engine.ledger.migrating import migrate
from agentloupe.words.canonical import digest_bytes, dumps
from agentloupe.words.errors import Corrupt
from agentloupe.words.ledger import KINDS
from tests.ledger.support import FIXTURE, LONG_STORY, RUN, STORY, plain, plain_lines, receipts_of
from tests.support import ROOT
from tests.tapes import files_below

OTHER = runpy.run_path(str(ROOT / "tools" / "verify_ledger.py"))
Story = Sequence[tuple[str, Mapping[str, Any]]]
Capture = pytest.CaptureFixture[str]


def written(folder: Path, story: Story = STORY, contract: Any = None, **receipt: Any) -> Path:
    """The story as a plain ledger on disk, as people write them by hand."""
    (folder / "receipts").mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(dumps(line) + b"\n" for line in plain_lines(story)))
    (folder / "budget.json").write_text('{"max_attempts": 3}')
    for name in receipts_of(story):
        (folder / "receipts" / name).write_bytes(dumps({"call_id": name[:-5], "tool": "run_tests", **receipt}))
    if contract is not None:
        (folder / "contract.json").write_text(json.dumps(contract))
    return folder


def test_both_readings_conclude_the_same_and_the_old_bytes_stay(tmp_path: Path, capsys: Capture) -> None:
    old, new = written(tmp_path / "old"), tmp_path / "new"
    assert cli(["ledger", "replay", str(old), "--rules", "0"]) == 0
    before = files_below(old)
    capsys.readouterr()
    assert cli(["ledger", "migrate", str(old), str(new)]) == 0
    line = "events=14 receipts=1 state=retrying"
    assert capsys.readouterr().out == f"schema 0: {line}\nschema 1: {line}\n"
    assert files_below(old) == before, "old bytes and old reports stay"
    assert cli(["ledger", "replay", str(new)]) == 0
    assert capsys.readouterr().out == f"{line}\n"
    assert OTHER["judge"](*OTHER["read"](new)) == line
    first = json.loads((new / "events.jsonl").read_bytes().split(b"\n")[0])["payload"]["migrated_from"]
    assert first["events_sha256"] == digest_bytes(before["events.jsonl"])
    report = json.loads((new / "migration_report.json").read_text())
    assert report["changed"] == []
    assert set(report["rules_added"]) == {"chain", "checkpoint", "anchor", "bodies"}
    assert (report["old"]["rules"], report["new"]["rules"]) == (0, 1)


def test_values_in_lines_and_receipts_become_bodies(tmp_path: Path) -> None:
    secret = "LOUPE-CANARY-0077"
    story: Story = [
        ("run_started", {}),
        ("tool_allowed", {"call_id": "c", "tool": "run_tests", "arguments": {"path": secret}}),
        ("tool_started", {"call_id": "c"}),
        ("tool_finished", {"call_id": "c", "output_digest": digest_bytes(b'{"ok":1}')}),
        ("attempt_started", {}),
    ]
    old, new = written(tmp_path / "old", story, result={"ok": 1}), tmp_path / "new"
    assert cli(["ledger", "migrate", str(old), str(new)]) == 0
    found = files_below(new)
    assert [name for name, data in found.items() if secret.encode() in data] == ["bodies.jsonl"]
    assert b'"value":{"ok":1}}' in found["bodies.jsonl"]
    db = ["--db", str(tmp_path / "x.db")]
    assert cli(["ledger", "import", str(new), *db]) == 0
    assert cli(["verify", RUN, *db]) == 0


def test_what_was_migrated_has_one_coverage_and_is_not_called_damaged(tmp_path: Path, capsys: Capture) -> None:
    old, new, db = written(tmp_path / "old"), tmp_path / "new", ["--db", str(tmp_path / "x.db")]
    assert cli(["ledger", "migrate", str(old), str(new)]) == 0
    assert cli(["ledger", "replay", str(new)]) == 0
    said = json.loads((new / "replay_report.json").read_text())["coverage"]
    assert cli(["ledger", "import", str(new), *db]) == 0
    capsys.readouterr()
    assert cli(["list", "--json", *db]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert cli(["verify", RUN, "--json", *db]) == 0
    verified = json.loads(capsys.readouterr().out)
    assert [listed["coverage"], verified["coverage"], verified["index"]] == [said, said, []]
    assert cli(["replay", RUN, "--code", "a:b", *db]) == 3
    told = capsys.readouterr().err
    assert "no store wrote it, and its events do not name their calls" in told
    assert "agentloupe ledger replay FOLDER" in told


def test_a_rule_that_changes_a_conclusion_is_named(tmp_path: Path, capsys: Capture) -> None:
    contract = {"allowed_tools": ["run_tests"], "checks": [{"name": "tests"}]}
    old, new = written(tmp_path / "old", contract=contract), tmp_path / "new"
    assert cli(["ledger", "migrate", str(old), str(new), "--json"]) == 1
    (changed,) = json.loads(capsys.readouterr().out)["changed"]
    assert (changed["conclusion"], changed["old"], changed["rule"]) == ("verdict", "whole", "authorisation")
    assert "the contract has no such check" in changed["new"]


def test_every_kind_can_be_migrated() -> None:
    done = migrate(plain(LONG_STORY))
    assert done.changed == []
    assert str(done.new) == str(done.old) == "events=51 receipts=1 state=succeeded"
    assert {json.loads(line)["kind"] for line in done.files.events.splitlines()} == set(KINDS)


def test_what_cannot_be_sealed_says_what_is_missing() -> None:
    with pytest.raises(Corrupt, match=r"line 2, sequence 2, kind tool_allowed: it cannot be sealed without tool"):
        migrate(plain([("run_started", {}), ("tool_allowed", {"call_id": "c"})]))


def test_what_is_sealed_or_damaged_is_not_migrated(tmp_path: Path, capsys: Capture) -> None:
    assert cli(["ledger", "migrate", str(FIXTURE), str(tmp_path / "new")]) == 3
    assert "it is sealed already" in capsys.readouterr().err
    old = written(tmp_path / "old", [("run_started", {}), ("tool_started", {"call_id": "c"})])
    assert cli(["ledger", "migrate", str(old), str(tmp_path / "new")]) == 2
    assert "[lifecycle]" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
