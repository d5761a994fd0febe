"""Inputs of asyncio programs: answers, timers and cancels come in their turn, to their lane, of their run."""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.report import ReplayReport
from agentloupe.engine.tape import read_tape
from agentloupe.ports import ambient, codecs
from agentloupe.ports.recording import Recording
from agentloupe.ports.streams import Streamed, aopen_stream
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.instrument import as_agent
from agentloupe.verbs.replaying import Wishes, open_tape, run_replayed
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.call import Call
from agentloupe.words.errors import ForkRefused

WAITS: dict[str, float] = {}
STEPS: list[Any] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    WAITS.clear()
    STEPS.clear()


@loupe.tool(effect="read")
async def fetch(name: str) -> str:
    """Answers after as many hundredths of a second as `WAITS` says."""
    STEPS.append(name)
    await asyncio.sleep(WAITS.get(name, 0) / 100)
    return name.upper()


@loupe.tool(effect="write")
async def send(name: str) -> str:
    await asyncio.sleep(WAITS.get(name, 0) / 100)
    return f"sent {name}"


@loupe.tool(effect="read")
async def stubborn() -> str:
    """Answers in spite of being cancelled."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(0.02)
    return "anyway"


def recorded(agent: Callable[[], Any]) -> tuple[Recording, Any]:
    opener = RecordOpener(MemoryStore())
    with ambient.opening_with(opener):
        result = agent()
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
    return _of(opener), result


def _of(opener: RecordOpener) -> Recording:
    store = opener._store
    return store.recording(opener.sessions[-1].run_id)  # type: ignore[union-attr]


def replayed(recording: Recording, agent: Callable[..., Any], *, stuck_after: float = 0.3) -> ReplayReport:
    tape = open_tape(recording)
    assert not isinstance(tape, ReplayReport), tape.text()
    began = time.monotonic()
    STEPS.clear()
    report = run_replayed(tape, as_agent(agent), Wishes(stuck_after=stuck_after))
    assert time.monotonic() - began < stuck_after + 20, "a replay does not hang"
    assert STEPS == [], "nothing is performed"
    return report


def passes(recording: Recording, agent: Callable[..., Any]) -> None:
    for _ in range(5):
        report = replayed(recording, agent)
        assert report.verdict == "pass", report.text()
        assert report.unproven == ()


def types_of(recording: Recording) -> list[str]:
    return [event.type for event in recording.events]


# ---------------------------------------------------------------- lanes


def test_identical_calls_that_start_in_reverse_go_back_to_the_same_callers() -> None:
    order = iter("abcd")

    @loupe.tool(effect="read")
    async def same() -> str:
        got = next(order)
        await asyncio.sleep(0.001 * (ord(got) - ord("a")))
        return got

    @loupe.agent(name="reverse")
    async def agent() -> Any:
        events = [asyncio.Event() for _ in range(5)]
        events[4].set()

        async def one(number: int) -> tuple[int, str]:
            await events[number + 1].wait()
            events[number].set()
            return number, await same()

        return await asyncio.gather(*(one(number) for number in range(4)))

    recording, result = recorded(agent)
    assert result == [(0, "d"), (1, "c"), (2, "b"), (3, "a")]
    assert {call.lane: call.status for call in read_tape(recording).driven} == dict.fromkeys(
        ("0/a1", "0/a2", "0/a3", "0/a4"), "ok"
    )
    passes(recording, agent)


def test_identical_calls_of_threads_that_start_in_reverse_go_back_to_the_same_callers() -> None:
    given = iter("abcd")

    @loupe.tool(effect="read")
    def same() -> str:
        return next(given)

    @loupe.agent(name="reverse")
    def agent() -> Any:
        events = [threading.Event() for _ in range(5)]
        got: dict[int, str] = {}
        events[4].set()

        def one(number: int) -> None:
            events[number + 1].wait()
            got[number] = same()
            events[number].set()

        threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(got.items())

    recording, result = recorded(agent)
    assert result == [(0, "d"), (1, "c"), (2, "b"), (3, "a")]
    assert [call.lane for call in read_tape(recording).driven] == ["0/t4", "0/t3", "0/t2", "0/t1"]
    passes(recording, agent)


@pytest.mark.parametrize("way", ["context", "factory"])
def test_a_tasks_own_lane_wins_over_a_context_from_elsewhere(way: str) -> None:
    @loupe.agent(name="contexts")
    async def agent() -> Any:
        loop = asyncio.get_running_loop()
        shared = contextvars.copy_context()
        if way == "factory":
            loop.set_task_factory(lambda loop, coro, **more: asyncio.Task(coro, loop=loop, **more))
            made = [loop.create_task(fetch(name)) for name in "ab"]
        else:
            made = [loop.create_task(fetch(name), context=shared) for name in "ab"]
        return await asyncio.gather(*made)

    WAITS.update(a=1)
    recording, _ = recorded(agent)
    assert [call.lane for call in read_tape(recording).driven] == ["0/a1", "0/a2"]
    passes(recording, agent)


def test_a_nested_agents_tasks_have_their_lanes_below_it() -> None:
    @loupe.agent(name="inner")
    async def inner(name: str) -> Any:
        return await asyncio.gather(fetch(name), fetch(name + name))

    @loupe.agent(name="outer")
    async def outer() -> Any:
        return await asyncio.gather(inner("a"), inner("b"))

    WAITS.update(a=1, bb=1)
    recording, _ = recorded(outer)
    lanes = {call.lane for call in read_tape(recording).driven if call.kind == "tool"}
    assert lanes == {"0/a1.0~/a1", "0/a1.0~/a2", "0/a2.0~/a1", "0/a2.0~/a2"}
    passes(recording, outer)


def test_tasks_that_make_no_call_leave_no_event() -> None:
    @loupe.agent(name="quiet")
    async def agent() -> Any:
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(20)))
        return await fetch("a")

    recording, _ = recorded(agent)
    assert types_of(recording) == ["run.started", "tool.allowed", "tool.started", "tool.finished", "run.finished"]


# ---------------------------------------------------------------- timers


def _limited(limit: float, wait: float) -> Callable[[], Any]:
    async def agent() -> Any:
        WAITS.update(a=wait)
        try:
            async with asyncio.timeout(limit):
                return await fetch("a")
        except TimeoutError:
            await asyncio.sleep(0.3)
            return "late"

    return as_agent(agent, "limited")


def test_what_fired_fires_again_at_once() -> None:
    recording, result = recorded(_limited(0.05, 500))
    assert result == "late"
    passes(recording, _limited(0.05, 500))


def test_a_timer_of_a_program_is_never_armed_in_a_replay() -> None:
    armed: list[int] = []

    @loupe.agent(name="sleeper")
    async def agent() -> str:
        sleeping = asyncio.ensure_future(asyncio.sleep(0.02))
        await asyncio.sleep(0)
        armed.append(len(asyncio.get_running_loop()._scheduled))  # type: ignore[attr-defined]
        await sleeping
        return "rested"

    recording, _ = recorded(agent)
    assert armed == [1]
    passes(recording, agent)
    assert armed == [1, 0, 0, 0, 0, 0]


def test_what_did_not_fire_does_not_fire_however_slow_the_replay_is() -> None:
    recording, result = recorded(_limited(0.2, 0))
    assert result == "A"

    async def slow() -> Any:
        async with asyncio.timeout(0.2):
            task = asyncio.ensure_future(fetch("a"))
            until = time.monotonic() + 0.4
            while time.monotonic() < until:
                pass
            return await task

    async def same() -> Any:
        async with asyncio.timeout(0.2):
            return await asyncio.ensure_future(fetch("a"))

    recording, _ = recorded(as_agent(same, "limited"))
    report = replayed(recording, as_agent(slow, "limited"))
    assert report.verdict == "pass", report.text()


@pytest.mark.parametrize("late", ["when recorded", "when replayed"])
@pytest.mark.parametrize("again", [False, True], ids=["begun", "rescheduled"])
def test_a_timeout_that_is_over_when_it_begins_is_told_by_the_tape(late: str, again: bool) -> None:
    busy = 0.0

    async def asks() -> Any:
        seen: list[Any] = []
        for _ in range(2):
            limit = asyncio.timeout(60 if again else 0.05)
            until = time.monotonic() + busy
            try:
                if again:
                    async with limit:
                        soon = asyncio.get_running_loop().time() + 0.05
                        until = time.monotonic() + busy
                        while time.monotonic() < until:
                            pass
                        limit.reschedule(soon)
                        seen.append(await fetch("a"))
                else:
                    while time.monotonic() < until:
                        pass
                    async with limit:
                        seen.append(await fetch("a"))
            except TimeoutError:
                seen.append("late")
            await asyncio.sleep(0.001)
        return seen, await fetch(str(seen))

    WAITS.update(a=20)
    busy = 0.1 if late == "when recorded" else 0.0
    recording, (seen, _) = recorded(as_agent(asks, "busy"))
    assert seen == ["late", "late"]
    fired = [event.attrs.get("at_once") for event in recording.events if event.type == "timer.fired"]
    assert fired == ([True, None] * 2 if late == "when recorded" else [None] * 4)
    busy = 0.0 if late == "when recorded" else 0.1
    passes(recording, as_agent(asks, "busy"))


def test_a_sleep_more_is_waited_for_and_said() -> None:
    async def once() -> Any:
        return await fetch("a")

    async def sleeps() -> Any:
        await asyncio.sleep(0.02)
        return await fetch("a")

    recording, _ = recorded(as_agent(once, "sleeper"))
    report = replayed(recording, as_agent(sleeps, "sleeper"), stuck_after=5)
    assert report.verdict == "pass", report.text()
    assert any("guess in the replay" in why for why in report.unproven)


def test_a_sleep_less_is_missing_and_named() -> None:
    async def sleeps() -> Any:
        await asyncio.sleep(0.01)
        return await fetch("a")

    async def hurries() -> Any:
        return await fetch("a")

    recording, _ = recorded(as_agent(sleeps, "sleeper"))
    report = replayed(recording, as_agent(hurries, "sleeper"))
    assert (report.verdict, report.reason) == ("diverged", "missing")
    assert report.divergence is not None
    assert report.divergence.message == "the tape waits for timer 1 of lane 0 (a sleep or a timeout)"


# ---------------------------------------------------------------- cancels


def test_a_cancel_that_is_swallowed_has_its_turn() -> None:
    WAITS.update(u=1)

    @loupe.agent(name="canceller")
    async def agent() -> Any:
        first, second = asyncio.ensure_future(stubborn()), asyncio.ensure_future(fetch("u"))
        await asyncio.sleep(0.001)
        first.cancel()
        done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        return [[task.result() for task in done], await first, await second]

    recording, result = recorded(agent)
    assert result == [["U"], "anyway", "U"]
    assert next(c for c in read_tape(recording).driven if c.name == "stubborn").attrs["cancels"] == 1
    passes(recording, agent)


def test_a_call_that_ended_and_is_cancelled_in_the_replay_is_found() -> None:
    def agent(cancels: bool) -> Callable[[], Any]:
        async def asks() -> Any:
            task = asyncio.ensure_future(fetch("a"))
            await asyncio.sleep(0)
            if cancels:
                task.cancel()
            await asyncio.wait([task])
            return "done"

        return as_agent(asks, "asker")

    recording, _ = recorded(agent(False))
    report = replayed(recording, agent(True))
    assert (report.verdict, report.reason) == ("diverged", "order"), report.text()


def test_an_answer_that_is_lost_is_lost_again() -> None:
    WAITS.update(a=0, b=0)

    @loupe.agent(name="loser")
    async def agent() -> Any:
        tasks = [asyncio.ensure_future(fetch(name)) for name in "ab"]
        tasks[0].add_done_callback(lambda _: tasks[1].cancel())  # whose answer is there, and waits for its turn
        await asyncio.wait(tasks)
        return [task.cancelled() for task in tasks]

    recording, result = recorded(agent)
    assert result == [False, True]
    assert "task.cancelled" in types_of(recording)
    passes(recording, agent)


# ---------------------------------------------------------------- standing still


async def _forever() -> Any:
    return await asyncio.Event().wait()


async def _gathers() -> Any:
    return await asyncio.gather(fetch("a"), _forever(), return_exceptions=True)


@pytest.mark.parametrize("stands", [_forever, _gathers])
def test_a_program_that_waits_for_nothing_is_stopped_and_ends(stands: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    async def asks() -> Any:
        await fetch("a")
        return await fetch("b")

    async def waits() -> Any:
        if stands is _forever:
            await fetch("a")
        return await stands()

    recording, _ = recorded(as_agent(asks, "asker"))
    report = replayed(recording, as_agent(waits, "asker"))
    assert report.verdict == "diverged"
    assert report.reason == ("missing" if stands is _forever else "extra"), report.text()


# ---------------------------------------------------------------- several runs


@loupe.agent(name="one of many")
async def one_of_many(who: int) -> Any:
    async def part(number: int) -> str:
        await asyncio.sleep(0.001 * number)
        return await fetch(f"{who}.{number}")

    return [await one for one in asyncio.as_completed([part(number) for number in range(3)])]


def test_a_hundred_runs_on_one_loop_do_not_wait_for_each_other() -> None:
    store = MemoryStore()
    opener = RecordOpener(store)

    async def main() -> list[Any]:
        return await asyncio.gather(*(one_of_many(who) for who in range(100)))

    with ambient.opening_with(opener):
        results = asyncio.run(main())
    assert len(results) == 100
    recordings = [store.recording(session.run_id) for session in opener.sessions]
    assert len({recording.run_id for recording in recordings}) == 100
    assert not [event for recording in recordings for event in recording.events if event.type == "schedule.marked"]
    for recording in recordings[::20]:
        names = {event.name for event in recording.events if event.name}
        assert names == {"one of many", "fetch"}
        report = replayed(recording, one_of_many)
        assert report.verdict == "pass", report.text()


def test_runs_on_two_threads_do_not_leak_into_each_other() -> None:
    stores = [MemoryStore(), MemoryStore()]
    results: dict[int, Any] = {}

    def work(who: int) -> None:
        with ambient.opening_with(openers[who]):
            results[who] = asyncio.run(one_of_many(who))

    openers = [RecordOpener(store) for store in stores]
    threads = [threading.Thread(target=work, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for who, opener in enumerate(openers):
        recording = stores[who].recording(opener.sessions[0].run_id)
        asked = [recording.body(call.input_digest) for call in read_tape(recording).driven]
        assert {str(one["name"]).split(".")[0] for one in asked if isinstance(one, dict)} == {str(who)}
        passes(recording, one_of_many)


def test_an_agent_is_recorded_and_replayed_beside_code_that_is_no_part_of_it() -> None:
    """A loop that runs already, with tasks of its own that never rest: a notebook, a web server."""

    @loupe.agent(name="guest")
    async def guest() -> Any:
        return await fetch("a") + await fetch("b")

    async def main() -> tuple[Recording, ReplayReport]:
        over = asyncio.Event()

        async def other() -> None:
            while not over.is_set():
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        opener = RecordOpener(MemoryStore())
        with ambient.opening_with(opener):
            assert await guest() == "AB"
        report = replayed(_of(opener), guest)
        over.set()
        await beside
        return _of(opener), report

    recording, report = asyncio.run(main())
    assert "schedule.marked" not in types_of(recording), "one lane: there is no order to prove"
    assert report.verdict == "pass", report.text()


# ---------------------------------------------------------------- what is not proven


def test_a_program_that_never_rests_gets_its_answer_and_a_mark() -> None:
    @loupe.agent(name="restless")
    async def agent() -> Any:
        task = asyncio.ensure_future(fetch("a"))
        while not task.done():
            await asyncio.sleep(0)
        return task.result()

    recording, result = recorded(agent)
    assert result == "A"
    marks = [event.attrs["mark"] for event in recording.events if event.type == "schedule.marked"]
    assert marks == ["tight"]
    report = replayed(recording, agent)
    assert any(why.startswith("tight in the recording") for why in report.unproven)


def test_a_loop_that_an_sdk_keeps_busy_does_not_hold_an_answer_back() -> None:
    @loupe.tool(effect="read")
    async def busy() -> int:
        loop = asyncio.get_running_loop()

        def spin() -> None:
            if not over:
                loop.call_soon(spin)

        spin()
        return 1

    over: list[bool] = []

    @loupe.agent(name="patient")
    async def agent() -> Any:
        got = await asyncio.gather(busy(), fetch("a"))
        over.append(True)
        return got

    began = time.monotonic()
    recording, _ = recorded(agent)
    assert time.monotonic() - began < 2
    assert "schedule.marked" not in types_of(recording)
    passes(recording, agent)


def test_a_recording_without_a_schedule_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUPE_SCHEDULE", "off")

    @loupe.agent(name="free")
    async def agent() -> Any:
        return await asyncio.gather(fetch("a"), fetch("b"))

    recording, _ = recorded(agent)
    assert recording.events[0].attrs["schedule"] == "off"
    report = replayed(recording, agent)
    assert report.verdict == "pass", report.text()
    assert report.unproven == ("the recording was made without a schedule",)


_MODERN = """
import asyncio, json
import agentloupe as loupe
from agentloupe.ports.schedule import hooks

hooks.SUPPORTED = ((3, 5), (3, 6))
plain = asyncio.BaseEventLoop.create_task

@loupe.tool(effect="read")
async def fetch(name):
    return name

@loupe.agent
async def agent():
    return await asyncio.gather(fetch("a"), fetch("b"))

run = loupe.record(agent)
report = loupe.replay(run.run_id, agent)
print(json.dumps([hooks.supported(), asyncio.BaseEventLoop.create_task is plain, report.verdict, report.unproven]))
"""


def test_an_unknown_python_is_left_alone_and_said(workdir: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _MODERN], cwd=workdir, capture_output=True, text=True, check=True)
    why, untouched, verdict, unproven = json.loads(done.stdout)
    assert why == f"Python {sys.version_info[0]}.{sys.version_info[1]} was not looked at"
    assert untouched
    assert verdict == "pass"
    assert [reason.partition(":")[0] for reason in unproven] == ["no_lane in the recording", "no_lane in the replay"]


# ---------------------------------------------------------------- writes, streams, forks


def test_a_write_that_was_overtaken_and_still_waits_at_the_end_is_left_waiting() -> None:
    WAITS.update(a=0, b=0)

    async def agent() -> Any:
        tasks = [asyncio.ensure_future(fetch("a")), asyncio.ensure_future(send("b"))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return [task in done for task in tasks]

    recording, seen = recorded(as_agent(agent, "leaver"))
    assert seen == [True, False]
    assert types_of(recording).count("tool.finished") == 2, "the write is durable all the same"
    assert [event.attrs.get("open") for event in recording.events if event.type == "schedule.marked"] == [["0/a2.0"]]
    passes(recording, as_agent(agent, "leaver"))


def test_a_write_that_was_not_overtaken_and_waits_at_the_end_is_left_waiting() -> None:
    WAITS.update(a=0)

    async def agent() -> Any:
        task = asyncio.ensure_future(send("a"))
        for _ in range(50):
            await asyncio.sleep(0)
        return task.done()

    recording, seen = recorded(as_agent(agent, "leaver"))
    assert (seen, types_of(recording).count("tool.finished")) == (False, 1)
    passes(recording, as_agent(agent, "leaver"))


def test_a_write_that_was_overtaken_is_durable_first_and_keeps_its_turn() -> None:
    @loupe.agent(name="writer")
    async def agent() -> Any:
        order: list[str] = []

        async def one(call: Coroutine[Any, Any, str]) -> None:
            order.append(await call)

        await asyncio.gather(*(one(fetch(name)) for name in "abc"), one(send("x")))
        return order

    recording, _ = recorded(agent)
    ends = [event for event in recording.events if event.type == "tool.finished"]
    durable = next(event.sequence for event in ends if event.name == "send")
    opened, turn = (event for event in recording.events if event.type == "schedule.marked")
    assert (opened.attrs, turn.attrs) == ({"open": ["0/a4.0"]}, {"turn": "0/a4.0"})
    assert durable < opened.sequence < ends[-1].sequence < turn.sequence
    assert [turn.id for turn in read_tape(recording).turns()] == ["0/a1.0", "0/a2.0", "0/a3.0", "0/a4.0"]
    passes(recording, agent)


def _stream(name: str) -> Call:
    return Call(
        kind="other",
        name=name,
        input={"stream": name},
        encode=lambda value: value.data.decode() if isinstance(value, Streamed) else codecs.encode(value).wire,
        decode=codecs.decode,
        streamed=True,
    )


def test_streams_open_and_end_in_their_turns() -> None:
    async def pieces(name: str) -> Any:
        for number in range(3):
            await asyncio.sleep(WAITS.get(name, 0) / 1000)
            yield f"{name}{number}".encode()

    @loupe.agent(name="listener")
    async def agent() -> Any:
        ends: list[str] = []

        async def listen(name: str) -> None:
            async def opens() -> Any:
                await asyncio.sleep(WAITS.get(name, 0) / 500)
                return pieces(name)

            reply = await aopen_stream(_stream(name), opens, lambda _: {"status": 200})
            ends.append(f"{name} opened")
            assert reply.stream is not None
            heard = b"".join([data async for data in reply.stream.abytes(reply.raw)])
            ends.append(heard.decode())

        await asyncio.gather(*(listen(name) for name in "abc"))
        return ends

    WAITS.update(a=5, b=1, c=3)
    recording, ends = recorded(agent)
    assert sorted(ends) == ["a opened", "a0a1a2", "b opened", "b0b1b2", "c opened", "c0c1c2"]
    turns = [turn.id for turn in read_tape(recording).turns()]
    assert sorted(turns) == sorted(f"0/a{n}.0{what}" for n in (1, 2, 3) for what in ("", "+1", "+2", "+3", "+"))
    WAITS.clear()
    passes(recording, agent)


def _ask(text: str) -> Call:
    return Call(
        kind="llm",
        name="chat m",
        input={"model": "m", "messages": [{"role": "user", "content": text}]},
        encode=lambda value: value,  # type: ignore[arg-type,return-value]
        decode=lambda value: value,
        resend=lambda _: _answer(text),
    )


async def _answer(text: str) -> Any:
    await asyncio.sleep(WAITS.get(text, 0) / 100)
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


@loupe.agent(name="fanned")
async def fanned() -> Any:
    seen: list[str] = []

    async def one(text: str) -> None:
        await ambient.acall(_ask(text), lambda: _answer(text))
        seen.append(text)
        seen.append(await fetch(text))

    await asyncio.gather(*(one(text) for text in "abc"))
    return seen


def test_a_fork_hands_over_what_was_open_at_its_step_and_replays_as_it_was() -> None:
    WAITS.update(a=2, b=4, c=0)
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(fanned())
    run_id = opener.sessions[0].run_id
    for step in (1, 2, 3):
        WAITS.update(a=0, b=0, c=3)
        done = fork(run_id, fanned, from_step=step, store=store)
        new = store.recording(done.candidates[0].id)
        WAITS.clear()
        report = replayed(new, fanned)
        assert report.verdict == "pass", (step, report.text())
        assert report.unproven == ()


def test_a_fork_whose_code_does_not_come_to_its_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOUPE_STUCK_AFTER", "0.2")
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        asyncio.run(fanned())

    @loupe.agent(name="fanned")
    async def waits() -> Any:
        return await asyncio.Event().wait()

    with pytest.raises(ForkRefused, match="missing at"):
        fork(opener.sessions[0].run_id, waits, from_step=2, store=store)
