"""`agentloupe ledger replay`: the committed ledger, what is derived, what stops it, and what it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloupe.cli.app import run as cli
from agentloupe.engine.ledger import checks as checking
from agentloupe.engine.ledger.report import replay
from agentloupe.importers.ledger_folder import open_ledger
from agentloupe.verbs.ledger import write_files
from agentloupe.words.errors import Corrupt, LoupeError
from tests.ledger.support import BUDGET, CONTRACT, FIXTURE, RUN, STORY, in_memory, plain, told
from tests.tapes import files_below


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the committed ledger."""
    return Path(shutil.copytree(FIXTURE, tmp_path / "ledger"))


def test_fourteen_events_and_one_receipt(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_below(folder)
    assert cli(["ledger", "replay", str(folder)]) == 0
    assert capsys.readouterr().out == "events=14 receipts=1 state=retrying\n"
    after = files_below(folder)
    assert {name: after[name] for name in before} == before, "nothing but the report is touched"
    assert set(after) - set(before) == {"replay_report.json"}


def test_the_committed_ledger_is_what_its_story_gives(tmp_path: Path) -> None:
    write_files(tmp_path / "made", told())
    assert files_below(tmp_path / "made") == files_below(FIXTURE)


def test_the_report_has_the_same_bytes_in_another_place_process_and_time(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "elsewhere" / "other"))
    assert cli(["ledger", "replay", str(folder)]) == 0
    environment = {**os.environ, "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    words = [sys.executable, "-m", "agentloupe", "ledger", "replay", "."]
    subprocess.run(words, cwd=other, env=environment, check=True, capture_output=True)
    assert (folder / "replay_report.json").read_bytes() == (other / "replay_report.json").read_bytes()


def test_the_report_holds_digests_and_no_value(folder: Path) -> None:
    assert cli(["ledger", "replay", str(folder)]) == 0
    text = (folder / "replay_report.json").read_text()
    report = json.loads(text)
    digests = [report[f"{name}_sha256"] for name in ("events", "receipts", "budget", "contract", "bodies")]
    assert [len(digest) for digest in digests] == [64] * 5
    assert (report["run_id"], report["partial"], report["rules"]) == (RUN, False, 1)
    assert (report["attempts"], report["model_calls"], report["tool_calls"], report["tokens"]) == (1, 3, 1, 412)
    assert not [word for word in ("tests pass again", "run_tests", "delete", "builder") if word in text]


# --- what is derived --------------------------------------------------------------------------------------------------

Story = list[tuple[str, dict[str, Any]]]
START: Story = [("run_started", {})]
FAIL: Story = [("check_finished", {"name": "tests", "passed": False})]
PASS: Story = [("check_finished", {"name": "tests", "passed": True})]
ASK: Story = [("check_finished", {"name": "tests", "passed": None})]
DENIED: Story = [("tool_denied", {"call_id": "d", "tool": "rm"})]
ANSWER: Story = [("model_finished", {"finish_reason": "stop"})]


def one(kind: str, **payload: Any) -> Story:
    return [(kind, payload)]


def attempt(n: int) -> Story:
    return [("attempt_started", {"attempt": n})]


def end(status: str) -> Story:
    return [("run_finished", {"status": status})]


def call(*kinds: str, name: str = "c") -> Story:
    payload = {"call_id": name, "tool": "run_tests", "input_digest": "1" * 64, "output_digest": "2" * 64}
    found = {"outcome": "failed", "how": "person"}
    return [(f"tool_{kind}", {**payload, **(found if kind == "confirmed" else {})}) for kind in kinds]


@pytest.mark.parametrize(
    ("story", "state"),
    [
        (START, "created"),
        (START + attempt(1), "running"),
        (START + ANSWER, "running"),
        (START + DENIED, "denied"),
        (START + DENIED + ANSWER, "running"),
        (START + ASK, "waiting"),
        (START + ASK + PASS, "succeeded"),
        (START + FAIL, "retrying"),
        (START + attempt(1) + FAIL + attempt(2) + FAIL, "retrying"),
        (START + attempt(1) + FAIL + attempt(2) + FAIL + attempt(3) + FAIL, "exhausted"),
        (START + attempt(1) + FAIL + attempt(2) + PASS + end("ok"), "succeeded"),
        (START + PASS, "succeeded"),
        (START + ANSWER + end("ok"), "succeeded"),
        (START + ANSWER + end("error"), "failed"),
        (START + FAIL + end("error"), "failed"),
        (START + attempt(3 - 1) + attempt(3) + FAIL + end("error"), "exhausted"),
        (START + end("waiting"), "waiting"),
        (START + end("cancelled"), "interrupted"),
        (START + call("allowed"), "running"),
        (START + call("allowed", "started"), "interrupted"),
        (START + call("allowed", "requested"), "interrupted"),
        (START + call("allowed", "requested", "unknown"), "interrupted"),
        (START + call("allowed", "requested", "unknown", "confirmed"), "running"),
        (START + call("allowed", "requested", "unknown") + PASS + end("ok") + call("confirmed"), "succeeded"),
        (START + call("allowed", "requested", "unknown") + FAIL + call("confirmed"), "retrying"),
        (START + call("allowed", "started") + attempt(2), "interrupted"),
        (START + call("allowed", "started") + attempt(2) + call("started", "finished"), "running"),
        (START + call("allowed", "started", "failed"), "running"),
    ],
)
def test_the_state_follows_from_the_events(story: Story, state: str) -> None:
    assert replay(in_memory(told(story, bodies=None))).fields["state"] == state


def test_a_receipt_of_an_open_call_means_interrupted() -> None:
    whole = START + call("allowed", "started", "finished")
    receipts = told(whole, bodies=None).receipts
    report = replay(in_memory(told(whole[:-1], bodies=None, receipts=receipts)))
    assert (report.fields["state"], report.fields["open_calls"], report.fields["receipts"]) == ("interrupted", 1, 1)


# --- what stops it ----------------------------------------------------------------------------------------------------


def fault_of(files: Any, **how: Any) -> LoupeError:
    with pytest.raises(LoupeError) as caught:
        replay(files if hasattr(files, "origin") else in_memory(files), **how)
    return caught.value


TWICE = call("allowed", "started")


@pytest.mark.parametrize(
    ("story", "guard", "sequence"),
    [
        (START + one("tool_teleported", call_id="c"), "kind", 2),
        (START + one("check_finished", passed=True), "payload", 2),
        (START + one("state_changed"), "payload", 2),
        (ANSWER + START, "lifecycle", 1),
        (START + START, "lifecycle", 2),
        (START + end("ok") + ANSWER, "lifecycle", 3),
        (START + call("started"), "lifecycle", 2),
        (START + call("finished"), "lifecycle", 2),
        (START + TWICE + TWICE[1:], "lifecycle", 4),
        (START + TWICE + TWICE[:1], "lifecycle", 4),
        (START + call("allowed", "finished"), "lifecycle", 3),
        (START + call("denied", "started"), "lifecycle", 3),
        (START + [(k, {**p, "effect": "write"}) for k, p in TWICE], "lifecycle", 3),
        (START + attempt(1) + attempt(2) + attempt(3) + attempt(4), "budget", 5),
        (START + ANSWER * 11, "budget", 12),
        (
            START + one("tool_allowed", call_id="c", tool="rm", input_digest=""),
            "authorisation",
            2,
        ),
        (START + call("denied"), "authorisation", 2),
        (START + one("check_finished", name="other", passed=True), "authorisation", 2),
        (START + FAIL + ANSWER, "stop", 3),
        (START + FAIL + end("ok"), "stop", 3),
        (START + PASS + ANSWER, "stop", 3),
        (START + attempt(1) + attempt(3), "stop", 3),
        (START + one("state_changed", state="succeeded"), "state", 2),
        (START + one("state_changed", state="dancing"), "state", 2),
        (START + FAIL + one("state_changed", state="running"), "state", 3),
    ],
)
def test_the_first_fault_is_named_with_guard_and_place(story: Story, guard: str, sequence: int) -> None:
    error = fault_of(told(story, bodies=None))
    assert error.reason == guard, str(error)
    assert f"events.jsonl, line {sequence}, sequence {sequence}, kind {story[sequence - 1][0]}" in str(error)
    assert error.exit_code == (3 if guard == "kind" else 2)


def test_a_denial_is_right_when_the_budget_is_used_up() -> None:
    calls = [event for n in range(5) for event in call("allowed", "started", "finished", name=f"c{n}")]
    story = START + calls + call("denied", name="late")
    assert replay(in_memory(told(story, bodies=None))).fields["state"] == "denied"


def test_what_is_asked_each_time_may_be_decided_either_way() -> None:
    contract = {**CONTRACT, "allowed_tools": [], "asked_tools": ["run_tests"]}
    story = START + call("allowed", name="a") + call("denied", name="b")
    assert replay(in_memory(told(story, contract=contract, bodies=None))).fields["state"] == "denied"


def test_faults_come_in_the_order_of_the_checks_not_of_the_lines() -> None:
    """A late line that is no JSON is told before an early one that is unknown."""
    files = told(START + one("nonsense") + ANSWER)
    broken = replace(files, events=files.events + b"{\n")
    assert fault_of(files).reason == "kind"
    assert fault_of(broken).reason == "json"


def test_the_budget_may_lie_elsewhere(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moved = tmp_path / "budgets" / "mine.json"
    moved.parent.mkdir()
    (folder / "budget.json").rename(moved)
    assert cli(["ledger", "replay", str(folder)]) == 2
    assert "budget.json: there is no such file [layout]" in capsys.readouterr().err
    assert cli(["ledger", "replay", str(folder), "--budget", str(moved)]) == 0
    moved.write_text(json.dumps({"schema_version": 1, **BUDGET, "max_attempts": 9}))
    assert cli(["ledger", "replay", str(folder), "--budget", str(moved)]) == 2
    assert "[budget_digest]" in capsys.readouterr().err


def test_a_plain_ledger_is_judged_by_rules_0_when_somebody_says_so() -> None:
    error = fault_of(plain())
    assert error.reason == "schema_version"
    assert "--rules 0" in str(error)
    report = replay(plain(), rules=0)
    assert str(report) == "events=14 receipts=1 state=retrying"
    assert "nothing shows that it was not changed" in str(report.fields["notes"])
    assert fault_of(in_memory(told()), rules=0).reason == "schema_version", "a sealed one keeps its own rules"


def test_an_anchor_shows_a_cut_tail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = json.loads((folder / "checkpoint.json").read_text())["head"]
    shorter = told(STORY[:-1])
    assert replay(in_memory(shorter)).fields["events"] == 13, "a shorter chain is a perfect chain"
    anchor = f"14:{head}"
    assert cli(["ledger", "replay", str(folder), "--anchor", anchor]) == 0
    other = folder.with_name("shorter")
    write_files(other, shorter)
    assert cli(["ledger", "replay", str(other), "--anchor", anchor]) == 2
    assert "the anchor knows 14 events, 13 are there [anchor]" in capsys.readouterr().err


def test_json_tells_the_fault(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "events.jsonl").open("ab") as log:
        log.write(b'{"half')
    assert cli(["ledger", "replay", str(folder), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["reason"]) == ("corrupt", "json")
    assert not (folder / "replay_report.json").exists(), "no report of a ledger that is not whole"


def test_a_report_can_go_elsewhere(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o500)
    try:
        assert cli(["ledger", "replay", str(folder), "-o", str(tmp_path / "r.json")]) == 0
    finally:
        folder.chmod(0o700)
    assert json.loads((tmp_path / "r.json").read_text())["state"] == "retrying"
    assert "replay_report.json" not in files_below(folder)


def test_each_line_is_linked_once_and_folded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of a replay grows with the ledger, and a fold is not begun anew for each check, line or attempt."""
    calls = [call("allowed", "started", name=f"c{n}") + attempt(n + 2) for n in range(300)]
    contract = {**CONTRACT, "checks": [{"name": f"k{n}", "required": True} for n in range(300)]}
    checks = [one("check_finished", name=f"k{n}", passed=True) for n in range(300)]
    story = START + [event for part in (*calls, *checks) for event in part]
    files = told(story, budget=dict.fromkeys(BUDGET), contract=contract, bodies=None)
    done: Counter[str] = Counter()
    for place, name in ((checking.Reducer, "add"), (checking, "link_bytes"), (checking, "_step_of_call")):
        real = getattr(place, name)

        def counted(*args: Any, real: Any = real, name: str = name) -> Any:
            done[name] += 1
            return real(*args)

        monkeypatch.setattr(place, name, counted)
    assert replay(in_memory(files)).fields["state"] == "interrupted"
    assert set(done.values()) == {len(story)}


# --- comparing --------------------------------------------------------------------------------------------------------


def test_reports_are_compared_field_by_field(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["ledger", "replay", str(folder)]) == 0
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    capsys.readouterr()
    assert cli(["ledger", "compare", str(folder), str(other)]) == 0
    assert capsys.readouterr().out == "deterministic=True changed_fields=[]\n"

    changed = json.loads((other / "replay_report.json").read_text())
    (other / "replay_report.json").write_text(json.dumps({**changed, "state": "succeeded"}))
    assert cli(["ledger", "compare", str(folder), str(other)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("deterministic=False changed_fields=['state']\n")
    assert "one of the reports was changed" in said

    older = {**changed, "state": "succeeded", "rules_digest": "0" * 64, "reader": "agentloupe 0.0.1"}
    (other / "replay_report.json").write_text(json.dumps(older))
    assert cli(["ledger", "compare", str(folder), str(other)]) == 1
    assert "the evidence is the same: a difference of rules and reader" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["events.jsonl", "receipts"])
def test_a_report_counts_while_its_files_are_there(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert cli(["ledger", "replay", str(folder)]) == 0
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    file = next((other / name).iterdir()) if name == "receipts" else other / name
    file.write_bytes(file.read_bytes() + b" ")
    capsys.readouterr()
    assert cli(["ledger", "compare", str(folder), str(other), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "stale_report"
    assert cli(["ledger", "compare", str(folder), str(folder)]) == 0


def test_what_is_no_report_is_not_compared(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["ledger", "replay", str(folder)]) == 0
    report = json.loads((folder / "replay_report.json").read_text())
    for content, code in (({}, 2), ({**report, "partial": True}, 3), ([], 2)):
        (tmp_path / "x.json").write_text(json.dumps(content))
        assert cli(["ledger", "compare", str(folder), str(tmp_path / "x.json")]) == code
    assert cli(["ledger", "compare", str(folder), str(tmp_path / "none.json")]) == 3
    with pytest.raises(Corrupt):
        replay(open_ledger(folder), rules=0)
