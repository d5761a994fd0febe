"""More programs, of shapes that agents have in the field. Each returns all that it can see of the order of things."""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import contextvars
import queue
import random
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import agentloupe as loupe
from tests.schedule.world import ask, ask_async, breaks, breaks_async, fetch, fetch_async, put, put_async, reluctant

__all__ = ["MORE_LOOPS", "MORE_THREADS", "OUTSIDE"]

_who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

# --- loops ------------------------------------------------------------------------------------------------------------


async def async_generators() -> Any:
    """Async generators that ask while they are read: merged by tasks, one of them left early."""
    seen: list[Any] = []

    async def pages(who: int) -> AsyncIterator[Any]:
        try:
            for page in range(3):
                yield who, page, await fetch_async(who=who, page=page)
        finally:
            seen.append((who, "closed", await fetch_async(closing=who)))

    async def read(who: int) -> int:
        source = pages(who)
        count = 0
        async for page in source:
            seen.append(page)
            count += 1
            if who == 1 and count == 2:
                await source.aclose()  # type: ignore[attr-defined]
                break
        return count

    counts = await asyncio.gather(*(read(who) for who in range(3)))
    return seen, counts, await ask_async(seen)


async def producers_and_consumers() -> Any:
    """A bounded queue; consumers wait for a while only, and are stopped by task_done and cancel."""
    channel: asyncio.Queue[int] = asyncio.Queue(2)
    seen: list[Any] = []

    async def producer(who: int) -> None:
        for item in range(3):
            await channel.put(await fetch_async(who=who, item=item))

    async def consumer(who: int) -> None:
        while True:
            try:
                item = await asyncio.wait_for(channel.get(), 0.002)
            except TimeoutError:
                seen.append((who, "idle"))
                continue
            seen.append((who, item, await fetch_async(use=item)))
            channel.task_done()

    consumers = [asyncio.create_task(consumer(who)) for who in range(2)]
    await asyncio.gather(*(producer(who) for who in range(3)))
    await channel.join()
    for task in consumers:
        task.cancel()
    ends = await asyncio.gather(*consumers, return_exceptions=True)
    return seen, [repr(end) for end in ends]


async def semaphores_and_cancels() -> Any:
    """Tasks behind a semaphore and a condition; some are cancelled while they wait, some while they hold."""
    few, news, seen = asyncio.Semaphore(2), asyncio.Condition(), list[Any]()

    async def worker(who: int) -> int:
        try:
            async with few:
                answer = await reluctant(who=who)
                async with news:
                    seen.append((who, answer))
                    news.notify_all()
                return await reluctant(who=who, again=True)
        except asyncio.CancelledError:
            seen.append((who, "stopped"))
            raise

    tasks = [asyncio.create_task(worker(who)) for who in range(6)]
    async with news:
        await news.wait_for(lambda: len(seen) >= 2)
    tasks[5].cancel()
    tasks[1].cancel()
    seen.append(await ask_async(seen))
    tasks[3].cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return seen, [repr(end) for end in ends]


@loupe.agent(name="researcher")
async def researcher(topic: int) -> list[int]:
    found = await asyncio.gather(*(fetch_async(topic=topic, part=part) for part in range(2)))
    return [*found, await ask_async(found)]


async def nested_agents() -> Any:
    """Agents that are started in tasks by an agent, each with tasks of its own."""
    seen: list[Any] = []

    async def desk(topic: int) -> None:
        seen.append((topic, await researcher(topic)))

    async with asyncio.TaskGroup() as group:
        for topic in range(3):
            group.create_task(desk(topic))
    return seen, await ask_async(seen)


@loupe.tool(effect="read")
async def summary(of: int) -> list[int]:
    """A tool that asks the model twice at once: inner calls, in tasks that a replay never starts."""
    return list(await asyncio.gather(ask_async(("part one of", of)), ask_async(("part two of", of))))


async def tools_that_ask() -> Any:
    """Tools that ask a model inside, raced with others."""
    seen: list[Any] = []

    async def one(who: int) -> None:
        seen.append((who, await summary(who)))
        seen.append((who, await fetch_async()))

    await asyncio.gather(*(one(who) for who in range(4)))
    return seen, await ask_async(seen)


async def errors_in_groups() -> Any:
    """Tools that fail beside others that do not; errors as results, and as a group."""
    seen: list[Any] = []
    ends = await asyncio.gather(*(breaks_async(who=who) for who in range(5)), return_exceptions=True)
    seen.append([repr(end) for end in ends])

    async def one(who: int) -> None:
        try:
            seen.append((who, await breaks_async()))
        finally:
            seen.append((who, "over"))

    try:
        async with asyncio.TaskGroup() as group:
            for who in range(4):
                group.create_task(one(who))
    except* ValueError as failed:
        seen.append([str(error) for error in failed.exceptions])
    return seen, await ask_async(seen)


async def graph_of_nodes() -> Any:
    """Supersteps of a graph: nodes whose inputs are there run at once, what they send is reduced as it comes."""
    sends = {"start": ["a", "b", "c"], "a": ["d"], "b": ["d", "e"], "c": ["e"], "d": ["end"], "e": ["end"], "end": []}
    state: list[Any] = []

    async def node(name: str) -> tuple[str, int]:
        return name, await (ask_async(state) if name in "de" else fetch_async(node=name))

    ready = ["start"]
    while ready:
        running = {asyncio.create_task(node(name), name=name) for name in ready}
        upcoming: dict[str, None] = {}
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                state.append(task.result())
                upcoming.update(dict.fromkeys(sends[task.get_name()]))
        ready = list(upcoming)
    return state


async def shielded_and_swallowed() -> Any:
    """A shielded call that goes on after its waiter has given up; a task that swallows its cancel."""
    seen: list[Any] = []

    async def stubborn() -> str:
        for again in range(3):
            try:
                return f"answer {await reluctant(again=again)}"
            except asyncio.CancelledError:
                seen.append(("not now", again))
        return "never"

    kept = asyncio.ensure_future(fetch_async(kept=True))
    try:
        seen.append(await asyncio.wait_for(asyncio.shield(kept), 0.001))
    except TimeoutError:
        seen.append("waiter gave up")
    task = asyncio.create_task(stubborn())
    seen.append(await ask_async(seen))
    task.cancel()
    seen.append((await task, await kept))
    return seen


async def questions_and_writes() -> Any:
    """Who asks and who writes come between each other, and each of them can see it."""
    seen: list[Any] = []

    async def write(who: int) -> None:
        seen.append(["written", await put_async(who=who)])

    async def question(who: int) -> None:
        for step in range(4):
            seen.append([who, await ask_async([who, step])])

    await asyncio.gather(*[write(who) for who in range(6)], *[question(who) for who in range(2)])
    return [seen, await ask_async(seen)]


async def limits_that_are_over_at_once() -> Any:
    """Limits so short, and a program so slow between them, that some are over before they begin; all ways to set one."""
    seen: list[Any] = []
    loop, chance = asyncio.get_running_loop(), random.SystemRandom()

    def dawdle() -> None:
        until = time.monotonic() + chance.random() * 0.0008
        while time.monotonic() < until:
            pass

    async def limited(who: int) -> Any:
        limit = asyncio.timeout(0.0004 * (1 + who % 2))
        dawdle()
        try:
            async with limit:
                return await fetch_async(who=who)
        except TimeoutError:
            return "late"

    async def waits(who: int) -> Any:
        try:
            return await asyncio.wait_for(fetch_async(who=who), 0.0004)
        except TimeoutError:
            return "late"

    async def called(who: int) -> Any:
        told: asyncio.Future[str] = loop.create_future()
        when = loop.time() + 0.0004
        dawdle()
        loop.call_at(when, lambda: told.done() or told.set_result(f"called {who}"))
        loop.call_later(0.0006, lambda: told.done() or told.set_result(f"called later {who}"))
        answer = asyncio.ensure_future(fetch_async(who=who))
        await asyncio.wait({told, answer}, return_when=asyncio.FIRST_COMPLETED)
        return [each.done() for each in (told, answer)], await told, await answer

    async def one(who: int) -> None:
        for again in range(2):
            seen.append((who, again, await (limited, waits, called)[who % 3](who)))

    await asyncio.gather(*(one(who) for who in range(6)))
    return seen, await ask_async(seen)


# --- threads ----------------------------------------------------------------------------------------------------------


async def executors_in_tasks() -> Any:
    """Tasks that hand work to a pool of their own, and work that hands work to another pool."""
    loop, seen = asyncio.get_running_loop(), list[Any]()

    def leaf(who: int, part: int) -> int:
        return fetch(who=who, part=part)

    def branch(who: int) -> list[int]:
        with futures.ThreadPoolExecutor(2) as inner:
            return list(inner.map(leaf, [who] * 3, range(3)))

    async def one(who: int, pool: futures.Executor) -> None:
        seen.append((who, await loop.run_in_executor(pool, branch, who)))
        seen.append((who, await fetch_async()))

    with futures.ThreadPoolExecutor(2) as pool:
        await asyncio.gather(*(one(who, pool) for who in range(3)))
    return seen, await ask_async(seen)


def fan_out_and_in() -> Any:
    """Nodes run in a pool, each in a copy of the context; results are reduced as they come, twice over."""
    state: list[Any] = []

    def node(name: str) -> Any:
        return name, _who.get(), breaks(node=name) if name == "c" else fetch(node=name)

    with futures.ThreadPoolExecutor(3) as pool:
        for step in range(2):
            _who.set(f"step {step}")
            running = {pool.submit(contextvars.copy_context().run, node, name): name for name in "abcd"}
            while running:
                done, _ = futures.wait(running, return_when=futures.FIRST_COMPLETED)
                for future in done:
                    name = running.pop(future)
                    error = future.exception()
                    state.append((name, repr(error)) if error else future.result())
            state.append(ask(state))
    return state


@loupe.agent(name="clerk")
def clerk(who: int, pool: Any = None) -> list[int]:
    jobs = [_shared[-1].submit(fetch, who=who, part=part) for part in range(3)]
    return [job.result() for job in futures.as_completed(jobs)]


_shared: list[futures.ThreadPoolExecutor] = []


def pool_of_two_agents() -> Any:
    """Two agents in two threads hand their work to one pool."""
    seen: list[Any] = []

    def run(who: int) -> None:
        seen.append((who, clerk(who)))

    with futures.ThreadPoolExecutor(2) as pool:
        _shared.append(pool)
        try:
            threads = [threading.Thread(target=run, args=(who,)) for who in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            _shared.remove(pool)
    return seen, ask(seen)


def loops_in_threads() -> Any:
    """asyncio.run in several threads at once, each with tasks of its own; a thread-safe list between them."""
    seen: list[Any] = []

    async def crew(who: int) -> list[int]:
        async def one(part: int) -> int:
            answer = await fetch_async(who=who, part=part)
            seen.append((who, part))
            await asyncio.sleep(0.0005 * part)
            return answer

        return await asyncio.gather(*(one(part) for part in range(3)))

    def run(who: int) -> None:
        seen.append((who, asyncio.run(crew(who))))

    threads = [threading.Thread(target=run, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen, ask(seen)


def contexts_by_hand() -> Any:
    """Threads and work items that run in a context copied by hand, as frameworks do to keep their own variables."""
    seen: list[Any] = []

    def job(who: int) -> None:
        _who.set(f"job {who}")
        seen.append((who, _who.get(), fetch(who=who)))
        seen.append((who, _who.get()))

    _who.set("main")
    threads = [threading.Thread(target=contextvars.copy_context().run, args=(job, who)) for who in range(3)]
    for thread in threads:
        thread.start()
    with futures.ThreadPoolExecutor(2) as pool:
        for who in (3, 4, 5):
            pool.submit(contextvars.copy_context().run, job, who)
    for thread in threads:
        thread.join()
    return seen, _who.get(), ask(seen)


def timers_that_call() -> Any:
    """threading.Timer objects that make calls, some cancelled in time, some not; a main thread that sleeps."""
    seen: list[Any] = []

    def ring(who: int) -> None:
        seen.append((who, fetch(who=who)))

    timers = [threading.Timer(0.001 * who, ring, (who,)) for who in range(5)]
    for timer in timers:
        timer.start()
    seen.append(("main", fetch()))
    time.sleep(0.001)
    seen.append("slept")
    timers[4].cancel()
    timers[2].cancel()
    for timer in timers:
        timer.join()
    return seen, ask(seen)


def priority_queues() -> Any:
    """Workers between a PriorityQueue and a LifoQueue, with limits on the waits, and task_done."""
    todo: queue.PriorityQueue[Any] = queue.PriorityQueue()
    done: queue.LifoQueue[Any] = queue.LifoQueue()
    seen: list[Any] = []

    def worker(who: int) -> None:
        while True:
            try:
                rank, job = todo.get(timeout=0.003)
            except queue.Empty:
                seen.append((who, "gone"))
                return
            answer = fetch(job=job)
            done.put((who, rank, job, answer))
            if answer % 4 == 0 and rank < 20:
                todo.put((rank + 10, f"{job} again"))
            todo.task_done()

    for rank in (5, 1, 4, 2, 3):
        todo.put((rank, f"job {rank}"))
    threads = [threading.Thread(target=worker, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    todo.join()
    seen.append(ask(done.qsize()))
    for thread in threads:
        thread.join()
    while not done.empty():
        seen.append(done.get())
    return seen


def conditions_and_semaphores() -> Any:
    """RLock, Condition, BoundedSemaphore between threads; notify before and after the lock is free."""
    guard = threading.RLock()
    news, few = threading.Condition(guard), threading.BoundedSemaphore(2)
    seen: list[Any] = []

    def worker(who: int) -> None:
        for again in range(2):
            with few:
                answer = fetch(who=who)
                with guard, news:
                    seen.append((who, again, answer))
                    news.notify(1 + answer % 2)

    def watcher(who: int) -> None:
        with news:
            got = news.wait_for(lambda: len(seen) >= 3 * (who + 1), timeout=0.01)
            seen.append(("watcher", who, got))

    threads = [threading.Thread(target=worker, args=(who,)) for who in range(4)]
    threads += [threading.Thread(target=watcher, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen, ask(seen)


def heartbeat_beside() -> Any:
    """A daemon thread that asks every now and then until it is told to stop."""
    seen: list[Any] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(0.001):
            seen.append(("beat", fetch(beat=True)))

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    for who in range(3):
        seen.append((who, fetch(who=who)))
    seen.append(ask(seen))
    over.set()
    thread.join()
    return seen


def threads_of_threads() -> Any:
    """Threads that start threads, and hand work to a pool while others wait for it."""
    seen: list[Any] = []
    with futures.ThreadPoolExecutor(2) as pool:

        def grand(who: int, part: int) -> None:
            seen.append((who, part, pool.submit(fetch, who=who, part=part).result()))

        def parent(who: int) -> None:
            children = [threading.Thread(target=grand, args=(who, part)) for part in range(2)]
            for child in children:
                child.start()
            seen.append((who, fetch(who=who)))
            for child in children:
                child.join()

        threads = [threading.Thread(target=parent, args=(who,)) for who in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return seen, ask(seen)


def questions_and_writes_of_threads() -> Any:
    """Who asks and who writes come between each other, and each of them can see it."""
    seen: list[Any] = []

    def write(who: int) -> None:
        for step in range(3):
            seen.append(["written", put(who=who, step=step)])

    def question(who: int) -> None:
        for step in range(4):
            seen.append([who, ask([who, step])])

    with futures.ThreadPoolExecutor(5) as pool:
        jobs = [pool.submit(work, who) for who in range(3) for work in (write, question)]
        for job in jobs:
            job.result()
    return [seen, ask(seen)]


def callbacks_of_futures() -> Any:
    """add_done_callback on work items and bare futures: callbacks run where the result is set."""
    seen: list[Any] = []
    answers: futures.Future[int] = futures.Future()

    def job(who: int) -> int:
        return fetch(who=who)

    def landed(who: int) -> Callable[[Any], None]:
        def note(future: Any) -> None:
            seen.append((who, future.result()))
            if len(seen) == 4:
                answers.set_result(fetch(from_a="callback"))

        return note

    with futures.ThreadPoolExecutor(3) as pool:
        for who in range(4):
            pool.submit(job, who).add_done_callback(landed(who))
        seen.append(("main", answers.result()))
    return seen, ask(seen)


# --- outside of what can be exact ---------------------------------------------------------------------------------------

_OLD_LOCK = threading.Lock()


def old_lock() -> Any:
    """A lock that was made before the run, held by a thread during a call."""
    seen: list[Any] = []

    def job(who: int) -> None:
        with _OLD_LOCK:
            seen.append((who, fetch(who=who)))

    threads = [threading.Thread(target=job, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def simple_queue() -> Any:
    """queue.SimpleQueue waits in C."""
    channel: queue.SimpleQueue[Any] = queue.SimpleQueue()
    seen: list[Any] = []

    def job(who: int) -> None:
        channel.put((who, fetch(who=who)))

    threads = [threading.Thread(target=job, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    seen += [channel.get() for _ in threads]
    for thread in threads:
        thread.join()
    return seen


def spinning() -> Any:
    """Spins on done() without ever blocking."""
    with futures.ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(fetch, who=who) for who in range(3)]
        while not all(job.done() for job in jobs):
            pass
        return [job.result() for job in jobs]


MORE_LOOPS = [
    async_generators,
    producers_and_consumers,
    semaphores_and_cancels,
    nested_agents,
    tools_that_ask,
    errors_in_groups,
    graph_of_nodes,
    shielded_and_swallowed,
    limits_that_are_over_at_once,
    questions_and_writes,
]
MORE_THREADS = [
    executors_in_tasks,
    fan_out_and_in,
    pool_of_two_agents,
    loops_in_threads,
    contexts_by_hand,
    timers_that_call,
    priority_queues,
    conditions_and_semaphores,
    heartbeat_beside,
    threads_of_threads,
    callbacks_of_futures,
    questions_and_writes_of_threads,
]
OUTSIDE = [old_lock, simple_queue, spinning]
