"""Case 26, files of ours: a cut, a fused line, an unknown event and a newer schema stop the reading; nothing is taken over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentloupe.store import open_url
from agentloupe.verbs.exchange import import_file
from agentloupe.words.canonical import canonical, digest_bytes
from agentloupe.words.errors import Damaged, LoupeError, Truncated, VersionUnknown
from agentloupe.words.seal import GENESIS, link

TYPES = {
    "run.started": "run.started",
    "call.llm": "call.finished",
    "tool.intent": "call.finished",
    "tool.succeeded": "call.finished",
    "run.finished": "run.finished",
}


def converted(log: bytes) -> tuple[bytes, bytes]:
    """The case's log as the text of a `.loupe` file: whole lines as sealed events, the torn rest as it is."""
    whole, _, torn = log.rpartition(b"\n")
    text = b'{"format":"loupe","version":1,"form":"loupe-c1","run":"run-25","written_by":"somebody"}\n'
    before = GENESIS
    for line in whole.splitlines():
        if not line.strip():
            continue
        foreign = json.loads(line)
        kind = foreign["event_type"]
        envelope: dict[str, Any] = {
            "run_id": "run-25",
            "sequence": foreign["sequence"],
            "type": TYPES.get(kind, kind),
            "event_id": foreign["event_id"],
            "recorded_at": foreign["recorded_at"],
            "schema_version": foreign["schema_version"],
            "owner_epoch": 1,
        }
        if TYPES.get(kind) == "call.finished":
            envelope |= {"call_id": f"0.{foreign['sequence']}", "name": kind}
        sealed = link(before, envelope)
        text += b'{"event":%s,"prev_hash":"%s","hash":"%s"}\n' % (canonical(envelope), before.encode(), sealed.encode())
        before = sealed
    return text, torn


def ended(text: bytes) -> bytes:
    events = [json.loads(line) for line in text.splitlines()[1:]]
    end: dict[str, Any] = {
        "events": len(events),
        "bodies": 0,
        "missing": 0,
        "head": events[-1]["hash"],
        "sha256": digest_bytes(text),
    }
    return text + json.dumps({"end": end}, separators=(",", ":")).encode() + b"\n"


def refused(folder: Path, content: bytes) -> LoupeError:
    path = folder / "log.loupe"
    path.write_bytes(content)
    store = open_url("memory:")
    with pytest.raises(LoupeError) as caught:
        import_file(store, path)
    assert store.count() == 0
    return caught.value


@pytest.mark.parametrize("name", ["torn", "torn_then_blank"])
def test_a_cut_stops_after_the_last_whole_event_and_names_the_byte(
    shared_case: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    log = (shared_case("26") / f"{name}.jsonl").read_bytes()
    text, torn = converted(log.rstrip(b"\n"))
    assert torn
    blank = log[len(log.rstrip(b"\n")) :]
    error = refused(tmp_path, text + torn + blank)
    assert isinstance(error, Truncated)
    assert f"at byte {len(text) + len(torn) + len(blank)}" in error.message
    assert "the last whole event is sequence 3" in error.message


def test_a_fused_line_stops_it(shared_case: Callable[[str], Path], tmp_path: Path) -> None:
    text, torn = converted((shared_case("26") / "torn.jsonl").read_bytes())
    another = text.splitlines(keepends=True)[-1]
    assert isinstance(refused(tmp_path, text + torn + another), Damaged)


def test_an_unknown_type_is_never_skipped(shared_case: Callable[[str], Path], tmp_path: Path) -> None:
    text, _ = converted((shared_case("26") / "unknown_type.jsonl").read_bytes())
    error = refused(tmp_path, ended(text))
    assert isinstance(error, VersionUnknown)
    assert "sequence 3 has type 'tool.teleported', which is not known" in error.message


def test_a_newer_schema_stops_at_its_first_event(shared_case: Callable[[str], Path], tmp_path: Path) -> None:
    text, _ = converted((shared_case("26") / "newer_schema.jsonl").read_bytes())
    error = refused(tmp_path, ended(text))
    assert isinstance(error, VersionUnknown)
    assert "sequence 1 has schema 9, newer than this reader" in error.message
