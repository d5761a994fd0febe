"""Tools and agents that yield: one call, or one run, with everything that came out, replayed as it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any

import pytest

import agentloupe as loupe
from agentloupe.engine.ledger.making import files_of
from agentloupe.engine.ledger.report import replay as replay_ledger
from agentloupe.engine.project import Projector, load_steps
from agentloupe.engine.verify import verify
from agentloupe.ports import ambient
from agentloupe.ports.recording import Recording
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.effects import open_effects, settle_effect
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.errors import ReplayRefused
from tests.ledger.support import in_memory

done: list[object] = []
KEPT: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    done.clear()
    yield
    KEPT.clear()
    done.clear()


@loupe.tool(effect="read")
def search(pages: int, *, fail_after: int | None = None) -> Generator[dict[str, int], str | None, str]:
    try:
        for page in range(pages):
            if page == fail_after:
                raise LookupError("no more")
            done.append(page)
            told = yield {"page": page}
            if told:
                done.append(told)
        return "all"
    finally:
        done.append("closed")


@loupe.tool(effect="read")
async def asearch(pages: int) -> AsyncGenerator[int, str | None]:
    for page in range(pages):
        await asyncio.sleep(0)
        done.append(page)
        told = yield page
        if told:
            done.append(told)


def whole() -> list[object]:
    return [*search(2), *search(0)]


def returned() -> list[object]:
    def inner() -> Generator[object, Any, str]:
        return (yield from search(2))

    found, steps = [], inner()
    while True:
        try:
            found.append(next(steps))
        except StopIteration as over:
            return [*found, over.value]


def early() -> list[object]:
    for item in search(9):
        item["page"] += 100  # the program's own copy, in the recording too
        loupe.state("seen", item["page"])
        if item["page"] == 101:
            break
    return [loupe.random() < 2]


def interleaved() -> list[object]:
    steps = search(3)
    return [next(steps)["page"], [*search(1)], next(steps), steps.close()]


def sends() -> list[object]:
    steps = search(3)
    return [next(steps), steps.send("again"), next(steps)]


def raises() -> list[object]:
    found: list[object] = []
    for after in (0, 2):
        try:
            found.extend(search(5, fail_after=after))
        except LookupError as error:
            found.append(str(error))
    return found


def thrown() -> list[object]:
    steps = search(3)
    found: list[object] = [next(steps)]
    try:
        steps.throw(KeyError("mine"))
    except KeyError as error:
        found.append(error.args)
    return found


async def awhole() -> list[int]:
    return [item async for item in asearch(3)]


async def aearly() -> list[object]:
    steps = asearch(9)
    found: list[object] = [await anext(steps), await steps.asend("on")]
    await steps.aclose()
    return found


async def together() -> list[object]:
    async def one(pages: int) -> list[int]:
        return [item async for item in asearch(pages)]

    return list(await asyncio.gather(one(2), one(3)))


def recorded(agent: Callable[..., object], *args: object) -> tuple[Recording, object]:
    store = MemoryStore()
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        made = loupe.agent(agent)(*args)
        if asyncio.iscoroutine(made):
            made = asyncio.run(made)
    return store.recording(store.runs()[0].id), made


def kept_open() -> object:
    KEPT.append(search(3))
    return next(KEPT[-1])


async def broken_off_at_the_end() -> int:
    async for item in asearch(3):
        if item == 1:
            return item
    return -1


PROGRAMS = [whole, returned, early, interleaved, sends, raises, thrown, awhole, aearly, together, kept_open]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_same_items_come_again_without_the_tool(program: Callable[..., Any]) -> None:
    plain = program()
    plain = asyncio.run(plain) if asyncio.iscoroutine(plain) else plain
    as_without = list(done)
    done.clear()
    recording, live = recorded(program)
    assert (live, done) == (plain, as_without)
    done.clear()
    report = loupe.replay(recording, program)
    assert report.passed, report.text()
    assert done == []


def test_a_generator_that_is_open_when_the_run_ends_was_left_there(caplog: pytest.LogCaptureFixture) -> None:
    recording, live = recorded(broken_off_at_the_end)
    assert live == 1
    (step,) = (step for step in load_steps(recording) if step.kind == "tool")
    assert step.output == {"yielded": [0, 1], "how": "left_early"}
    assert "kept out" not in caplog.text
    report = loupe.replay(recording, broken_off_at_the_end)
    assert report.passed, report.text()


async def abandoned() -> str:
    item = asyncio.create_task(anext(stuck()))
    await asyncio.sleep(0)
    del item
    return "done"


@loupe.tool(effect="read")
async def stuck() -> AsyncGenerator[int]:
    await asyncio.sleep(3600)
    yield 1


def test_a_generator_that_is_at_work_when_the_run_ends_is_a_gap() -> None:
    recording, _ = recorded(abandoned)
    with pytest.raises(ReplayRefused, match="tool stuck had not ended when the run did"):
        loupe.replay(recording, abandoned)


AS_FAR_AS = [2]


def as_far() -> str:
    """Takes so many of three pages."""
    for count, _ in enumerate(search(3), 1):
        if count == AS_FAR_AS[0]:
            break
    loupe.state("read", True)
    return "done"


@pytest.mark.parametrize(
    ("then", "now", "kind"), [(2, 1, "unconsumed"), (2, 3, "extra"), (9, 3, "unconsumed"), (3, 9, "extra")]
)
def test_taking_less_or_more_than_was_recorded_is_found(
    monkeypatch: pytest.MonkeyPatch, then: int, now: int, kind: str
) -> None:
    monkeypatch.setitem(globals(), "AS_FAR_AS", [then])
    recording, _ = recorded(as_far)
    assert loupe.replay(recording, as_far).passed
    monkeypatch.setitem(globals(), "AS_FAR_AS", [now])
    divergence = loupe.replay(recording, as_far).divergence
    assert divergence is not None
    assert (divergence.kind, divergence.step) == (kind, 1)
    assert divergence.agreed is not None
    assert divergence.agreed[1:] == ("tool.allowed", "search")
    assert divergence.suggestion


def test_taking_less_of_one_that_is_kept_open_is_found_too() -> None:
    def both() -> None:
        KEPT.append(search(3))
        for _ in range(AS_FAR_AS[0]):
            next(KEPT[-1])

    recording, _ = recorded(both)
    AS_FAR_AS[:] = [1]
    try:
        divergence = loupe.replay(recording, both).divergence
    finally:
        AS_FAR_AS[:] = [2]
    assert divergence is not None
    assert divergence.kind == "unconsumed"


def test_one_call_with_all_its_items() -> None:
    recording, _ = recorded(raises)
    failed, partly = (step for step in load_steps(recording) if step.kind == "tool")
    assert (failed.status, partly.status) == ("error", "ok")
    assert isinstance(partly.output, dict)
    assert partly.output["yielded"] == [{"page": 0}, {"page": 1}]
    assert partly.output["how"] == "raised"
    recording, _ = recorded(early)
    (left,) = (step for step in load_steps(recording) if step.kind == "tool")
    assert left.output == {"yielded": [{"page": 0}, {"page": 1}], "how": "left_early"}


def test_reading_on_where_the_recording_was_left_is_found() -> None:
    recording, _ = recorded(early)
    done.clear()

    @loupe.agent(name="early")
    def reads_on() -> list[object]:
        for item in search(9):
            if item["page"] < 2:
                loupe.state("seen", item["page"] + 100)
        return [loupe.random() < 2]

    report = loupe.replay(recording, reads_on)
    assert not report.passed
    assert done == []


def test_sending_something_else_is_found() -> None:
    recording, _ = recorded(sends)

    @loupe.agent(name="sends")
    def sends_more() -> list[object]:
        steps = search(3)
        return [next(steps), steps.send("something else"), next(steps)]

    report = loupe.replay(recording, sends_more)
    assert report.divergence is not None
    assert report.divergence.kind == "result_changed"
    assert report.divergence.expected is not None
    assert report.divergence.expected.name == "sent to search"


@loupe.agent
def yielding(count: int) -> Generator[str, None, None]:
    for n in range(count):
        yield f"{n}: {list(search(n))}"


@loupe.agent
async def ayielding(count: int) -> AsyncGenerator[int, None]:
    for n in range(count):
        async for item in asearch(n):
            yield item


@loupe.agent
def around(count: int) -> list[str]:
    return list(yielding(count))


@pytest.mark.parametrize("agent", [yielding, ayielding, around], ids=["sync", "async", "nested"])
def test_an_agent_that_yields_is_one_run(agent: Callable[..., Any], workdir: object) -> None:
    made = loupe.record(agent, 3)
    assert isinstance(made.result, list)
    assert made.run is not None
    assert (made.run.status, made.run.coverage) == ("ok", "full")
    assert made.run.step_count == (5 if agent is around else 4)
    done.clear()
    report = loupe.replay(made.run_id, agent)
    assert report.passed, report.text()
    assert done == []


def test_calls_between_the_items_belong_to_the_caller(workdir: object) -> None:
    """A caller that is no run makes no call inside of the agent's run."""
    steps = yielding(3)
    next(steps)
    assert ambient.current() is None
    steps.close()
    (run,) = loupe.open_store().runs()
    assert run.status == "cancelled"


# --- writes -----------------------------------------------------------------------------------------------------------


class Halt(BaseException):
    """Stops a program from outside, as some libraries do; nobody but its owner knows it."""


@loupe.tool(effect="write")
def send_all(
    names: list[str], *, stop_after: int | None = None, error: Any = TimeoutError
) -> Generator[str, None, None]:
    for number, name in enumerate(names):
        if number == stop_after:
            raise error
        done.append(f"sent {name}")
        yield name


@loupe.tool(effect="write")
async def asend_all(names: list[str]) -> AsyncGenerator[str, None]:
    for name in names:
        done.append(f"sent {name}")
        yield name


def sends_some() -> str:
    for name in send_all(["a", "b", "c"]):
        if name == "b":
            return name
    return ""


async def asends_some() -> str:
    items = asend_all(["a", "b", "c"])
    first = await anext(items)
    await items.aclose()
    return first


def sends_until_time_is_over() -> list[str]:
    sent: list[str] = []
    try:
        for name in send_all(["a", "b"], stop_after=1):
            sent.append(name)
    except TimeoutError:
        sent.append("late")
    return sent


def leaves_it_open() -> str:
    KEPT.append(send_all(["a", "b"]))
    return next(KEPT[-1])


HALF = [sends_some, asends_some, sends_until_time_is_over, leaves_it_open]


@pytest.mark.parametrize("program", HALF, ids=lambda p: p.__name__)
def test_a_write_that_is_stopped_between_its_items_is_a_question(program: Callable[..., Any]) -> None:
    recording, live = recorded(program)
    (step,) = (step for step in load_steps(recording) if step.kind == "tool")
    assert (step.status, step.attrs["half_done"]) == ("unknown", True)
    store = MemoryStore()
    store.insert(recording.run_id, recording.events, recording.get, Projector)
    (effect,) = open_effects(store).items
    done.clear()
    report = loupe.replay(recording, program)
    assert (report.passed, done) == (True, []), report.text()
    settle_effect(effect.run_id, effect.call_id, "finished", why="all were sent", by="anna", result=["a"], store=store)
    settled = store.recording(recording.run_id)
    assert open_effects(store).items == ()
    again = loupe.replay(settled, program)  # what the program got is its own, whatever was found out since
    assert again.passed, again.text()
    assert verify(settled).ok
    assert replay_ledger(in_memory(files_of(settled))).fields["state"] == "succeeded"
    assert live == (["a", "late"] if program is sends_until_time_is_over else live)


def test_one_that_is_read_to_its_end_or_refuses_is_none() -> None:
    def whole_or_refused() -> int:
        try:
            return len([*send_all(["a"])]) + len([*send_all(["b", "c"], stop_after=1, error=LookupError)])
        except LookupError:
            return -1

    recording, _ = recorded(whole_or_refused)
    assert [step.status for step in load_steps(recording) if step.kind == "tool"] == ["ok", "ok"]
    assert loupe.replay(recording, whole_or_refused).passed


def test_what_stops_programs_from_outside_is_no_answer_of_a_write() -> None:
    @loupe.tool(effect="write")
    def pay_slowly() -> None:
        raise Halt

    def pays() -> str:
        try:
            pay_slowly()
        except Halt:
            return "halted"
        return "paid"

    recording, live = recorded(pays)
    (step,) = (step for step in load_steps(recording) if step.kind == "tool")
    assert (live, step.status, step.error_class) == ("halted", "unknown", f"{__name__}.Halt")
    report = loupe.replay(recording, pays)
    assert report.passed, report.text()


# --- cancelled while it is asked for an item --------------------------------------------------------------------------------


@loupe.tool(effect="read")
async def stalls(after: int, *, tidy: bool = False) -> AsyncGenerator[int]:
    for item in range(after):
        yield item
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if tidy:
            raise ConnectionResetError("closed") from None
        raise


async def _with_a_timeout(after: int) -> list[Any]:
    seen: list[Any] = []
    try:
        async with asyncio.timeout(0.01):
            seen += [item async for item in stalls(after)]
    except TimeoutError:
        seen.append("late")
    return seen


async def _given_up(after: int) -> list[Any]:
    async def read() -> None:
        async for item in stalls(after):
            seen.append(item)

    seen: list[Any] = []
    task = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    task.cancel()
    return [*seen, *(type(one).__name__ for one in await asyncio.gather(task, return_exceptions=True))]


async def _tidied_up(after: int) -> list[Any]:
    seen: list[Any] = []
    try:
        async with asyncio.timeout(0.01):
            async for item in stalls(after, tidy=True):
                seen.append(item)  # what came before is kept
    except ConnectionResetError as error:
        seen.append(str(error))
    return seen


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("program", [_with_a_timeout, _given_up, _tidied_up])
@pytest.mark.usefixtures("workdir")
def test_one_that_is_cancelled_in_the_middle_is_cancelled_there_again(program: Any, after: int) -> None:
    made = loupe.record(program, after)
    assert len(made.result) >= 1
    report = loupe.replay(made.run_id, program, strict_order=True)
    assert report.passed, report.text()
