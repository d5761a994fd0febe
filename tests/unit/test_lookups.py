"""Effects whose end nobody saw: the tool's own lookup is asked before the run goes on. Nothing is done twice, nothing is lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentloupe as loupe
from agentloupe.engine.project import Projector
from agentloupe.engine.tape import read_tape
from agentloupe.engine.verify import verify
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs import instrument
from agentloupe.verbs.effects import open_effects, settle_effect
from agentloupe.verbs.resuming import resume
from agentloupe.words.errors import ResumeRefused
from tests.ledger.test_exchange import assert_equal, there_and_back
from tests.tapes import record_in, sequence_of

world: dict[str, str] = {}
"""What was done outside, by idempotency key."""
done: Counter[str] = Counter()
"""How often, by key."""
tell: list[Callable[[str], Any]] = []
"""What the lookups say in place of the world."""


def forget() -> None:
    world.clear()
    done.clear()
    tell.clear()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    forget()


def do(what: str) -> str:
    """An effect outside. It is done once for each key, however often it is asked for."""
    key = loupe.idempotency_key()
    done[key] += 1
    return world.setdefault(key, f"did {what}")


def seen(key: str) -> loupe.Done | loupe.NotDone:
    if tell:
        return tell[0](key)
    return loupe.Done(world[key], external_id=f"x-{key[:4]}") if key in world else loupe.NotDone()


async def aseen(key: str) -> loupe.Done | loupe.NotDone:
    await asyncio.sleep(0)
    return seen(key)


@loupe.tool(effect="write", name="pay by key", lookup=seen)
def pay(what: str) -> str:
    return do(what)


@loupe.tool(effect="write", lookup=aseen)
async def apay(what: str) -> str:
    await asyncio.sleep(0)
    return do(what)


@loupe.tool(effect="read")
def look(what: str) -> str:
    return what.upper()


@loupe.agent
def shop(*orders: str) -> list[str]:
    return [f"{look(what=order)}: {pay(what=order)}" for order in orders]


@loupe.agent
async def ashop(*orders: str) -> list[str]:
    return list(await asyncio.gather(*(apay(what=order) for order in orders)))


def cut(recording: Recording, last: int, *, happened: bool) -> MemoryStore:
    """A store with the first events, and a world in which the effect that was begun last happened or not."""
    store = MemoryStore()
    store.insert(recording.run_id, recording.events[:last], recording.get, Projector)
    tape = read_tape(store.recording(recording.run_id))
    keys = [str(call.attrs["idempotency_key"]) for call in tape.calls if call.unseen]
    ended = {
        str(call.attrs["idempotency_key"]) for call in tape.calls if call.effect == "write" and call.status == "ok"
    }
    for key in [*world]:
        if key not in ended and not (happened and key in keys):
            del world[key]
    done.clear()
    done.update(world.keys())
    return store


def sound(store: MemoryStore, run_id: str, agent: Callable[..., Any]) -> Recording:
    """What is promised of a run that was settled and went on."""
    recording = store.recording(run_id)
    assert verify(recording).ok
    assert store.rebuild(run_id, Projector) == []
    before = Counter(done)
    report = loupe.replay(recording, agent)
    assert report.passed, report.text()
    assert done == before
    assert_equal(recording, there_and_back(recording))
    return recording


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("agent", [shop, ashop])
def test_a_run_killed_anywhere_ends_as_it_would_have_and_every_effect_is_done_once(
    agent: Callable[..., Any], happened: bool
) -> None:
    whole = record_in(MemoryStore(), agent, "a", "b", "a")
    result, everything = whole.body(whole.events[-1].output_digest), dict(world)
    for last in range(1, len(whole.events)):
        world.clear()
        world.update(everything)
        store = cut(whole, last, happened=happened)
        assert resume(whole.run_id, agent, store=store).result == result["result"]  # type: ignore[index,call-overload]
        assert world == everything, "the same keys as if nobody had been killed"
        assert set(done.values()) == {1}
        made = sound(store, whole.run_id, agent)
        outcomes = [e.attrs["outcome"] for e in made.events if e.type == "tool.confirmed"]
        assert set(outcomes) <= {"finished" if happened else "not_done"}
        assert open_effects(store).items == ()


def test_what_was_done_is_served_and_noted_with_its_receipt() -> None:
    whole = record_in(MemoryStore(), shop, "a")
    store = cut(whole, sequence_of(whole, "tool.started", "pay by key"), happened=True)
    assert resume(whole.run_id, shop, store=store).result == ["A: did a"]
    life = [e for e in store.recording(whole.run_id).events if e.name == "pay by key"]
    assert [e.type for e in life] == [
        *("tool.allowed", "tool.requested", "tool.started", "tool.unknown", "tool.confirmed")
    ]
    key = life[0].attrs["idempotency_key"]
    told = {"effect": "write", "outcome": "finished", "how": "lookup", "idempotency_key": key}
    assert life[-1].attrs == {**told, "external_id": f"x-{str(key)[:4]}"}


def test_an_external_id_of_any_type_is_noted_as_text() -> None:
    whole = record_in(MemoryStore(), shop, "a")
    store = cut(whole, sequence_of(whole, "tool.started", "pay by key"), happened=True)
    tell.append(lambda _: loupe.Done("did a", external_id=UUID(int=7)))  # pyright: ignore[reportArgumentType]
    assert resume(whole.run_id, shop, store=store).result == ["A: did a"]
    (confirmed,) = (e for e in store.recording(whole.run_id).events if e.type == "tool.confirmed")
    assert confirmed.attrs["external_id"] == str(UUID(int=7))


def test_what_was_not_done_is_requested_anew_under_the_same_key() -> None:
    whole = record_in(MemoryStore(), shop, "a")
    store = cut(whole, sequence_of(whole, "tool.started", "pay by key"), happened=False)
    resume(whole.run_id, shop, store=store)
    life = [e for e in store.recording(whole.run_id).events if e.name == "pay by key"]
    once = ["tool.requested", "tool.started"]
    assert [e.type for e in life] == ["tool.allowed", *once, "tool.unknown", "tool.confirmed", *once, "tool.finished"]
    assert len({str(e.attrs["idempotency_key"]) for e in life}) == 1


def raises(_: str) -> Any:
    raise ConnectionError("the bank's token is sk-live-12345678")


def leaves(_: str) -> Any:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (raises, "its lookup raised ConnectionError"),
        (leaves, "its lookup raised SystemExit"),
        (lambda _: loupe.Failed("declined"), "its Failed holds str, and not an exception"),  # pyright: ignore[reportArgumentType]
        (lambda _: loupe.Failed(KeyboardInterrupt()), "its Failed holds KeyboardInterrupt"),  # pyright: ignore[reportArgumentType]
        (lambda _: None, "it returned NoneType"),
        (lambda _: True, "it returned bool"),
        (lambda _: loupe.DontKnow("the bank is closed"), "the bank is closed"),
        (lambda _: loupe.DontKnow(), "its lookup cannot tell"),
        (lambda _: loupe.Done(object()), "what it returned cannot be recorded"),
    ],
)
def test_whoever_cannot_tell_leaves_a_question_and_nothing_is_done(answer: Callable[[str], Any], why: str) -> None:
    whole = record_in(MemoryStore(), shop, "a")
    store = cut(whole, sequence_of(whole, "tool.started", "pay by key"), happened=False)
    tell.append(answer)
    for _ in range(2):
        with pytest.raises(ResumeRefused, match=why) as refused:
            resume(whole.run_id, shop, store=store)
        assert refused.value.reason == "open_intent"
        assert "sk-live" not in str(refused.value)
        assert not done
    events = store.recording(whole.run_id).events
    assert [e.type for e in events if e.name == "pay by key"][3:] == ["tool.unknown"], "noted once"
    (effect,) = open_effects(store).items
    assert effect.lookup
    settle_effect(whole.run_id, effect.call_id, "finished", why="rang them up", result="did a", store=store)
    assert resume(whole.run_id, shop, store=store).result == ["A: did a"]
    assert not done
    sound(store, whole.run_id, shop)


def test_a_lookup_that_does_not_answer_is_left_behind_and_its_late_answer_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on, told = threading.Event(), threading.Event()

    def slow(_: str) -> loupe.Done:
        go_on.wait(60)
        told.set()
        return loupe.Done("too late")

    monkeypatch.setenv("LOUPE_LOOKUP_TIMEOUT", "0.05")
    whole = record_in(MemoryStore(), shop, "a")
    store = cut(whole, sequence_of(whole, "tool.started", "pay by key"), happened=False)
    tell.append(slow)
    with pytest.raises(ResumeRefused, match=r"its lookup took longer than 0.05 s \(asked .*\.seen, line \d+\)"):
        resume(whole.run_id, shop, store=store)
    go_on.set()
    assert told.wait(60)
    assert store.recording(whole.run_id).events[-1].type == "tool.unknown"
    assert not done
    tell.clear()
    monkeypatch.delenv("LOUPE_LOOKUP_TIMEOUT")
    assert resume(whole.run_id, shop, store=store).result == ["A: did a"]


def test_an_async_lookup_that_does_not_answer_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    async def never(_: str) -> loupe.Done:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("nobody wakes it")

    @loupe.tool(effect="write", name="pays slowly", lookup=never)
    def slowly(what: str) -> str:
        return do(what)

    @loupe.agent(name="waits")
    def waits() -> str:
        return slowly(what="a")

    monkeypatch.setenv("LOUPE_LOOKUP_TIMEOUT", "0.5")
    whole = record_in(MemoryStore(), waits)
    store = cut(whole, sequence_of(whole, "tool.started", "pays slowly"), happened=True)
    with pytest.raises(ResumeRefused, match="took longer"):
        resume(whole.run_id, waits, store=store)
    assert cancelled.wait(60)


def test_the_question_says_who_was_asked_or_that_nobody_could_be() -> None:
    @loupe.agent(name="inside")
    def inside() -> str:
        @loupe.tool(effect="write", name="declared inside", lookup=seen)
        def late(what: str) -> str:
            return do(what)

        return late(what="a")

    whole = record_in(MemoryStore(), inside)
    store = cut(whole, sequence_of(whole, "tool.started", "declared inside"), happened=True)
    tell.append(lambda _: loupe.DontKnow("the line is busy"))
    line = seen.__code__.co_firstlineno
    with pytest.raises(ResumeRefused, match=rf"busy \(asked tests\.unit\.test_lookups\.seen, line {line}\)"):
        resume(whole.run_id, inside, store=store)
    declared = instrument._tools.pop("declared inside")  # as in another process
    with pytest.raises(ResumeRefused, match="is not declared yet: declare it outside of the agent"):
        resume(whole.run_id, inside, store=store)
    instrument._tools["declared inside"] = replace(declared, lookup=None)
    with pytest.raises(ResumeRefused, match=r"has no lookup \(tests\..*late, line \d+\)"):
        resume(whole.run_id, inside, store=store)
    del instrument._tools["declared inside"]


class Declined(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"declined {code}")
        self.code = code


@loupe.agent
def careful(what: str) -> str:
    try:
        return pay(what=what)
    except Declined as no:
        return f"no: {no.code}"
    except loupe.LoupeError as no:
        return f"failed: {no}"


def test_an_effect_that_failed_raises_in_the_program_as_if_it_had_been_there() -> None:
    whole = record_in(MemoryStore(), careful, "a")
    begun = sequence_of(whole, "tool.started", "pay by key")
    store = cut(whole, begun, happened=False)
    tell.append(lambda _: loupe.Failed(Declined(7)))
    assert resume(whole.run_id, careful, store=store).result == "no: 7"
    sound(store, whole.run_id, careful)
    store = cut(whole, begun, happened=False)
    settle_effect(whole.run_id, "0.0", "failed", why="the list", result="card expired", store=store)
    assert resume(whole.run_id, careful, store=store).result == "failed: card expired"
    sound(store, whole.run_id, careful)
    assert not done


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(1, 80), st.booleans()), min_size=1, max_size=5))
def test_a_run_may_be_killed_again_and_again(kills: list[tuple[int, bool]]) -> None:
    forget()
    whole = record_in(MemoryStore(), shop, "a", "b")
    everything = dict(world)
    for last, happened in kills:
        world.clear()
        world.update(everything)
        store = cut(whole, min(last, len(whole.events) - 1), happened=happened)
        assert resume(whole.run_id, shop, store=store).result == ["A: did a", "B: did b"]
        assert (world, set(done.values())) == (everything, {1})
        whole = sound(store, whole.run_id, shop)


@loupe.tool(effect="read")
def twice(what: str) -> str:
    return pay(what=what) + pay(what=f"{what}2")


@loupe.agent
def nested(what: str) -> str:
    return twice(what=what)


def test_a_tool_around_an_effect_runs_again_only_where_that_was_not_done() -> None:
    whole = record_in(MemoryStore(), nested, "a")
    started = sequence_of(whole, "tool.started", "pay by key")
    everything = dict(world)
    store = cut(whole, started, happened=False)
    assert resume(whole.run_id, nested, store=store).result == "did adid a2"
    assert (world, set(done.values())) == (everything, {1}), "the inner effects keep their keys"
    sound(store, whole.run_id, nested)
    store = cut(whole, started, happened=True)
    with pytest.raises(ResumeRefused, match="an effect inside of it was begun"):
        resume(whole.run_id, nested, store=store)


def test_a_timeout_that_the_program_got_stays_its_own_and_is_settled_beside() -> None:
    @loupe.tool(effect="write", name="pay by key", lookup=seen)
    def late(what: str) -> str:
        do(what)
        raise TimeoutError("no answer in time")

    @loupe.agent(name="patient")
    def patient() -> str:
        with suppress(TimeoutError):
            late(what="a")
        return look(what="done")

    whole = record_in(MemoryStore(), patient)
    store = cut(whole, sequence_of(whole, "tool.started", "look"), happened=True)
    assert resume(whole.run_id, patient, store=store).result == "DONE"
    assert set(done.values()) == {1}
    made = sound(store, whole.run_id, patient)
    (confirmed,) = (e for e in made.events if e.type == "tool.confirmed")
    assert (confirmed.attrs["outcome"], confirmed.call_id) == ("finished", "0.0")
    assert open_effects(store).items == ()


@pytest.mark.parametrize(
    "raised",
    [
        *(loupe.OutcomeUnknown("lost"), TimeoutError(), KeyboardInterrupt(), concurrent.futures.CancelledError()),
        ExceptionGroup("tasks", [ValueError(), ExceptionGroup("inner", [TimeoutError()])]),
    ],
)
def test_what_says_nothing_of_the_world_is_unknown_and_an_ordinary_error_is_not(raised: BaseException) -> None:
    @loupe.tool(effect="write", name="unsure")
    def unsure(error: str) -> None:
        raise ValueError(error) if error == "plain" else raised

    @loupe.agent(name="asks")
    def asks() -> None:
        with suppress(ValueError):
            unsure(error="plain")
        with suppress(BaseException):
            unsure(error="other")

    whole = record_in(MemoryStore(), asks)
    assert [e.type for e in whole.events if e.type in ("tool.failed", "tool.unknown")] == [
        "tool.failed",
        "tool.unknown",
    ]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_a_run_that_ended_in_the_middle_of_a_write_is_whole_and_replays(raised: type[BaseException]) -> None:
    @loupe.tool(effect="write", name="stopped")
    def stopped() -> None:
        raise raised

    @loupe.agent(name="stops")
    def stops() -> None:
        stopped()

    store = MemoryStore()
    with suppress(raised):
        record_in(store, stops)
    (run,) = store.runs()
    sound(store, run.id, stops)
    (effect,) = open_effects(store).items
    settle_effect(run.id, effect.call_id, "finished", why="the list has it", result="done", store=store)
    sound(store, run.id, stops)


def test_a_cancelled_write_is_unknown_and_a_replay_cancels_it_again() -> None:
    @loupe.tool(effect="write", name="slow pay")
    async def slow(what: str) -> str:
        await asyncio.sleep(60)
        return what

    @loupe.agent(name="hasty")
    async def hasty() -> str:
        try:
            return await asyncio.wait_for(slow(what="a"), 0.01)
        except TimeoutError:
            return "too slow"

    made = record_in(MemoryStore(), hasty)
    assert [e.type for e in made.events if e.name == "slow pay"][-1] == "tool.unknown"
    report = loupe.replay(made, hasty)
    assert report.passed, report.text()


@pytest.mark.parametrize(("then", "now"), [("write", "read"), ("write", "pure"), ("read", "write"), ("pure", "write")])
def test_a_tool_that_was_going_on_is_not_called_again_as_one_of_another_effect(then: Any, now: Any) -> None:
    def mixed(effect: Any) -> Callable[[], str]:
        @loupe.tool(effect=effect, name="mixed")
        def tool(what: str) -> str:
            return do(what)

        @loupe.agent(name="mixes")
        def agent() -> str:
            return tool(what="a")

        return agent

    whole = record_in(MemoryStore(), mixed(then))
    store = MemoryStore()
    store.insert(whole.run_id, whole.events[: sequence_of(whole, "tool.started", "mixed")], whole.get, Projector)
    if then == "write":
        settle_effect(whole.run_id, "0.0", "not_done", why="rang them up", store=store)
    before, events = Counter(done), store.recording(whole.run_id).events
    with pytest.raises(ResumeRefused, match=f"going on as a {then} tool, and is declared {now} now") as refused:
        resume(whole.run_id, mixed(now), store=store)
    assert refused.value.reason == "effect_changed"
    assert done == before
    assert store.recording(whole.run_id).events == events
    resume(whole.run_id, mixed(then), store=store)
    report = loupe.replay(store.recording(whole.run_id), mixed(then))
    assert report.passed, report.text()


def test_a_fork_has_a_key_of_its_own() -> None:
    """From the run, the tool, the arguments and how often; never from an attempt or the time."""
    first, second = (record_in(MemoryStore(), shop, "a", "a") for _ in range(2))
    keys = [[str(e.attrs["idempotency_key"]) for e in r.events if e.type == "tool.requested"] for r in (first, second)]
    assert len({*keys[0], *keys[1]}) == 4
