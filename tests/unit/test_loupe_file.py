"""A run in a file of its own: exact, the same bytes each time, and no damage goes unseen."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.importers import loupe_file as reader
from agentloupe.importers.loupe_file import LoupeFileImporter, open_file, read_text
from agentloupe.ports.recording import Recording
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import Corrupt, Damaged, LoupeError, NotFound, Truncated, UsageError, VersionUnknown
from agentloupe.words.event import Head
from tests.made import Maker, weather_like

IMPORTER = LoupeFileImporter()


def written(recording: Recording, *, packed: bool = True) -> bytes:
    out = io.BytesIO()
    LoupeFileExporter(packed=packed).write(iter([recording]), out)
    return out.getvalue()


def ended(text: str | bytes) -> bytes:
    """Lines with a last line that fits them: what somebody who knows the form can make."""
    body = text.encode() if isinstance(text, str) else text
    records = [json.loads(line) for line in body.splitlines()]
    events = [r for r in records if "event" in r]
    end = {
        "events": len(events),
        "bodies": sum("body" in r for r in records),
        "missing": 0,
        "head": events[-1]["hash"] if events else "0" * 64,
        "sha256": digest_bytes(body),
    }
    return body + json.dumps({"end": end}, separators=(",", ":")).encode() + b"\n"


SAMPLE = weather_like()
PACKED = written(SAMPLE)
TEXT = written(SAMPLE, packed=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.loupe"
    path.write_bytes(PACKED)
    return path


def test_the_packed_form_is_the_text_behind_zstd() -> None:
    assert zstandard.ZstdDecompressor().decompressobj().decompress(PACKED) == TEXT
    assert len(PACKED) < len(TEXT)
    for line in TEXT.decode().splitlines():
        json.loads(line)


@pytest.mark.parametrize("content", [PACKED, TEXT], ids=["packed", "text"])
def test_what_comes_back_is_what_went_in(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.name"
    path.write_bytes(content)
    back = open_file(path)
    assert back.head == Head(len(SAMPLE.events), SAMPLE.events[-1].hash)
    assert (back.run_id, back.events) == (SAMPLE.run_id, SAMPLE.events)
    for event in SAMPLE.events:
        for digest in event.digests():
            assert back.get([digest]) == SAMPLE.get([digest])
            assert repr(back.body(digest)) == repr(SAMPLE.body(digest))  # 1.0 is not 1
    assert written(back) == PACKED
    assert written(back, packed=False) == TEXT


def test_the_importer_keeps_numbers_and_hashes_and_counts(file: Path) -> None:
    assert IMPORTER.detects(PACKED[:100])
    assert IMPORTER.detects(TEXT[:100])
    assert not IMPORTER.detects(b'{"run":{}}')
    found = IMPORTER.read(file)
    (run,) = found.runs
    assert found.format == "loupe"
    assert found.quarantined == ()
    assert run.sealed is not None
    assert run.sealed.events == SAMPLE.events
    assert (run.steps, run.model_calls, run.tool_calls, run.partial_steps) == (5, 2, 1, 0)


def test_only_one_run_a_file() -> None:
    with pytest.raises(UsageError):
        LoupeFileExporter().write(iter([]), io.BytesIO())
    with pytest.raises(UsageError):
        LoupeFileExporter().write(iter([SAMPLE, SAMPLE]), io.BytesIO())


def test_an_erased_body_stays_out_and_the_flow_can_be_read() -> None:
    digest = SAMPLE.events[1].input_digest
    assert digest is not None
    erased = replace(SAMPLE, get=lambda wanted: SAMPLE.get([d for d in wanted if d != digest]))
    back = read_text(written(erased, packed=False), "erased")
    assert back.events == SAMPLE.events
    with pytest.raises(Damaged, match="is not there"):
        back.body(digest)
    assert written(back, packed=False) == written(erased, packed=False)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_file(tmp_path / "none.loupe")
    with pytest.raises(UsageError):
        open_file(tmp_path)


# --- damage -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, len(TEXT) - 1))
def test_every_cut_of_the_text_is_found(size: int) -> None:
    with pytest.raises(Truncated) as caught:
        read_text(TEXT[:size], "cut")
    assert f"at byte {size}" in str(caught.value)


@given(st.integers(0, len(PACKED) - 1))
def test_every_cut_of_the_packed_file_is_found(size: int) -> None:
    with pytest.raises(Damaged) as caught:
        opened(PACKED[:size])
    if size >= 4:  # before that nothing says that it is packed
        assert isinstance(caught.value, Truncated)
        assert f"end at byte {size}" in str(caught.value)


@given(st.integers(0, len(TEXT) - 1), st.integers(1, 255))
def test_every_changed_byte_of_the_text_is_found(at: int, by: int) -> None:
    with pytest.raises(Damaged):
        read_text(TEXT[:at] + bytes([TEXT[at] ^ by]) + TEXT[at + 1 :], "changed")


@given(st.integers(0, len(PACKED) - 1), st.integers(1, 255))
def test_a_changed_byte_of_the_packed_file_is_found_or_changes_nothing(at: int, by: int) -> None:
    # Some bits of zstd's headers say nothing about the content: how much memory unpacking takes, what is unused in a table.
    try:
        back = opened(PACKED[:at] + bytes([PACKED[at] ^ by]) + PACKED[at + 1 :])
    except Damaged:
        return
    assert written(back) == PACKED


@given(st.binary(max_size=200))
def test_noise_is_never_another_error(noise: bytes) -> None:
    for content in (noise, b"\x28\xb5\x2f\xfd" + noise, b'{"format":"loupe",' + noise):
        with pytest.raises(LoupeError):
            opened(content)


@given(st.binary(min_size=1, max_size=20))
def test_what_follows_after_the_end_is_found(more: bytes) -> None:
    for content in (PACKED + more, TEXT + more):
        with pytest.raises(Damaged):
            opened(content)


def opened(content: bytes) -> Recording:
    """As from a file, without a file for each example."""
    source = io.BytesIO(content)
    path = Path("in memory")
    packed = content[:4] == b"\x28\xb5\x2f\xfd"
    text = reader._unpacked(source, path) if packed else reader._plain(source, path)
    return read_text(text, "in memory")


def test_a_cut_says_where_and_how_far_the_events_go() -> None:
    at = TEXT.index(b'{"event":', TEXT.index(b'"sequence":4')) + 40
    with pytest.raises(Truncated, match=f"ends inside line 6 at byte {at} .* last whole event is sequence 4"):
        read_text(TEXT[:at], "torn.loupe")


def test_a_changed_body_is_found_even_when_the_end_was_written_anew() -> None:
    lines = TEXT.splitlines(keepends=True)[:-1]
    at = next(i for i, line in enumerate(lines) if line.startswith(b'{"body"') and b"Oslo" in line)
    lines[at] = lines[at].replace(b"Oslo", b"Rome")
    with pytest.raises(Corrupt, match=f"line {at + 1} .* not what its digest"):
        read_text(ended(b"".join(lines)), "forged")


def test_a_changed_event_is_opened_for_verify_but_not_imported(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)[:-1]
    lines[2] = lines[2].replace(b'"name":"chat m"', b'"name":"chat n"')
    path = tmp_path / "forged.loupe"
    path.write_bytes(ended(b"".join(lines)))
    assert open_file(path).events[1].name == "chat n"
    with pytest.raises(Corrupt, match="chain breaks at sequence 2"):
        IMPORTER.read(path)


def test_a_left_out_event_is_a_gap(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)[:-1]
    path = tmp_path / "gap.loupe"
    path.write_bytes(ended(b"".join(lines[:3] + lines[4:])))
    with pytest.raises(Corrupt, match="breaks at sequence 4"):
        IMPORTER.read(path)


def test_a_newer_form_says_so_before_anything_else() -> None:
    header, rest = TEXT.split(b"\n", 1)
    newer = header.replace(b'"version":1', b'"version":2')
    with pytest.raises(VersionUnknown, match="version 2"):
        read_text(newer + b'\n{"chapter":1}\n', "newer")
    with pytest.raises(Damaged):  # a flipped digit is damage, not a version
        read_text(newer + b"\n" + rest, "flipped")


def test_an_empty_recording_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "empty.loupe"
    path.write_bytes(written(replace(SAMPLE, events=())))
    assert open_file(path).events == ()
    with pytest.raises(Truncated, match="empty"):
        IMPORTER.read(path)


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_small_file_that_unpacks_to_very_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FREE", 1 << 20)
    path = tmp_path / "bomb.loupe"
    path.write_bytes(zstandard.ZstdCompressor().compress(b'{"format":"loupe",' + b" " * (64 << 20)))
    with pytest.raises(Corrupt) as caught:
        open_file(path)
    assert caught.value.reason == "too_large"


def test_a_text_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LARGEST_TEXT", 1000)
    for content in (PACKED, TEXT):
        path = tmp_path / "long.loupe"
        path.write_bytes(content)
        with pytest.raises(Corrupt) as caught:
            open_file(path)
        assert caught.value.reason == "too_large"


def test_a_line_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LARGEST_EVENT", 300)
    with pytest.raises(Corrupt) as caught:
        read_text(TEXT, "long line")
    assert caught.value.reason == "too_large"


def test_an_event_that_is_nested_too_deep_is_refused() -> None:
    lines = TEXT.splitlines(keepends=True)[:-1]
    deep = b'{"event":' + b'{"attrs":' * 2000 + b"1" + b"}" * 2000 + b',"prev_hash":"","hash":""}\n'
    text = lines[0] + deep
    end = {"events": 1, "bodies": 0, "missing": 0, "head": "", "sha256": digest_bytes(text)}
    with pytest.raises(Corrupt, match="line 2"):
        read_text(text + json.dumps({"end": end}, separators=(",", ":")).encode() + b"\n", "deep")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.lists(st.tuples(st.sampled_from(["tool", "other", "env"]), json_values, json_values), max_size=5), st.booleans()
)
def test_any_run_comes_back_as_the_same_bytes(calls: list[tuple[Any, Any, Any]], packed: bool) -> None:
    made = Maker("any", calls[0][1] if calls else None)
    for kind, given_in, out in calls:
        made.call(kind, "name", given_in, out)
    content = written(made.finish(), packed=packed)
    back = opened(content)
    assert written(back, packed=packed) == content
    for event in back.events:
        for digest in event.digests():
            back.body(digest)


def test_ten_thousand_events_take_little_time_and_give_the_same_bytes() -> None:
    made = Maker("long")
    for i in range(2500):
        made.call("tool", "t", {"i": i}, i)
    recording = made.finish()
    text = written(recording, packed=False)
    assert written(read_text(text, "long"), packed=False) == text
