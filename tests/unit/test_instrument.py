"""Tools, agents and reads: as they were outside a run, recorded inside, sync and async."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import logging
import re
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.ports import ambient, codecs
from agentloupe.ports.protocols import Store
from agentloupe.store import open_url
from agentloupe.verbs.instrument import as_agent, declared_tools, entry_of, tool_of
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import RunNotFound, Unrecordable, UsageError
from agentloupe.words.step import Step
from tests.tapes import record_in


@pytest.fixture
def store(workdir: Path) -> Iterator[Store]:
    opened = open_url("memory:")
    with ambient.opening_with(RecordOpener(opened)):
        yield opened
    opened.close()


def steps_of(store: Store, run_id: str | None = None) -> list[Step]:
    return store.steps(run_id or store.runs()[0].id)


def value_of(store: Store, step: Step, side: str = "output") -> Any:
    return store.recording(step.run_id).body(getattr(step, f"{side}_digest"))


# --- tools ------------------------------------------------------------------------------------------------------------


@loupe.tool(effect="read")
def weather(city: str, unit: str = "celsius", *days: int, **more: str) -> dict[str, Any]:
    """Weather of a city."""
    if city == "nowhere":
        raise LookupError(city)
    return {"city": city, "unit": unit, "days": list(days), **more}


@loupe.tool(effect="pure", name="add", version="2")
async def plus(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


def test_outside_a_run_a_tool_is_the_function() -> None:
    assert weather("Beijing", unit="f") == {"city": "Beijing", "unit": "f", "days": []}
    assert asyncio.run(plus(1, 2)) == 3
    assert weather.__name__ == "weather"
    assert weather.__doc__ == "Weather of a city."


def test_a_tool_says_what_it_is() -> None:
    declared = tool_of(plus)
    assert declared is not None
    assert (declared.name, declared.effect, declared.version) == ("add", "pure", "2")
    assert declared_tools()["weather"].source_digest

    @loupe.tool
    def unstated() -> None: ...

    found = tool_of(unstated)
    assert found is not None
    assert found.effect == "write", "unstated means write"
    with pytest.raises(UsageError, match="unknown effect"):
        loupe.tool(effect="sometimes")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="lookup of a tool is a function"):
        loupe.tool(effect="write", lookup="find_charge")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("args", "kwargs", "recorded"),
    [
        (("Beijing",), {}, {"city": "Beijing"}),
        ((), {"city": "Beijing"}, {"city": "Beijing"}),
        (("Beijing", "f"), {}, {"city": "Beijing", "unit": "f"}),
        (
            ("Beijing", "f", 1, 2),
            {"sky": "x"},
            {"city": "Beijing", "unit": "f", "days": {"$tuple": [1, 2]}, "sky": "x"},
        ),
    ],
)
def test_arguments_are_recorded_by_name_as_they_were_given(
    store: Store, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: dict[str, Any]
) -> None:
    with loupe.recording("names"):
        weather(*args, **kwargs)
    assert value_of(store, steps_of(store)[1], "input") == recorded


def test_a_wrong_call_is_recorded_and_fails_as_it_would(store: Store) -> None:
    with loupe.recording("wrong"), pytest.raises(TypeError, match="city"):
        weather()  # type: ignore[call-arg]
    step = steps_of(store)[1]
    assert (step.status, step.error_class) == ("error", "TypeError")
    assert value_of(store, step, "input") == {"args": [], "kwargs": {}}


def test_a_failing_tool_raises_the_same_exception(store: Store) -> None:
    with loupe.recording("fails"), pytest.raises(LookupError) as raised:
        weather("nowhere")
    assert raised.value.args == ("nowhere",)
    step = steps_of(store)[1]
    assert step.error_class == "LookupError"
    back = codecs.decode(value_of(store, step))
    assert isinstance(back, LookupError)
    assert back.args == ("nowhere",)


def test_async_tools_are_recorded_in_the_order_in_which_they_are_called(store: Store) -> None:
    async def program() -> list[int]:
        async with loupe.recording("async"):
            return [await plus(1, 2), await plus(3, 4)]

    assert asyncio.run(program()) == [3, 7]
    _, first, second = steps_of(store)
    assert (first.name, value_of(store, first), value_of(store, second)) == ("add", 3, 7)
    assert [first.call_id, second.call_id] == ["0.0", "0.1"]


def test_methods_leave_self_out_unless_a_key_is_declared(store: Store) -> None:
    class Account:
        def __init__(self, number: int) -> None:
            self.number = number

        @loupe.tool(effect="read")
        def balance(self, currency: str) -> int:
            return self.number

        @loupe.tool(effect="read", key=lambda self: self.number)
        def keyed(self, currency: str) -> int:
            return self.number

    with loupe.recording("methods"):
        assert Account(7).balance("EUR") == 7
        assert Account(7).keyed("EUR") == 7
    _, plain, keyed = steps_of(store)
    assert value_of(store, plain, "input") == {"currency": "EUR"}
    assert value_of(store, keyed, "input") == {"currency": "EUR", "self": 7}


def test_the_program_gets_the_very_value_and_may_edit_it(store: Store) -> None:
    made: list[dict[str, int]] = []

    @loupe.tool(effect="read")
    def make() -> dict[str, int]:
        made.append({"n": 1})
        return made[-1]

    with loupe.recording("edit"):
        got = make()
        assert got is made[0]
        got["n"] = 2
    assert value_of(store, steps_of(store)[1]) == {"n": 1}


def test_a_tool_that_calls_a_tool_holds_it(store: Store) -> None:
    @loupe.tool(effect="read")
    def outer() -> Any:
        loupe.now()
        return weather("Beijing")

    with loupe.recording("nested"):
        outer()
        loupe.now()
    root, out, clock, inner, after = steps_of(store)
    assert [out.parent_idx, clock.parent_idx, inner.parent_idx, after.parent_idx] == [
        root.idx,
        out.idx,
        out.idx,
        root.idx,
    ]
    assert [out.call_id, clock.call_id, inner.call_id, after.call_id] == ["0.0", "0.0~.0", "0.0~.1", "0.1"]


def test_a_write_has_a_key_that_comes_from_the_task_and_not_from_the_run(workdir: Path) -> None:
    keys: list[str] = []

    @loupe.tool
    def refund(order: int) -> None:
        keys.append(loupe.idempotency_key())
        loupe.receipt(f"re_{order}")

    opened = open_url("memory:")
    for task in ("t1", "t1", "t2", None, None):
        with loupe.recording("write", task_id=task, store=opened) as block:
            refund(1)
            refund(1)
            refund(2)
        step = opened.steps(block.run_id)[1]
        assert step.attrs["idempotency_key"] == keys[-3]
        assert step.attrs["external_id"] == "re_1"
    first, second, other, *own = [keys[i : i + 3] for i in range(0, 15, 3)]
    assert first == second, "the same task, the same effects"
    assert len({*first, *other, *own[0], *own[1]}) == 12
    refund(1)
    assert keys[-1] not in keys[:-1], "outside a run: a fresh one"
    opened.close()


# --- agents -----------------------------------------------------------------------------------------------------------


@loupe.tool(effect="read")
def known_by_this_name_only_here() -> None:
    """Tools are known by name in a whole process, whichever test declared them."""


@loupe.agent(tags=["t"])
def helper(question: str, *, times: int = 1) -> str:
    """Answers."""
    weather("Beijing")
    return question * times


def test_an_agent_is_a_run_with_arguments_result_and_snapshot(store: Store) -> None:
    assert helper("a", times=2) == "aa"
    (run,) = store.runs()
    assert (run.agent, run.name, run.status, run.tags, run.engine) == ("helper", "helper", "ok", ("t",), "own")
    recording = store.recording(run.id)
    started, ended = recording.events[0], recording.events[-1]
    assert recording.body(started.input_digest) == {"args": ["a"], "kwargs": {"times": 2}}
    assert recording.body(ended.output_digest) == {"result": "aa"}
    assert started.attrs["entry"] == f"{__name__}:helper"
    snapshot: Any = recording.body(started.bodies["snapshot"])
    assert snapshot["tools"]["known_by_this_name_only_here"]["effect"] == "read"
    assert [(s.kind, s.name) for s in steps_of(store)] == [("agent", "agent.run"), ("tool", "weather")]


def test_an_agent_inside_another_is_a_span(store: Store) -> None:
    @loupe.agent
    def boss() -> str:
        return helper("x") + helper("y")

    assert boss() == "xy"
    assert store.count() == 1
    kinds = [(s.kind, s.name, s.parent_idx) for s in steps_of(store)]
    assert kinds == [
        ("agent", "agent.run", None),
        ("agent", "helper", 0),
        ("tool", "weather", 1),
        ("agent", "helper", 0),
        ("tool", "weather", 3),
    ]


def test_async_agents_are_runs_and_spans_too(store: Store) -> None:
    @loupe.agent
    async def inner(n: int) -> int:
        return await plus(n, 1)

    @loupe.agent
    async def outer() -> int:
        return await inner(1)

    assert asyncio.run(outer()) == 2
    assert [(s.kind, s.name) for s in steps_of(store)] == [("agent", "agent.run"), ("agent", "inner"), ("tool", "add")]
    assert store.runs()[0].agent == "outer"


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("x"), "error"), (KeyboardInterrupt(), "cancelled"), (SystemExit(2), "error"), (SystemExit(0), "ok")],
)
def test_what_an_agent_raises_comes_out_and_ends_the_run(store: Store, error: BaseException, status: str) -> None:
    @loupe.agent
    def fails() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        fails()
    assert raised.value is error
    (run,) = store.runs()
    assert run.status == status
    assert run.error == (None if status == "ok" else type(error).__name__)


def test_a_cancelled_task_is_a_cancelled_run_and_call(store: Store) -> None:
    @loupe.tool(effect="read")
    async def forever() -> None:
        await asyncio.Event().wait()

    @loupe.agent
    async def waits() -> None:
        await forever()

    async def program() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())
    assert store.runs()[0].status == "cancelled"
    assert steps_of(store)[1].status == "cancelled"


def test_names_of_agents() -> None:
    assert as_agent(helper) is helper
    assert as_agent(lambda: 1).__loupe_agent__ == "agent"  # type: ignore[attr-defined]
    assert entry_of(helper) == f"{__name__}:helper"
    assert entry_of(lambda: 1) is None


@pytest.mark.parametrize(
    ("agent", "start"), [("weather", "weather"), ("a/b c!", "a-b-c"), ("", "run"), ("x" * 99, "x" * 48)]
)
def test_ids_of_runs_are_agent_day_and_six_characters(agent: str, start: str) -> None:
    made = [ambient.new_run_id(agent) for _ in range(50)]
    today = ambient.now()[2:10].replace("-", "")
    assert all(re.fullmatch(rf"{re.escape(start)}-{today}-[0-9a-hjkmnp-tv-z]{{6}}", run_id) for run_id in made), made[0]
    assert len(set(made)) == 50


# --- reads ------------------------------------------------------------------------------------------------------------


def test_reads_outside_a_run_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME", "thing")
    assert loupe.now().tzinfo is dt.UTC
    assert 0 <= loupe.random() < 1
    assert loupe.uuid4().version == 4
    assert (loupe.env("SOME"), loupe.env("OTHER"), loupe.env("OTHER", "d")) == ("thing", None, "d")
    assert loupe.state("s", {"a": 1}) == {"a": 1}
    assert loupe.check("c", False) is False
    assert loupe.retrieve("i", "q", lambda q, k: [q] * k, k=2) == ["q", "q"]


def test_reads_are_recorded_with_their_types(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME", "thing")
    with loupe.recording("reads"):
        given = [loupe.now(), loupe.random(), loupe.uuid4(), loupe.env("SOME"), loupe.env("OTHER", "d")]
    steps = steps_of(store)[1:]
    assert [(s.kind, s.name) for s in steps] == [
        ("clock", "now"),
        ("random", "random"),
        ("id", "uuid4"),
        ("env", "SOME"),
        ("env", "OTHER"),
    ]
    back = [codecs.decode(value_of(store, s)) for s in steps]
    assert back == [*given[:-1], None], "the default is the program's, not the world's"
    assert [type(value) for value in back] == [dt.datetime, float, uuid.UUID, str, type(None)]


def test_a_variable_that_holds_a_key_is_used_and_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "LOUPE-CANARY-1")
    with loupe.recording("env"):
        assert loupe.env("MY_SERVICE_TOKEN") == "LOUPE-CANARY-1"
    step = steps_of(store)[1]
    assert value_of(store, step) == "[removed:token]"
    assert step.attrs["removed_from_output"] == ["$"]


def test_retrieval_state_and_checks(store: Store) -> None:
    async def fetch(query: str, *, filter: str) -> dict[str, Any]:
        return {"index_version": "v3", "hits": [{"id": "d1", "version": 2, "score": 0.5}]}

    def program() -> None:
        got = loupe.retrieve("docs", "q", lambda q: [{"id": "d1", "score": 1.0}], version="v2")
        assert got == [{"id": "d1", "score": 1.0}]
        assert asyncio.run(_awaited(loupe.retrieve("docs", "q", fetch, filter="new")))["index_version"] == "v3"
        loupe.state("waiting", {"for": "a person"})
        assert loupe.check("policy", False, {"limit": 3}) is False

    with loupe.recording("more"):
        program()
    _, first, second, state, check = steps_of(store)
    assert value_of(store, first, "input") == {"query": "q"}
    assert value_of(store, first) == {"index_version": "v2", "documents": [{"id": "d1", "score": 1.0}]}
    assert value_of(store, second, "input") == {"query": "q", "filter": "new"}
    assert value_of(store, second)["index_version"] == "v3"
    assert value_of(store, state) == {"for": "a person"}
    assert (check.attrs["passed"], value_of(store, check)) == (False, {"limit": 3})


async def _awaited(value: Any) -> Any:
    return await value


# --- record, recording, runs by name ----------------------------------------------------------------------------------


def test_record_runs_anything_as_a_run_of_its_own(store: Store, workdir: Path) -> None:
    def plain(n: int) -> int:
        return n + 1

    async def later(n: int) -> int:
        return await plus(n, 1)

    with loupe.recording("around"):
        done = loupe.record(plain, 1)
    assert (done.result, done.run.status if done.run else None) == (2, "ok")
    assert done.run_id.startswith("plain-")
    assert store.run(done.run_id) is None, "it goes to the store of the settings"
    assert loupe.open_store().run(done.run_id) is not None
    assert loupe.record(later, 1).result == 2
    assert loupe.record(helper, "q").result == "q"
    assert (workdir / ".loupe" / ".gitignore").read_text("utf-8") == "*\n"


def test_record_of_an_async_agent_inside_a_loop_says_what_to_do(store: Store) -> None:
    async def agent() -> int:
        return 1

    async def program() -> Any:
        with pytest.raises(UsageError, match="arecord"):
            loupe.record(agent)
        return (await loupe.arecord(agent)).result

    assert asyncio.run(program()) == 1


def test_a_block_inside_a_run_belongs_to_it(store: Store) -> None:
    with loupe.recording("outer") as outer, loupe.recording("inner") as inner:
        loupe.now()
    assert (bool(outer.run_id), inner.run_id) == (True, "")
    assert store.count() == 1


def test_a_block_that_fails_is_a_failed_run(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), loupe.recording("fails"):
        _ = 1 / 0
    assert store.runs()[0].status == "error"


def test_runs_are_found_by_id_beginning_and_place(store: Store) -> None:
    from agentloupe.verbs.api import resolve

    ids: list[str] = []
    for _ in range(3):
        with loupe.recording("one") as block:
            pass
        ids.append(block.run_id)
    assert resolve(store, ids[0]) == ids[0]
    unique = next(ids[0][:n] for n in range(1, 40) if sum(i.startswith(ids[0][:n]) for i in ids) == 1)
    assert resolve(store, unique) == ids[0]
    assert [resolve(store, "last"), resolve(store, "last~2")] == [ids[2], ids[0]]
    with pytest.raises(RunNotFound) as several:
        resolve(store, "one-")
    assert several.value.reason == "ambiguous"
    assert all(run_id in str(several.value) for run_id in ids)
    for missing in ("last~3", "nobody", ""):
        with pytest.raises(RunNotFound):
            resolve(store, missing)


def test_a_run_without_a_model_call_says_so(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agentloupe"), loupe.recording("silent"):
        pass
    assert "without one recorded model call" in caplog.text


def test_a_run_that_failed_before_it_asked_is_not_told_to_wrap_a_client(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "agentloupe"), pytest.raises(KeyError), loupe.recording("silent"):
        raise KeyError("LLM_BASE_URL")
    assert "without one recorded model call" not in caplog.text


@dataclasses.dataclass
class Order:
    number: int
    at: dt.datetime


def test_results_keep_their_types(store: Store) -> None:
    order = Order(1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    @loupe.agent
    def gives() -> Order:
        return order

    assert gives() is order
    recording = store.recording(store.runs()[0].id)
    stored: Any = recording.body(recording.events[-1].output_digest)
    assert codecs.decode(stored["result"]) == order


def test_a_command_line_is_kept_without_its_secrets() -> None:
    store = open_url("memory:")
    argv = ["python", "x.py", "--api-key", "LOUPE-CANARY-1", "--token=LOUPE-CANARY-2", "--city", "Beijing", "a b"]
    with ambient.opening_with(RecordOpener(store, argv=argv)), loupe.recording("r") as block:
        pass
    started = store.recording(block.run_id).events[0]
    assert started.attrs["argv"] == [
        *("python", "x.py", "--api-key", "[removed:api-key]", "--token=[removed:token]", "--city", "Beijing", "a b")
    ]


def test_an_agent_that_is_a_method_is_recorded_without_self(store: Store) -> None:
    class Desk:
        @loupe.agent
        def answer(self, question: str) -> str:
            return question + "!"

    assert Desk().answer("x") == "x!"
    recording = store.recording(store.runs()[0].id)
    assert recording.body(recording.events[0].input_digest) == {"args": ["x"], "kwargs": {}}
    assert store.runs()[0].coverage == "full"


def test_arguments_of_an_agent_that_cannot_be_recorded(store: Store) -> None:
    @loupe.agent
    def takes(lock: object) -> str:
        return "ok"

    assert takes(threading.Lock()) == "ok"
    (run,) = store.runs()
    assert run.coverage == "limited_replay"
    assert any("$.args[0] of type" in note for note in run.coverage_notes)
    with ambient.opening_with(RecordOpener(store, strict=True)), pytest.raises(Unrecordable, match=r"\$\.args\[0\]"):
        takes(threading.Lock())
    assert store.count() == 1


@pytest.mark.parametrize(
    ("given", "noted"),
    [
        ("re_1", "re_1"),
        (7, "7"),
        (uuid.UUID(int=7), str(uuid.UUID(int=7))),
        (b"\xff", "b'\\xff'"),
        (None, None),
        (f"ref ghp_{'aB3dE6gH9jK2mN5pQ8sT' * 2:.36}", "ref [removed:key]"),
    ],
)
def test_a_receipt_of_any_type_is_noted_as_text_and_the_effect_is_recorded_whole(given: object, noted: Any) -> None:
    @loupe.tool(effect="write", name="refund with receipt")
    def refund() -> str:
        loupe.receipt(given)
        return "refunded"

    @loupe.agent(name="gives receipts")
    def refunds() -> str:
        return refund() + refund()

    made = record_in(open_url("memory:"), refunds)
    ends = [event.attrs.get("external_id") for event in made.events if event.type == "tool.finished"]
    assert (ends, made.events[-1].type) == ([noted, noted], "run.finished")
