"""The recorder: what it stores, and that whatever fails in it, the agent's result is the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.cassette import Cassette, takes_of
from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.recorder import Recorder, idempotency_key
from agentloupe.engine.tape import read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient, codecs
from agentloupe.ports.pack import Body, unpack
from agentloupe.ports.protocols import Durability, Opening, RunWriter, Store
from agentloupe.ports.settings import Settings
from agentloupe.store import open_url
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from agentloupe.words.errors import EffectRefused, ReplayRefused, StoreError, StoreFull, Unrecordable
from agentloupe.words.event import Draft, Event
from agentloupe.words.run import Run
from tests.support import Passing, some_of

ran: list[str] = []


@pytest.fixture(autouse=True)
def fresh(workdir: Path) -> None:
    ran.clear()


@loupe.tool(effect="read")
def look(what: str) -> dict[str, str]:
    return {"saw": what}


@loupe.tool
def pay(amount: int) -> str:
    ran.append(f"pay {amount}")
    return f"paid {amount}"


def ask(messages: Sequence[Any], answer: Any = "ok", choice: Any = None, **facts: Any) -> Any:
    request = {"model": "m", "messages": list(messages), **({"tool_choice": choice} if choice else {})}
    call = Call(
        kind="llm",
        name="chat m",
        input=codecs.encode(request).wire,
        encode=lambda value: codecs.encode(value).wire,
        decode=codecs.decode,
        facts=lambda _: facts,
    )
    message = answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}
    return ambient.call(call, lambda: {"choices": [{"message": message}]})


class Faulty(Passing):
    """A store and its writers that fail from a given operation on, for so many operations."""

    def __init__(self, fail_from: int, count: int = 10_000, error: Exception | None = None) -> None:
        super().__init__(open_url("memory:"))
        self.first, self.last = fail_from, fail_from + count
        self.error = error or StoreFull("no space left on the disk")
        self.operations = 0

    def turn(self) -> None:
        self.operations += 1
        if self.first <= self.operations < self.last:
            raise self.error

    def start(self, *args: Any, **options: Any) -> Any:
        self.turn()
        return FaultyWriter(self, self.inner.start(*args, **options))


class FaultyWriter(Passing):
    def __init__(self, store: Faulty, inner: RunWriter) -> None:
        super().__init__(inner)
        self.store = store

    def append(self, drafts: Sequence[Draft], bodies: Sequence[Body] = (), durability: Durability = "commit") -> None:
        self.store.turn()
        self.inner.append(drafts, bodies, durability)

    def offer(self, drafts: Sequence[Draft], bodies: Sequence[Body] = ()) -> bool:
        self.store.turn()
        return self.inner.offer(drafts, bodies)

    def flush(self) -> None:
        self.store.turn()
        self.inner.flush()

    def close(self) -> None:
        self.store.turn()
        self.inner.close()


def program() -> list[Any]:
    out: list[Any] = [ask([{"role": "user", "content": "q"}]), look("x"), loupe.now().tzinfo, loupe.env("HOME")]
    out.append(loupe.state("s", {"a": 1}))
    try:
        out.append(pay(5))
    except EffectRefused:
        out.append("refused")
    try:
        _broken()
    except KeyError as error:
        out.append(repr(error))
    return out


@loupe.tool(effect="read")
def _broken() -> None:
    raise KeyError("k")


def run_of(store: Any) -> Run:
    (run,) = store.runs()
    return run


def record(store: Any, **settings: Any) -> list[Any]:
    opener = RecordOpener(store, settings=Settings(root=Path.cwd(), db="unused", **settings))
    with ambient.opening_with(opener), loupe.recording("r") as block:
        block.result = out = program()
    return out


# --- the store fails --------------------------------------------------------------------------------------------------

WHOLE = 11


def test_how_many_operations_there_are() -> None:
    store = Faulty(10_000)
    record(store)
    assert store.operations == WHOLE, "keeps the parameters below honest"


ERRORS = [StoreFull("full"), StoreError("broken"), OSError(5, "io"), ZeroDivisionError()]
FAILING = [(n, count, error) for n in range(1, WHOLE + 1) for count in (1, 10_000) for error in ERRORS]


@pytest.mark.parametrize(
    ("fail_from", "count", "error"), some_of(FAILING, lambda n: n % len(ERRORS) == n // len(ERRORS) % len(ERRORS))
)
def test_a_store_that_fails_anywhere_changes_no_result(fail_from: int, count: int, error: Exception) -> None:
    plain = program()
    ran.clear()
    out = record(Faulty(fail_from, count, error))
    assert [o for o in out if o != "refused"] == [p for p in plain if "paid" not in str(p) or ran]
    assert ("refused" in out) == (ran == []), "a write runs exactly when its intent is stored"


def test_a_failure_is_said_once_and_the_run_is_lossy(caplog: pytest.LogCaptureFixture) -> None:
    store = Faulty(4, 1)
    record(store)
    assert sum("is not recorded whole" in r.message for r in caplog.records) == 1
    run = run_of(store)
    assert run.coverage == "lossy"
    assert any("StoreFull" in note for note in run.coverage_notes)
    kinds = [s.kind for s in store.steps(run.id)]
    assert kinds == ["agent", "llm", "tool", "clock", "env", "state", "tool", "tool"], "what was held is written later"


def test_what_is_stored_is_a_whole_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloupe.engine.book._HELD_ENTRIES", 1)
    monkeypatch.setattr("agentloupe.engine.book._RETRY_MS", 0.0)
    monkeypatch.setattr("agentloupe.engine.book._PATIENCE", 0.0)
    store = Faulty(4, 3)
    record(store)
    run = run_of(store)
    events = store.recording(run.id).events
    assert [e.type for e in events][:2] == ["run.started", "model.requested"]
    assert events[-1].type == "run.finished"
    dropped: Any = events[-1].attrs["dropped"]
    assert dropped > 0
    opened = {e.call_id for e in events}
    assert all(e.call_id in opened for e in events)
    assert (run.coverage, run.status) == ("lossy", "ok")


def test_a_write_is_refused_without_its_intent_and_runs_by_setting() -> None:
    assert "refused" in record(Faulty(2))
    assert ran == []
    assert "paid 5" in record(Faulty(2), write_without_store="allow")
    assert ran == ["pay 5"]


def test_a_write_that_ran_without_its_intent_marks_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloupe.engine.book._RETRY_MS", 0.0)
    monkeypatch.setattr("agentloupe.engine.book._PATIENCE", 0.0)
    store = Faulty(10_000)
    allow = Settings(root=Path.cwd(), db="unused", write_without_store="allow")
    with ambient.opening_with(RecordOpener(store, settings=allow)), loupe.recording("r"):  # type: ignore[arg-type]
        look("before")
        store.first, store.last = store.operations + 2, store.operations + 3
        assert pay(1) == "paid 1"
        look("after")
    run = run_of(store)
    assert (run.coverage, run.open_effects) == ("lossy", 0)
    assert [s.status for s in store.steps(run.id) if s.name == "pay"] == ["ok"], "what was held is written later"


def test_a_refused_write_is_on_the_record_when_the_store_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloupe.engine.book._RETRY_MS", 0.0)
    monkeypatch.setattr("agentloupe.engine.book._PATIENCE", 0.0)
    store = Faulty(10_000)
    opener = RecordOpener(store, settings=Settings(root=Path.cwd(), db="unused"))  # type: ignore[arg-type]
    with ambient.opening_with(opener), loupe.recording("r"):
        look("before")
        drawn = loupe.random()
        store.first, store.last = store.operations + 2, store.operations + 3
        with pytest.raises(EffectRefused):
            pay(1)
        look("after")
    run = run_of(store)
    steps = store.steps(run.id)
    said = [(s.name, s.status) for s in steps[1:]]
    assert said == [("look", "ok"), ("random", "ok"), ("pay", "denied"), ("look", "ok")]
    recording = store.recording(run.id)
    assert recording.body(steps[3].input_digest) == {"amount": 1}
    assert recording.body(steps[2].output_digest) == drawn, "what waited is kept where the write is refused"


def test_a_place_where_no_store_can_be_made(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    (workdir / "file").write_text("no folder", "utf-8")
    plain = program()
    ran.clear()
    with loupe.recording("r", store=None) as block:
        pass
    assert block.run_id
    settings = Settings(root=workdir, db=str(workdir / "file" / "x.db"))
    with ambient.opening_with(RecordOpener(settings=settings)), loupe.recording("r"):
        out = program()
    assert [o for o in out if o != "refused"] == [p for p in plain if "paid" not in str(p)]
    assert "is not recorded whole" in caplog.text


def test_settings_that_cannot_be_read_do_not_stop_the_agent(workdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    (workdir / "loupe.toml").write_text("strict = maybe", "utf-8")
    with loupe.recording("r"):
        assert look("x") == {"saw": "x"}
    assert "settings are not used" in caplog.text


@pytest.mark.parametrize(
    "place",
    [
        "agentloupe.engine.recorder.key_of",
        "agentloupe.engine.recorder.scrub",
        "agentloupe.ports.scribe.Scribe.opened",
        "agentloupe.ports.scribe.Scribe.closed",
        "agentloupe.ports.scribe.Scribe.started",
        "agentloupe.ports.scribe.Scribe.finished",
        "agentloupe.ports.codecs.encode",
        "agentloupe.verbs.snapshot.take",
        "agentloupe.engine.toolwatch.ToolWatch.requested",
        "agentloupe.engine.toolwatch.ToolWatch.answered",
    ],
)
def test_a_fault_of_our_own_is_not_the_agents(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = program()
    ran.clear()
    store = open_url("memory:")

    def bug(*_: Any, **__: Any) -> Any:
        raise AssertionError("a bug")

    if (
        place == "agentloupe.ports.codecs.encode"
    ):  # there it is the user's call that asks: only results are encoded wrongly
        place = "agentloupe.verbs.instrument.encode"
    opener = RecordOpener(store, settings=Settings(root=Path.cwd(), db="unused", write_without_store="allow"))
    with ambient.opening_with(opener), monkeypatch.context() as patch:
        patch.setattr(place, bug)
        with loupe.recording("r"):
            assert program() == plain


def test_two_threads_share_a_run(caplog: pytest.LogCaptureFixture) -> None:
    store = open_url("memory:")
    with loupe.recording("threads", store=store) as block:
        boundary = ambient.current()
        assert boundary is not None

        def work(name: str) -> None:
            with ambient.inside(boundary, lane=ambient.Lane(name)):
                for i in range(50):
                    look(f"{name} {i}")

        threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = store.run(block.run_id)
    assert run is not None
    assert (run.step_count, run.coverage) == (151, "full")


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_facts_tries_and_errors() -> None:
    class RateLimited(Exception):
        status_code = 429

    store = open_url("memory:")

    def perform() -> Any:
        ambient.note("tries[]", {"status": 500, "ms": 1})
        ambient.note("tries[]", {"status": 429, "error": "Bearer LOUPE-CANARY-5"})
        raise RateLimited("slow down")

    call = Call(kind="llm", name="chat m", input={"messages": []}, encode=lambda v: None, decode=lambda v: v)
    with loupe.recording("r", store=store) as block:
        ask([], usage={"prompt_tokens": 3}, finish_reason="stop")
        with pytest.raises(RateLimited):
            ambient.call(call, perform)
    _, good, bad = store.steps(block.run_id)
    assert (good.attrs["finish_reason"], good.attrs["usage"]) == ("stop", {"prompt_tokens": 3})
    assert bad.attrs["tries"] == [{"status": 500, "ms": 1}, {"status": 429, "error": "Bearer [removed:bearer]"}]
    assert bad.attrs["status_code"] == 429
    assert str(bad.error_class).endswith("RateLimited")


def test_facts_that_fail_cost_the_call_nothing() -> None:
    store = open_url("memory:")
    call = Call(kind="llm", name="chat m", input={}, encode=lambda v: {}, decode=lambda v: v, facts=lambda v: 1 / 0)  # type: ignore[arg-type,return-value]
    with loupe.recording("r", store=store) as block:
        assert ambient.call(call, lambda: "answer") == "answer"
    assert store.steps(block.run_id)[1].attrs["facts_failed"] == "ZeroDivisionError"


def test_ctrl_c_in_a_write_leaves_its_end_unknown() -> None:
    @loupe.tool
    def stopped() -> None:
        raise KeyboardInterrupt

    @loupe.tool(effect="read")
    def looking() -> None:
        raise KeyboardInterrupt

    for tool, status in ((stopped, "unknown"), (looking, "cancelled")):
        store = open_url("memory:")
        with pytest.raises(KeyboardInterrupt), loupe.recording("r", store=store):
            tool()
        run = run_of(store)
        assert run.status == "cancelled"
        assert store.steps(run.id)[1].status == status


@pytest.mark.parametrize("strict", [False, True])
def test_an_unrecordable_result(strict: bool, caplog: pytest.LogCaptureFixture) -> None:
    held = socket.socket()

    @loupe.tool(effect="read")
    def opens() -> Any:
        return {"connection": held, "n": 1}

    store = open_url("memory:")
    with loupe.recording("r", store=store, strict=strict) as block:
        if strict:
            with pytest.raises(Unrecordable, match=r"\$\.connection is of type socket\.socket"):
                opens()
        else:
            assert opens()["connection"] is held
            opens()
    held.close()
    run = store.run(block.run_id)
    assert run is not None
    assert run.coverage == "limited_replay"
    assert any("$.connection of type socket.socket" in note for note in run.coverage_notes)
    assert sum("$.connection of type socket.socket" in r.message for r in caplog.records) == 1, "one warning"
    body: Any = store.recording(run.id).body(store.steps(run.id)[1].output_digest)
    assert body["n"] == 1
    assert "$unrecordable" in body["connection"]


@pytest.mark.parametrize(("effect", "strict"), [("read", True), ("write", False), ("write", True), ("read", False)])
def test_unrecordable_arguments_stop_strict_sessions_and_writes(effect: Any, strict: bool) -> None:
    held = socket.socket()

    @loupe.tool(effect=effect)
    def takes(connection: Any) -> str:
        ran.append("takes")
        return "ok"

    store = open_url("memory:")
    with loupe.recording("r", store=store, strict=strict):
        if strict or effect == "write":
            with pytest.raises(Unrecordable, match=r"\$\.connection"):
                takes(held)
            assert ran == []
        else:
            assert takes(held) == "ok"
    held.close()
    assert run_of(store).coverage == "limited_replay"


def test_calls_after_the_end_are_kept_out(caplog: pytest.LogCaptureFixture) -> None:
    store = open_url("memory:")
    late: list[Callable[[], Any]] = []

    def outside(boundary: Any, do: Callable[[], Any]) -> Any:
        with ambient.inside(boundary):
            return do()

    with loupe.recording("r", store=store) as block:
        boundary = ambient.current()
        late.append(lambda: outside(boundary, lambda: look("late")))
    events = len(store.recording(block.run_id).events)
    assert late[0]() == {"saw": "late"}
    assert late[0]() == {"saw": "late"}
    with pytest.raises(EffectRefused):
        outside(boundary, lambda: pay(1))
    assert ran == []
    assert len(store.recording(block.run_id).events) == events
    assert sum("kept out" in r.message for r in caplog.records) == 1


def test_a_call_that_ends_after_its_run_is_kept_out() -> None:
    store = open_url("memory:")
    boundary: list[Any] = []

    def perform() -> str:
        boundary[0].end("ok", {"result": None}, {})
        return "late"

    call = Call(kind="other", name="x", input=None, encode=lambda v: "late", decode=lambda v: v)
    with loupe.recording("r", store=store) as block:
        boundary.append(ambient.current())
        assert ambient.call(call, perform) == "late"
    assert [e.type for e in store.recording(block.run_id).events] == ["run.started", "run.finished"]


def test_undecorated_tools_lower_the_coverage() -> None:
    asks = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "calc", "arguments": "{}"}}]}
    seen = {"role": "assistant", "tool_calls": [{"id": "c2", "function": {"name": "look", "arguments": "{}"}}]}
    store = open_url("memory:")
    with loupe.recording("r", store=store) as block:
        ask([{"role": "user", "content": "q"}], seen)
        look("x")
        ask([{"role": "user", "content": "q"}, seen, {"role": "tool", "tool_call_id": "c2", "content": "1"}], asks)
        ask([asks, {"role": "tool", "tool_call_id": "c1", "content": "2"}])
    run = store.run(block.run_id)
    assert run is not None
    assert run.coverage == "control_flow"
    assert run.coverage_notes == ("tool 'calc' ran outside the boundary: decorate it with @loupe.tool",)


def test_results_that_only_messages_tell_are_tool_steps_that_say_so() -> None:
    asks = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "calc", "arguments": '{"x": 1}'}}]}
    store = open_url("memory:")
    with loupe.recording("r", store=store) as block:
        ask([{"role": "user", "content": "q"}], asks)
        look("x")
        ask([asks, {"role": "tool", "tool_call_id": "c1", "content": "2"}])
    steps = [step for step in load_steps(store.recording(block.run_id)) if step.kind == "tool"]
    assert [(step.name, step.input, step.output, step.attrs.get("provenance")) for step in steps] == [
        ("look", {"what": "x"}, {"saw": "x"}, None),
        ("calc", '{"x": 1}', "2", "from_messages"),
    ]
    assert Cassette.from_steps(steps).play("calc", {"x": 1}) == (True, "2", None)
    tape = read_tape(store.recording(block.run_id))
    assert [call.name for call in tape.driven if call.kind == "tool"] == ["look"], "nobody asks for it again"
    takes = takes_of(tape, lambda call_id: None)
    assert Cassette(takes).play("calc", {"x": 1}).output == "2"
    assert verify(store.recording(block.run_id)).ok


@pytest.mark.parametrize("refuse", [True, False])
def test_a_write_effect_does_not_happen_when_the_database_was_deleted(
    tmp_path: Path, refuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not refuse:
        monkeypatch.setenv("LOUPE_WRITE_WITHOUT_STORE", "allow")
    store = open_url(str(tmp_path / "gone.db"))
    with loupe.recording("r", store=store):
        look("x")
        for file in [tmp_path / "gone.db", *tmp_path.glob("gone.db-???")]:
            file.unlink()
        if refuse:
            with pytest.raises(EffectRefused, match="could not be stored"):
                pay(5)
        else:
            pay(5)
    assert ran == ([] if refuse else ["pay 5"])


CALC = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "calc", "arguments": "{}"}}]}
UNSEEN = "tool 'calc' was asked for and not seen to run: decorate it, or it was never run"


def test_a_tool_that_was_asked_for_last_and_not_seen_to_run_is_a_gap() -> None:
    store = open_url("memory:")
    with loupe.recording("r", store=store) as block:
        ask([{"role": "user", "content": "q"}], CALC)
    run = run_of(store)
    assert (run.coverage, run.coverage_notes) == ("control_flow", (UNSEEN,))
    with pytest.raises(ReplayRefused, match="not seen to run") as refused:
        loupe.replay(store.recording(block.run_id), lambda: None)
    assert (refused.value.exit_code, refused.value.reason) == (3, "control_flow")
    assert "decorate these tools with @loupe.tool: calc" in str(refused.value)


def test_an_end_that_came_from_outside_is_no_gap() -> None:
    store = open_url("memory:")
    with pytest.raises(ValueError, match="limit"), loupe.recording("r", store=store):
        ask([{"role": "user", "content": "q"}], CALC)
        raise ValueError("limit")
    assert run_of(store).coverage == "full"


def test_a_tool_that_the_request_names_as_the_form_of_the_answer_is_no_gap() -> None:
    store = open_url("memory:")
    with loupe.recording("r", store=store):
        ask([{"role": "user", "content": "q"}], CALC, choice={"type": "function", "function": {"name": "calc"}})
    assert run_of(store).coverage == "full"
    other = open_url("memory:")
    with loupe.recording("r", store=other):
        ask([{"role": "user", "content": "q"}], CALC, choice={"type": "function", "function": {"name": "other"}})
    assert run_of(other).coverage == "control_flow"


def test_keys_of_effects() -> None:
    key = idempotency_key("task", "pay", "k", 0)
    assert key == idempotency_key("task", "pay", "k", 0)
    others = [("other", "pay", "k", 0), ("task", "send", "k", 0), ("task", "pay", "l", 0), ("task", "pay", "k", 1)]
    assert len({key, *(idempotency_key(*other) for other in others)}) == 5
    assert len(key) == 64


def test_a_secret_counts_in_keys_as_its_rules_name_only() -> None:
    store = open_url("memory:")

    @loupe.tool(effect="read")
    def login(user: str, password: str) -> None: ...

    with loupe.recording("r", store=store) as block:
        login("a", "one")
        login("a", "two")
        login("b", "two")
    _, one, two, other = store.steps(block.run_id)
    assert one.input_key == two.input_key != other.input_key
    assert one.attrs["removed"] == ["$.password"]


def test_the_rules_of_a_run_are_stored() -> None:
    from agentloupe.engine.privacy import Rules, rules_from

    store = open_url("memory:")
    record(store, secret_fields=("pin",))
    recording = store.recording(run_of(store).id)
    started = recording.events[0]
    rules = rules_from(recording.body(started.bodies["rules"]))
    assert rules == Rules(fields=("pin",))
    assert started.attrs["rules"] == rules.digest


def test_a_recorder_never_serves() -> None:
    store: Store = open_url("memory:")
    with loupe.recording("r", store=store):
        assert isinstance(ambient.current(), Recorder)
    assert store.steps(run_of(store).id)[0].name == "agent.run"
    assert Projector("x").take().run.status == "running"


def test_reads_that_wait_are_stored_in_order_before_whatever_comes_next_and_when_somebody_looks() -> None:
    store = open_url(Path("loupe.db").absolute())
    opener = RecordOpener(store, settings=Settings(root=Path.cwd(), db=store.url), argv=["test"])
    session = opener.open(Opening(agent="a", root=False))
    with ambient.inside(session.boundary):
        drawn = [loupe.random() for _ in range(200)]
        assert [event.n for event in _reads_in(store, session.run_id)] == list(range(200)), "whoever looks finds them"
        drawn += [loupe.random() for _ in range(1500)]  # more than may wait
        look("sky")
        drawn += [loupe.random() for _ in range(3)]
    session.finished(None)
    recording = store.recording(session.run_id)
    reads = _reads_in(store, session.run_id)
    assert [unpack(event.output_digest or "", recording.get) for event in reads] == drawn
    tool = next(event.sequence for event in recording.events if event.type == "tool.allowed")
    assert [event.sequence < tool for event in reads] == [True] * 1700 + [False] * 3


def _reads_in(store: Any, run_id: str) -> list[Event]:
    return [event for event in store.recording(run_id).events if event.type == "random.drawn"]
