"""Older events: a view in the present form, while bytes and hashes stay as they were; what is no known version stops at every door."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.cli.app import run as cli
from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.ledger import export_ledger, import_ledger
from agentloupe.verbs.replaying import replay
from agentloupe.words import event as events
from agentloupe.words import upcast
from agentloupe.words.errors import Corrupt, LoupeError, VersionUnknown
from agentloupe.words.event import Draft, from_envelope
from tests.fork_support import Script, weather_run
from tests.tapes import edited, record_in


@loupe.tool(effect="read")
def look(city: str) -> str:
    return city


@loupe.agent
def looker() -> str:
    loupe.now()
    return look(city="Oslo") + look(city="Bonn")


def in_seconds(envelope: dict[str, Any]) -> dict[str, Any]:
    """A step as a later version might bring it: durations in seconds, under another name."""
    attrs = dict(envelope.get("attrs", {}))
    if "ms" in attrs:
        attrs["seconds"] = attrs.pop("ms") / 1000
    return {**envelope, "attrs": attrs} if attrs else envelope


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes this reader one of the next version."""

    def become() -> None:
        monkeypatch.setattr(events, "SCHEMA_VERSION", 2)
        monkeypatch.setitem(upcast.STEPS, 1, in_seconds)

    return become


@pytest.fixture
def store(workdir: Path) -> Iterator[Store]:
    found = open_url(workdir / "x.db")
    yield found
    found.close()


def is_a_view(recording: Recording, before: Recording) -> None:
    assert [event.hash for event in recording.events] == [event.hash for event in before.events]
    assert {event.schema_version for event in recording.events} == {2}
    ended = [event for event in recording.events if event.type == "tool.finished"]
    assert len(ended) == 2
    assert all("ms" not in event.attrs and isinstance(event.attrs["seconds"], float) for event in ended)
    for event, old in zip(recording.events, before.events, strict=True):
        assert event.envelope(event.run_id, event.sequence) == old.envelope(old.run_id, old.sequence)
    found = verify(recording)
    assert found.ok, found.head


def test_there_is_a_step_for_every_version_that_there_was() -> None:
    assert sorted(upcast.STEPS) == list(range(1, events.SCHEMA_VERSION))


def test_an_older_run_is_read_through_every_door(store: Store, workdir: Path, later: Callable[[], None]) -> None:
    before = record_in(store, looker)
    run = before.run_id
    export_run(store, run, workdir / "before.loupe")
    export_ledger(store, run, workdir / "ledger")
    file = (workdir / "before.loupe").read_bytes()
    later()
    is_a_view(store.recording(run), before)
    assert store.rebuild(run, Projector), "the index of the older reader shows the old form"
    assert store.rebuild(run, Projector) == []
    with open_again(workdir) as again:
        is_a_view(again.recording(run), before)
    export_run(store, run, workdir / "after.loupe")
    assert (workdir / "after.loupe").read_bytes() == file
    for bring in (
        lambda other: import_file(other, workdir / "before.loupe"),
        lambda other: import_ledger(other, workdir / "ledger"),
    ):
        other = MemoryStore()
        bring(other)
        is_a_view(other.recording(run), before)
    report = replay(store.recording(run), looker)
    assert report.passed, report.text()


@contextmanager
def open_again(folder: Path) -> Generator[Store]:
    """The store once more, as another process opens it."""
    store = open_url(folder / "x.db")
    yield store
    store.close()


def test_a_fork_of_an_older_run_is_written_in_the_present_form(store: Store, later: Callable[[], None]) -> None:
    weather_run(store)
    later()
    made = loupe.fork_run(store, "weather-1", 5, None, Script("done"))
    copied = [event for event in store.recording(made.id).events if event.copied_hash is not None]
    assert copied
    assert {event.schema_version for event in copied} == {2}
    assert not any("ms" in event.attrs for event in copied)
    assert {event.as_sealed["schema_version"] for event in copied} == {2}


def test_several_steps_are_taken_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(upcast.STEPS, 1, lambda old: {**old, "way": [1, old["schema_version"]]})
    monkeypatch.setitem(upcast.STEPS, 2, lambda old: {**old, "way": [*old["way"], 2, old["schema_version"]]})
    old = {"schema_version": 1, "a": 1}
    assert upcast.upcast(old, 1, 3) == {"schema_version": 3, "a": 1, "way": [1, 1, 2, 2]}
    assert upcast.upcast(old, 1, 1) == old == {"schema_version": 1, "a": 1}


@pytest.mark.parametrize("version", [0, -1, 2, 9])
def test_a_version_that_is_not_known_stops_at_every_door(version: int, workdir: Path) -> None:
    recording = record_in(MemoryStore(), looker)

    def change(drafts: list[Draft]) -> list[Draft]:
        return [replace(draft, schema_version=version) if n == 3 else draft for n, draft in enumerate(drafts, 1)]

    strange = edited(recording, change)
    event = strange.events[2]
    with pytest.raises(VersionUnknown, match=f"sequence 3 has schema {version}"):
        from_envelope(event.envelope(event.run_id, event.sequence), event.prev_hash, event.hash)
    from agentloupe.exporters.loupe_file import LoupeFileExporter

    with (workdir / "x.loupe").open("wb") as out:
        LoupeFileExporter().write(iter([strange]), out)
    with open_again(workdir) as store:
        store.insert(strange.run_id, strange.events, strange.get, Projector)
    for command in (["verify", strange.run_id], ["verify", "x.loupe"], ["replay", "x.loupe", "--code", "a:b"]):
        assert cli([*command, "--db", "x.db"] if "x.loupe" not in command else command) == 3, command
    assert cli(["import", "x.loupe", "--db", "y.db"]) == 3


@pytest.mark.parametrize("version", [None, "1", 1.0, True])
def test_what_is_no_version_is_damage(version: Any) -> None:
    event = record_in(MemoryStore(), looker).events[1]
    envelope = {**event.envelope(event.run_id, event.sequence), "schema_version": version}
    with pytest.raises(Corrupt, match="schema_version"):
        from_envelope(json.loads(json.dumps(envelope)), event.prev_hash, event.hash)


def test_a_ledger_that_holds_an_unknown_version_is_not_taken(store: Store, workdir: Path) -> None:
    recording = record_in(store, looker)
    strange = edited(recording, lambda drafts: [replace(d, schema_version=9) for d in drafts])
    memory = MemoryStore()
    memory.insert(strange.run_id, strange.events, strange.get, Projector)
    export_ledger(memory, strange.run_id, workdir / "ledger")
    with pytest.raises(LoupeError, match="schema 9"):
        import_ledger(MemoryStore(), workdir / "ledger")
