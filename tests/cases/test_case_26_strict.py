"""Case 26, strict part: cut, fused, newer and unknown records stop a replay at their place; none is skipped.

The five logs of the case are in a foreign form; each kind of damage is made in a file of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from agentloupe.engine.report import ReplayReport
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports.recording import Recording
from agentloupe.verbs.replaying import replay
from agentloupe.words.errors import VersionUnknown
from agentloupe.words.event import Draft, from_envelope
from tests.tapes import Program, ask, edited, use

STEPS = (ask("blåbær"), use("get", {"o": 4}, i=2), use("put", {"o": 9}, i=3))


@pytest.fixture
def program() -> Program:
    return Program(STEPS)


def _file(recording: Recording) -> bytes:
    out = BytesIO()
    LoupeFileExporter(packed=False).write(iter([recording]), out)
    return out.getvalue()


def _replayed(program: Program, folder: Path, data: bytes) -> ReplayReport:
    file = folder / "log.loupe"
    file.write_bytes(data)
    report = replay(file, program.agent)
    assert program.real == []
    return report


def test_the_case_is_what_we_think(shared_case: Callable[[str], Path]) -> None:
    strict = json.loads((shared_case("26") / "expected.json").read_text("utf-8"))["strict"]
    assert set(strict) == {"torn", "fused", "torn_then_blank", "unknown_type", "newer_schema"}


@pytest.mark.parametrize("tail", [b"", b"\n", b"\n\n"], ids=["torn", "torn then blank", "torn then two"])
def test_torn_inside_a_character_stops_with_the_byte_offset(program: Program, tmp_path: Path, tail: bytes) -> None:
    whole = _file(program.recorded())
    at = whole.index("å".encode()) + 1
    report = _replayed(program, tmp_path, whole[:at] + tail)
    assert (report.verdict, report.exit_code) == ("damaged", 2)
    assert "byte" in report.text(), report.text()


def test_torn_in_the_events_stops_too(program: Program, tmp_path: Path) -> None:
    whole = _file(program.recorded())
    at = whole.index(b'"tool.started"') + 4
    report = _replayed(program, tmp_path, whole[:at])
    assert (report.verdict, report.exit_code) == ("damaged", 2)
    assert "byte" in report.text(), report.text()


def test_a_fused_line_stops(program: Program, tmp_path: Path) -> None:
    lines = _file(program.recorded()).split(b"\n")
    n = next(i for i, line in enumerate(lines) if b'"tool.started"' in line)
    lines[n : n + 2] = [lines[n][:-9] + lines[n + 1]]
    assert _replayed(program, tmp_path, b"\n".join(lines)).exit_code == 2


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("type", "tool.teleported", "tool.teleported"), ("schema_version", 9, "newer than this reader")],
)
def test_what_this_reader_does_not_know_is_never_skipped(
    program: Program, tmp_path: Path, field: str, value: object, words: str
) -> None:
    def change(drafts: list[Draft]) -> list[Draft]:
        return [replace(d, **{field: value}) if i == 3 else d for i, d in enumerate(drafts, 1)]

    strange = edited(program.recorded(), change)
    event = strange.events[2]
    with pytest.raises(VersionUnknown, match="sequence 3"):
        from_envelope(event.envelope(event.run_id, event.sequence), event.prev_hash, event.hash)
    report = _replayed(program, tmp_path, _file(strange))
    assert (report.verdict, report.exit_code) == ("could_not_run", 3), report.text()
    assert words in report.text()
    assert "sequence 3" in report.text()
    assert report.calls == 0, "no state is computed past it"
