"""One suite for every store: what `ports.Store` and `ports.RunWriter` promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloupe.engine.project import Projector, load_steps, project
from agentloupe.engine.verify import verify
from agentloupe.ports.protocols import Store
from agentloupe.ports.scribe import Entry, entries
from agentloupe.store import open_url
from agentloupe.store.owners import this_process
from agentloupe.words.canonical import digest_bytes
from agentloupe.words.errors import Corrupt, OwnerAlive, RunNotFound, StoreError
from agentloupe.words.event import Draft, Head
from agentloupe.words.run import RunFilter
from agentloupe.words.seal import GENESIS
from tests.store.make import Author, at, body, call, dead_owner, erased_drafts, small_run

KINDS = ["memory", "sqlite"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = make_store(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=KINDS)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = make_store(request.param, tmp_path / "other")
    yield opened
    opened.close()


def make_store(kind: str, folder: Path) -> Store:
    return open_url("memory:" if kind == "memory" else folder / "loupe.db")


# ---------------------------------------------------------------- writing and reading


def test_what_is_written_is_read_back(store: Store) -> None:
    small_run(store)
    recording = store.recording("run-1")
    assert [event.sequence for event in recording.events] == list(range(1, len(recording.events) + 1))
    assert recording.events[0].type == "run.started"
    assert recording.events[-1].type == "run.finished"
    assert recording.events[0].prev_hash == GENESIS
    assert recording.head == Head(recording.events[-1].sequence, recording.events[-1].hash)
    steps = load_steps(recording)
    assert [step.kind for step in steps] == ["agent", "llm", "tool", "clock", "tool", "llm"]
    assert steps[2].input == {"city": "Oslo"}
    assert steps[2].output == {"celsius": 4}
    assert steps[4].error == "LookupError: no such place"
    assert steps[5].output == {"role": "assistant", "content": "4 degrees"}
    assert verify(recording).ok


def test_the_stored_view_is_the_projection_of_the_events(store: Store) -> None:
    small_run(store, tags=["nightly"])
    trace = project(store.recording("run-1").events)
    run = store.run("run-1")
    assert run is not None
    assert tuple(store.steps("run-1")) == trace.steps
    assert replace(run, events=0, head=None, owner=None) == trace.run
    assert (run.events, run.head) == (len(store.recording("run-1").events), store.recording("run-1").events[-1].hash)


def test_steps_come_in_parts(store: Store) -> None:
    small_run(store)
    assert [step.idx for step in store.steps("run-1", first=2, limit=3)] == [2, 3, 4]
    assert [step.idx for step in store.steps("run-1", first=4)] == [4, 5]
    assert store.steps("run-1", first=99) == []


def test_events_come_in_parts(store: Store) -> None:
    small_run(store)
    whole = store.recording("run-1").events
    assert store.events("run-1") == list(whole)
    assert store.events("run-1", first=2, limit=3) == list(whole[1:4])
    assert store.events("run-1", first=0, limit=1) == list(whole[:1])
    assert store.events("run-1", first=len(whole) + 1) == []


def test_an_unknown_run_is_not_found(store: Store) -> None:
    assert store.run("nobody") is None
    for ask in (
        store.recording,
        store.steps,
        store.events,
        lambda run: store.tags(run, []),
        lambda run: store.erase(run, []),
    ):
        with pytest.raises(RunNotFound, match="nobody"):
            ask("nobody")
    with pytest.raises(RunNotFound):
        store.rebuild("nobody", Projector)
    with pytest.raises(RunNotFound):
        store.start("new", Projector, owner=this_process(), share="nobody")
    assert store.count() == 0


def test_an_id_is_given_once(store: Store) -> None:
    small_run(store)
    with pytest.raises(StoreError) as refused:
        store.start("run-1", Projector, owner=this_process())
    assert refused.value.reason == "exists"


def test_a_run_without_events_is_not_shown(store: Store) -> None:
    writer = store.start("empty", Projector, owner=this_process())
    assert store.run("empty") is None
    assert store.runs() == []
    assert store.recording("empty").events == ()
    assert writer.head == Head(0, GENESIS)
    writer.close()
    assert store.gc() == (0, 0)
    store.start("empty", Projector, owner=this_process())


def test_grouped_events_come_with_the_next_append_in_order(store: Store) -> None:
    author = Author(store, "run-1").started()
    author.clock("grouped")
    author.clock("grouped")
    author.tool("f", {}, 1)
    types = [event.type for event in store.recording("run-1").events]
    assert types == ["run.started", "clock.read", "clock.read", "tool.allowed", "tool.started", "tool.finished"]
    author.clock("grouped")
    author.writer.flush()
    assert store.recording("run-1").events[-1].type == "clock.read"


def test_grouped_events_are_bounded(store: Store) -> None:
    author = Author(store, "run-1").started()
    for _ in range(1500):
        author.clock("grouped")
    assert len(store.recording("run-1").events) > 1501 - 1024
    author.writer.close()
    assert len(store.recording("run-1").events) == 1501


def test_what_is_offered_is_grouped_or_nothing_is_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloupe.store.writer.GROUP_EVENTS", 8)
    author = Author(store, "run-1").started()
    reads: list[Entry] = []
    monkeypatch.setattr(author, "add", lambda entry, durability: reads.append(entry))
    for _ in range(20):
        author.clock()
    reads = [entry for entry in reads if entry.drafts]
    many = entries(reads[:10])
    took_many = author.writer.offer(many.drafts, many.bodies)
    assert took_many == store.url.startswith("memory"), "more than a group has to be settled at once"
    few = entries(reads[10:15])
    assert author.writer.offer(few.drafts, few.bodies)
    author.writer.close()
    recording = store.recording("run-1")
    assert len(recording.events) == 1 + 5 + 10 * took_many
    assert verify(recording).ok
    with pytest.raises(StoreError, match="given up"):
        author.writer.offer(few.drafts, few.bodies)


def test_a_closed_writer_takes_nothing_more(store: Store) -> None:
    author = Author(store, "run-1").started()
    author.writer.close()
    author.writer.close()
    with pytest.raises(StoreError) as refused:
        author.clock()
    assert refused.value.reason == "closed"


# ---------------------------------------------------------------- owners


def test_a_run_whose_owner_is_gone_is_interrupted(store: Store) -> None:
    Author(store, "lost", owner=dead_owner()).started()
    Author(store, "alive").started()
    given_up = Author(store, "given-up").started()
    given_up.writer.close()
    assert {run.id: run.status for run in store.runs()} == {
        "lost": "interrupted",
        "alive": "running",
        "given-up": "interrupted",
    }
    assert {run.id for run in store.runs(RunFilter(status="interrupted"))} == {"lost", "given-up"}
    assert store.count(RunFilter(status="interrupted")) == 2
    assert [run.id for run in store.runs(RunFilter(status="running"))] == ["alive"]
    assert store.count(RunFilter(status="running")) == 1


def test_another_owner_ends_the_first_ones_writing(store: Store) -> None:
    author = Author(store, "run-1", owner=dead_owner()).started()
    store.erase("run-1", erased_drafts())
    with pytest.raises(OwnerAlive):
        author.clock("commit")
    assert [event.type for event in store.recording("run-1").events] == ["run.started", "run.erased"]


def test_a_running_run_is_not_erased(store: Store) -> None:
    Author(store, "run-1").started()
    with pytest.raises(OwnerAlive):
        store.erase("run-1", erased_drafts())


def test_a_run_whose_owner_is_gone_is_taken_over_and_goes_on(store: Store) -> None:
    first = Author(store, "run-1", owner=dead_owner()).started()
    first.tool("look", {"n": 1}, "one")
    writer = store.take_over("run-1", Projector, owner=this_process())
    assert writer.owner == replace(this_process(), epoch=2)
    assert writer.head.sequence == len(store.recording("run-1").events)
    with pytest.raises(OwnerAlive):
        first.clock("commit")
    first.writer.close()
    taken = store.run("run-1")
    assert taken is not None
    assert (taken.status, taken.owner) == ("running", writer.owner)
    second = Author(store, "run-1", writer=writer)
    second.place()
    second.tool("look", {"n": 2}, "two")
    second.finished("done")
    assert verify(store.recording("run-1")).ok
    assert [step.name for step in store.steps("run-1")] == ["look", "look"]
    assert store.rebuild("run-1", Projector) == []
    with pytest.raises(StoreError) as refused:
        store.take_over("run-1", Projector, owner=this_process())
    assert refused.value.reason == "ended"


def test_a_run_is_taken_over_again_and_again(store: Store) -> None:
    Author(store, "run-1").started().writer.close()
    epochs = []
    for _ in range(3):
        writer = store.take_over("run-1", Projector, owner=this_process())
        epochs.append(writer.owner.epoch)
        writer.close()
    assert epochs == [2, 3, 4]


@pytest.mark.parametrize("force", [False, True])
def test_a_living_owner_is_never_forced_out(store: Store, force: bool) -> None:
    author = Author(store, "run-1").started()
    with pytest.raises(OwnerAlive) as refused:
        store.take_over("run-1", Projector, owner=this_process(), force=force)
    assert refused.value.reason == "owner_alive"
    author.finished(1)


def test_an_owner_on_another_host_is_given_up_on_demand_only(store: Store) -> None:
    author = Author(store, "run-1", owner=replace(dead_owner(), host="elsewhere")).started()
    with pytest.raises(OwnerAlive) as refused:
        store.take_over("run-1", Projector, owner=this_process())
    assert refused.value.reason == "other_host"
    assert "'elsewhere'" in str(refused.value)
    assert store.take_over("run-1", Projector, owner=this_process(), force=True).owner.epoch == 2
    with pytest.raises(OwnerAlive):
        author.clock("commit")


def test_nobody_takes_over_what_is_not_there(store: Store) -> None:
    with pytest.raises(RunNotFound):
        store.take_over("nobody", Projector, owner=this_process())


# ---------------------------------------------------------------- lists


def test_lists_are_filtered_and_newest_first(store: Store) -> None:
    small_run(store, "one", tags=["red", "big"], task_id="t-1")
    other = Author(store, "two").started(agent="writer", tags=["red"])
    other.tool("save", {}, None, effect="write")
    other.finished()
    child = Author(store, "three", share="two").started(agent="writer", parent_run_id="two", forked_from_step=1)
    child.finished(status="error", error_class="app.errors.Broken", error="Broken")

    def ids(**wanted: object) -> list[str]:
        asked = RunFilter(**wanted)  # type: ignore[arg-type]
        found = [run.id for run in store.runs(asked)]
        assert store.count(asked) == len(found)
        return found

    assert ids() == ["three", "two", "one"]
    assert ids(agent="writer") == ["three", "two"]
    assert ids(agent="writer", tag="red") == ["two"]
    assert ids(tag="red") == ["two", "one"]
    assert ids(tag="fork") == ["three"]
    assert ids(tag="miss:0") == ["three"]
    assert ids(task_id="t-1") == ["one"]
    assert ids(trace_id=store.recording("two").events[0].trace_id) == ["two"]
    assert ids(parent_run_id="two") == ["three"]
    assert ids(tool="get_weather") == ["one"]
    assert ids(tool="save", status="ok") == ["two"]
    assert ids(error="LookupError") == ["one"]
    assert ids(error="Broken") == ids(error="app.errors.Broken") == ["three"]
    assert ids(status="error") == ["three"]
    assert ids(id_prefix="t") == ["three", "two"]
    assert ids(agent="nobody") == []
    middle = store.run("two")
    assert middle is not None
    assert ids(since=middle.started_at) == ["three", "two"]
    assert ids(until=middle.started_at) == ["one"]
    assert [run.id for run in store.runs(RunFilter(limit=1, offset=1))] == ["two"]
    assert [run.id for run in store.runs(RunFilter(limit=None))] == ["three", "two", "one"]


def test_tags_set_by_hand_stand(store: Store) -> None:
    author = Author(store, "run-1").started(tags=["from-code"])
    store.tags("run-1", ["mine", "mine", "yours"])
    author.tool("f", {}, 1)
    author.finished()
    run = store.run("run-1")
    assert run is not None
    assert run.tags == ("mine", "yours")
    assert [r.id for r in store.runs(RunFilter(tag="mine"))] == ["run-1"]
    assert store.runs(RunFilter(tag="from-code")) == []
    assert store.rebuild("run-1", Projector) == []
    assert [r.tags for r in store.runs(RunFilter(tag="yours"))] == [("mine", "yours")]
    assert store.runs(RunFilter(tag="from-code")) == []


# ---------------------------------------------------------------- bodies


def test_bodies_are_shared_between_runs_and_go_with_the_last(store: Store) -> None:
    long = "the same long text " * 400
    for run in ("one", "two"):
        author = Author(store, run).started()
        author.tool("read", {"what": run}, long)
        author.finished()
    before = store.size()
    assert before.bodies_whole < 2 * len(long)
    removed = store.erase("one", erased_drafts())
    assert removed == 1  # its own arguments; everything else is also needed by the other run
    assert load_steps(store.recording("two"))[0].output == long
    assert store.size().orphans == 0
    assert store.erase("two", erased_drafts()) == before.bodies - removed
    assert store.size().bodies == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_whoever_goes_first_the_others_keep_what_they_need(store: Store, order: tuple[int, ...]) -> None:
    long = "the same long text " * 400
    for run in range(3):
        author = Author(store, f"r{run}").started()
        author.tool("read", {"what": run}, {"a": long, "b": [long, run]})
        author.finished()
    left = [0, 1, 2]
    for run in order:
        assert store.erase(f"r{run}", erased_drafts()) > 0
        left.remove(run)
        for other in left:
            assert load_steps(store.recording(f"r{other}"))[0].output == {"a": long, "b": [long, other]}
            assert verify(store.recording(f"r{other}")).ok
        assert store.check() == []
        assert store.size().orphans == 0
        assert store.gc() == (0, 0)
    assert store.size().bodies == 0
    with pytest.raises(StoreError):
        store.start("r0", Projector, owner=this_process())


def test_an_erased_run_keeps_its_events_and_says_what_is_gone(store: Store) -> None:
    small_run(store, tags=["kept"])
    assert store.erase("run-1", erased_drafts()) > 0
    run = store.run("run-1")
    assert run is not None
    assert (run.erased, run.coverage, run.status) == (True, "limited_replay", "ok")
    assert [r.id for r in store.runs(RunFilter(tag="kept"))] == ["run-1"]
    assert store.runs(RunFilter(tool="get_weather")) == []
    assert store.steps("run-1") == []
    found = verify(store.recording("run-1"))
    assert found.ok
    assert found.erased
    assert found.coverage == "limited_replay"
    assert found.bodies_missing > 0
    steps = load_steps(store.recording("run-1"))
    assert steps[1].partial
    assert not steps[1].loaded
    assert store.rebuild("run-1", Projector) == []
    assert store.steps("run-1") == []
    assert store.check() == []


def test_a_fork_keeps_the_bodies_of_its_prefix_when_the_parent_goes(store: Store) -> None:
    parent = Author(store, "parent").started()
    prompt = [{"role": "system", "content": "x" * 5000}, {"role": "user", "content": "y" * 5000}]
    parent.model(prompt)
    parent.tool("read", {"n": 1}, "z" * 5000)
    parent.tool("secret", {"n": 2}, "never needed by the fork " * 200)
    parent.finished()
    child = Author(store, "child", share="parent").started(parent_run_id="parent", forked_from_step=2)
    drafts = [copied(event) for event in store.recording("parent").events[1:6]]
    child.writer.append(drafts, (), "commit")
    child.finished()
    store.erase("parent", erased_drafts())
    steps = load_steps(store.recording("child"))
    assert steps[0].input == {"model": "small", "messages": prompt}
    assert steps[1].output == "z" * 5000
    assert verify(store.recording("child")).ok
    secret = digest_bytes(('"' + "never needed by the fork " * 200 + '"').encode())
    assert store.get([secret]) == {}


def copied(event: Draft) -> Draft:
    """An event of a parent, as a fork appends it."""
    values: dict[str, Any] = {name: getattr(event, name) for name in Draft.__dataclass_fields__}
    values |= {"event_id": f"copy-{event.event_id}", "copied_hash": "c" * 64, "source": "recorded"}
    return Draft(**values)


def test_orphans_are_collected(store: Store) -> None:
    small_run(store)
    assert store.gc() == (0, 0)
    assert verify(store.recording("run-1")).ok


def test_bodies_by_digest(store: Store) -> None:
    small_run(store)
    digest = store.recording("run-1").events[1].input_digest
    assert digest is not None
    assert store.get([digest, "0" * 64]).keys() == {digest}
    assert store.get([]) == {}


@settings(max_examples=20)
@given(data=st.lists(st.binary(min_size=0, max_size=4000), max_size=6))
def test_any_bytes_come_back(data: list[bytes]) -> None:
    store = open_url("memory:")
    bodies = [body(b'"' + text.hex().encode() + b'"') for text in data]
    writer = store.start("r", Projector, owner=this_process())
    drafts = [
        Draft(type="state.changed", event_id=str(i), recorded_at=at(), call_id=str(i), output_digest=b.digest)
        for i, b in enumerate(bodies)
    ]
    writer.append(drafts, bodies)
    assert store.get([b.digest for b in bodies]) == {b.digest: b.data for b in bodies}


# ---------------------------------------------------------------- taking over, making anew


def test_a_recording_moves_to_another_store_as_it_is(store: Store, other: Store) -> None:
    small_run(store, tags=["a"])
    recording = store.recording("run-1")
    other.insert("run-1", recording.events, recording.get, Projector)
    moved = other.recording("run-1")
    assert moved.events == recording.events
    assert verify(moved).ok
    assert load_steps(moved) == load_steps(recording)
    assert tuple(other.steps("run-1")) == tuple(store.steps("run-1"))
    run = other.run("run-1")
    assert run is not None
    assert run.owner is None
    assert [r.id for r in other.runs(RunFilter(tool="get_weather"))] == ["run-1"]
    other.insert("run-1", recording.events, recording.get, Projector)  # the same again changes nothing
    assert other.count() == 1
    assert other.check() == []


def test_other_events_under_the_same_id_are_refused(store: Store, other: Store) -> None:
    small_run(store)
    small_run(other)
    recording = store.recording("run-1")
    with pytest.raises(StoreError) as refused:
        other.insert("run-1", recording.events, recording.get, Projector)
    assert refused.value.reason == "exists"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda events: events[1:],
        lambda events: events[:2] + events[3:],
        lambda events: [*events[:3], replace(events[3], name="other"), *events[4:]],
        lambda events: [],
    ],
    ids=["head cut", "middle cut", "changed", "empty"],
)
def test_a_broken_chain_is_not_taken_over(store: Store, other: Store, spoil: Callable[..., list[object]]) -> None:
    small_run(store)
    recording = store.recording("run-1")
    with pytest.raises(Corrupt):
        other.insert("run-1", spoil(list(recording.events)), recording.get, Projector)  # type: ignore[arg-type]
    assert other.count() == 0
    assert other.size().bodies == 0


def test_rebuilding_a_whole_view_changes_nothing(store: Store) -> None:
    small_run(store)
    before = store.run("run-1"), store.steps("run-1")
    assert store.rebuild("run-1", Projector) == []
    assert (store.run("run-1"), store.steps("run-1")) == before


def test_size_counts(store: Store) -> None:
    small_run(store)
    size = store.size()
    assert (size.runs, size.events, size.orphans) == (1, len(store.recording("run-1").events), 0)
    assert 0 < size.bodies_stored <= size.bodies_whole


def test_a_closed_store_says_so(store: Store) -> None:
    author = Author(store, "run-1").started()
    store.close()
    store.close()
    with pytest.raises(StoreError):
        author.clock("commit")


@settings(max_examples=10)
@given(plan=st.lists(st.tuples(st.sampled_from(["model", "tool", "write", "clock"]), st.booleans()), max_size=12))
def test_any_program_is_whole_and_seen_alike_by_both(
    plan: list[tuple[str, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    stores = [open_url("memory:"), open_url(tmp_path_factory.mktemp("any") / "loupe.db")]
    for store in stores:
        author = Author(store, "r").started(root=True)
        for what, grouped in plan:
            match what:
                case "model":
                    author.model([{"role": "user", "content": what}])
                case "clock":
                    author.clock("grouped" if grouped else "commit")
                case _:
                    author.did(call("tool", what, {}, effect="write" if what == "write" else "pure"), 1)
        author.finished()
        assert verify(store.recording("r")).ok
        assert store.rebuild("r", Projector) == []
        assert store.check() == []
    memory, sqlite = ([(e.type, e.n, e.name) for e in s.recording("r").events] for s in stores)
    assert memory == sqlite
    for store in stores:
        store.close()
