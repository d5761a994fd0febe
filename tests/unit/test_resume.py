"""Resume: a recording cut anywhere goes on as the same run, and ends as it would have."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.compare import Comparison
from agentloupe.engine.project import Projector
from agentloupe.engine.resumer import open_intents
from agentloupe.engine.tape import read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.ports.streams import Streamed, open_stream
from agentloupe.store.memory import MemoryStore
from agentloupe.store.owners import this_process
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.resuming import resume
from agentloupe.words.call import Call
from agentloupe.words.canonical import Json
from agentloupe.words.errors import Corrupt, OwnerAlive, ResumeRefused, RunNotFound
from tests.tapes import record_in, tampered

real: Counter[str] = Counter()
"""What was really done, by name and argument."""


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    real.clear()


class NoStock(Exception):
    def __init__(self, item: str) -> None:
        super().__init__(item)
        self.item = item


@loupe.tool(effect="read")
def find(item: str) -> dict[str, Any]:
    real[f"find {item}"] += 1
    if item == "nothing":
        raise NoStock(item)
    return {"item": item, "price": 3}


@loupe.tool(effect="pure")
def priced(item: str) -> int:
    """A tool that calls tools: one call with inner ones."""
    real[f"priced {item}"] += 1
    return find(item=item)["price"] + find(item=f"{item}-tax")["price"]


@loupe.tool(effect="write")
def order(item: str) -> str:
    real[f"order {item}"] += 1
    real[f"key {loupe.idempotency_key()}"] += 1
    return f"O-{item}"


@loupe.agent
def clerk(item: str) -> str:
    """A nested agent."""
    loupe.now()
    price = priced(item=item)
    loupe.state("price", price)
    return order(item=item)


def stream_of(text: str) -> Any:
    """A model call that is answered in pieces, as a transport would make it."""
    call = Call(
        kind="llm",
        name="chat m",
        input={"messages": [{"role": "user", "content": text}]},
        encode=lambda streamed: cast("Streamed", streamed).data.decode(),
        decode=lambda value: value,
        streamed=True,
    )

    def send() -> str:
        real[f"asked {text}"] += 1
        return text

    reply = open_stream(call, send, lambda _: {"status": 200})
    assert reply.stream is not None
    return b"".join(reply.stream.bytes(text[i : i + 2].encode() for i in range(0, len(text), 2))).decode()


@loupe.agent
def shop(items: list[str]) -> list[str]:
    done: list[str] = []
    for item in items:
        loupe.uuid4()
        try:
            find(item=item)
        except NoStock as missing:
            done.append(f"no {missing.item}")
            continue
        done.append(clerk(item))
        loupe.check("ordered", True)
    done.append(order(item="wrapping"))
    return done


ITEMS = ["pen", "nothing", "ink"]
RESULT = ["O-pen", "no nothing", "O-ink", "O-wrapping"]


def whole(agent: Callable[..., Any], *args: Any) -> Recording:
    """A recording of a run that nobody disturbed."""
    recording = record_in(MemoryStore(), agent, *args)
    real.clear()
    return recording


def cut(recording: Recording, last: int) -> MemoryStore:
    """A store that holds the first events of a recording, as a killed process leaves them."""
    store = MemoryStore()
    store.insert(recording.run_id, recording.events[:last], recording.get, Projector)
    return store


def sound(store: Store, run_id: str, agent: Callable[..., Any]) -> Recording:
    """Everything that is promised of a resumed run, also when it is replayed."""
    recording = store.recording(run_id)
    assert verify(recording).ok
    assert store.rebuild(run_id, Projector) == []
    before = Counter(real)
    report = replay(recording, agent)
    assert report.passed, report.text()
    assert real == before
    return recording


def test_a_run_cut_anywhere_goes_on_and_ends_as_it_would_have() -> None:
    """Every cut: what the recording holds is not done again, everything else once, and open writes are questions."""
    recording = whole(shop, ITEMS)
    refused = 0
    for last in range(1, len(recording.events)):
        real.clear()
        store = cut(recording, last)
        ended = {e.call_id for e in recording.events[:last] if e.type in ("tool.finished", "tool.failed")}
        begun = {e.call_id for e in recording.events[:last] if e.type == "tool.requested"}
        if begun - ended:
            refused += 1
            with pytest.raises(ResumeRefused) as question:
                resume(recording.run_id, shop, store=store)
            assert question.value.reason == "open_intent"
            (asked,) = question.value.intents
            settle = f"agentloupe effects settle {recording.run_id} {asked['call_id']} --outcome "
            assert settle in (question.value.hint or ""), "the hint is the command to type"
            assert not real, "nothing runs while there is a question"
            events = store.recording(recording.run_id).events
            assert events[:last] == recording.events[:last]
            assert [e.type for e in events[last:]] == ["tool.unknown"], "first it is noted that nobody saw its end"
            continue
        done = resume(recording.run_id, shop, store=store)
        assert done.result == RESULT
        assert done.run_id == recording.run_id
        made = sound(store, recording.run_id, shop)
        _done_once(recording, made, last)
        again = [e.sequence for e in made.events if e.type == "attempt.started"]
        assert again == [last + 1], "the recorded part is left as it was"
        assert {e.owner_epoch for e in made.events[last:]} == {2 + recording.events[0].owner_epoch - 1}
        assert made.events[-1].attrs["coverage"] == "full"
    assert refused == 3 * 2, "three effects, each with two events between its intent and its end"


def _done_once(recording: Recording, made: Recording, last: int) -> None:
    """What was recorded as done at the cut is not done again; everything else exactly once."""
    finished = [e for e in recording.events if e.type in ("tool.finished", "tool.failed")]
    left = Counter(e.name for e in finished if e.sequence > last)
    inner_again = Counter(
        e.name
        for e in finished
        if e.sequence <= last and "~." in (e.call_id or "") and _reopened(recording, e.call_id, last)
    )
    now = Counter(name.split()[0] for name in real.elements() if not name.startswith("key"))
    assert now == left + inner_again


def _reopened(recording: Recording, call_id: str | None, last: int) -> bool:
    """Whether a call was made inside of a tool that was open at the cut, and so is run again."""
    outer = str(call_id).rpartition("~.")[0]
    kinds = {e.type for e in recording.events[:last] if e.call_id == outer}
    return "tool.allowed" in kinds and not kinds & {"tool.finished", "tool.failed"}


def test_write_effects_keep_the_key_that_they_would_have_had() -> None:
    recording = record_in(MemoryStore(), shop, ["pen", "pen", "pen"])
    keys = [e.attrs["idempotency_key"] for e in recording.events if e.type == "tool.requested"]
    at = next(e.sequence for e in recording.events if e.type == "tool.finished" and e.name == "order")
    real.clear()
    store = cut(recording, at)
    resume(recording.run_id, shop, store=store)
    made = [e.attrs["idempotency_key"] for e in store.recording(recording.run_id).events if e.type == "tool.requested"]
    assert made == keys
    assert len(set(keys)) == 4
    assert {name[4:] for name in real if name.startswith("key")} == set(keys[1:])


@settings(max_examples=8)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_a_run_may_be_killed_again_and_again(cuts: list[int]) -> None:
    recording = whole(shop, ITEMS)
    for last in cuts:
        store = cut(recording, min(last, len(recording.events) - 1))
        if open_intents(read_tape(store.recording(recording.run_id))):
            return
        resume(recording.run_id, shop, store=store)
        recording = sound(store, recording.run_id, shop)
    assert recording.events[-1].attrs["status"] == "ok"
    attempts = [e.attrs["attempt"] for e in recording.events if e.type == "attempt.started"]
    assert attempts == list(range(2, 2 + len(attempts)))


def test_a_stream_that_was_cut_is_asked_for_again() -> None:
    @loupe.agent(name="reads")
    def agent() -> list[str]:
        return [stream_of("twelve words"), stream_of("and a few more"), find(item="pen")["item"]]

    recording = whole(agent)
    assert [e.type for e in recording.events].count("model.opened") == 2
    for last in range(1, len(recording.events)):
        real.clear()
        store = cut(recording, last)
        assert resume(recording.run_id, agent, store=store).result == ["twelve words", "and a few more", "pen"]
        made = sound(store, recording.run_id, agent)
        asked = {text: real[f"asked {text}"] for text in ("twelve words", "and a few more")}
        ends = [e.sequence for e in recording.events if e.type == "model.responded"]
        assert list(asked.values()) == [int(end > last) for end in ends]
        assert [e.type for e in made.events].count("model.responded") == 2


# ---------------------------------------------------------------- what stops it


def ask(messages: list[Any], *, answer: Any = None, hosted: list[str] | None = None) -> Any:
    """A model call without a client: what it answers is given here."""
    call = Call(
        kind="llm",
        name="chat m",
        input={"messages": messages},
        attrs={"hosted": cast("Json", hosted)} if hosted else {},
        encode=lambda value: cast("Any", value),
        decode=lambda value: value,
    )

    def send() -> Any:
        real[f"asked {len(messages)}"] += 1
        return answer

    return ambient.call(call, send)


def wants(tool: str) -> Any:
    """An answer that asks for a tool."""
    function = {"name": tool, "arguments": "{}"}
    return {"choices": [{"message": {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}}]}


def test_a_tool_that_may_have_run_unseen_stops_it_before_it_runs_again() -> None:
    def wire_money() -> str:
        real["wired"] += 1
        return "sent"

    @loupe.agent(name="banker")
    def agent() -> str:
        answer = ask([{"role": "user", "content": "pay"}], answer=wants("wire_money"))
        result = wire_money()
        last = {"role": "tool", "tool_call_id": "c1", "content": result}
        return str(ask([answer["choices"][0]["message"], last], answer={"choices": []}))

    recording = whole(agent)
    answered = next(e.sequence for e in recording.events if e.type == "model.responded")
    for last in (answered, answered + 1, len(recording.events) - 1):
        real.clear()
        with pytest.raises(ResumeRefused) as refused:
            resume(recording.run_id, agent, store=cut(recording, last))
        assert refused.value.reason == "control_flow"
        assert "wire_money" in str(refused.value)
        assert not real


def test_a_declared_tool_that_was_asked_for_and_had_not_begun_runs() -> None:
    @loupe.agent(name="finder")
    def agent() -> str:
        ask([{"role": "user", "content": "look"}], answer=wants("find"))
        return str(find(item="pen")["item"])

    recording = whole(agent)
    answered = next(e.sequence for e in recording.events if e.type == "model.responded")
    store = cut(recording, answered)
    assert resume(recording.run_id, agent, store=store).result == "pen"
    assert real == {"find pen": 1}
    sound(store, recording.run_id, agent)


@pytest.mark.parametrize(("hosted", "asked"), [("web_search", True), ("code_interpreter", False)])
def test_what_the_provider_runs_itself_is_asked_again_only_where_it_cannot_write(hosted: str, asked: bool) -> None:
    @loupe.agent(name="searcher")
    def agent() -> str:
        return str(ask([{"role": "user", "content": "look"}], answer={"choices": []}, hosted=[hosted]))

    recording = whole(agent)
    store = cut(recording, next(e.sequence for e in recording.events if e.type == "model.requested"))
    if asked:
        resume(recording.run_id, agent, store=store)
        assert real == {"asked 1": 1}
        return
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, agent, store=store)
    assert [intent["tool"] for intent in refused.value.intents] == [hosted]
    assert not real


def test_code_that_takes_another_road_leaves_the_run_as_it_was() -> None:
    recording = whole(shop, ITEMS)
    last = next(e.sequence for e in recording.events if e.type == "tool.finished" and e.name == "order")

    @loupe.agent(name="shop")
    def changed(items: list[str]) -> list[str]:
        loupe.uuid4()
        find(item=items[0].upper())
        return [order(item="everything")]

    store = cut(recording, last)
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, changed, store=store)
    assert refused.value.reason == "diverged"
    assert "input_changed at sequence 3" in str(refused.value)
    assert not real
    assert store.recording(recording.run_id).events == recording.events[:last]
    left = store.run(recording.run_id)
    assert left is not None
    assert left.status == "interrupted"
    assert resume(recording.run_id, shop, store=store).result == RESULT


def test_code_that_swallows_everything_is_stopped_all_the_same() -> None:
    recording = whole(shop, ITEMS)

    @loupe.agent(name="shop")
    def changed(items: list[str]) -> str:
        for item in ("x", "y", "z"):
            with suppress(BaseException):
                order(item=item)
        return "done"

    store = cut(recording, 6)
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, changed, store=store)
    assert refused.value.reason == "diverged"
    assert not real
    assert store.recording(recording.run_id).events == recording.events[:6]


def test_code_that_ends_early_or_is_called_otherwise_is_stopped() -> None:
    recording = whole(shop, ITEMS)
    store = cut(recording, 12)

    @loupe.agent(name="shop")
    def early(items: list[str]) -> list[str]:
        return items

    @loupe.agent
    def other(items: list[str]) -> list[str]:
        return items

    for agent, word in ((early, "unconsumed"), (other, "name_changed")):
        with pytest.raises(ResumeRefused, match=word) as refused:
            resume(recording.run_id, agent, store=store)
        assert refused.value.reason == "diverged"
    assert store.recording(recording.run_id).events == recording.events[:12]


def test_an_error_before_the_end_of_the_tape_is_named_and_leaves_the_run_as_it_was() -> None:
    recording = whole(shop, ITEMS)
    store = cut(recording, 12)

    @loupe.agent(name="shop")
    def broken(items: list[str]) -> list[str]:
        loupe.uuid4()
        raise KeyError("LLM_BASE_URL")

    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, broken, store=store)
    assert "the agent raised KeyError at test_resume.py:" in str(refused.value)
    assert store.recording(recording.run_id).events == recording.events[:12]
    assert resume(recording.run_id, shop, store=store).result == RESULT


def test_an_open_question_names_what_a_person_must_find_out() -> None:
    recording = whole(shop, ["quill"])
    intent = next(e for e in recording.events if e.type == "tool.requested")
    store = cut(recording, intent.sequence + 1)
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, shop, store=store)
    (question,) = refused.value.intents
    allowed = recording.events[intent.sequence - 2]
    assert question == {
        "sequence": allowed.sequence,
        "call_id": allowed.call_id,
        "tool": "order",
        "effect": "write",
        "status": "unknown",
        "arguments_digest": allowed.input_digest,
        "idempotency_key": intent.attrs["idempotency_key"],
        "why": f"its tool has no lookup ({__name__}.order, line {inspect.unwrap(order).__code__.co_firstlineno})",
    }
    assert str(intent.attrs["idempotency_key"]) in str(refused.value)
    assert "quill" not in str(refused.value), "a message holds no payload"


def test_a_tool_whose_inner_write_went_well_is_a_question_too() -> None:
    @loupe.tool(effect="read")
    def careless(item: str) -> str:
        first = order(item=item)
        find(item=item)
        return first

    @loupe.agent(name="careless agent")
    def agent() -> str:
        return careless(item="pen")

    recording = whole(agent)
    last = next(e.sequence for e in recording.events if e.type == "tool.finished" and e.name == "order")
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, agent, store=cut(recording, last))
    assert [intent["tool"] for intent in refused.value.intents] == ["careless"]
    assert not real


def test_what_cannot_go_on_says_why() -> None:
    recording = whole(shop, ITEMS)
    ended = cut(recording, len(recording.events))
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, shop, store=ended)
    assert refused.value.reason == "finished"
    with pytest.raises(RunNotFound):
        resume("nobody", shop, store=ended)
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, store=cut(recording, 9))
    assert refused.value.reason == "no_code"
    assert refused.value.hint == f"try: agentloupe resume {recording.run_id} --code tests.unit.test_resume:shop"
    damaged = MemoryStore()
    damaged.insert(recording.run_id, recording.events[:9], recording.get, Projector)
    kept = damaged._kept(recording.run_id)
    kept.events[4] = tampered(recording, 5, name="another").events[4]
    with pytest.raises(Corrupt):
        resume(recording.run_id, shop, store=damaged)


def test_a_secret_that_was_taken_out_is_not_made_up_for() -> None:
    @loupe.tool(effect="read")
    def log_in(user: str) -> dict[str, str]:
        return {"user": user, "access_token": "tok-0123456789abcdef0123456789abcdef"}

    @loupe.agent(name="visitor")
    def agent(user: str, password: str = "") -> str:
        log_in(user=user)
        return str(find(item="pen")["item"])

    recording = whole(agent, "ann")
    last = next(e.sequence for e in recording.events if e.type == "tool.finished")
    done = resume(recording.run_id, agent, store=cut(recording, last))
    assert done.result == "pen"
    assert ["taken out of 1 recorded" in note for note in done.notes] == [True]
    recording = record_in(MemoryStore(), agent, "ann", password="hunter2hunter2")
    with pytest.raises(ResumeRefused) as refused:
        resume(recording.run_id, agent, store=cut(recording, last))
    assert refused.value.reason == "secret"


def test_a_living_owner_is_left_alone() -> None:
    store = MemoryStore()
    writer = store.start("alive", Projector, owner=this_process())
    with pytest.raises(RunNotFound):
        resume("alive", shop, store=store)
    recording = whole(shop, ["pen"])
    store = cut(recording, 9)
    store.take_over(recording.run_id, Projector, owner=this_process())
    with pytest.raises(OwnerAlive):
        resume(recording.run_id, shop, store=store)
    other = cut(recording, 9)
    taken = other.take_over(recording.run_id, Projector, owner=replace(this_process(), host="elsewhere"))
    with pytest.raises(OwnerAlive) as refused:
        resume(recording.run_id, shop, store=other)
    assert refused.value.reason == "other_host"
    assert resume(recording.run_id, shop, store=other, force_owner=True).result == ["O-pen", "O-wrapping"]
    assert taken.owner.epoch == 2
    writer.close()


# ---------------------------------------------------------------- shapes of agents


def test_an_agent_that_raises_ends_the_run_with_its_error() -> None:
    @loupe.agent(name="raises")
    def agent() -> None:
        find(item="pen")
        find(item="nothing")

    recording = whole(agent)
    store = cut(recording, 4)
    with pytest.raises(NoStock) as raised:
        resume(recording.run_id, agent, store=store)
    assert raised.value.item == "nothing"
    assert real == {"find nothing": 1}
    run = store.run(recording.run_id)
    assert run is not None
    assert run.status == "error"
    assert replay(store.recording(recording.run_id), agent).passed


def test_async_agents_and_plain_functions_go_on() -> None:
    @loupe.tool(effect="read")
    async def fetch(n: int) -> int:
        real[f"fetch {n}"] += 1
        await asyncio.sleep(0)
        return n * 2

    async def plain(count: int) -> int:
        return sum([await fetch(n=n) for n in range(count)])

    recording = whole(plain, 5)
    for last in range(1, len(recording.events)):
        real.clear()
        store = cut(recording, last)
        assert resume(recording.run_id, plain, store=store).result == 20
        sound(store, recording.run_id, plain)


@loupe.tool(effect="read")
async def slow(name: str, seconds: float) -> str:
    real[f"slow {name}"] += 1
    await asyncio.sleep(seconds)
    return name


async def gathered() -> list[str]:
    done: list[str] = []

    async def branch(name: str, seconds: float) -> str:
        done.append(await slow(name=name, seconds=seconds))
        done.append(await slow(name=f"{name}2", seconds=0))
        return name

    async with asyncio.TaskGroup() as group:
        for name, seconds in (("a", 0.02), ("b", 0.0), ("c", 0.01)):
            group.create_task(branch(name, seconds))
    try:
        async with asyncio.timeout(0.005):
            await slow(name="late", seconds=30)
    except TimeoutError:
        done.append("timeout")
    await asyncio.sleep(0.001)
    return [*done, await slow(name="end", seconds=0)]


def test_concurrent_programs_go_on_in_the_recorded_order() -> None:
    recording = whole(gathered)
    result = recording.body(recording.events[-1].output_digest)
    for last in range(1, len(recording.events)):
        real.clear()
        store = cut(recording, last)
        done = resume(recording.run_id, gathered, store=store)
        made = sound(store, recording.run_id, gathered)
        ends = ("tool.finished", "tool.failed")
        then = [e.call_id for e in recording.events[:last] if e.type in ends]
        now = [e.call_id for e in made.events if e.type in ends]
        assert now[: len(then)] == then, "what was handed over is handed over in the same order"
        assert real.total() == len(now) - len(then)
        assert isinstance(result, dict)
        assert sorted(done.result) == sorted(cast("list[str]", result["result"]))


def test_a_block_is_resumed_by_running_its_program() -> None:
    def program() -> str:
        with loupe.recording("block") as run:
            found = find(item="pen")
            run.result = order(item=found["item"])
        return "over"

    store = MemoryStore()
    with loupe.recording("block", store=store):
        find(item="pen")
        order(item="pen")
    run_id = store.runs()[0].id
    recording = store.recording(run_id)
    real.clear()
    again = cut(recording, 4)
    done = resume(run_id, program, store=again)
    assert real["order pen"] == 1
    assert real["find pen"] == 0
    assert done.run is not None
    assert done.run.status == "ok"


def test_a_resumed_run_is_forked_and_compared_like_any_other() -> None:
    recording = whole(shop, ITEMS)
    store = cut(recording, next(e.sequence for e in recording.events if e.type == "state.changed"))
    resume(recording.run_id, shop, store=store)
    made = loupe.fork(recording.run_id, shop, from_step="start", store=store)
    assert made.candidates[0].status == "ok"
    found = loupe.compare(recording, store.recording(recording.run_id))
    assert isinstance(found, Comparison)
    assert {row.left.kind for row in found.rows if row.status != "same" and row.left} == {"id", "clock"}, "time went on"
