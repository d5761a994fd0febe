"""Case 10 by the command: each program of the case against its log, and what `expected.json` says of each."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentloupe.cli import main
from agentloupe.store import open_url
from tests.tapes import files_below, record_in

DESK = """
import json
import os
from pathlib import Path

import agentloupe as loupe

CASE = Path({case!r})
PROGRAMS = json.loads((CASE / "programs.json").read_text("utf-8"))
ANSWERS = {{}}
for line in (CASE / "events.jsonl").read_text("utf-8").splitlines():
    event = json.loads(line)
    ANSWERS[event["event_type"].removeprefix("call.")] = event["payload"]["output"]


def declared(name, effect):
    @loupe.tool(effect=effect, name=name)
    def call(**arguments):
        if os.environ.get("CASE_10") != "real":
            Path({touched!r}).write_text(name)
            raise AssertionError("the transport was touched")
        return ANSWERS[name]

    return call


TOOLS = {{name: declared(name, "write" if name == "mail.send" else "read") for name in ANSWERS}}


def program(name):
    @loupe.agent(name="desk")
    def desk():
        return [TOOLS[called](**arguments) for called, arguments in PROGRAMS[name]]

    return desk


ok, stops_early, one_more, changed_argument, swapped = map(program, PROGRAMS)
"""

# Program: exit code, kind, number of the call (an event each in the case), and our words for those of `expected.json`.
TOLD: dict[str, tuple[int, str | None, int | None, tuple[str, ...]]] = {
    "ok": (0, None, None, ()),
    "stops_early": (1, "unconsumed", 3, ("1 recorded call left", "mail.send")),
    "one_more": (1, "extra", 4, ("log is exhausted",)),
    "changed_argument": (1, "input_changed", 3, ("digest",)),
    "swapped": (1, "order", 1, ("expected: tool ticket.read", "actual  : tool llm")),
}


class Desk(NamedTuple):
    """The file of the store, the run in it, and at which of our events each call begins, then the end."""

    db: Path
    run_id: str
    begins: list[int]


@pytest.fixture
def desk(shared_case: Callable[[str], Path], workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The case's three calls as the program `ok` made them, in a store beside its code."""
    source = DESK.format(case=str(shared_case("10")), touched=str(workdir / "touched"))
    (workdir / "desk_of_10.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(workdir)
    monkeypatch.setenv("CASE_10", "real")
    store = open_url(workdir / "log.db")
    module: Any = importlib.import_module("desk_of_10")
    recording = record_in(store, module.ok)
    store.close()
    monkeypatch.delenv("CASE_10")
    monkeypatch.delitem(sys.modules, "desk_of_10")
    begins = [e.sequence for e in recording.events if e.type in ("tool.allowed", "run.finished")]
    return Desk(workdir / "log.db", recording.run_id, begins)


def test_each_program_is_named_in_what_is_expected(shared_case: Callable[[str], Path]) -> None:
    expected = json.loads((shared_case("10") / "expected.json").read_text("utf-8"))
    programs = json.loads((shared_case("10") / "programs.json").read_text("utf-8"))
    others = {"log_missing", "log_empty", "output_payload_edited", "real_calls_in_every_variant"}
    assert set(expected) == {*TOLD, *others, "log_bytes_unchanged", "exit_code"}
    assert list(programs) == list(TOLD)
    for name, (code, _, sequence, _) in TOLD.items():
        assert str(expected[name]).startswith("fail" if code else "pass, 3 of 3 consumed")
        assert sequence is None or str(sequence) in str(expected[name])


@pytest.mark.parametrize("program", TOLD)
def test_the_command_tells_the_first_divergence_by_one_code(
    desk: Desk, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    db, run_id, begins = desk
    code, kind, sequence, words = TOLD[program]
    before = db.read_bytes()
    capsys.readouterr()
    asked = ["replay", run_id, "--db", str(db), "--code", f"desk_of_10:{program}"]
    assert main([*asked, "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == ("diverged" if code else "pass")
    if kind is None:
        assert (told["calls"], told["divergence"]) == (3, None)
    else:
        assert sequence is not None
        assert (told["divergence"]["kind"], told["divergence"]["sequence"]) == (kind, begins[sequence - 1])
        assert main(asked) == code
        said = "".join(capsys.readouterr())
        assert [word for word in words if word not in said] == [], said
        assert said.count(" at sequence ") == 1, "one divergence, not a list"
    assert "touched" not in files_below(db.parent), "real calls in every variant: 0"
    assert db.read_bytes() == before


def test_damage_and_could_not_run_have_codes_of_their_own(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    db, run_id, _ = desk
    file = db.parent / "log.loupe"
    assert main(["export", run_id, "--db", str(db), "-o", str(file)]) == 0
    file.write_bytes(file.read_bytes()[:-1])
    assert main(["replay", str(file), "--code", "desk_of_10:ok"]) == 2
    assert main(["replay", "nowhere", "--db", str(db), "--code", "desk_of_10:ok"]) == 3
    assert main(["replay", run_id, "--db", str(db), "--code", "desk_of_10:nothing"]) == 3
    capsys.readouterr()
    assert "touched" not in files_below(db.parent)
