"""Runs from files whose ids mean something else where a run is named, or cannot be shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import agentloupe as loupe
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.ports import ambient
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import Corrupt
from agentloupe.words.jsontext import dumps, loads
from agentloupe.words.seal import GENESIS, link

ODD = ["", "last", "last~1", "../../etc/passwd", "/abs", "a b", "a\nb", "\x1b[31mred", "-rf", "x" * 300, "run.loupe"]


@loupe.agent(name="quiet")
def quiet() -> int:
    return 1


def renamed(path: Path, run_id: str) -> Path:
    """A whole file, sealed well, whose run has this id."""
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        quiet()
    with path.open("wb") as out:
        LoupeFileExporter().write(iter([store.recording(opener.sessions[0].run_id)]), out)
    lines = _text(path).splitlines()
    header, end = loads(lines[0]), loads(lines[-1])
    assert isinstance(header, dict)
    assert isinstance(end, dict)
    header["run"] = run_id
    made, before = [dumps(header)], GENESIS
    for line in lines[1:-1]:
        event = loads(line)
        if line.startswith(b'{"event":'):
            assert isinstance(event, dict)
            envelope = event["event"]
            assert isinstance(envelope, dict)
            envelope["run_id"] = run_id
            sealed = link(before, envelope)
            line = dumps({"event": envelope, "prev_hash": before, "hash": sealed})
            before = sealed
        made.append(line)
    text = b"\n".join(made) + b"\n"
    about = end["end"]
    assert isinstance(about, dict)
    about |= {"sha256": hashlib.sha256(text).hexdigest(), "head": before}
    path.write_bytes(text + dumps({"end": about}) + b"\n")
    return path


def _text(path: Path) -> bytes:
    import zstandard

    data = path.read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(data) if data.startswith(b"\x28\xb5") else data


@pytest.mark.parametrize("run_id", ODD)
def test_a_sealed_run_with_an_id_that_no_recorder_gives_is_refused(run_id: str, tmp_path: Path) -> None:
    store = MemoryStore()
    with pytest.raises(Corrupt) as refused:
        import_file(store, renamed(tmp_path / "odd.loupe", run_id))
    assert refused.value.reason == "run_id"
    assert store.count() == 0


def test_a_sealed_run_with_a_plain_id_is_taken_over(tmp_path: Path) -> None:
    assert import_file(MemoryStore(), renamed(tmp_path / "a.loupe", "quiet-260101-abc123")).runs[0].state == "imported"


@pytest.mark.parametrize("run_id", [odd for odd in ODD if odd])
def test_a_foreign_run_gets_an_id_that_commands_can_name(run_id: str, tmp_path: Path) -> None:
    from agentloupe.verbs.api import resolve

    file = tmp_path / "foreign.jsonl"
    step = {"idx": 0, "kind": "llm", "name": "chat m", "input": {"messages": []}, "output": {"content": "x"}}
    file.write_text(json.dumps({"run": {"id": run_id, "name": "foreign"}, "steps": [step]}) + "\n", "utf-8")
    store = MemoryStore()
    made = import_file(store, file).runs[0].run_id
    assert made.isprintable()
    assert not set(made) & set(" /\\")
    assert not made.startswith(("-", "last~"))
    assert made != "last"
    assert resolve(store, made) == made
