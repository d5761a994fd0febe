"""What runs depended on: shown of one, compared between two, in words, as JSON and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.cli.app import run as cli
from agentloupe.engine.compare import Comparison
from agentloupe.engine.snapshots import Snapshot, compare_snapshots, read_snapshot
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs import snapshot as taking
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.forking import fork
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Corrupt
from tests.tapes import record_in
from tests.unit.test_patched import models, version


def asking(given: dict[str, Any]) -> Any:
    @loupe.agent(name="asking", snapshot=given)
    def agent() -> str:
        return "done"

    return agent


@pytest.fixture
def store(workdir: Path) -> Any:
    found = open_url(workdir / "x.db")
    yield found
    found.close()


def compared(store: Store, left: str, right: str) -> Comparison:
    found = compare(left, right, store=store)
    assert isinstance(found, Comparison)
    return found


def test_a_changed_prompt_and_changed_packages_are_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"openai": "3.56.0", "anthropic": "2.14.0", "httpx": "0.28.1"}
    after = {"openai": "3.57.0", "httpx": "0.29.0", "attrs": "26.1"}
    monkeypatch.setattr(taking, "_versions", lambda _: before)
    left = record_in(store, asking({"prompt_template": "refund v3", "flags": {"fast": True}}))
    monkeypatch.setattr(taking, "_versions", lambda _: after)
    right = record_in(store, asking({"prompt_template": "refund v4", "flags": {"fast": True, "new": "on"}}))
    found = compared(store, left.run_id, right.run_id)
    assert found.snapshot.lines() == [
        "4 packages changed: anthropic 2.14.0 -> absent, attrs absent -> 26.1, httpx 0.28.1 -> 0.29.0, openai 3.56.0 -> 3.57.0",
        "flags new added: absent -> on",
        "prompt_template changed: refund v3 -> refund v4",
    ]
    record: Any = found.as_json()["snapshot"]
    assert (record["left"], record["right"]) == tuple(r.events[0].bodies["snapshot"] for r in (left, right))
    assert {"what": "packages.openai", "left": "3.56.0", "right": "3.57.0"} in record["changes"]
    assert cli(["compare", left.run_id, right.run_id, "--db", "x.db"]) == 0
    said = capsys.readouterr().out
    assert "ran on: 4 packages changed: anthropic 2.14.0 -> absent" in said
    assert "prompt_template changed: refund v3 -> refund v4" in said
    assert cli(["compare", left.run_id, right.run_id, "--json", "--db", "x.db"]) == 0
    assert json.loads(capsys.readouterr().out)["snapshot"] == record


def test_the_packages_of_runs_are_stored_once(store: Store) -> None:
    one, other = record_in(store, asking({"a": 1})), record_in(store, asking({"a": 2}))
    digests = {recording.events[0].bodies["packages"] for recording in (one, other)}
    assert len(digests) == 1
    listed = one.body(digests.pop())
    assert isinstance(listed, list)
    assert any(str(name).startswith("pytest==") for name in listed)
    names = [str(one).partition("==")[0] for one in listed]
    assert names == sorted(names)


def test_equal_runs_have_no_line_and_unknown_ones_say_so(store: Store) -> None:
    one, other = record_in(store, asking({"a": 1})), record_in(store, asking({"a": 1}))
    assert compared(store, one.run_id, other.run_id).snapshot.lines() == []
    known = read_snapshot(one.events[0], one.body)
    nothing = Snapshot()
    assert compare_snapshots(known, nothing).lines() == [
        "the right run has no snapshot: what it ran on cannot be compared"
    ]
    assert compare_snapshots(nothing, nothing).lines() == [
        "neither run has a snapshot: what it ran on cannot be compared"
    ]


def test_a_script_that_one_side_was_not_started_as_is_no_change() -> None:
    """A worker, or a command of ours, has loaded the code: what the other side was started as says nothing about it."""
    script: Json = {"file": "app.py", "digest": "0" * 64}
    with_script = Snapshot("d", {"python": "3.11", "script": script}, {})
    without, other = Snapshot("e", {"python": "3.11"}, {}), Snapshot("f", {"script": {**script, "file": "b.py"}}, {})
    assert compare_snapshots(with_script, without).lines() == []
    assert compare_snapshots(without, with_script).lines() == []
    assert any(line.startswith("script file changed") for line in compare_snapshots(with_script, other).lines())


@pytest.mark.parametrize("command", ["-m agentloupe", "agentloupe"])
def test_a_fork_by_code_does_not_take_our_command_for_its_script(tmp_path: Path, command: str) -> None:
    (tmp_path / "asker.py").write_text(
        "import agentloupe as loupe\n@loupe.agent\ndef asker():\n    return loupe.random()\n"
        "if __name__ == '__main__':\n    asker()\n"
    )
    db = str(tmp_path / "x.db")
    words = [str(Path(sys.executable).with_name("agentloupe"))] if command == "agentloupe" else [sys.executable, "-m"]
    words += ["agentloupe"] if command != "agentloupe" else []
    for line in (["run", "--db", db, "--", "python", "asker.py"], ["fork", "last", "--from", "start", "--code"]):
        more = ["asker:asker", "--db", db] if line[0] == "fork" else []
        done = subprocess.run([*words, *line, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with closing(open_url(db)) as store:
        fork, parent = store.runs()
        found = {run.id: read_snapshot(store.events(run.id)[0], store.recording(run.id).body) for run in (fork, parent)}
        assert "script" in found[parent.id].facts
        assert "script" not in found[fork.id].facts
        assert compare_snapshots(found[parent.id], found[fork.id]).lines() == []


def test_a_snapshot_that_cannot_be_read_is_not_said_to_be_none(store: Store) -> None:
    """Whoever damages it must not make the run look as if it never had one."""
    recording = record_in(store, asking({"a": 1}))

    def damaged(digest: str | None) -> Json:
        raise Corrupt("damaged")

    known = read_snapshot(recording.events[0], recording.body)
    lost = read_snapshot(recording.events[0], damaged)
    assert "no snapshot" not in lost.line()
    assert lost.line().startswith(f"snapshot {str(known.digest)[:12]} cannot be read")
    (line,) = compare_snapshots(lost, Snapshot()).lines()
    assert line.startswith(f"left: snapshot {str(known.digest)[:12]} cannot be read")
    assert len(compare_snapshots(lost, lost).lines()) == 2
    assert Snapshot().line() == "no snapshot: what it ran on is not known"


def test_show_says_coverage_and_snapshot(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    recording = record_in(store, asking({"prompt_template": "refund v3"}))
    digest = recording.events[0].bodies["snapshot"]
    assert cli(["show", recording.run_id, "--db", "x.db"]) == 0
    said = capsys.readouterr().out
    assert "coverage full" in said
    assert f"snapshot {digest[:12]}: Python 3." in said
    assert "packages" in said
    assert "given prompt_template" in said
    assert cli(["show", recording.run_id, "--json", "--db", "x.db"]) == 0
    shown = json.loads(capsys.readouterr().out)["snapshot"]
    assert shown["digest"] == digest
    assert shown["facts"]["given"] == {"prompt_template": "refund v3"}
    assert "pytest" in shown["packages"]


def test_a_fork_with_its_own_code_says_what_it_runs_on(store: Store) -> None:
    recording = record_in(store, version(new=False))
    (made,) = fork(recording.run_id, version(new=False), from_step=models(recording, store)[1], store=store).runs  # type: ignore[arg-type]
    forked = store.recording(made.id)
    assert "snapshot" in forked.events[0].bodies
    lines = compared(store, recording.run_id, made.id).snapshot.lines()
    assert not any("no snapshot" in line for line in lines)


facts = st.dictionaries(
    st.sampled_from(["python", "git", "given", "tools", "env", "image"]),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)),
        lambda inside: st.dictionaries(st.text(min_size=1, max_size=6), inside, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
packages = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]), max_size=3)
snapshots = st.builds(Snapshot, st.none(), facts, packages)


@given(snapshots, snapshots)
def test_swapping_the_sides_swaps_left_and_right(one: Snapshot, other: Snapshot) -> None:
    here, there = compare_snapshots(one, other), compare_snapshots(other, one)
    assert [(c.what, c.left, c.right) for c in here.changes] == [(c.what, c.right, c.left) for c in there.changes]
    assert compare_snapshots(one, one).changes == ()
    told: Json = here.as_json()
    assert json.loads(json.dumps(told)) == told
