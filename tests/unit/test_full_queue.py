"""A full queue of cheap reads: the program waits for the store, or values are dropped, counted and told; nothing else ever is."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.loop import from_llm_call
from agentloupe.engine.project import Projector
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.pack import Body
from agentloupe.ports.protocols import Durability, RunWriter
from agentloupe.ports.recording import Recording
from agentloupe.ports.settings import Settings, load
from agentloupe.store import open_url
from agentloupe.store.memory import MemoryStore
from agentloupe.store.writer import SqliteWriter
from agentloupe.verbs.comparing import compare
from agentloupe.verbs.exchange import export_run, import_file
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ConfigError, ForkRefused, ReplayRefused, ResumeRefused, StoreBusy
from agentloupe.words.event import Draft, Event, Head
from agentloupe.words.keeping import VALUES_DROPPED, dropped_values
from agentloupe.words.run import Run
from tests.cli.driving import Command
from tests.fork_support import Script
from tests.support import Passing
from tests.tapes import ask

BOUND = 8
"""Of the queue, in these tests."""
_READS = frozenset({"clock", "random", "id", "env"})


@pytest.fixture(autouse=True)
def _small_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloupe.engine.book._BEFORE_DROPPED", BOUND)
    monkeypatch.setattr("agentloupe.engine.book._AT_ONCE", 4)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


# --- a store that is as slow as a test says ---------------------------------------------------------------------------


class Slow(Passing):
    """A store in memory of which it can be said when it is slow, and that counts who would have to wait for it."""

    def __init__(self, room: int = 3) -> None:
        super().__init__(MemoryStore())
        self.slow = False
        self.room, self._most = room, room
        self.waits = 0
        self.locked = False
        self.reminders: list[Callable[[], None]] = []

    def start(self, *args: Any, **options: Any) -> Any:
        return _SlowWriter(self, self.inner.start(*args, **options))

    def wait(self) -> None:
        self.waits += self.slow
        self.room = self._most

    def tick(self) -> None:
        """What the thread beside the program does, which comes to nothing while the store is slow."""
        while self.reminders and not self.slow:
            self.reminders.pop(0)()


class _SlowWriter(Passing):
    def __init__(self, store: Slow, inner: RunWriter) -> None:
        super().__init__(inner)
        self.store = store

    def append(self, drafts: Sequence[Draft], bodies: Sequence[Body] = (), durability: Durability = "commit") -> None:
        self.store.wait()
        self.inner.append(drafts, bodies, durability)

    def offer(self, drafts: Sequence[Draft], bodies: Sequence[Body] = ()) -> bool:
        if self.store.slow and len(drafts) > self.store.room:
            return False
        self.store.room -= len(drafts)
        return self.inner.offer(drafts, bodies)

    def remind(self, collect: Callable[[], None]) -> None:
        self.store.reminders.append(collect)

    def flush(self) -> None:
        if self.store.locked:
            raise StoreBusy("in use by another process for too long")
        self.store.wait()


def _settings(when_full: Any = "drop_bodies", **others: Any) -> Settings:
    return Settings(root=Path(), db="memory:", when_full=when_full, **others)


def _recorded(store: Slow, agent: Callable[[], Any], **settings: Any) -> tuple[Any, Recording, Run]:
    opener = RecordOpener(store, settings=_settings(**settings))  # type: ignore[arg-type]
    with ambient.opening_with(opener):
        result = agent()
    run_id = opener.sessions[0].run_id
    row = store.run(run_id)
    assert row is not None
    return result, store.recording(run_id), row


# --- whatever a program does ------------------------------------------------------------------------------------------


@loupe.tool(effect="read")
def look(what: int) -> int:
    return what + 1


@loupe.tool
def pay(amount: int) -> int:
    return amount


def _ask() -> Any:
    step = ask("how warm?")
    return ambient.call(step.call(), lambda: step.answer)


_OPERATIONS: dict[str, Callable[[], Any]] = {
    "now": lambda: type(loupe.now()),
    "random": lambda: type(loupe.random()),
    "uuid4": lambda: type(loupe.uuid4()),
    "env": lambda: loupe.env("HOME_OF_NOBODY", "x"),
    "randint": lambda: loupe.rng.randint(5, 5),
    "patched": lambda: loupe.patched("a change"),
    "state": lambda: loupe.state("at", {"it": 1}),
    "look": lambda: look(1),
    "pay": lambda: pay(2),
    "ask": _ask,
}
_CHEAP = frozenset({"now", "random", "uuid4", "env", "randint"})
_burst = st.lists(st.sampled_from(sorted(_CHEAP)), min_size=6, max_size=20)
_slow_burst = _burst.map(lambda reads: ["slow", *reads, *reads])
_one = st.sampled_from([*sorted(_OPERATIONS), "slow", "quick", "tick"]).map(lambda step: [step])
_steps = st.lists(_one | _burst | _slow_burst, max_size=12).map(lambda parts: [step for part in parts for step in part])


@given(_steps, st.booleans())
def test_only_values_of_cheap_reads_are_dropped_each_is_counted_and_the_chain_is_whole(
    steps: list[str], bare: bool
) -> None:
    store = Slow()
    program = _Program(store, steps)
    agent = loupe.agent(name="program")(program)
    expected = program.alone()
    got, recording, row = _recorded(store, agent, **({"profile": "digest_only"} if bare else {}))
    assert got == expected, "the program has its values"
    assert program.waited == 0, "no read has waited for the store"

    events = recording.events
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert verify(recording).ok
    assert _reads_in(events) == {name: len(places) for name, places in program.places.items()}
    for name, places in program.places.items():
        _stand_for(events, name, places)
    in_lane = [event.n for event in events if event.n is not None and event.type in _CLOSED]
    assert in_lane == sorted(in_lane)
    others = Counter(step for step in steps if step in _OPERATIONS and step not in _CHEAP)
    closed = Counter(event.name for event in events if event.type in _CLOSED and event.kind not in _READS)
    names = {"patched": "patched a change", "state": "at", "ask": "chat m"}
    assert closed == Counter({names.get(name, name): count for name, count in others.items()})

    lacking = dropped_values(events)
    assert events[-1].attrs.get(VALUES_DROPPED, 0) == row.values_dropped == lacking
    assert row == store.run(row.id)
    if lacking:
        assert row.coverage == "limited_replay"
        assert any(f"{lacking} value" in note for note in row.coverage_notes)
    elif not bare:
        assert row.coverage == "full"
    if not bare:
        _replays_or_says_why(recording, agent, lacking)


_CLOSED = frozenset(
    {"clock.read", "random.drawn", "id.minted", "env.read"}
    | {"check.finished", "state.changed", "tool.finished", "model.responded"}
)


def _stand_for(events: Sequence[Event], name: str, places: list[int]) -> None:
    """Each event of a name stands for the next read of it, or for so many of them from its own place on."""
    at = 0
    for event in events:
        if event.name == name:
            count: Any = event.attrs.get(VALUES_DROPPED, 1)
            assert event.n == places[at]
            at += count
    assert at == len(places)


def _reads_in(events: Sequence[Event]) -> Counter[str]:
    found: Counter[str] = Counter()
    for event in events:
        if event.kind in _READS:
            count: Any = event.attrs.get(VALUES_DROPPED, 1)
            found[event.name or ""] += count
            assert (VALUES_DROPPED in event.attrs) != (
                event.output_digest is not None or "digest_of_output" in event.attrs
            ), "an event holds a value, or stands for those that were dropped"
    return found


def _replays_or_says_why(recording: Recording, agent: Callable[[], Any], lacking: int) -> None:
    if not lacking:
        report = replay(recording, agent)
        assert report.passed, report.text()
        return
    with pytest.raises(ReplayRefused, match="dropped: the queue was full") as refused:
        replay(recording, agent)
    assert refused.value.reason == "limited"


class _Program:
    """Does one thing after another; meanwhile the store gets slow, and quick again."""

    def __init__(self, store: Slow, steps: list[str]) -> None:
        self.store, self.steps = store, steps
        self.places: dict[str, list[int]] = {}
        self.waited = 0

    def alone(self) -> list[Any]:
        """What it gives without a recording."""
        return [_OPERATIONS[step]() for step in self.steps if step in _OPERATIONS]

    def __call__(self) -> list[Any]:
        got: list[Any] = []
        self.places.clear()
        for step in self.steps:
            if step not in _OPERATIONS:
                self.store.slow = step == "slow" or (step == "tick" and self.store.slow)
                self.store.tick()
                continue
            before = self.store.waits
            got.append(_OPERATIONS[step]())
            if step in _CHEAP:
                name = "HOME_OF_NOBODY" if step == "env" else step
                self.places.setdefault(name, []).append(len(got) - 1)
                self.waited += self.store.waits - before
        return got


def test_by_default_the_program_waits_and_everything_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloupe.engine.book._WAITING", BOUND)
    store = Slow()

    @loupe.agent
    def reader() -> None:
        store.slow = True
        for _ in range(100):
            loupe.random()

    _, recording, row = _recorded(store, reader, when_full="wait")
    assert store.waits >= 100 // (BOUND + 4)
    assert (row.coverage, row.values_dropped) == ("full", 0)
    assert sum(event.type == "random.drawn" for event in recording.events) == 100


def test_a_store_that_takes_more_at_once_gets_it_and_nothing_is_dropped() -> None:
    store = Slow()
    _, recording, row = _recorded(store, loupe.agent(name="reader")(lambda: [loupe.now() for _ in range(100)] and None))
    assert store.reminders, "nobody beside the program has written anything"
    assert (row.coverage, row.values_dropped) == ("full", 0)
    assert _reads_in(recording.events) == {"now": 100}


def test_what_waits_is_bounded_also_where_every_read_has_another_name() -> None:
    store = Slow()
    seen: list[int] = []

    @loupe.agent
    def reader() -> None:
        recorder: Any = ambient.current()
        store.slow = True
        for number in range(200):
            loupe.env(f"NAME_{number}")
            seen.append(len(recorder._book._waiting))

    _, recording, row = _recorded(store, reader)
    assert max(seen) == 2 * BOUND
    assert store.waits > 0, "there are no more names for what is dropped: whoever comes now waits"
    assert sum(_reads_in(recording.events).values()) == 200
    assert row.values_dropped > 100


def test_beside_the_program_nobody_waits_with_its_lock_for_a_locked_store() -> None:
    store = Slow()
    waits: list[int] = []

    @loupe.agent
    def reader() -> None:
        store.slow = store.locked = True
        for _ in range(BOUND + 5):
            loupe.random()
        (collect,) = store.reminders
        collect()
        waits.append(store.waits)
        store.slow = store.locked = False

    _, recording, row = _recorded(store, reader)
    assert waits == [0]
    assert (row.coverage, row.values_dropped) == ("lossy", 5)
    assert any("StoreBusy" in note for note in row.coverage_notes)
    assert _reads_in(recording.events) == {"random": BOUND + 5}, "what was held is written when the store is back"


def test_many_threads_lose_nothing_but_what_is_counted() -> None:
    store = Slow()

    @loupe.agent
    def reader() -> None:
        store.slow = True
        together = threading.Barrier(4)

        def read() -> None:
            together.wait()
            for _ in range(50):
                loupe.uuid4()

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    _, recording, row = _recorded(store, reader, schedule="off")
    assert _reads_in(recording.events) == {"uuid4": 200}
    assert 0 < row.values_dropped < 200
    assert verify(recording).ok


# --- SQLite, held up by an event --------------------------------------------------------------------------------------


class _Stall:
    """Lets settlements wait until `go` is set, and notes the threads that wait."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.program = threading.Event()
        self.waited: set[str] = set()

    def hold(self) -> None:
        if not self.go.is_set():
            self.waited.add(threading.current_thread().name)
            if threading.current_thread().name == "program":
                self.program.set()
            assert self.go.wait(60), "nobody lets the store go on: the program waits for it"


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> _Stall:
    held, write = _Stall(), SqliteWriter._write

    def slowly(self: SqliteWriter, *args: Any, **said: Any) -> Head:
        held.hold()
        return write(self, *args, **said)

    monkeypatch.setattr(SqliteWriter, "_write", slowly)
    monkeypatch.setattr("agentloupe.store.writer.GROUP_EVENTS", 32)
    return held


def _reader(stall: _Stall, count: int) -> Any:
    @loupe.agent(name="reader")
    def reader() -> int:
        pay(1)
        stall.go.clear()
        for _ in range(count):
            loupe.now()
            loupe.env("HOME_OF_NOBODY")
        stall.go.set()
        pay(2)
        return count

    return reader


@pytest.fixture
def lacking(workdir: Path, stall: _Stall, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """A run whose store stood still while it read 2,000 values, and how many of them were dropped."""
    monkeypatch.setenv("LOUPE_RECORDING_WHEN_FULL", "drop_bodies")
    done = loupe.record(_reader(stall, 1000))
    assert done.run is not None
    return done.run_id, done.run.values_dropped


def test_a_store_that_stands_still_does_not_hold_the_program_up(lacking: tuple[str, int], stall: _Stall) -> None:
    run_id, dropped = lacking
    assert threading.current_thread().name not in stall.waited
    recording = loupe.open_store().recording(run_id)
    assert _reads_in(recording.events) == {"now": 1000, "HOME_OF_NOBODY": 1000}
    assert 1900 < dropped < 2000, "what fits into the queue and the group of the store is kept"
    assert verify(recording).ok
    assert len([event for event in recording.events if event.type == "tool.finished"]) == 2


def test_without_the_setting_it_holds_the_program_up_and_nothing_is_lost(
    workdir: Path, stall: _Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentloupe.engine.book._WAITING", BOUND)
    monkeypatch.setenv("LOUPE_SCHEDULE", "off")  # else the event that a test sets would be one of the program's inputs
    reader, done = _reader(stall, 1000), list[Any]()
    thread = threading.Thread(target=lambda: done.append(loupe.record(reader)), name="program")
    thread.start()
    assert stall.program.wait(60), "it did not have to wait"
    stall.go.set()
    thread.join(60)
    assert (done[0].run.coverage, done[0].run.values_dropped, done[0].run.step_count) == ("full", 0, 2003)


def test_the_run_says_how_many_wherever_it_is_shown(
    lacking: tuple[str, int], command: Command, caplog: pytest.LogCaptureFixture, workdir: Path
) -> None:
    run_id, dropped = lacking
    said = f"{dropped:,} values of clock, chance, ids or environment dropped: the queue was full"
    row = loupe.open_store().run(run_id)
    assert row is not None
    assert (row.coverage, len(row.coverage_notes)) == ("limited_replay", 1)
    assert said in row.coverage_notes[0]
    assert f"coverage limited_replay; {said}" in command("show", run_id).out
    step = next(step for step in loupe.open_store().steps(run_id) if VALUES_DROPPED in step.attrs)
    assert "the queue was full" in command("show", run_id, str(step.idx)).out
    assert "(limited_replay)" in command("list").out
    assert command("verify", run_id).code == 0
    assert command("rebuild").code == 0
    assert loupe.open_store().run(run_id) == row


def test_one_warning_says_how_many(
    workdir: Path, stall: _Stall, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOUPE_RECORDING_WHEN_FULL", "drop_bodies")
    row = loupe.record(_reader(stall, 1000)).run
    assert row is not None
    (warning,) = [record.message for record in caplog.records if "dropped" in record.message]
    assert f"{row.values_dropped:,} values" in warning
    assert row.id in warning


def test_a_replay_says_what_is_missing_and_is_neither_diverged_nor_damaged(
    lacking: tuple[str, int], command: Command, stall: _Stall, workdir: Path
) -> None:
    run_id, dropped = lacking
    with pytest.raises(ReplayRefused) as refused:
        replay(run_id, _reader(stall, 1000))
    assert refused.value.reason == "limited"
    assert f"{dropped:,} values" in str(refused.value)
    assert 'when_full = "wait"' in str(refused.value.hint)
    (workdir / "agent.py").write_text("def agent(): ...\n")
    done = command("replay", run_id, "--code", "agent:agent")
    assert (done.code, f"{dropped:,} values" in done.err) == (3, True)
    export_run(loupe.open_store(), run_id, workdir / "x.loupe")
    other = open_url("memory:")
    import_file(other, workdir / "x.loupe")
    with pytest.raises(ReplayRefused, match="the queue was full"):
        replay(run_id, _reader(stall, 1000), store=other)


def test_it_is_compared_and_written_as_a_ledger_without_what_is_missing(
    lacking: tuple[str, int], command: Command, stall: _Stall, workdir: Path
) -> None:
    run_id, _ = lacking
    found = compare(run_id, run_id)
    assert found.identical  # type: ignore[union-attr]
    whole = loupe.record(_reader(_Stall(), 1000)).run_id
    assert not compare(run_id, whole).identical  # type: ignore[union-attr]
    assert command("ledger", "export", run_id, "ledger").code == 0
    assert command("ledger", "replay", "ledger").code == 0


def test_the_metrics_tell_how_many(lacking: tuple[str, int], workdir: Path) -> None:
    from tests.server.serving import TOKEN, client_of

    text = client_of(loupe.open_store(), TOKEN).get("/metrics").text
    assert f"loupe_recent_values_dropped {lacking[1]}\n" in text
    assert 'loupe_runs{coverage="limited_replay"} 1\n' in text


# --- runs that were cut, forks ----------------------------------------------------------------------------------------


def test_a_run_that_was_cut_off_says_it_too_and_does_not_go_on() -> None:
    store = Slow()
    opener = RecordOpener(store, settings=_settings())  # type: ignore[arg-type]
    began: list[int] = []
    with ambient.opening_with(opener):
        block = loupe.recording("cut")
        block.__enter__()
        store.slow = True
        for _ in range(30):
            loupe.now()
        store.slow = False
        loupe.state("here", 1)
        recording = store.recording(block.run_id)
        row = store.run(block.run_id)
        block.__exit__(None, None, None)
    assert row is not None
    lacking = dropped_values(recording.events)
    assert (row.coverage, row.values_dropped) == ("limited_replay", lacking)
    assert lacking > 0
    assert "the queue was full" in row.coverage_notes[0]
    with pytest.raises(ReplayRefused, match="the queue was full"):
        replay(recording, lambda: began.append(1), until_failure=True)
    cut = MemoryStore()
    cut.insert(recording.run_id, recording.events, recording.get, Projector)
    with pytest.raises(ResumeRefused, match="the queue was full") as no:
        resume(recording.run_id, lambda: began.append(1), store=cut)
    assert (no.value.reason, began) == ("limited", [])


def test_own_code_is_forked_up_to_where_values_are_missing_and_the_plain_loop_from_anywhere() -> None:
    store = Slow()

    @loupe.agent(name="asker")
    def asker() -> None:
        _ask()
        store.slow = True
        for _ in range(30):
            loupe.now()
        store.slow = False
        _ask()

    _, recording, row = _recorded(store, asker)
    assert row.values_dropped > 0
    first, second = (step.idx for step in store.steps(row.id) if step.kind == "llm")
    target = MemoryStore()
    target.insert(row.id, recording.events, recording.get, Projector)
    with pytest.raises(ForkRefused, match="the queue was full") as refused:
        fork(row.id, asker, from_step=second, store=target)
    assert refused.value.reason == "limited"
    for where in (first, "start"):
        assert fork(row.id, asker, from_step=where, store=target).candidates[0].status == "ok"
    plain = fork(row.id, from_step=second, store=target, provider=from_llm_call(Script("no"))).candidates[0]
    assert (plain.status, plain.values_dropped) == ("ok", 0)


# --- the setting ------------------------------------------------------------------------------------------------------


def test_the_setting_stands_in_a_table_of_its_own_or_in_a_variable(workdir: Path) -> None:
    assert load(environ={}).when_full == "wait"
    (workdir / "loupe.toml").write_text('[recording]\nwhen_full = "drop_bodies"\n')
    assert load(environ={}).when_full == "drop_bodies"
    assert load(environ={"LOUPE_RECORDING_WHEN_FULL": "wait"}).when_full == "wait"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[recording]\nwhen_full = "drop"\n', r"toml:2: recording\.when_full must be one of wait, drop_bodies"),
        ("[recording]\nfull = 1\n", r"toml:2: recording\.full is unknown"),
        ("recording = 1\n", r"toml:1: unknown setting 'recording'"),
    ],
)
def test_a_wrong_setting_names_its_line(text: str, said: str, workdir: Path) -> None:
    (workdir / "loupe.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(environ={})
