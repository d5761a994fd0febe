"""Any run out as a folder and back in, equal: events, hashes, values; from made ones, recorded ones and imported ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.cli.app import run as cli
from agentloupe.engine.ledger.making import files_of, recording_of
from agentloupe.engine.ledger.report import judge, replay
from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.exporters.ledger_folder import write_folder
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.store.owners import this_process
from agentloupe.vault.keys import make_key
from agentloupe.verbs.exchange import import_file
from agentloupe.verbs.forking import fork_run
from agentloupe.verbs.ledger import export_ledger, import_ledger, replay_folder
from agentloupe.words.errors import Corrupt, LoupeError, Refused
from agentloupe.words.event import EVENT_TYPES, Draft, Event, from_envelope
from agentloupe.words.ledger import KINDS, LARGEST_RECEIPT, ROWS, envelope_of, line_of, linked, receipt_name
from agentloupe.words.run import VALUES_MISSING, RunFilter
from agentloupe.words.seal import GENESIS
from tests.fork_support import TOOLS, Script, weather_run
from tests.ledger.support import FIXTURE, in_memory
from tests.made import Maker, sealed
from tests.tapes import Program, ask, files_below, record_in, tampered, use


def values_of(recording: Recording) -> dict[str, bytes]:
    named = {digest for event in recording.events for digest in event.digests()}
    return dict(recording.get(sorted(named)))


def there_and_back(recording: Recording, *, bodies: bool = True) -> Recording:
    """Through the files, in memory."""
    found = judge(in_memory(files_of(recording, bodies=bodies)))
    values = [line.partition(b'","value":') for line in found.folder.bodies()]
    return recording_of(found, {head[-64:].decode(): tail[:-1] for head, _, tail in values})


def assert_equal(one: Recording, other: Recording) -> None:
    assert one.events == other.events
    assert one.events[-1].hash == other.events[-1].hash
    assert values_of(one) == values_of(other)


# --- the table --------------------------------------------------------------------------------------------------------


def test_every_type_of_event_has_a_kind_and_every_kind_a_type() -> None:
    assert {row.type for row in ROWS} == EVENT_TYPES
    assert len(KINDS) == len(ROWS) == len(EVENT_TYPES) + 1, "one type is two kinds: model.responded"
    stages = {stage for row in ROWS for stage in row.after if stage is not None}
    assert stages - set(KINDS) == {"interrupted", "not_done"}


NAMES = st.sampled_from(
    ["tool", "attrs", "name", "seq", "kind", "run_id", "sequence", "type", "receipt_sha256", "ms", "x"]
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@st.composite
def events(draw: st.DrawFn) -> Event:
    said: dict[str, Any] = {
        "type": draw(st.sampled_from(sorted(EVENT_TYPES))),
        "event_id": draw(st.text(min_size=1)),
        "recorded_at": "2026-04-01T10:00:00.000000Z",
        "attrs": draw(st.dictionaries(NAMES | st.text(), VALUES, max_size=4)),
        "bodies": draw(st.dictionaries(st.text(), st.text(), max_size=2)),
    }
    if draw(st.booleans()):
        said["attrs"] |= {"finish_reason": draw(st.sampled_from(["stop", "tool_calls", "tool_use", None]))}
    optional = {
        "parent_seq": st.integers(1, 6),
        "name": st.text(),
        "call_id": st.text(),
        "source": st.text(),
        "lane": st.text(),
    }
    said |= {name: draw(values) for name, values in optional.items() if draw(st.booleans())}
    return sealed("a run", [Draft(type="run.started", event_id="1", recorded_at=""), Draft(**said)], {}).events[1]


@given(events())
def test_a_line_and_its_event_are_two_spellings_of_one_thing(event: Event) -> None:
    line = line_of(event, {"receipt_sha256": "added"} if event.type == "tool.finished" else None)
    stored = json.loads(json.dumps(linked(line, GENESIS)))
    back = from_envelope(envelope_of(stored), event.prev_hash, event.hash)
    assert back == event
    assert line_of(back) == {**line, "payload": {k: v for k, v in line["payload"].items() if v != "added"}}  # type: ignore[union-attr]


@given(st.text(min_size=1))
def test_receipts_are_called_like_their_calls_and_lie_in_their_folder(call_id: str) -> None:
    name = receipt_name(call_id)
    assert name.isascii()
    assert len(name) < 256
    assert Path(name).name == name
    assert not name.startswith(".")
    if (
        call_id.isascii()
        and call_id.replace(".", "").replace("-", "").isalnum()
        and call_id[0] != "."
        and len(call_id) < 99
    ):
        assert name == f"{call_id}.json"


@given(st.lists(st.text(min_size=1), min_size=2, max_size=20, unique=True))
def test_no_two_calls_share_a_receipt(ids: list[str]) -> None:
    assert len({receipt_name(one) for one in ids}) == len(ids)


# --- runs -------------------------------------------------------------------------------------------------------------

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["llm", "tool", "retrieval", "other", "clock", "random", "check", "state", "agent"]),
        st.text(max_size=8),
        VALUES,
        st.booleans(),
        st.dictionaries(NAMES.filter(lambda name: name not in ("name", "kind")), PLAIN, max_size=2),
    ),
    max_size=8,
)


@given(CALLS, st.booleans(), st.booleans())
def test_any_run_comes_back_equal(calls: list[Any], ended: bool, bodies: bool) -> None:
    maker = Maker("made", {"args": []})
    for kind, name, value, ok, attrs in calls:
        facts = {**attrs, **({"passed": ok} if kind == "check" else {})}
        maker.call(kind, name or "n", value if kind != "llm" else {"messages": [value]}, value, ok=ok, **facts)
    recording = maker.finish() if ended else maker.recording()
    back = there_and_back(recording, bodies=bodies)
    assert back.events == recording.events
    if bodies:
        assert_equal(recording, back)


def _recorded() -> Iterator[tuple[str, Recording]]:
    program = Program((ask("hej"), use("get", {"o": "å"}, i=2), use("put", {"o": 9}, i=3), ask("slutt")))
    yield "a run of four calls", program.recorded()
    yield "one that was killed", _without_its_end(program.recorded())
    yield "one that failed", record_in(MemoryStore(), _failing)


def _failing() -> None:
    raise ValueError("no")


def _without_its_end(recording: Recording) -> Recording:
    return replace(recording, events=recording.events[:-2], head=None)


@pytest.mark.parametrize(("name", "recording"), list(_recorded()), ids=lambda v: v if isinstance(v, str) else "")
def test_recorded_runs_come_back_equal_through_folders_and_stores(
    tmp_path: Path, name: str, recording: Recording
) -> None:
    first, second = MemoryStore(), open_url(tmp_path / "second.db", create=True)
    first.insert(recording.run_id, recording.events, recording.get, Projector)
    export_ledger(first, recording.run_id, tmp_path / "one")
    assert import_ledger(second, tmp_path / "one").state == "imported"
    assert import_ledger(second, tmp_path / "one").state == "already there"
    assert_equal(first.recording(recording.run_id), second.recording(recording.run_id))
    assert second.steps(recording.run_id) == first.steps(recording.run_id)
    export_ledger(second, recording.run_id, tmp_path / "two")
    assert files_below(tmp_path / "one") == files_below(tmp_path / "two"), "the same run gives the same bytes"
    second.close()


def test_imported_runs_of_real_formats_come_back_equal(shared: Path) -> None:
    """Every format of the sample data that there is a reader for, two runs of each file."""
    store, seen = MemoryStore(), set[str]()
    for path in sorted(p for p in (shared / "data").rglob("*.json*") if p.stat().st_size < 2_000_000):
        try:
            report = import_file(store, path)
        except LoupeError:
            continue
        for run in report.runs[:2]:
            recording = store.recording(run.run_id)
            assert_equal(recording, there_and_back(recording))
            seen.add(str(report.format))
    assert seen >= {"tau-bench"}


def test_a_run_with_writes_and_reads_of_the_clock_comes_back_equal() -> None:
    import agentloupe as loupe

    def agent() -> Any:
        return [loupe.now(), look(3), look(3)]

    @loupe.tool(effect="write")
    def look(n: int) -> int:
        return n

    store = MemoryStore()
    recording = record_in(store, agent)
    assert_equal(recording, there_and_back(recording))
    assert replay(in_memory(files_of(recording))).fields["tool_calls"] == 2


def test_forks_come_back_equal_though_their_tools_never_started() -> None:
    """Answers out of the cassette, misses, a live tool; and a fork of a fork, whose copies no longer say who answered."""
    store = MemoryStore()
    weather_run(store)
    both = [("calculate", {"expression": "17.7 - 11.9"}), ("calculate", {"expression": "(17.7 - 11.9) * 9 / 5"})]
    first = fork_run(store, "weather-1", 3, None, Script(both, "5.8 C"))
    second = fork_run(store, first.id, 6, None, Script("again"))
    live = fork_run(store, "weather-1", 3, None, Script(both, "x"), {"calculate": TOOLS["calculate"]})
    for run_id in ("weather-1", first.id, second.id, live.id):
        recording = store.recording(run_id)
        assert_equal(recording, there_and_back(recording))
    told = replay(in_memory(files_of(store.recording(second.id))))
    assert (told.fields["state"], told.fields["tool_calls"]) == ("succeeded", 2), (
        "two tools ran; the others were answered"
    )


# --- what is not handed on --------------------------------------------------------------------------------------------


def test_a_damaged_run_is_not_exported(tmp_path: Path) -> None:
    recording = tampered(Maker("made").finish(), 1, name="another")
    with pytest.raises(Corrupt, match="sequence 1 is not what was sealed"):
        files_of(recording)


def test_who_signs_looks_at_the_values_that_stay_behind(tmp_path: Path) -> None:
    program = Program((ask("hej"), use("get", {"o": "1"})))
    recording = program.recorded()
    lost = next(event.output_digest for event in recording.events if event.type == "tool.finished")
    store = MemoryStore()
    store.insert(
        recording.run_id, recording.events, lambda names: {**recording.get(names), str(lost): b"{}"}, Projector
    )
    export_ledger(store, recording.run_id, tmp_path / "flow", bodies=False)
    make_key(tmp_path / "key")
    with pytest.raises(Corrupt):
        export_ledger(store, recording.run_id, tmp_path / "signed", bodies=False, key=tmp_path / "key")
    assert not (tmp_path / "signed").exists()


def test_a_receipt_that_no_reader_takes_is_not_written(tmp_path: Path) -> None:
    @loupe.tool(effect="write")
    def post() -> str:
        loupe.receipt("r" * LARGEST_RECEIPT)
        return "posted"

    @loupe.agent
    def poster() -> str:
        return post()

    store = MemoryStore()
    run_id = record_in(store, poster).run_id
    with pytest.raises(Refused, match=f"a ledger's have at most {LARGEST_RECEIPT}") as refused:
        export_ledger(store, run_id, tmp_path / "large")
    assert refused.value.reason == "too_large"
    assert not (tmp_path / "large").exists()


def test_what_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(Refused, match="is there already"):
        write_folder(tmp_path / "mine", {"events.jsonl": (b"",)}, {})
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Refused):
        write_folder(tmp_path / "link", {"events.jsonl": (b"",)}, {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "mine"]


def test_values_may_stay_behind_and_the_report_says_so(tmp_path: Path) -> None:
    store = MemoryStore()
    program = Program((ask("hej"), use("get", {"o": "LOUPE-CANARY-0042"})))
    recording = program.recorded()
    store.insert(recording.run_id, recording.events, recording.get, Projector)
    export_ledger(store, recording.run_id, tmp_path / "flow", bodies=False)
    report = replay_folder(tmp_path / "flow")
    assert (report.fields["coverage"], report.fields["bodies"]) == ("limited_replay", None)
    assert not [name for name, data in files_below(tmp_path / "flow").items() if b"CANARY" in data]
    other = MemoryStore()
    import_ledger(other, tmp_path / "flow")
    assert other.recording(recording.run_id).events == recording.events


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_run_without_its_values_says_so_everywhere(tmp_path: Path, kind: str) -> None:
    """Lists, `show`, `verify` and the ledger's own report say the same coverage, also after a rebuild and where it ends."""
    recording = record_in(MemoryStore(), unpaid)
    cut = next(event.sequence for event in recording.events if event.type == "tool.started")
    here = MemoryStore()
    here.insert(recording.run_id, recording.events[:cut], recording.get, Projector)
    export_ledger(here, recording.run_id, tmp_path / "flow", bodies=False)
    store = MemoryStore() if kind == "memory" else open_url(str(tmp_path / "x.db"))
    import_ledger(store, tmp_path / "flow")

    def told() -> list[object]:
        (run,) = store.runs(RunFilter(coverage="limited_replay"))
        return [run.coverage, run.coverage_notes, verify(store.recording(run.id)).coverage]

    said = [replay_folder(tmp_path / "flow").fields["coverage"], (VALUES_MISSING,), "limited_replay"]
    assert said[0] == "limited_replay"
    assert told() == said
    assert store.rebuild(recording.run_id, Projector) == []
    assert told() == said
    writer = store.take_over(recording.run_id, Projector, owner=this_process())
    last = recording.events[-1]
    end = Draft(
        type="run.finished", event_id=last.event_id, recorded_at=last.recorded_at, attrs={"status": "cancelled"}
    )
    writer.append([end])
    writer.close()
    assert told() == said
    store.close()


@loupe.tool(effect="write")
def pay_never(amount: int) -> int:
    return amount


@loupe.agent
def unpaid() -> int:
    return pay_never(3)


def test_a_ledger_that_no_store_wrote_becomes_a_run_and_keeps_its_terms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = ["--db", str(tmp_path / "x.db")]
    assert cli(["ledger", "import", str(FIXTURE), *db]) == 0
    assert cli(["verify", "fix-the-build", *db]) == 0
    assert cli(["ledger", "export", "fix-the-build", str(tmp_path / "out"), *db]) == 0
    capsys.readouterr()
    assert cli(["ledger", "replay", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == "events=14 receipts=1 state=retrying\n"
    for name in ("budget.json", "contract.json"):
        assert (tmp_path / "out" / name).read_bytes() == (FIXTURE / name).read_bytes()
