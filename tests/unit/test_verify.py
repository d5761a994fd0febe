"""Verification: any change, cut or swap is found and named; what was not proven is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloupe.engine.verify import verify
from agentloupe.ports.recording import GetBodies, Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.store.sqlite import SqliteStore
from agentloupe.words.canonical import canonical, digest_bytes
from agentloupe.words.errors import Corrupt
from agentloupe.words.event import Event, Head
from agentloupe.words.seal import link, sealed_form
from tests.store.make import Author, small_run


def recorded(run_id: str = "run-1") -> Recording:
    store = MemoryStore()
    small_run(store, run_id)
    return replace(store.recording(run_id), head=None)


WHOLE = recorded()
END = Head(WHOLE.events[-1].sequence, WHOLE.events[-1].hash)


def relinked(events: list[Event]) -> tuple[Event, ...]:
    """Events numbered and chained anew, as somebody who can write the file would."""
    before = "0" * 64
    made: list[Event] = []
    for sequence, event in enumerate(events, 1):
        moved = replace(event, sequence=sequence, prev_hash=before, hash="")
        before = link(before, moved.envelope(moved.run_id, sequence))
        made.append(replace(moved, hash=before))
    return tuple(made)


def checking(get: GetBodies) -> GetBodies:
    """A store's way to its bodies: checked against their digests."""

    def checked(digests: Any) -> Any:
        found = get(digests)
        for digest, data in found.items():
            if digest_bytes(data) != digest:
                raise Corrupt(f"body {digest[:12]}")
        return found

    return checked


# ---------------------------------------------------------------- whole


def test_a_whole_recording_is_whole_and_the_open_end_is_said() -> None:
    found = verify(WHOLE)
    assert found.ok
    assert (found.events, found.linked, found.ended, found.anchored) == (len(WHOLE.events), END.sequence, True, False)
    assert found.bodies_checked > 8
    assert "not anchored" in found.head
    assert "valid" not in found.head.lower()
    assert found.reader.startswith("agentloupe ")


def test_an_anchor_proves_the_end() -> None:
    found = verify(WHOLE, anchor=END)
    assert found.ok
    assert found.anchored
    assert found.notes == ()


def test_an_anchor_of_before_still_holds_for_what_grew() -> None:
    early = WHOLE.events[2]
    found = verify(WHOLE, anchor=Head(early.sequence, early.hash))
    assert found.ok
    assert found.notes == (f"anchored to sequence {early.sequence} only: nothing is proven about the end behind it",)
    assert verify(WHOLE, anchor=Head(early.sequence, "f" * 64)).fault is not None


def test_an_unfinished_run_is_whole_and_says_that_its_end_is_missing() -> None:
    store = MemoryStore()
    Author(store, "r").started()
    found = verify(store.recording("r"))
    assert found.ok
    assert not found.ended
    assert "no run.finished" in found.head


def test_only_the_chain_can_be_asked_for() -> None:
    found = verify(replace(WHOLE, get=lambda digests: {}), bodies=False)
    assert found.ok
    assert "bodies not looked at" in found.notes


# ---------------------------------------------------------------- damaged


@pytest.mark.parametrize("at", range(len(WHOLE.events)))
def test_a_missing_event_is_found_where_it_is_missing(at: int) -> None:
    events = WHOLE.events[:at] + WHOLE.events[at + 1 :]
    found = verify(replace(WHOLE, events=events), anchor=END)
    assert found.fault is not None
    last = at == len(WHOLE.events) - 1
    assert (found.fault.reason, found.linked) == (("end", at) if last else ("gap", at))


def test_a_cut_tail_is_not_seen_without_an_anchor_and_never_called_whole() -> None:
    found = verify(replace(WHOLE, events=WHOLE.events[:4]))
    assert found.ok
    assert not found.ended
    assert found.head.startswith("links whole to sequence 4; no run.finished")
    anchored = verify(replace(WHOLE, events=WHOLE.events[:4]), anchor=END)
    assert not anchored.ok
    assert (
        anchored.head
        == f"damaged: the end is not where it was: {END.sequence} events expected, 4 events found; links whole to sequence 4"
    )


def test_a_store_that_knows_its_end_misses_a_cut_tail() -> None:
    found = verify(replace(WHOLE, events=WHOLE.events[:4], head=END))
    assert found.fault is not None
    assert found.fault.reason == "end"


def test_nothing_is_not_whole() -> None:
    for anchor in (None, END):
        found = verify(replace(WHOLE, events=()), anchor=anchor)
        assert found.fault is not None
        assert (found.ok, found.fault.reason, found.head) == (
            False,
            "empty",
            "damaged: there are no events; nothing is linked",
        )


def test_swapped_events_are_found() -> None:
    events = list(WHOLE.events)
    events[3], events[4] = events[4], events[3]
    found = verify(replace(WHOLE, events=tuple(events)))
    assert found.fault is not None
    assert (found.fault.reason, found.fault.sequence) == ("gap", 5)


def test_an_event_of_another_run_is_found() -> None:
    events = list(WHOLE.events)
    events[2] = replace(recorded("run-2").events[2], prev_hash=events[1].hash)
    found = verify(replace(WHOLE, events=tuple(events)))
    assert found.fault is not None
    assert (found.fault.reason, found.fault.sequence) == ("run_id", 3)


@given(
    at=st.integers(0, len(WHOLE.events) - 1),
    name=st.sampled_from(
        ["name", "recorded_at", "input_digest", "output_digest", "source", "call_id", "hash", "prev_hash", "type"]
    ),
    value=st.text("0123456789abcdef", min_size=1, max_size=64),
)
def test_any_edit_of_an_event_is_found_at_that_event(at: int, name: str, value: str) -> None:
    edited: Event = replace(WHOLE.events[at], **{name: value})
    if getattr(WHOLE.events[at], name) == value:
        return
    found = verify(replace(WHOLE, events=(*WHOLE.events[:at], edited, *WHOLE.events[at + 1 :])), bodies=False)
    assert found.fault is not None
    assert found.fault.sequence == at + 1


def test_a_chain_that_was_made_anew_fits_itself_but_not_its_anchor() -> None:
    events = relinked([*WHOLE.events[:5], *WHOLE.events[6:]])
    assert verify(replace(WHOLE, events=events)).ok
    found = verify(replace(WHOLE, events=events), anchor=END)
    assert not found.ok


# ---------------------------------------------------------------- bodies


def test_a_changed_body_is_found_at_the_event_that_names_it() -> None:
    event = next(e for e in WHOLE.events if e.type == "tool.finished")
    digest = event.output_digest
    assert digest is not None
    spoilt = checking(lambda digests: {**WHOLE.get(digests), digest: b"1"} if digest in digests else WHOLE.get(digests))
    found = verify(replace(WHOLE, get=spoilt))
    assert found.fault is not None
    assert (found.fault.reason, found.fault.sequence, found.fault.expected) == (
        "body",
        event.sequence,
        event.output_digest,
    )
    assert found.bodies_checked == verify(WHOLE).bodies_checked - 1


def test_a_missing_body_is_damage_unless_it_was_erased() -> None:
    event = next(e for e in WHOLE.events if e.type == "tool.finished")
    get: GetBodies = lambda digests: {d: b for d, b in WHOLE.get(digests).items() if d != event.output_digest}  # noqa: E731
    found = verify(replace(WHOLE, get=get))
    assert found.fault is not None
    assert (found.fault.reason, found.fault.sequence, found.bodies_missing) == ("body_missing", event.sequence, 1)
    assert found.coverage == "limited_replay"


def test_parts_of_bodies_are_looked_at_too() -> None:
    store = MemoryStore()
    author = Author(store, "r").started()
    author.tool("read", {}, {"text": "long " * 2000})
    author.finished()
    recording = store.recording("r")
    inner = digest_bytes(b'"' + b"long " * 2000 + b'"')
    get: GetBodies = lambda digests: {d: b for d, b in recording.get(digests).items() if d != inner}  # noqa: E731
    found = verify(replace(recording, get=get))
    assert found.fault is not None
    assert (found.fault.reason, found.fault.expected) == ("body_missing", inner)


def test_a_run_whose_storage_failed_says_what_is_not_there() -> None:
    store = MemoryStore()
    author = Author(store, "r").started()
    author.tool("read", {}, "lost")
    author.finished(coverage="lossy")
    lost = digest_bytes(b'"lost"')
    recording = store.recording("r")
    get: GetBodies = lambda digests: {d: b for d, b in recording.get(digests).items() if d != lost}  # noqa: E731
    found = verify(replace(recording, get=get))
    assert found.ok
    assert (found.coverage, found.bodies_missing) == ("lossy", 1)
    assert "1 bodies are not there" in found.notes


@given(
    envelope=st.dictionaries(
        st.text(max_size=6),
        st.one_of(
            st.text(max_size=6),
            st.integers(),
            st.booleans(),
            st.floats(allow_nan=False),
            st.dictionaries(
                st.text(max_size=3),
                st.one_of(st.none(), st.integers(), st.text(max_size=3), st.floats(), st.lists(st.floats())),
                max_size=3,
            ),
        ),
        max_size=6,
    )
)
def test_the_quick_way_to_the_sealed_form_is_the_canonical_form(envelope: Any) -> None:
    assert sealed_form(envelope) == canonical(envelope)


def in_a_file(path: Path) -> Recording:
    store = SqliteStore(path)
    small_run(store, "run-1")
    recording = store.recording("run-1")
    store.close()
    return recording


def test_texts_that_events_were_read_from_prove_only_those_events(tmp_path: Path) -> None:
    recording = in_a_file(tmp_path / "l.db")
    assert recording.texts is not None
    assert verify(recording, bodies=False).ok
    last = recording.events[-1]
    edited = (*recording.events[:-1], replace(last, recorded_at="2026-01-01T00:00:00.000000Z"))
    fault = verify(replace(recording, events=edited), bodies=False).fault
    assert fault is not None
    assert (fault.sequence, fault.reason) == (last.sequence, "hash")


def test_a_text_that_is_not_what_was_sealed_proves_nothing(tmp_path: Path) -> None:
    recording = in_a_file(tmp_path / "l.db")
    texts = recording.texts
    assert texts is not None
    swapped = (texts.sealed[1], texts.sealed[0], *texts.sealed[2:])
    # The events are whole, so they are proven the long way.
    assert verify(replace(recording, texts=replace(texts, sealed=swapped)), bodies=False).ok
    fewer = recording.events[:-2]
    short = replace(recording, events=fewer, texts=replace(texts, of=fewer, sealed=texts.sealed[:-2]))
    fault = verify(short, bodies=False).fault
    assert fault is not None
    assert fault.reason == "end"
