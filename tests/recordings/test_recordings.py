"""Recordings of every version replay for ever: they are read, verified, replayed, forked and exported by the present code."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.providers.endpoint import Endpoint
from agentloupe.providers.loopback import serve
from agentloupe.store import open_url
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.ledger import export_ledger, import_ledger, replay_folder
from agentloupe.verbs.replaying import replay
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.run import RunFilter
from tests.recordings.make import HERE, KEY, MANIFEST, WANTED, answering, digests, make, manifest

VERSIONS = sorted(folder for folder in HERE.iterdir() if (folder / MANIFEST).exists())
FROZEN = [(folder, name) for folder in VERSIONS for name in manifest(folder)]
each = pytest.mark.parametrize(("folder", "name"), FROZEN, ids=[f"{folder.name}-{name}" for folder, name in FROZEN])

NOT_FORKED = {"reader", "patched", "patched-before", "yielding", "shop-failed"}
"""Runs that asked no model."""
TIMED = {"threads", "tasks", "streamer", "claude-streams", "bedrock"}
"""Runs whose number of events depends on how fast things come."""


@pytest.fixture
def store(workdir: Path) -> Iterator[Store]:
    found = open_url(workdir / "x.db")
    yield found
    found.close()


def agent_of(folder: Path, known: dict[str, Any]) -> Callable[..., Any] | None:
    module = importlib.import_module(f"tests.recordings.{folder.name}.agents")
    return None if known["agent"] is None else getattr(module, known["agent"])


def test_every_version_that_was_ever_written_is_here() -> None:
    assert [folder.name for folder in VERSIONS] == ["v1"]
    assert set(manifest(HERE / "v1")) >= {
        *WANTED,
        "patched-before",
        "traced",
        "fork-plain",
        "fork-own",
        "resumed",
        "settled",
    }


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_no_file_was_changed_and_each_is_listed(folder: Path) -> None:
    listed = {path: digest for known in manifest(folder).values() for path, digest in known["files"].items()}
    found = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    kept = {str(path.relative_to(folder)): path for path in found if path.name != MANIFEST and path.suffix != ".py"}
    assert {name: digest_bytes(path.read_bytes()) for name, path in kept.items()} == listed
    for path in found:
        assert KEY.encode() not in path.read_bytes()


@each
def test_it_is_whole_and_replays_with_the_code_beside_it(folder: Path, name: str, store: Store) -> None:
    known = manifest(folder)[name]
    import_file(store, folder / f"{name}.loupe")
    recording = store.recording(known["run"])
    assert (len(recording.events), recording.events[-1].hash) == (known["events"], known["head"])
    found = verify(recording)
    assert found.ok, found.head
    agent = agent_of(folder, known)
    report = replay(recording, agent)
    assert report.passed, report.text()
    assert all(report.levels.values()), report.levels
    assert report.unproven == ()
    assert not [note for note in report.notes if "changed since" in note and name != "patched-before"], report.notes
    assert replay(folder / f"{name}.loupe", agent).verdict == report.verdict


@each
def test_it_is_exported_as_it_came(folder: Path, name: str, store: Store, workdir: Path) -> None:
    run = manifest(folder)[name]["run"]
    import_file(store, folder / f"{name}.loupe")
    export_run(store, run, workdir / "again.loupe")
    lines = [(path.read_bytes().split(b"\n")[1:-2]) for path in (folder / f"{name}.loupe", workdir / "again.loupe")]
    assert lines[0] == lines[1]
    export_run(store, run, workdir / "view.jsonl")
    assert (workdir / "view.jsonl").read_bytes().count(b"\n") >= store.steps(run).__len__()


@each
def test_its_ledger_is_replayed_and_comes_back_as_the_same_run(
    folder: Path, name: str, store: Store, workdir: Path
) -> None:
    known = manifest(folder)[name]
    ledger = folder / f"{name}.ledger"
    replay_folder(ledger, output=workdir / "report.json")
    assert json.loads((workdir / "report.json").read_text("utf-8"))["run_id"] == known["run"]
    import_ledger(store, ledger)
    recording = store.recording(known["run"])
    assert recording.events[-1].hash == known["head"]
    export_ledger(store, known["run"], workdir / "again")
    assert (workdir / "again" / "events.jsonl").read_bytes() == (ledger / "events.jsonl").read_bytes()
    assert replay(recording, agent_of(folder, known)).passed


@each
def test_it_is_forked(folder: Path, name: str, store: Store) -> None:
    import_file(store, folder / f"{name}.loupe")
    run = manifest(folder)[name]["run"]
    models = [step.idx for step in store.steps(run) if step.kind == "llm"]
    assert bool(models) == (name not in NOT_FORKED)
    with serve(answering()) as model:
        for step in models:
            (made,) = loupe.fork(run, from_step=step, store=store, provider=Endpoint(f"{model.url}/v1")).runs
            assert made.status == ("error" if name == "impatient" and step == models[0] else "ok"), made.error
            assert verify(store.recording(made.id)).ok


@each
def test_its_tools_name_the_answers_that_asked_for_them(folder: Path, name: str, store: Store) -> None:
    import_file(store, folder / f"{name}.loupe")
    events = store.recording(manifest(folder)[name]["run"]).events
    caused = [event for event in events if event.parent_seq is not None]
    assert bool(caused) == (name in {"weather", "traced", "claude", "fork-plain", "fork-own"})
    assert all(events[event.parent_seq - 1].type == "model.responded" for event in caused if event.parent_seq)


def test_effects_that_nobody_saw_end_are_told_as_they_were_settled(store: Store) -> None:
    run = manifest(HERE / "v1")["settled"]["run"]
    import_file(store, HERE / "v1" / "settled.loupe")
    recording = store.recording(run)
    found = [e for e in recording.events if e.type == "tool.confirmed"]
    told = [(e.attrs["outcome"], e.attrs["how"], e.attrs["external_id"]) for e in found]
    assert told == [("finished", "lookup", "R-found"), ("finished", "person", "R-2")]
    assert sum(e.type == "tool.unknown" for e in recording.events) == 2
    results: Any = recording.body(recording.events[-1].output_digest)
    assert [one["charged"] for one in results["result"]] == ["found", "by hand", "nib"]
    assert loupe.open_effects(store).items == ()


def test_the_trace_is_kept(store: Store) -> None:
    run = manifest(HERE / "v1")["traced"]["run"]
    import_file(store, HERE / "v1" / "traced.loupe")
    assert [one.id for one in store.runs(RunFilter(trace_id="4bf92f3577b34da6a3ce929d0e0e4736"))] == [run]
    started = store.recording(run).events[0]
    assert (started.parent_span_id, started.attrs["trace_flags"]) == ("00f067aa0ba902b7", 3)


@pytest.mark.many
def test_making_them_adds_and_changes_nothing(tmp_path: Path) -> None:
    """The script makes the same recordings again, by name, kind and number of events, and leaves alone what is there."""
    folder = tmp_path / "v1"
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"weather": {"kept": True}}), "utf-8")
    make(folder)
    made, frozen = manifest(folder), manifest(HERE / "v1")
    assert made.pop("weather") == {"kept": True}
    assert not (folder / "weather.loupe").exists()
    assert made.keys() == frozen.keys() - {"weather"}
    for name in made.keys() - TIMED:
        assert made[name]["events"] == frozen[name]["events"], name
        assert set(digests(folder, name)) == set(frozen[name]["files"])
