"""The programs that are killed: a shop whose every look and every effect is a request to the world outside.

usage: python -m tests.faults.shop VERB ARG...

    record WAY ORDER...     resume RUN WAY     replay RUN WAY     plain RUN     fork RUN STEP     work
    publish FILE

WAY: one_by_one, in_threads, in_tasks. It says its result as JSON. `WORLD` is the port of the world; with `LOOKUP` the tools
can find out by themselves what became of an effect, else a person is asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import agentloupe as loupe
from tests.faults.world import ask


def _ask(do: str, what: str, key: str = "") -> Any:
    return ask(int(os.environ["WORLD"]), do, what, key)


# --- the shop ---------------------------------------------------------------------------------------------------------


@loupe.tool(effect="read")
def find(order: str) -> Any:
    return _ask("find", order)


def looked(key: str) -> loupe.Done | loupe.NotDone:
    """What became of a charge."""
    receipt = _ask("lookup", "", key)
    return loupe.NotDone() if receipt is None else loupe.Done(f"{receipt} for {10 + len(receipt) - 2}", receipt)


async def alooked(key: str) -> loupe.Done | loupe.NotDone:
    return await asyncio.to_thread(looked, key)


CAN_TELL = "LOOKUP" in os.environ


@loupe.tool(effect="write", lookup=looked if CAN_TELL else None)
def charge(order: str, price: int) -> str:
    receipt = _ask("charge", order, loupe.idempotency_key())
    loupe.receipt(receipt)
    return f"{receipt} for {price}"


@loupe.tool(effect="read")
async def afind(order: str) -> Any:
    return await asyncio.to_thread(_ask, "find", order)


@loupe.tool(effect="write", lookup=alooked if CAN_TELL else None)
async def acharge(order: str, price: int) -> str:
    key = loupe.idempotency_key()
    receipt = await asyncio.to_thread(_ask, "charge", order, key)
    return f"{receipt} for {price}"


def sell(order: str) -> str:
    loupe.now()
    receipt = charge(order=order, price=find(order=order)["price"])
    if loupe.check("receipt", receipt.startswith(f"R-{order}")):
        loupe.state("sold", order)
    return receipt


async def asell(order: str) -> str:
    loupe.now()
    found = await afind(order=order)
    receipt = await acharge(order=order, price=found["price"])
    if loupe.check("receipt", receipt.startswith(f"R-{order}")):
        loupe.state("sold", order)
    return receipt


@loupe.agent
def one_by_one(orders: list[str]) -> list[str]:
    return [sell(order) for order in orders]


@loupe.agent
def in_threads(orders: list[str]) -> list[str]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(sell, orders))


@loupe.agent
async def in_tasks(orders: list[str]) -> list[str]:
    return await asyncio.gather(*(asell(order) for order in orders))


WAYS: dict[str, Callable[..., Any]] = {"one_by_one": one_by_one, "in_threads": in_threads, "in_tasks": in_tasks}


# --- what a process does ----------------------------------------------------------------------------------------------


def record(way: str, *orders: str) -> Any:
    found = WAYS[way](list(orders))
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


def resume(run: str, way: str) -> Any:
    return loupe.resume(run, WAYS[way]).result


def replay(run: str, way: str) -> Any:
    report = loupe.replay(run, WAYS[way])
    return [report.verdict if report.verdict == "pass" else report.text(), not report.unproven]


def plain(run: str) -> Any:
    """Goes on with a run of the plain loop."""
    return loupe.resume(run).result


def fork(run: str, step: str) -> Any:
    return [made.id for made in loupe.fork(run, from_step=int(step), control=False).runs]


def publish(file: str) -> Any:
    from agentloupe.exporters.message_file import MessageFile
    from agentloupe.store.sqlite import SqliteStore
    from agentloupe.verbs import publishing
    from agentloupe.verbs.api import open_store

    store = open_store()
    assert isinstance(store, SqliteStore)
    sink = MessageFile(Path(file))
    try:
        return publishing.publish(store.outbox, sink)
    finally:
        sink.close()


def work() -> Any:
    """Does jobs until none is open."""
    from agentloupe.ports.ambient import random_hex
    from agentloupe.ports.jobs import OPEN_JOBS, Worker
    from agentloupe.store.owners import this_process
    from agentloupe.store.sqlite import SqliteStore
    from agentloupe.verbs.api import open_store
    from agentloupe.verbs.working import Workbench

    store = open_store()
    assert isinstance(store, SqliteStore)
    bench = Workbench(store, store.jobs, Worker(id=f"w-{random_hex(8)}", owner=this_process()), hands=1)
    with bench.working():
        while any(job.status in OPEN_JOBS for job in store.jobs.jobs()):
            threading.Event().wait(0.02)  # the table is the only thing that tells
    return [job.status for job in store.jobs.jobs()]


VERBS: dict[str, Callable[..., Any]] = {
    "record": record,
    "resume": resume,
    "replay": replay,
    "plain": plain,
    "fork": fork,
    "work": work,
    "publish": publish,
}

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])), flush=True)
