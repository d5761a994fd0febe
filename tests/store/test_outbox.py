"""The outbox of every store: messages are committed with their events, and delivered at least once and in order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.exporters.message_file import MessageFile
from agentloupe.ports import faultpoints
from agentloupe.ports.outbox import DEFAULT_TYPES, Message
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.store.owners import this_process
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.publishing import publish
from agentloupe.words.errors import OwnerAlive, Refused
from tests.cli.driving import agentloupe
from tests.tapes import record_in

KINDS = ["memory", "sqlite"]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_url("memory:" if request.param == "memory" else tmp_path / "runs.db", new_fold=Projector)
    yield opened
    opened.close()


@loupe.tool(effect="read")
def look(what: str) -> str:
    return what


@loupe.tool(effect="write")
def pay(what: str) -> str:
    if what == "no":
        raise ValueError("a secret plan")
    return f"paid {what}"


@loupe.agent
def shop(*orders: str) -> None:
    for order in orders:
        look(what=order)
        try:
            pay(what=order)
        except ValueError:
            loupe.state("refused", order)


class Kept:
    """A sink that keeps what it gets, and fails when it is told to."""

    def __init__(self) -> None:
        self.got: list[Message] = []
        self.full = False

    def deliver(self, messages: Sequence[Message]) -> None:
        if self.full:
            raise OSError(28, os.strerror(28))
        self.got += messages

    def close(self) -> None: ...


def test_it_is_off_unless_it_is_set(store: Store) -> None:
    record_in(store, shop, "a")
    assert (store.outbox.types(), store.outbox.count(), store.size().messages) == (frozenset(), 0, 0)
    assert publish(store.outbox, Kept()) == 0


def test_ends_of_effects_states_and_ends_of_runs_are_told_in_order_without_a_value(store: Store) -> None:
    store.outbox.publish(DEFAULT_TYPES)
    recording = record_in(store, shop, "a", "no")
    sink = Kept()
    assert store.size().messages == store.outbox.count() == 4
    assert publish(store.outbox, sink) == 4
    told = [message.as_json() for message in sink.got]
    assert [one["type"] for one in told] == ["tool.finished", "tool.failed", "state.changed", "run.finished"]
    events = {event.event_id: event for event in recording.events}
    for one in told:
        event = events[str(one["id"])]
        assert (one["sequence"], one["run_id"], one["recorded_at"]) == (event.sequence, event.run_id, event.recorded_at)
        assert one["facts"] == event.attrs
    assert "idempotency_key" in told[0]["facts"]  # type: ignore[operator]
    text = json.dumps(told)
    assert "paid" not in text
    assert "secret plan" not in text
    assert (store.outbox.count(), publish(store.outbox, sink)) == (0, 0)


def test_only_the_types_that_are_named_are_told_and_the_store_keeps_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = open_url(path, new_fold=Projector)
    store.outbox.publish(["run.finished", "run.erased"])
    store.close()
    store = open_url(path, new_fold=Projector)
    run = record_in(store, shop, "a").run_id
    delete_run(store, run, why="test")
    assert [message.type for message in store.outbox.waiting(9)] == ["run.finished", "run.erased"]
    assert store.check() == []
    store.gc()
    assert store.outbox.count() == 2, "what waits is not garbage"
    store.outbox.publish(())
    record_in(store, shop, "a")
    assert store.outbox.count() == 2
    store.close()


def test_what_was_imported_happened_elsewhere_and_is_not_told(store: Store) -> None:
    recording = record_in(open_url("memory:"), shop, "a")
    store.outbox.publish(DEFAULT_TYPES)
    store.insert(recording.run_id, recording.events, recording.get, Projector)
    assert store.outbox.count() == 0


def test_a_sink_that_fails_gets_everything_later(store: Store) -> None:
    store.outbox.publish(DEFAULT_TYPES)
    record_in(store, shop, "a")
    sink = Kept()
    sink.full = True
    with pytest.raises(OSError, match="No space"):
        publish(store.outbox, sink)
    assert store.outbox.count() == 2
    sink.full = False
    assert publish(store.outbox, sink) == 2, "the lease was given back"


def test_one_publisher_at_a_time_and_a_dead_one_holds_nobody_up(store: Store) -> None:
    store.outbox.publish(DEFAULT_TYPES)
    record_in(store, shop, "a")
    store.outbox.lease(this_process(), "one")
    with pytest.raises(OwnerAlive, match="is being published by process") as refused:
        publish(store.outbox, Kept())
    assert refused.value.reason == "publishing"
    with pytest.raises(OwnerAlive):
        store.outbox.delivered("other", 99)
    store.outbox.release("other")
    with pytest.raises(OwnerAlive):
        publish(store.outbox, Kept())
    store.outbox.release("one")
    store.outbox.lease(replace(this_process(), started="long ago"), "dead")
    assert publish(store.outbox, Kept()) == 2


def test_it_follows_what_comes_later(store: Store) -> None:
    store.outbox.publish(["run.finished"])
    stop, came = threading.Event(), threading.Semaphore(0)

    class Telling(Kept):
        def deliver(self, messages: Sequence[Message]) -> None:
            super().deliver(messages)
            came.release(len(messages))

    sink = Telling()
    publisher = threading.Thread(target=publish, args=(store.outbox, sink), kwargs={"stop": stop})
    publisher.start()
    runs = [record_in(store, shop).run_id for _ in range(3)]
    assert all(came.acquire(timeout=20) for _ in runs)
    stop.set()
    publisher.join(20)
    assert [message.run_id for message in sink.got] == runs


# --- the file ---------------------------------------------------------------------------------------------------------


def message(number: int) -> Message:
    return Message(
        number=number,
        id=f"e{number}",
        run_id="r",
        sequence=number,
        type="run.finished",
        recorded_at="2026-04-01T10:00:00.000000Z",
        call_id=None,
        name="å",
        input_digest=None,
        output_digest=None,
        facts={"status": "ok", "big": 2**70},
    )


@given(st.integers(0, 200), st.integers(1, 4))
def test_a_file_goes_on_behind_a_torn_last_line(tmp_path_factory: pytest.TempPathFactory, cut: int, lines: int) -> None:
    path = tmp_path_factory.mktemp("sink") / "out.jsonl"
    sink = MessageFile(path)
    sink.deliver([message(n) for n in range(lines)])
    sink.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    kept = path.read_bytes().count(b"\n")
    sink = MessageFile(path)
    sink.deliver([message(9)])
    sink.close()
    sink.close()
    ids = [json.loads(line)["id"] for line in path.read_bytes().splitlines()]
    assert ids == [*(f"e{n}" for n in range(kept)), "e9"]


def test_a_line_that_could_not_be_synced_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MessageFile(tmp_path / "out.jsonl")
    sink.deliver([message(1)])

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output"):
            sink.deliver([message(2)])
    sink.deliver([message(3)])
    sink.close()
    assert [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()] == ["e1", "e3"]


@pytest.mark.parametrize(
    "held",
    [b"notes without an end", b"notes\n", b"SQLite format 3\0\n\0", b"[1]\n{", b'{"id":"e1"}\nnotes', b'{"other":1}\n'],
)
def test_a_file_that_holds_something_else_is_left_as_it_is(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(held)
    with pytest.raises(Refused, match="is no file of messages") as refused:
        MessageFile(path)
    assert (refused.value.reason, path.read_bytes()) == ("not_messages", held)


@pytest.mark.skipif(os.name != "posix", reason="there are no such files")
def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="is no file of messages"):
        MessageFile(tmp_path / "pipe")


def test_a_second_publisher_cuts_nothing_off_that_the_first_one_is_writing(tmp_path: Path) -> None:
    """Also one of another store, which has a lease of its own."""
    pytest.importorskip("fcntl")
    path = tmp_path / "out.jsonl"
    sink = MessageFile(path)
    sink.deliver([message(1)])
    half = path.read_bytes() + b'{"id":"e2'
    path.write_bytes(half)
    with pytest.raises(OwnerAlive, match="is being written by another publisher"):
        MessageFile(path)
    assert path.read_bytes() == half
    sink.close()
    MessageFile(path).close()
    assert path.read_bytes() == half[:-9]


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_counts_as_delivered_to_a_file_that_is_gone(store: Store, tmp_path: Path, replaced: bool) -> None:
    store.outbox.publish(DEFAULT_TYPES)
    record_in(store, shop, "a")
    path = tmp_path / "out.jsonl"
    sink = MessageFile(path)
    path.rename(tmp_path / "moved")
    if replaced:
        path.write_bytes(b"")
    with pytest.raises(Refused, match="is not the file any more") as refused:
        publish(store.outbox, sink)
    sink.close()
    assert (refused.value.reason, store.outbox.count(), (tmp_path / "moved").read_bytes()) == ("moved", 2, b"")
    sink = MessageFile(path)
    assert publish(store.outbox, sink) == 2
    sink.close()


# --- processes --------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from agentloupe.engine.project import Projector
from agentloupe.store import open_url
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.ports import ambient
from tests.store.test_outbox import shop
with ambient.opening_with(RecordOpener(open_url(sys.argv[1], new_fold=Projector))):
    shop("a", "b")
"""


def test_a_message_is_there_exactly_when_its_event_is_also_after_a_kill(tmp_path: Path) -> None:
    """Whoever settles for a process that was killed tells what that one had committed."""
    path = tmp_path / "runs.db"
    store = open_url(path, new_fold=Projector)
    store.outbox.publish(DEFAULT_TYPES)
    env = {**os.environ, faultpoints.VARIABLE: "effect.after_outcome:2"}
    killed = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], env=env, capture_output=True, check=False)
    assert killed.returncode < 0, killed.stderr
    assert [message.type for message in store.outbox.waiting(9)] == ["tool.finished", "tool.finished"]
    (run,) = store.runs()
    ends = [e.event_id for e in store.recording(run.id).events if e.type == "tool.finished" and e.name == "pay"]
    assert [message.id for message in store.outbox.waiting(9)] == ends
    store.close()


def test_a_publisher_that_is_killed_delivers_again_under_the_same_ids(tmp_path: Path) -> None:
    path, out = tmp_path / "runs.db", tmp_path / "out.jsonl"
    store = open_url(path, new_fold=Projector)
    store.outbox.publish(DEFAULT_TYPES)
    record_in(store, shop, "a")
    ids = [message.id for message in store.outbox.waiting(9)]
    store.close()
    argv = [sys.executable, "-m", "agentloupe", "effects", "publish", "--db", str(path), "--to", str(out)]
    env = {**os.environ, faultpoints.VARIABLE: "outbox.after_delivery"}
    assert subprocess.run(argv, env=env, capture_output=True, check=False).returncode < 0
    said = agentloupe("effects", "publish", "--db", str(path), "--to", str(out), "--json")
    assert said.json == {"delivered": 2, "waiting": 0, "types": sorted(DEFAULT_TYPES)}
    assert [json.loads(line)["id"] for line in out.read_bytes().splitlines()] == [*ids, *ids]


def test_the_command_says_that_it_is_off(tmp_path: Path) -> None:
    store = open_url(tmp_path / "runs.db", new_fold=Projector)
    record_in(store, shop, "a")
    store.close()
    said = agentloupe("effects", "publish", "--db", str(tmp_path / "runs.db"), "--to", str(tmp_path / "o"))
    assert "0 messages delivered" in said.out
    assert "the outbox is off" in said.out


def test_the_setting_turns_it_on(workdir: Path, tmp_path: Path) -> None:
    store = open_url(tmp_path / "runs.db", new_fold=Projector)
    (workdir / "loupe.toml").write_text('outbox = ["run.finished"]\n')
    record_in(store, shop, "a")
    assert (store.outbox.types(), store.outbox.count()) == (frozenset({"run.finished"}), 1)
    (workdir / "loupe.toml").write_text("outbox = false\n")
    record_in(store, shop, "a")
    assert store.outbox.count() == 1
    store.close()


# --- what an effect costs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outbox", [False, True])
def test_an_effect_costs_two_durable_commits_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outbox: bool
) -> None:
    """Intent and outcome, each one write and one sync; the settling beside takes no turn of the program's own."""
    from agentloupe.ports import ambient
    from agentloupe.store import spool
    from agentloupe.verbs.sessions import RecordOpener

    store = open_url(tmp_path / "runs.db", new_fold=Projector)
    store.outbox.publish(DEFAULT_TYPES if outbox else ())
    main, synced, written = threading.get_ident(), list[str](), list[int]()
    sync: Callable[[int], None] = spool.__dict__["_fsync"]
    append = spool.Spool.append
    transaction = type(store._db).transaction  # pyright: ignore[reportAttributeAccessIssue]
    waits: list[int] = []

    def counted(handle: int) -> None:
        synced.append("spool")
        sync(handle)

    def appended(self: Any, *args: Any, **kwargs: Any) -> None:
        written.append(1)
        append(self, *args, **kwargs)

    def begun(self: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == main:
            waits.append(1)
        return transaction(self, **kwargs)

    monkeypatch.setattr(spool, "_fsync", counted)
    monkeypatch.setattr(spool.Spool, "append", appended)
    monkeypatch.setattr(type(store._db), "transaction", begun)  # pyright: ignore[reportAttributeAccessIssue]

    @loupe.agent(name="buyer")
    def buyer() -> list[tuple[int, int, int]]:
        pay(what="first")  # the first one makes the spool
        seen = []
        for number in range(5):
            before = len(synced), len(written), len(waits)
            pay(what=f"{number}")
            seen.append((len(synced) - before[0], len(written) - before[1], len(waits) - before[2]))
        return seen

    with ambient.opening_with(RecordOpener(store)):
        assert buyer() == [(2, 2, 0)] * 5
    store.close()
