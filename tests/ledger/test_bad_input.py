"""Folders from strangers: the first fault is named, exit code 2 or 3, and nothing is written anywhere."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentloupe.cli.app import run as cli
from agentloupe.importers import ledger_folder
from tests.ledger.support import FIXTURE

Harm = Callable[[Path], object]
OUTSIDE = "outside.txt"


def _line(n: int, change: Callable[[bytes], bytes]) -> Harm:
    def harm(folder: Path) -> None:
        log = folder / "events.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        lines[n - 1] = change(lines[n - 1])
        log.write_bytes(b"".join(lines))

    return harm


def _moved(name: str, to: str) -> Harm:
    return lambda folder: (folder / name).rename(folder / to)


def _linked(name: str) -> Harm:
    def harm(folder: Path) -> None:
        target = folder.parent / OUTSIDE
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()
        (folder / name).symlink_to(target if name != "receipts" else folder.parent)

    return harm


def _put(name: str, data: bytes) -> Harm:
    return lambda folder: (folder / name).write_bytes(data)


def _huge(name: str) -> Harm:
    """A file that says it has 10 GB; on disk it has none."""

    def harm(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.truncate(10 << 30)

    return harm


def _pipe(name: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return harm


DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000

FAULTS: list[tuple[str, Harm, str]] = [
    ("no log", lambda f: (f / "events.jsonl").unlink(), "events.jsonl: there is no such file [layout]"),
    ("no budget", lambda f: (f / "budget.json").unlink(), "budget.json: there is no such file [layout]"),
    ("no contract", lambda f: (f / "contract.json").unlink(), "contract.json: there is no such file [contract_digest]"),
    (
        "no checkpoint",
        lambda f: (f / "checkpoint.json").unlink(),
        "checkpoint.json: there is no such file [checkpoint]",
    ),
    (
        "no receipts",
        lambda f: shutil.rmtree(f / "receipts"),
        "sequence 9, kind tool_finished: there is no receipts/c2.json",
    ),
    ("no values", lambda f: (f / "bodies.jsonl").unlink(), "its bodies_sha256 is not that of the folder [checkpoint]"),
    ("empty log", _put("events.jsonl", b""), "events.jsonl, byte 0: the log is empty: no event [json]"),
    ("empty budget", _put("budget.json", b""), "budget.json: it is not the budget whose digest run_started holds"),
    (
        "empty receipt",
        _put("receipts/c2.json", b""),
        "receipts/c2.json, sequence 9, kind tool_finished: it is not the receipt",
    ),
    ("empty checkpoint", _put("checkpoint.json", b""), "checkpoint.json: not strict JSON"),
    ("empty values", _put("bodies.jsonl", b""), "its bodies_sha256 is not that of the folder"),
    ("another file", _put("notes.txt", b""), "notes.txt: nothing of this name belongs into a ledger [layout]"),
    ("hidden file", _put(".events.jsonl.swp", b""), ".events.jsonl.swp: nothing of this name"),
    ("another folder", lambda f: (f / "more").mkdir(), "more: nothing of this name"),
    (
        "folder for a file",
        lambda f: ((f / "budget.json").unlink(), (f / "budget.json").mkdir()),
        "budget.json: it is a link, or no plain file",
    ),
    (
        "file for a folder",
        lambda f: (shutil.rmtree(f / "receipts"), (f / "receipts").touch()),
        "receipts: it is no folder",
    ),
    ("misnamed log", _moved("events.jsonl", "Events.jsonl"), "Events.jsonl: nothing of this name"),
    ("misnamed receipt", _moved("receipts/c2.json", "receipts/c3.json"), "there is no receipts/c2.json [receipts]"),
    (
        "receipt twice",
        lambda f: shutil.copy(f / "receipts/c2.json", f / "receipts/c2 (1).json"),
        "receipts/c2 (1).json: no tool call has this receipt",
    ),
    ("receipt with another ending", _put("receipts/c2.txt", b"{}"), "receipts/c2.txt: nothing of this name"),
    (
        "folder of receipts in receipts",
        lambda f: (f / "receipts/x.json").mkdir(),
        "receipts/x.json: it is a link, or no plain file",
    ),
    *(
        (f"{name} is a link", _linked(name), f"{name}: it is")
        for name in (
            "events.jsonl",
            "budget.json",
            "contract.json",
            "checkpoint.json",
            "bodies.jsonl",
            "receipts",
            "receipts/c2.json",
        )
    ),
    (
        "report is a link",
        lambda f: (f / "replay_report.json").symlink_to(f.parent / OUTSIDE),
        "replay_report.json: it is a link",
    ),
    ("log is a pipe", _pipe("events.jsonl"), "events.jsonl: it is a link, or no plain file"),
    *(
        (f"{name} of 10 GB", _huge(name), f"{name}: larger than")
        for name in (
            "events.jsonl",
            "budget.json",
            "contract.json",
            "checkpoint.json",
            "bodies.jsonl",
            "receipts/c2.json",
        )
    ),
    (
        "not UTF-8",
        _line(3, lambda t: t.replace(b"running", b"runn\xffing")),
        "line 3, byte {b3}: not UTF-8 at byte 173 of the line; the last whole event is sequence 2 [json]",
    ),
    (
        "UTF-16",
        lambda f: _put("events.jsonl", (f / "events.jsonl").read_bytes().decode().encode("utf-16"))(f),
        "line 1, byte 0: not UTF-8",
    ),
    ("a byte order mark", _line(1, lambda t: b"\xef\xbb\xbf" + t), "line 1, byte 0: not strict JSON"),
    ("deep nesting", _line(2, lambda _: DEEP + b"\n"), "line 2, byte {b2}: not strict JSON"),
    ("deep nesting in a receipt", _put("receipts/c2.json", DEEP), "receipts/c2.json"),
    (
        "a member twice",
        _line(2, lambda t: t.replace(b'"seq":2', b'"seq":2,"seq":2')),
        "line 2, byte {b2}: not strict JSON",
    ),
    ("NaN", _line(2, lambda t: t.replace(b'"attempt":1', b'"attempt":NaN')), "not strict JSON"),
    ("a list", _line(2, lambda _: b"[]\n"), "line 2, byte {b2}: no JSON object"),
    ("a blank line", _line(2, lambda t: b"\n" + t), "line 2, byte {b2}: a blank line"),
    (
        "no line break at the end",
        _line(14, lambda t: t.rstrip(b"\n")),
        "line 14, byte {b14}: the last line has no line break",
    ),
    (
        "a number as text",
        _line(2, lambda t: t.replace(b'"seq":2', b'"seq":"2"')),
        "line 2, kind attempt_started: seq is of a wrong type [fields]",
    ),
    (
        "a boolean as number",
        _line(1, lambda t: t.replace(b'"seq":1', b'"seq":true')),
        "line 1, kind run_started: seq is of a wrong type",
    ),
    (
        "an unknown field",
        _line(2, lambda t: t.replace(b'"seq":2', b'"seq":2,"note":""')),
        "a field that nobody knows: note",
    ),
    (
        "a huge number",
        _line(2, lambda t: t.replace(b'"seq":2', b'"seq":' + b"9" * 5000)),
        "sequence 2 was expected here",
    ),
    (
        "a call that climbs out",
        lambda f: [_line(n, lambda t: t.replace(b'"c2"', b'"../../c2"'))(f) for n in (7, 8, 9)],
        "there is no receipts/%2E.%2F..%2Fc2.json [receipts]",
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / OUTSIDE).write_bytes(b"not yours")
    return Path(shutil.copytree(FIXTURE, tmp_path / "in" / "ledger").rename(tmp_path / "ledger"))


def _all_below(place: Path) -> dict[str, tuple[int, bytes | None]]:
    """Every path with its size, and the bytes of small files; links and pipes are not followed."""
    found: dict[str, tuple[int, bytes | None]] = {}
    for path in sorted(place.rglob("*")):
        plain = path.is_file() and not path.is_symlink() and path.lstat().st_size < 1 << 20
        found[str(path.relative_to(place))] = (path.lstat().st_size, path.read_bytes() if plain else None)
    return found


@pytest.mark.parametrize(("harm", "said"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_the_first_fault_is_named_and_nothing_is_written(
    folder: Path, harm: Harm, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    said = said.format(**{f"b{n}": sum(map(len, lines[: n - 1])) for n in range(1, 15)})
    harm(folder)
    before = _all_below(folder.parent)
    assert cli(["ledger", "replay", str(folder)]) in (2, 3)
    error = capsys.readouterr().err
    assert said in error
    assert len(error) < 1000
    assert cli(["ledger", "import", str(folder), "--db", str(folder.parent / "x.db")]) in (2, 3)
    for path in folder.parent.glob("x.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert _all_below(folder.parent) == before


def test_a_budget_that_is_named_may_be_a_link_since_a_person_named_it(folder: Path) -> None:
    (folder / "budget.json").rename(folder.parent / "real.json")
    (folder.parent / "link.json").symlink_to("real.json")
    assert cli(["ledger", "replay", str(folder), "--budget", str(folder.parent / "link.json")]) == 0


@pytest.mark.parametrize("verb", ["replay", "salvage", "import"])
def test_a_folder_that_is_none(folder: Path, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for place, code, said in (
        (folder.parent / "nowhere", 3, "there is no folder"),
        (folder / "budget.json", 64, "is a file"),
        (folder.parent, 64, "is no ledger: there is no events.jsonl in it"),
    ):
        assert cli(["ledger", verb, str(place)]) == code
        assert said in capsys.readouterr().err


def test_a_salvage_is_not_written_into_the_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _all_below(folder)
    assert cli(["ledger", "salvage", str(folder), "-o", str(folder / "out.jsonl")]) == 3
    assert "lies in the ledger" in capsys.readouterr().err
    assert _all_below(folder) == before


def test_a_salvage_writes_over_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.parent / "salvaged.jsonl"
    out.write_bytes(b"the only copy of an earlier one")
    assert cli(["ledger", "salvage", str(folder), "-o", str(out)]) == 3
    assert "is there already" in capsys.readouterr().err
    assert out.read_bytes() == b"the only copy of an earlier one"


def test_a_folder_of_too_many_receipts_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledger_folder, "MOST_RECEIPTS", 3)
    for n in range(3):
        (folder / "receipts" / f"{n}.json").touch()
    assert cli(["ledger", "replay", str(folder)]) == 2
    assert "receipts: 4 receipts: more than are read [layout]" in capsys.readouterr().err


def test_what_declares_10_gb_costs_no_memory(folder: Path) -> None:
    _huge("events.jsonl")(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert cli(["ledger", "replay", str(folder)]) == 2
    assert cli(["ledger", "salvage", str(folder)]) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB
