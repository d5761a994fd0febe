"""Small agents as people write them: recorded, replayed, changed in one place, forked from the middle, exported.

Each one asks `changed()` in one place; what a replay must then say stands beside it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import io
import itertools
import json
import os
import queue
import random
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx2
import openai
import pydantic
import pytest

import agentloupe as loupe
from agentloupe.engine.project import load_steps
from agentloupe.engine.verify import verify
from agentloupe.exporters.loupe_file import LoupeFileExporter
from agentloupe.importers.loupe_file import open_file
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Answer
from agentloupe.store.memory import MemoryStore
from agentloupe.verbs.forking import fork
from agentloupe.verbs.replaying import replay
from agentloupe.verbs.sessions import RecordOpener
from agentloupe.words.canonical import Json

REPLAYS = 20
T = TypeVar("T")
_changed: list[bool] = []


def changed() -> bool:
    """Whether the agent is the one that was changed in one place."""
    return bool(_changed)


class Honest(NamedTuple):
    agent: Callable[[], Any]
    kind: str
    name: str


AGENTS: dict[str, Honest] = {}


def honest(kind: str, name: str) -> Callable[[Callable[[], T]], Callable[[], T]]:
    """Lists an agent, with the kind of divergence and the recorded call that its change must be found at."""

    def add(function: Callable[[], T]) -> Callable[[], T]:
        agent = loupe.agent(function)
        AGENTS[function.__name__] = Honest(agent, kind, name)
        return agent

    return add


# ---------------------------------------------------------------- a model, and tools


def _completion(request: Any) -> Any:
    asked = json.loads(request.content)
    text = f"re({len(asked['messages'])}): {asked['messages'][-1]['content'][:60]}"
    if "FAIL" in text:
        return httpx2.Response(500, json={"error": {"message": "no"}})
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    about = {"id": "x", "object": "chat.completion", "created": 1, "model": asked["model"]}
    return httpx2.Response(200, json={**about, "choices": [choice], "usage": usage})


_WHERE: dict[str, Any] = {"api_key": "sk-test", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0}


@functools.cache
def model() -> Any:
    inner = httpx2.Client(transport=httpx2.MockTransport(_completion))
    return loupe.wrap(openai.OpenAI(**_WHERE, http_client=inner))


def ask(text: str) -> str:
    done = model().chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return str(done.choices[0].message.content)


async def aask(text: str) -> str:
    inner = httpx2.AsyncClient(transport=httpx2.MockTransport(_completion))
    async with loupe.wrap(openai.AsyncOpenAI(**_WHERE, http_client=inner)) as client:
        done = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return str(done.choices[0].message.content)


@loupe.tool(effect="read")
def search(q: str, k: int = 2) -> list[dict[str, Any]]:
    return [{"id": f"{q}-{i}", "score": 1.0 / (i + 1)} for i in range(k)]


@loupe.tool(effect="read")
def work(i: int) -> int:
    time.sleep(0.0004 * (7 - i % 7))
    return i * i


@loupe.tool(effect="read")
async def later(i: int) -> int:
    await asyncio.sleep(0.0005 * (5 - i % 5))
    return i


# ---------------------------------------------------------------- frameworks, decorators, classes


@honest("input_changed", "search")
def graph_that_fans_out() -> dict[str, Any]:
    state: dict[str, Any] = {"plan": ask("plan tea")}
    nodes = ("web", "docs", "mail")
    with ThreadPoolExecutor(3) as pool:
        found = {node: pool.submit(search, node + "!" * (changed() and node == "docs")) for node in nodes}
        state.update({node: future.result()[0]["id"] for node, future in found.items()})
    return {**state, "answer": ask("sum up " + ",".join(sorted(state)))}


class Callbacks:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def chain(self, *steps: Callable[[str], str]) -> Callable[[str], str]:
        def invoke(text: str) -> str:
            for step in steps:
                self.seen.append(("start", text))
                text = step(text)
                self.seen.append(("end", text))
            return text

        return invoke


@honest("input_changed", "chat m")
def chain_with_callbacks() -> list[tuple[str, str]]:
    callbacks = Callbacks()
    callbacks.chain(lambda text: f"tell about {text}{'s' * changed()}", ask, str.upper, ask)("cat")
    return callbacks.seen


class Busy(Exception):
    def __init__(self, after: int) -> None:
        super().__init__(f"wait {after}")
        self.after = after


def retrying(times: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    def declare(function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def wrapped(*args: Any) -> T:
            for _ in range(times - 1):
                try:
                    return function(*args)
                except Busy as busy:
                    time.sleep(random.uniform(0, 0.0005) * busy.after)
            return function(*args)

        return wrapped

    return declare


_tries = itertools.count(1)


@retrying(4)
@loupe.tool(effect="read")
def flaky(key: int) -> int:
    if next(_tries) % 3:
        raise Busy(1)
    return key * 2


@honest("input_changed", "flaky")
def retries_and_refusals() -> list[Any]:
    got: list[Any] = [flaky(4 + changed())]
    try:
        ask("FAIL please")
    except openai.InternalServerError as error:
        got.append(error.status_code)
    return [*got, ask(f"after {got}")]


class Bot:
    def __init__(self) -> None:
        self.history: list[str] = []

    @loupe.tool(effect="read", key=lambda bot: len(bot.history))
    def look(self, what: str) -> str:
        return what[::-1]

    @property
    def prompt(self) -> str:
        return " ".join(self.history)


@honest("input_changed", "look")
def class_with_a_state() -> str:
    bot = Bot()
    for word in ("alpha", "beta"):
        bot.history.append(bot.look(word))
        if changed():
            bot.history.append(word)
    return ask(bot.prompt) + ask(str(len(bot.prompt)))


class Address(pydantic.BaseModel):
    street: str
    zip: int | None = None


class Person(pydantic.BaseModel):
    name: str
    born: dt.date
    home: Address
    meta: dict[str, Any] = {}


@loupe.tool(effect="read")
def person(name: str, like: Address) -> Person:
    return Person(name=name, born=dt.date(1990, 1, 2), home=like, meta={"a": {1, 2}, "t": (1, 2)})


@honest("input_changed", "person")
def pydantic_models() -> str:
    found = person("Ann", Address(street="y", zip=2 + changed()))
    assert found.meta["t"] == (1, 2)
    return ask(found.model_dump_json(exclude={"meta"}))


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    colour: Colour
    amount: decimal.Decimal
    extra: dict[Any, Any]


@loupe.tool(effect="pure")
def classify(colour: Colour) -> Result:
    return Result(colour, decimal.Decimal("1.50"), {1: 2, None: 3, (1, 2): "t"})


@honest("input_changed", "classify")
def dataclasses_and_enums() -> str:
    result = classify(Colour.BLUE if changed() else Colour.RED)
    assert result.extra[(1, 2)] == "t"
    return ask(f"{result.colour.name} {result.amount}")


@honest("input_changed", "search")
def stack_of_contexts() -> str:
    @contextlib.contextmanager
    def session(name: str) -> Generator[str]:
        search(f"open {name}")
        try:
            yield name
        finally:
            search(f"close {name}{'!' * changed()}")

    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(session(name)) for name in "ab"]
        stack.callback(search, "last")
        return ask(",".join(names))


@honest("unconsumed", "chat m")
def partials_and_caches() -> list[Any]:
    cached = functools.lru_cache(lambda key: search(key))
    half = functools.partial(search, k=1)
    got = [half("a"), cached("x"), cached("x"), half(q="b")]
    return got if changed() else [*got, ask("p")]


@honest("input_changed", "chat m")
def cells_of_a_notebook() -> str:
    names: dict[str, Any] = {"search": search, "ask": ask, "more": "!" * changed()}
    exec("x = search('cell')[0]['id']", names)  # a cell
    exec("y = ask(x + more)", names)  # the next
    return str(names["y"])


# ---------------------------------------------------------------- several things at once


@honest("input_changed", "work")
def workers_at_a_queue() -> list[Any]:
    jobs: queue.Queue[int | None] = queue.Queue()
    out: queue.Queue[tuple[int, int]] = queue.Queue()

    def worker() -> None:
        while (job := jobs.get()) is not None:
            out.put((job, work(job + 100 * (changed() and job == 5))))

    threads = [threading.Thread(target=worker) for _ in range(3)]
    for thread in threads:
        thread.start()
    for job in [*range(8), None, None, None]:
        jobs.put(job)
    for thread in threads:
        thread.join()
    order = [out.get() for _ in range(8)]
    return [order, ask(str(order))]


@honest("input_changed", "chat m")
def the_first_that_is_done() -> str:
    with ThreadPoolExecutor(4) as pool:
        order = [done.result() for done in as_completed([pool.submit(work, i) for i in range(7)])]
    return ask(f"{order}{'!' * changed()}")


@honest("extra", "")
async def producers_and_consumers() -> str:
    jobs: asyncio.Queue[int | None] = asyncio.Queue(2)
    out: list[int] = []

    async def producer() -> None:
        for job in [*range(5), None, None]:
            await jobs.put(job)

    async def consumer() -> None:
        while (job := await jobs.get()) is not None:
            out.append(await later(job))

    async with asyncio.TaskGroup() as group:
        for part in (producer(), consumer(), consumer()):
            group.create_task(part)
    answer = await aask(str(out))
    return await aask("again") if changed() else answer


@honest("input_changed", "later")
async def scopes_and_threads_of_anyio() -> list[Any]:
    out: list[Any] = []

    async def one(i: int) -> None:
        with anyio.move_on_after(0.02 if i == 3 else 5) as scope:
            out.append(await later(i + 50 * (changed() and i == 2)))
            if i == 3:
                await anyio.sleep(10)
        out.append((i, scope.cancelled_caught))

    async with anyio.create_task_group() as group:
        for i in range(4):
            group.start_soon(one, i)
    found = await anyio.to_thread.run_sync(search, "thread", limiter=anyio.CapacityLimiter(1))
    return [out, found, await aask(str(out))]


@honest("input_changed", "later")
def portal_into_a_loop() -> list[Any]:
    with anyio.from_thread.start_blocking_portal() as portal:
        first = portal.call(later, 3)
        second = portal.start_task_soon(later, 4 + changed()).result()
    return [first, second, ask("x")]


@honest("input_changed", "later")
async def timeouts_and_cancels() -> list[Any]:
    async def in_time(i: int) -> str:
        try:
            async with asyncio.timeout(0.01):
                await later(i)
                await asyncio.sleep(10 if i % 2 else 0)
        except TimeoutError:
            return f"{i} late"
        return f"{i} in time"

    got = await asyncio.gather(*(in_time(i + 8 * (changed() and i == 2)) for i in range(4)))
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return [*got, task.cancelled(), await aask(str(got))]


@honest("result_changed", "loop_in_a_thread_of_its_own")
def loop_in_a_thread_of_its_own() -> list[Any]:
    async def both(i: int) -> list[int]:
        return [await later(i), await asyncio.to_thread(work, i) + changed()]

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            return [asyncio.run_coroutine_threadsafe(both(i), loop).result(20) for i in (1, 2)]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.run_until_complete(loop.shutdown_default_executor())


# ---------------------------------------------------------------- generators, agents in agents, tools that ask


@loupe.tool(effect="read")
async def pages(q: str) -> AsyncGenerator[str]:
    for i in range(4):
        await asyncio.sleep(0)
        yield f"{q}{i}"


@honest("unconsumed", "pages")
async def break_out_of_a_generator() -> str:
    last = ""
    async for page in pages("p"):
        last = page
        if page.endswith("1" if changed() else "2"):
            break
    return await aask("enough" if last else "")


@loupe.tool(effect="read")
def lines(count: int) -> Generator[int, str | None, None]:
    yield from range(count)


@honest("extra", "lines")
def islice_of_a_generator() -> str:
    some = list(itertools.islice(lines(5), 3 if changed() else 2))
    return ask(str(len(some) > 1))


@loupe.agent
def inner(level: int) -> str:
    answer = ask(f"level {level}{'!' * (changed() and level == 1)}")
    return answer if level == 0 else answer + inner(level - 1)


@honest("input_changed", "chat m")
def agents_in_agents() -> str:
    return inner(2)


@loupe.tool(effect="read")
def summary(text: str) -> str:
    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(ask, [text, "again"]))


@honest("input_changed", "summary")
def tool_that_asks_a_model() -> list[str]:
    return [ask("first"), summary("t" + "t" * changed())]


# ---------------------------------------------------------------- what programs read, raise and hold


@honest("input_changed", "choice")
def seeds_clocks_and_chance() -> str:
    random.seed(7)
    drawn = [random.random(), loupe.rng.choice("abc"[: 2 if changed() else 3]), random.randint(1, 9**9)]
    return ask(f"{drawn} {loupe.now()} {loupe.uuid4()} {loupe.random()} {random.random()}")


@honest("name_changed", "NAME_OF_A_MODE")
def environment() -> str:
    return ask(f"{loupe.env('OTHER' if changed() else 'NAME_OF_A_MODE', 'none')}")


@honest("name_changed", "chat m")
def signals() -> list[Any]:
    hits: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: hits.append(search("signal")[0]["id"]))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return [hits, work(1) if changed() else ask("after")]


class Declined(Exception):
    def __init__(self, code: str, *, amount: decimal.Decimal) -> None:
        super().__init__(code)
        self.code, self.amount = code, amount


@loupe.tool(effect="read")
async def pay(amount: int) -> None:
    async def part(i: int) -> None:
        await asyncio.sleep(0)
        raise ValueError(i)

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(part(1))
            group.create_task(part(2))
    except ExceptionGroup as group:
        raise Declined("low", amount=decimal.Decimal(amount)) from group


@honest("input_changed", "pay")
async def causes_and_groups() -> list[Any]:
    try:
        await pay(1 + changed())
    except Declined as error:
        parts = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
        said = [error.code, error.amount, [one.args[0] for one in parts]]
        return [*said, await aask(str(said))]
    return []


@loupe.tool(effect="pure")
def echo(value: Any) -> Any:
    return value


@honest("input_changed", "echo")
def odd_values() -> int:
    values: list[Any] = [
        2**70,
        float("nan"),
        -0.0,
        b"\xff\x00",
        "a\ud800b",
        "\x00",
        "",
        {},
        (),
        {"$type": "x"},
        10**400,
    ]
    values += [bytearray(b"x"), frozenset({1}), complex(1, 2), collections.Counter("aab"), collections.deque([1], 2)]
    assert [repr(echo(value)) for value in values] == [repr(value) for value in values]
    return int(echo(True if changed() else 1))


@honest("input_changed", "echo")
def large_and_deep() -> int:
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    assert echo(deep) == deep
    return len(echo("x" * (2_000_000 + changed())))


@loupe.tool(effect="read")
def login(user: str, password: str) -> dict[str, str]:
    return {"user": user, "token": "sk-proj-" + "LOUPECANARY" * 4, "hint": password[:1]}


@honest("input_changed", "login")
def secrets_in_a_log() -> str:
    log = io.StringIO()
    found = login("ann" + "a" * changed(), password="hunter2-hunter2")
    log.write(found["token"])
    return ask("hello " + found["user"])


# ---------------------------------------------------------------- what each of them goes through


class Told:
    """A model for forks without the agent's code."""

    def send(self, request: Mapping[str, Json]) -> Answer:
        message: dict[str, Json] = {"role": "assistant", "content": "well"}
        return Answer(
            response={"model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}, facts={}
        )


@pytest.fixture(autouse=True)
def as_written() -> Iterator[None]:
    _changed.clear()
    yield
    _changed.clear()


def _recorded(agent: Callable[[], Any], store: MemoryStore) -> str:
    opener = RecordOpener(store)
    with ambient.opening_with(opener):
        made = agent()
        if asyncio.iscoroutine(made):
            asyncio.run(made)
    return opener.sessions[0].run_id


@pytest.mark.parametrize("name", AGENTS)
def test_an_honest_agent(name: str, tmp_path: Path) -> None:
    agent, kind, where = AGENTS[name]
    store = MemoryStore()
    run_id = _recorded(agent, store)
    recording = store.recording(run_id)
    run = store.run(run_id)
    assert run is not None
    assert run.coverage == "full", run.coverage_notes

    reports = [replay(recording, agent, strict_order=True) for _ in range(REPLAYS)]
    assert reports[0].passed, reports[0].text()
    assert all(report == reports[0] for report in reports)

    _changed.append(True)
    report = replay(recording, agent)
    found = report.divergence
    _changed.clear()
    assert found is not None, report.text()
    told = found.expected.name if found.expected is not None else ""
    assert (found.kind, told) == (kind, where), report.text()

    asked = [step.idx for step in load_steps(recording) if step.kind == "llm" and step.parent_idx == 0]
    if asked and name != "tool_that_asks_a_model":
        made = loupe.fork(run_id, agent, from_step=asked[len(asked) // 2], store=store).candidates[0]
        assert (made.status, made.label) == ("ok", "faithful"), made.error
        assert replay(store.recording(made.id), agent, strict_order=True).passed
        plain = fork(run_id, from_step=asked[-1], store=store, provider=Told(), engine="generic", control=False)
        assert (plain.candidates[0].status, plain.candidates[0].label) == ("ok", "faithful"), plain.candidates[0].error
        assert replay(plain.candidates[0].id, store=store).passed

    file = tmp_path / "x.loupe"
    with file.open("wb") as out:
        LoupeFileExporter().write(iter([recording]), out)
    assert verify(open_file(file)).fault is None
    assert replay(file, agent).passed
    assert b"LOUPECANARY" not in file.read_bytes()
