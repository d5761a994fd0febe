"""Programs of threads, and of threads beside loops. Each returns all that it can see of the order of things."""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import queue
import threading
import time
from typing import Any

from tests.schedule.world import ask, ask_async, fetch, fetch_async

__all__ = ["THREADS"]


async def threads_beside_a_loop() -> Any:
    """to_thread and run_in_executor with blocking calls, raced against a task."""

    def job(who: int) -> Any:
        return who, fetch(), fetch()

    loop, seen = asyncio.get_running_loop(), list[Any]()
    waiting: set[Any] = {asyncio.ensure_future(asyncio.to_thread(job, who)) for who in range(3)}
    waiting |= {loop.run_in_executor(None, job, who) for who in (3, 4)}
    waiting.add(asyncio.create_task(fetch_async()))
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        seen.append([task.result() for task in done])
        if len(seen) % 2 == 0:
            seen.append(await ask_async(seen))
    return seen


def loop_in_a_thread() -> Any:
    """A loop in a background thread, fed by run_coroutine_threadsafe; a blocking call inside of it."""
    loop, seen = asyncio.new_event_loop(), list[Any]()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def one(who: int) -> Any:
        seen.append((who, await fetch_async()))
        if who == 1:
            seen.append(("blocking", fetch()))
        return seen[-1]

    fed = [asyncio.run_coroutine_threadsafe(one(who), loop) for who in range(4)]
    seen.append(("main", ask("mine"), [future.done() for future in fed]))
    for future in futures.as_completed(fed):
        seen.append(future.result())
        seen.append(ask(seen))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return seen


def pool_as_completed() -> Any:
    """as_completed over a pool smaller than the work; the others are asked done() and running()."""

    def job(who: int) -> Any:
        return who, fetch(), fetch()

    seen: list[Any] = []
    with futures.ThreadPoolExecutor(3) as pool:
        all_of_them = [pool.submit(job, who) for who in range(7)]
        for future in futures.as_completed(all_of_them):
            seen.append((future.result(), [f.done() for f in all_of_them], [f.running() for f in all_of_them]))
            if len(seen) == 3:
                seen.append(ask(seen))
    return seen


def pool_first_wins() -> Any:
    """wait(FIRST_COMPLETED) over a pool; what can still be cancelled is."""

    def job(who: int) -> int:
        fetch()
        return who

    seen: list[Any] = []
    with futures.ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(job, who) for who in range(6)]
        done, _ = futures.wait(jobs, return_when=futures.FIRST_COMPLETED)
        seen.append([future.result() for future in done])
        seen.append([future.cancel() for future in jobs])
        seen.append([future.cancelled() for future in jobs])
    seen.append([future.result() for future in jobs if not future.cancelled()])
    return seen


def threads_and_queues() -> Any:
    """Plain threads between two queues; get_nowait, qsize and join."""
    todo: queue.Queue[Any] = queue.Queue()
    out: queue.Queue[Any] = queue.Queue()
    seen: list[Any] = []

    def consumer(who: int) -> None:
        while (job := todo.get()) is not None:
            out.put((who, job, fetch()))

    threads = [threading.Thread(target=consumer, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for job in range(3):
        todo.put(job)
    for job in range(3, 9):
        seen.append((out.get(), out.qsize()))
        todo.put(job)
        if job % 3 == 0:
            seen.append(ask(seen))
    for _ in threads:
        todo.put(None)
    for thread in threads:
        thread.join()
    while not out.empty():
        seen.append(out.get_nowait())
    return seen


def timed_waits() -> Any:
    """Event.wait and Future.result with limits that sometimes expire; time.sleep between."""

    def job(who: int, ready: threading.Event) -> Any:
        answer = fetch()
        time.sleep(0.001 * (who % 3))
        ready.set()
        return who, answer

    seen: list[Any] = []
    with futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            events = [threading.Event() for _ in range(4)]
            jobs = [pool.submit(job, who, ready) for who, ready in enumerate(events)]
            for future, ready in zip(jobs, events, strict=True):
                seen.append(ready.wait(0.0012))
                try:
                    seen.append(future.result(timeout=0.0008))
                except TimeoutError:
                    seen.append(("late", ask(len(seen))))
    return seen


def locks_handed_on() -> Any:
    """A bare lock used as a signal, and a list under another one."""
    guard, go = threading.Lock(), threading.Lock()
    seen: list[Any] = []
    go.acquire()

    def job(who: int) -> None:
        for _ in range(2):
            answer = fetch()
            with guard:
                seen.append((who, answer))
                if len(seen) == 4:
                    go.release()

    threads = [threading.Thread(target=job, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    go.acquire()
    seen.append(("main", ask(seen)))
    for thread in threads:
        thread.join()
    return seen


def lock_held_during_a_call() -> Any:
    """A lock held while asking (a limit of the rate), a barrier, and a Timer."""
    guard, together = threading.Lock(), threading.Barrier(3)
    seen: list[Any] = []

    def job(who: int) -> None:
        for _ in range(2):
            with guard:
                seen.append((who, fetch()))
            fetch(again=True)
        together.wait()
        seen.append(who)
        fetch(behind="the barrier")
        seen.append(who)

    timer = threading.Timer(0.003, lambda: seen.append("timer"))
    timer.start()
    threads = [threading.Thread(target=job, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    timer.cancel()
    return list(seen)


def threads_that_compute() -> Any:
    """Threads that compute and append to one list without any call between."""
    seen: list[Any] = []

    def job(who: int) -> None:
        sum(range(30_000))
        seen.append(who)
        sum(range(9_000))
        seen.append((who, fetch()))
        sum(range(20_000))
        seen.append(who)

    threads = [threading.Thread(target=job, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


THREADS = [
    threads_beside_a_loop,
    loop_in_a_thread,
    pool_as_completed,
    pool_first_wins,
    threads_and_queues,
    timed_waits,
    locks_handed_on,
    lock_held_during_a_call,
    threads_that_compute,
]
