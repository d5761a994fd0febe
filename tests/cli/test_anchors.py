"""`agentloupe anchor`, and `verify` and `ledger` with what was signed: texts, documents, exit codes, settings."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentloupe.store import open_url
from tests.cli.driving import Command
from tests.store.make import small_run


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of two runs, in a project of its own; keys and anchors lie beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOUPE_DB", str(tmp_path / "loupe.db"))
    (tmp_path / "loupe.toml").touch()
    store = open_url(tmp_path / "loupe.db")
    small_run(store, "run-1")
    small_run(store, "run-2")
    store.close()
    return tmp_path / "loupe.db"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


SIGNED = ("--anchors", "anchors.jsonl", "--public-key", "key.pub")


@pytest.fixture
def anchored(db: Path, cli: Command) -> Path:
    cli.ok("anchor", "keygen", "key")
    cli.ok("anchor", "write", "--key", "key", "--to", "anchors.jsonl")
    return db


def more(db: Path, run_id: str) -> None:
    store = open_url(db)
    small_run(store, run_id)
    store.close()


def test_sign_verify_and_prove(db: Path, cli: Command) -> None:
    made = cli.json("anchor", "keygen", "key")
    written = cli.json("anchor", "write", "--key", "key", "--to", "anchors.jsonl")
    assert (written["number"], written["runs"], written["changed"], written["key_id"]) == (1, 2, 2, made["key_id"])
    found = cli.json("verify", "run-1", *SIGNED)
    assert (found["ok"], found["anchored"], found["anchored_at"]) == (True, True, written["at"])
    assert (found["anchor_sequence"], found["key_id"]) == (found["events"], made["key_id"])
    assert "those that were signed at" in cli.ok("verify", "run-1", *SIGNED)
    cli.ok("export", "run-1", "-o", "run.loupe")
    cli.ok("anchor", "prove", "run-1", *SIGNED, "-o", "run.proof")
    assert cli.json("verify", "run.loupe", "--proof", "run.proof", "--public-key", "key.pub")["anchored"]
    assert cli("anchor", "keygen", "key").code == 3


def test_all_runs_with_counts_and_what_is_not_proven(anchored: Path, cli: Command) -> None:
    more(anchored, "run-3")
    cli.ok("delete", "run-2", "--yes")
    every = cli.json("verify", "--all", *SIGNED)
    assert (every["ok"], every["lost"], every["damaged"]) == (True, [], [])
    counts = {name: every["anchors"][name] for name in ("anchored", "grown", "deleted", "not_yet", "number", "torn")}
    assert counts == {"anchored": 2, "grown": 1, "deleted": 1, "not_yet": 1, "number": 1, "torn": False}
    said = cli.ok("verify", "--all", *SIGNED)
    assert "2 as they were signed" in said
    assert "Nothing is proven about what happened since" in said


def test_all_runs_by_their_chains_only_says_that_nobody_looked_at_values(anchored: Path, cli: Command) -> None:
    assert "none damaged, bodies not looked at;" in cli.ok("verify", "--all", "--chain-only", *SIGNED)
    assert cli.json("verify", "--all", "--chain-only")["bodies"] is False
    assert "not looked at" not in cli.ok("verify", "--all", *SIGNED)
    assert cli.json("verify", "--all")["bodies"] is True


def test_an_index_that_says_something_else_than_the_events_is_told(anchored: Path, cli: Command) -> None:
    """Nothing signs what `show` and lists are read from; a pass must not stand beside a forged view."""
    assert cli.json("verify", "run-1")["index"] == []
    with closing(sqlite3.connect(anchored)) as conn:
        rid, row = conn.execute("SELECT rid, row FROM runs WHERE id = 'run-1'").fetchone()
        conn.execute("UPDATE runs SET row = ? WHERE rid = ?", (row.replace(b'"ok"', b'"error"'), rid))
        conn.execute("DELETE FROM steps WHERE key = ?", (rid << 32 | 1,))
        conn.commit()
    assert "error" in cli.ok("show", "run-1")
    wrong = "the events are whole, and lists and `show` say something else"
    for words in (("verify", "run-1", *SIGNED), ("verify", "--all", *SIGNED)):
        done = cli(*words)
        assert done.code == 1
        (line,) = [line for line in done.out.splitlines() if wrong in line]
        assert line.endswith("run: status differ; step 1: is missing")
    one = cli("verify", "run-1", "--json").json
    assert (one["ok"], one["reason"], len(one["index"])) == (True, "index", 2)
    assert [found["run_id"] for found in cli("verify", "--all", "--json").json["index"]] == ["run-1"]
    assert cli("rebuild").code == 1
    cli.ok("verify", "run-1", *SIGNED)
    cli.ok("verify", "--all", *SIGNED)


def test_a_lost_run_is_named(anchored: Path, cli: Command) -> None:
    with closing(sqlite3.connect(anchored)) as conn:
        for trigger in ("changed", "removed", "replaced"):
            conn.execute(f"DROP TRIGGER events_are_never_{trigger}")
        rid = conn.execute("SELECT rid FROM runs WHERE id = 'run-1'").fetchone()[0]
        conn.execute("DELETE FROM events WHERE key >> 32 = ?", (rid,))
        conn.execute("DELETE FROM runs WHERE rid = ?", (rid,))
        conn.commit()
    done = cli("verify", "--all", *SIGNED)
    assert done.code == 2
    assert "run-1: damaged: the run is gone: sequence 13 was signed at" in done.out
    document = cli("verify", "--all", *SIGNED, "--json").json
    assert [(one["run_id"], one["reason"]) for one in document["lost"]] == [("run-1", "lost")]
    refused = cli("anchor", "write", "--key", "key", "--to", "anchors.jsonl")
    assert refused.code == 2
    assert "run run-1: the run is gone" in refused.error


def test_a_run_that_nobody_signed_is_code_1_where_that_was_asked(anchored: Path, cli: Command) -> None:
    more(anchored, "run-3")
    done = cli("verify", "run-3", *SIGNED)
    assert done.code == 1
    assert "no anchor names this run" in done.out
    document = cli("verify", "run-3", *SIGNED, "--json").json
    assert (document["ok"], document["anchored"], document["reason"]) == (True, False, "not_anchored")


def test_settings_name_the_anchors(anchored: Path, cli: Command) -> None:
    Path("loupe.toml").write_text('anchors = "anchors.jsonl"\nanchor_key = "key.pub"\n')
    assert cli.json("verify", "run-1")["anchored"]
    assert cli.json("verify", "--all")["anchors"]["anchored"] == 2
    more(anchored, "run-3")
    assert cli.json("verify", "run-3")["anchored"] is False  # nobody asked, so it is a note and no failed check
    Path("anchors.jsonl").unlink()
    gone = cli("verify", "run-1", "--json")
    assert (gone.code, gone.json["error"]["reason"]) == (3, "no_anchors")
    Path("loupe.toml").write_text('anchors = "anchors.jsonl"\n')
    assert "belong together" in cli("verify", "run-1").error


def test_damage_of_the_anchors_has_a_reason_and_code_2(anchored: Path, cli: Command) -> None:
    line = Path("anchors.jsonl").read_text()
    forged = json.loads(line)
    forged["checkpoint"]["runs"] = 1
    Path("anchors.jsonl").write_text(json.dumps(forged) + "\n")
    done = cli("verify", "run-1", *SIGNED, "--json")
    assert (done.code, done.json["reason"]) == (2, "signature")
    assert "anchors.jsonl: line 1: the signature does not fit" in cli("verify", "--all", *SIGNED).error
    Path("anchors.jsonl").write_text(line)
    cli.ok("anchor", "keygen", "other")
    wrong = ("--anchors", "anchors.jsonl", "--public-key", "other.pub", "--json")
    assert cli("verify", "run-1", *wrong).json["reason"] == "key"


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "run-1", "--anchors", "anchors.jsonl"),
        ("verify", "run-1", "--public-key", "key.pub"),
        ("verify", "run-1", *SIGNED, "--proof", "run.proof"),
        ("verify", "--all", "--proof", "run.proof", "--public-key", "key.pub"),
        ("verify", "--all", "--anchor", f"3:{'0' * 64}"),
        ("verify", "run-1", "--anchor", f"{'9' * 5000}:{'0' * 64}"),
        ("verify", "run-1", "--anchor", f"3:{'z' * 64}"),
        ("anchor", "write", "--key", "key"),
        ("anchor", "frobnicate"),
    ],
)
def test_wrong_usage(anchored: Path, cli: Command, words: tuple[str, ...]) -> None:
    assert cli(*words).code == 64


def test_what_is_no_file_is_not_replaced_by_one(anchored: Path, cli: Command) -> None:
    """`-o /dev/null` of somebody who may replace it."""
    cli.ok("ledger", "export", "run-1", "folder")
    os.mkfifo("pipe.loupe")
    for words in (
        ("ledger", "replay", "folder", "-o", "pipe.loupe"),
        ("export", "run-1", "-o", "pipe.loupe", "--force"),
    ):
        done = cli(*words)
        assert done.code == 3
        assert done.error == "pipe.loupe cannot be written: it is no plain file"
        assert Path("pipe.loupe").is_fifo()
    assert cli("anchor", "write", "--key", "key", "--to", "pipe.loupe").code == 3
    assert Path("pipe.loupe").is_fifo()


def test_a_key_is_a_file(db: Path, cli: Command) -> None:
    for folder in (".", ""):
        done = cli("anchor", "keygen", folder)
        assert done.code == 3
        assert done.error == ". is a folder"


def test_a_ledger_without_values_is_taken_over_with_a_warning(anchored: Path, cli: Command) -> None:
    cli.ok("ledger", "export", "run-1", "flow", "--no-bodies")
    cli.ok("ledger", "export", "run-1", "whole")
    assert "holds no values" in cli.ok("ledger", "import", "flow", "--db", "other.db")
    assert cli("verify", "run-1", "--db", "other.db").code == 2
    assert cli.json("ledger", "import", "whole", "--db", "third.db")["warnings"] == []


def test_a_signed_ledger(anchored: Path, cli: Command) -> None:
    done = cli.json("ledger", "export", "run-1", "folder", "--key", "key")
    assert cli.json("ledger", "replay", "folder", "--public-key", "key.pub")["key_id"] == done["key_id"]
    cli.ok("ledger", "export", "run-1", "unsigned")
    refused = cli("ledger", "replay", "unsigned", "--public-key", "key.pub", "--json")
    assert (refused.code, refused.json["error"]["reason"]) == (2, "signature")
    assert "[signature]" in cli("ledger", "replay", "unsigned", "--public-key", "key.pub").error
