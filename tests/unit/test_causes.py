"""Events of tools name the answer that asked for them, by its number: also at once, after failures of the store, and in later attempts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.engine.toolwatch import ToolWatch
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient, codecs
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.ledger import export_ledger
from agentloupe.verbs.replaying import replay
from agentloupe.words.call import Call
from agentloupe.words.canonical import key_of
from agentloupe.words.event import Draft
from agentloupe.words.toolcalls import asked_tools
from tests.fork_support import Script, weather_run
from tests.tapes import edited, record_in
from tests.unit.test_recorder import Faulty


def wants(*calls: tuple[str, Any]) -> Any:
    """An answer that asks for tools; ids are unique in a run by what is asked for."""
    asked = [
        {"id": f"{name}-{arguments}-{n}", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(calls)
    ]
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": asked}}]}


def asking(number: int) -> Call:
    return Call(
        kind="llm",
        name="chat m",
        input={"model": "m", "messages": [{"role": "user", "content": str(number)}]},
        encode=lambda value: codecs.encode(value).wire,
        decode=codecs.decode,
        facts=lambda _: {"finish_reason": "tool_calls"},
    )


def ask(number: int, *calls: tuple[str, Any]) -> Any:
    return ambient.call(asking(number), lambda: wants(*calls))


async def aask(number: int, *calls: tuple[str, Any]) -> Any:
    async def answer() -> Any:
        await asyncio.sleep(0)
        return wants(*calls)

    return await ambient.acall(asking(number), answer)


@loupe.tool(effect="read")
def look(city: str, unit: str = "c") -> str:
    return f"{city} {unit}"


@loupe.tool(effect="write")
def pay(amount: int) -> str:
    look(city="inside")
    return f"paid {amount}"


@loupe.tool(effect="read")
async def alook(city: str) -> str:
    await asyncio.sleep(0)
    return city


def causes(recording: Recording) -> dict[str, list[int | None]]:
    """Of each call of a tool, by its id: the causes that its events name."""
    found: dict[str, list[int | None]] = {}
    for event in recording.events:
        if event.type.startswith("tool."):
            found.setdefault(event.call_id or "", []).append(event.parent_seq)
        else:
            assert event.parent_seq is None, event.type
    return found


def sound(recording: Recording) -> None:
    """A cause is an earlier answer that asked for this tool; all events of a call have the same; none has two calls too many."""
    assert verify(recording).ok, verify(recording).head
    taken: dict[tuple[int, str], int] = {}
    for named in causes(recording).values():
        assert len(set(named)) == 1
    for event in recording.events:
        if event.parent_seq is None or event.type not in ("tool.allowed", "tool.denied"):
            continue
        answer = recording.events[event.parent_seq - 1]
        assert answer.sequence == event.parent_seq
        assert answer.type == "model.responded"
        asked = [tool.name for tool in asked_tools(recording.body(answer.output_digest))]
        place = event.parent_seq, str(event.name)
        taken[place] = taken.get(place, 0) + 1
        assert taken[place] <= asked.count(str(event.name))


def numbers(recording: Recording, type: str = "model.responded") -> list[int]:
    return [event.sequence for event in recording.events if event.type == type]


@pytest.fixture
def store(workdir: Path) -> MemoryStore:
    del workdir
    return MemoryStore()


def test_each_round_of_tools_names_its_own_answer(store: MemoryStore) -> None:
    def agent() -> None:
        ask(1, ("look", {"city": "Oslo"}), ("look", {"city": "Bonn"}))
        look(city="Oslo")
        look(city="Bonn", unit="c")  # arguments beyond those that were asked for
        loupe.now()
        ask(2, ("pay", {"amount": 3}))
        pay(amount=3)
        look(city="Rome")  # nobody asked for it

    recording = record_in(store, agent)
    first, second = numbers(recording)
    assert causes(recording) == {
        "0.1": [first] * 3,
        "0.2": [first] * 3,
        "0.5": [second] * 4,
        "0.5~.0": [None] * 3,
        "0.6": [None] * 3,
    }
    sound(recording)
    assert replay(recording, agent).passed


def test_tools_at_once_name_the_answer_of_their_own_task(store: MemoryStore) -> None:
    async def worker(number: int) -> None:
        cities = [f"{number}-{n}" for n in range(3)]
        await asyncio.wait_for(aask(number, *(("alook", {"city": city}) for city in cities)), 60)
        await asyncio.gather(*(alook(city=city) for city in reversed(cities)))

    async def agent() -> None:
        await asyncio.gather(*(worker(number) for number in range(3)))

    recording = record_in(store, agent)
    of_answer = {
        str(tool.arguments): number
        for number in numbers(recording)
        for tool in asked_tools(recording.body(recording.events[number - 1].output_digest))
    }
    tools = [event for event in recording.events if event.type == "tool.allowed"]
    assert len(tools) == 9
    for event in tools:
        assert event.parent_seq == of_answer[json.dumps(recording.body(event.input_digest))]
    sound(recording)
    assert replay(recording, agent).passed


def test_tools_in_threads_name_the_answer_that_asked_for_them(store: MemoryStore) -> None:
    def agent() -> list[str]:
        ask(1, *(("look", {"city": str(n)}) for n in range(4)))
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda n: look(city=str(n)), range(4)))

    recording = record_in(store, agent)
    (answer,) = numbers(recording)
    assert {cause for named in causes(recording).values() for cause in named} == {answer}
    sound(recording)


def test_runs_of_the_loop_and_their_forks(store: MemoryStore) -> None:
    weather_run(store)
    recording = store.recording("weather-1")
    first, second, _ = numbers(recording)
    assert [named[0] for named in causes(recording).values()] == [first, first, second]
    sound(recording)
    made = loupe.fork_run(
        store,
        "weather-1",
        3,
        None,
        Script([("calculate", {"expression": "1+1"}), ("calculate", {"expression": "2"})], "x"),
    )
    fork = store.recording(made.id)
    sound(fork)
    answers = numbers(fork)
    assert [named[0] for named in causes(fork).values()] == [answers[0]] * 2 + [answers[1]] * 2


def test_a_tool_that_only_the_messages_tell_of(store: MemoryStore) -> None:
    def agent() -> None:
        answer = ask(1, ("hidden", {}))["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "seen"}
        call = replace(asking(2), input={"model": "m", "messages": [answer, result]})
        ambient.call(call, lambda: {"choices": []})

    recording = record_in(store, agent)
    assert list(causes(recording).values()) == [[numbers(recording)[0]] * 3]


def shopper() -> list[str]:
    done: list[str] = []
    for number in range(3):
        ask(number, ("look", {"city": str(number)}), ("look", {"city": "twice"}))
        loupe.uuid4()
        done += [look(city="twice"), look(city=str(number))]
    return done


def test_a_resumed_run_names_answers_of_the_attempt_before(store: MemoryStore) -> None:
    whole = record_in(store, shopper)
    for last in range(1, len(whole.events)):
        cut = MemoryStore()
        cut.insert(whole.run_id, whole.events[:last], whole.get, Projector)
        loupe.resume(whole.run_id, shopper, store=cut)
        made = cut.recording(whole.run_id)
        sound(made)
        assert {call: len(set(named)) for call, named in causes(made).items()} == dict.fromkeys(causes(whole), 1)
        assert None not in {cause for named in causes(made).values() for cause in named}, last


@pytest.mark.parametrize("count", [1, 2, 5])
def test_numbers_are_right_also_where_the_store_fails_meanwhile(
    count: int, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOUPE_WRITE_WITHOUT_STORE", "allow")
    monkeypatch.setattr("agentloupe.engine.book._RETRY_MS", 0.0)
    monkeypatch.setattr("agentloupe.engine.book._PATIENCE", 0.0)

    def agent() -> None:
        for number in range(3):
            ask(number, ("look", {"city": "x"}), ("pay", {"amount": number}))
            loupe.now()
            look(city="x")
            pay(amount=number)

    for first in range(2, 30):
        faulty: Any = Faulty(first, count)
        record_in(faulty, agent)
        recording = faulty.inner.recording(faulty.inner.runs()[0].id)
        sound(recording)
        named = [cause for of_call in causes(recording).values() for cause in of_call]
        assert any(named) or not numbers(recording)


def test_a_cause_that_is_no_earlier_event_is_damage(store: MemoryStore) -> None:
    recording = record_in(store, shopper)
    at = next(event.sequence for event in recording.events if event.parent_seq is not None)

    def caused_by(cause: int) -> Callable[[list[Draft]], list[Draft]]:
        return lambda drafts: [replace(d, parent_seq=cause) if n == at else d for n, d in enumerate(drafts, 1)]

    for cause in (at, at + 1, 0, -1, 10**6):
        found = verify(edited(recording, caused_by(cause)))
        assert (found.ok, found.fault and found.fault.reason, found.fault and found.fault.sequence) == (
            False,
            "cause",
            at,
        )
        assert str(cause) in found.head
    assert verify(edited(recording, caused_by(at - 1))).ok


def test_a_ledger_shows_them(store: MemoryStore, tmp_path: Path) -> None:
    recording = record_in(store, shopper)
    export_ledger(store, recording.run_id, tmp_path / "ledger")
    lines = [json.loads(line) for line in (tmp_path / "ledger" / "events.jsonl").read_text("utf-8").splitlines()]
    shown = {line["seq"]: line["parent_seq"] for line in lines if "parent_seq" in line}
    assert shown == {event.sequence: event.parent_seq for event in recording.events if event.parent_seq is not None}
    assert {line["kind"] for line in lines if line["seq"] in shown.values()} == {"model_proposed"}


# --- which answer it is -----------------------------------------------------------------------------------------------


def told(watch: ToolWatch, sequence: int, lane: str, *calls: tuple[str, Any]) -> None:
    watch.answered(wants(*calls), None, sequence, lane)


def claim(watch: ToolWatch, name: str, arguments: Any, lane: str = "0", call_id: str | None = None) -> int | None:
    return watch.claimed(name, key_of("tool", name, arguments), lane, call_id)


def test_the_id_of_the_call_tells_for_certain() -> None:
    watch = ToolWatch()
    told(watch, 2, "0", ("look", {"a": 1}))
    told(watch, 5, "0", ("look", {"a": 2}))
    assert claim(watch, "look", {"a": 2}, call_id="look-{'a': 1}-0") == 2
    assert claim(watch, "look", {"a": 9}) == 5
    assert claim(watch, "look", {"a": 2}) is None


def test_the_same_arguments_go_before_the_nearer_lane() -> None:
    watch = ToolWatch()
    told(watch, 2, "0/a1", ("look", {"a": 1}))
    told(watch, 3, "0/a2", ("look", {"a": 2}))
    assert claim(watch, "look", {"a": 2}, "0/a1") == 3
    assert claim(watch, "look", {"a": 7}, "0/a1/a1") == 2
    told(watch, 9, "0/a1", ("look", {"a": 1}))
    assert claim(watch, "look", {"a": 7}, "0/a10") is None
    assert claim(watch, "look", {"a": 7}, "0.3~") is None


@given(
    st.lists(st.tuples(st.sampled_from(["answer", "call"]), st.integers(0, 3), st.sampled_from(["0", "0/a1", "0/a2"])))
)
def test_a_proposal_is_claimed_once_and_never_before_it_was_made(steps: Sequence[tuple[str, int, str]]) -> None:
    watch, open_ones = ToolWatch(), dict[int, int]()
    for sequence, (what, n, lane) in enumerate(steps, 1):
        if what == "answer":
            told(watch, sequence, lane, *(("look", {"n": n}) for _ in range(n)))
            open_ones[sequence] = n
        elif (found := claim(watch, "look", {"n": n}, lane)) is not None:
            open_ones[found] -= 1
    assert all(left >= 0 for left in open_ones.values())


def test_a_thousand_answers_keep_little() -> None:
    watch = ToolWatch()
    for n in range(1000):
        told(watch, n + 1, "0", ("look", {"n": n}))
    assert [claim(watch, "look", {"n": 999}), claim(watch, "look", {"n": 950})] == [1000, 951]
    assert claim(watch, "look", {"n": 1}) == 999
