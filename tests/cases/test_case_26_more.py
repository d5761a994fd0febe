"""Case 26, more of the kind: a log cut at any byte, fused at any line, with one event that nobody knows, is never passed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentloupe.cli import main
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import LoupeError
from agentloupe.words.event import Draft
from tests.tapes import Program, ask, edited, use

PROGRAM = Program((ask("blåbær €"), use("get", {"o": "å"}, i=2), use("put", {"o": 9}, i=3), ask("slutt")))

AGENT = as_agent(PROGRAM.agent, "program")


def text_of(recording: Recording) -> bytes:
    out = BytesIO()
    LoupeFileExporter(packed=False).write(iter([recording]), out)
    return out.getvalue()


WHOLE = text_of(PROGRAM.recorded())
LINES = WHOLE.splitlines(keepends=True)
EVENTS = [n for n, line in enumerate(LINES) if b'"event":' in line]


def judged(folder: Path, data: bytes) -> int:
    """Exit code of a replay of this log; the log is read, never written, and nothing of it can be imported."""
    path = folder / "log.loupe"
    path.write_bytes(data)
    try:
        report = replay(path, AGENT)
        assert PROGRAM.real == []
        assert report.calls == 0, "nothing is handed out of a log that is not whole"
        code = report.exit_code
    except LoupeError as refused:
        code = refused.exit_code
    store = open_url("memory:")
    with pytest.raises(LoupeError):
        import_file(store, path)
    assert store.count() == 0
    assert path.read_bytes() == data
    return code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


def test_the_whole_log_passes(folder: Path) -> None:
    (folder / "whole.loupe").write_bytes(WHOLE)
    assert replay(folder / "whole.loupe", AGENT).verdict == "pass"


@given(at=st.integers(0, len(WHOLE) - 1), tail=st.sampled_from([b"", b"\n", b"\n\n", b" ", b"\x00"]))
def test_a_cut_at_any_byte_is_damage(folder: Path, at: int, tail: bytes) -> None:
    data = WHOLE[:at] + tail
    assume(not data.startswith(WHOLE))  # the last byte is the end of a line, and may come back as the tail
    assert judged(folder, data) in (2, 3)


def test_a_cut_inside_every_character_of_more_than_one_byte_names_its_byte(folder: Path) -> None:
    tried = 0
    for at in range(1, len(WHOLE)):
        if WHOLE[at] & 0xC0 == 0x80:  # the next byte belongs to the character before it
            path = folder / "torn.loupe"
            path.write_bytes(WHOLE[:at])
            report = replay(path, AGENT)
            assert (report.verdict, report.exit_code) == ("damaged", 2)
            assert "byte" in report.text()
            tried += 1
    assert tried >= 5


@pytest.mark.parametrize("at", EVENTS[:-1], ids=lambda n: f"line {n}")
@pytest.mark.parametrize("cut", [1, 9, 60])
def test_a_line_that_another_was_appended_to_stops_it(folder: Path, at: int, cut: int) -> None:
    fused = [*LINES[:at], LINES[at].rstrip(b"\n")[:-cut] + LINES[at + 1], *LINES[at + 2 :]]
    assert judged(folder, b"".join(fused)) == 2


@pytest.mark.parametrize("at", range(1, len(PROGRAM.recorded().events) + 1))
@pytest.mark.parametrize(
    ("field", "value"), [("type", "tool.teleported"), ("type", "call.llm2"), ("type", ""), ("schema_version", 9)]
)
def test_an_event_that_nobody_knows_is_never_skipped_wherever_it_stands(
    folder: Path, at: int, field: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(drafts: list[Draft]) -> list[Draft]:
        return [replace(d, **{field: value}) if n == at else d for n, d in enumerate(drafts, 1)]

    data = text_of(edited(PROGRAM.recorded(), change))
    assert judged(folder, data) in (2, 3)
    if value:
        capsys.readouterr()
        path = folder / "log.loupe"
        assert main(["replay", str(path), "--code", "json:dumps", "--json"]) in (2, 3)
        told = capsys.readouterr()
        assert f"sequence {at}" in told.out + told.err
        assert '"state":true' not in told.out.replace(" ", ""), "no final state is computed"


@pytest.mark.parametrize("position", ["before", "after"])
def test_an_added_event_that_nobody_knows_stops_it_too(folder: Path, position: str) -> None:
    """As a newer writer would add one: chained and counted, so that only its type is wrong."""

    def add(drafts: list[Draft]) -> list[Draft]:
        new = replace(drafts[1], type="tool.teleported", event_id="01a2297b-0000-7000-8000-000000000000")
        at = 1 if position == "before" else len(drafts) - 1
        return [*drafts[:at], new, *drafts[at:]]

    assert judged(folder, text_of(edited(PROGRAM.recorded(), add))) == 3


def test_the_cases_own_logs_are_refused_as_they_stand(
    shared_case: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The five files are logs of another program: none is taken for a run, replayed, or written to."""
    for log in sorted(shared_case("26").glob("*.jsonl")):
        before = log.read_bytes()
        copy = tmp_path / log.name
        copy.write_bytes(before)
        capsys.readouterr()
        assert main(["import", str(copy), "--db", str(tmp_path / "x.db")]) in (2, 3), log.name
        assert f"{log.name}: not imported" in capsys.readouterr().out
        assert copy.read_bytes() == before
        assert main(["replay", str(copy), "--code", "json:dumps"]) in (2, 3)
        capsys.readouterr()
        assert copy.read_bytes() == before


def test_lines_of_a_view_that_cannot_be_read_are_set_apart_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON Lines are a view, not the log: what can be read of them is taken over, and said to be a part."""
    run = '{"run": {"id": "r", "step_count": 3}}'
    steps = [json.dumps({"step": {"idx": n, "kind": "tool", "name": f"t{n}", "input": {}, "output": "blå"}}, ensure_ascii=False)
             for n in range(3)]  # fmt: skip
    whole = "\n".join([run, *steps]).encode()
    torn = whole[: whole.rindex("å".encode()) + 1]
    fused = torn[:-10] + b'{"step": {"idx": 3, "kind": "tool", "name": "t3", "input": {}, "output": 1}}\n'
    for name, data in (("torn", torn), ("torn then blank", torn + b"\n\n"), ("fused", fused)):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(data)
        capsys.readouterr()
        assert main(["import", str(path), "--db", str(tmp_path / f"{name}.db"), "--json"]) == 2
        (said,) = json.loads(capsys.readouterr().out)
        assert said["partial"] is True
        assert (said["steps"], said["quarantined"]) == (2, 1), name
        byte = data.index(steps[2][:20].encode())
        assert f"line 4 (byte {byte})" in said["quarantined_places"][0]
        assert any("3 steps; 2 are there" in warning for warning in said["details"][0]["warnings"])
