"""Random programs of nested concurrent calls, as trees; what runs them; and edits of them.

A block is a sequence of statements. Statements that wait for several blocks at once run them in tasks where a loop runs,
and in threads where none does. Every call says which statement it stands for, and how much the program has seen by then,
so that any other order of events is another argument somewhere.
"""

from __future__ import annotations

import asyncio
import concurrent.futures as futures
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.schedule.world import breaks, breaks_async, fetch, fetch_async, reluctant

__all__ = ["Ask", "Block", "Branch", "Pause", "asks_in", "blocks", "changed", "program_of"]


@dataclass(frozen=True)
class Ask:
    """One call: of which tool (`fetch`, `breaks`, `reluctant`), and under which label."""

    tool: str
    label: str = ""


@dataclass(frozen=True)
class Pause:
    """A sleep, in tenths of a millisecond."""

    tenths: int


@dataclass(frozen=True)
class Branch:
    """Several blocks at once.

    How: `all` waits for all of them, `first` for the first (the others are cancelled where they can be), `limit` for all
    or until a time, `stop` starts them, makes a pause and cancels them; `away` hands them to the other side: threads from
    a loop, a loop of its own from a thread.
    """

    how: str
    blocks: tuple[Block, ...]


Statement = Ask | Pause | Branch
Block = tuple[Statement, ...]

_TOOLS = ("fetch", "fetch", "breaks", "reluctant")


def _statements(threads: bool) -> st.SearchStrategy[Block]:
    ways = ["all", "first", "limit", "stop"] + (["away"] if threads else [])
    ask = st.builds(Ask, st.sampled_from(_TOOLS))
    leaf = st.one_of(ask, ask, st.builds(Pause, st.integers(0, 20)))

    def deeper(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        block = st.lists(inner, min_size=1, max_size=3).map(tuple)
        branch = st.builds(Branch, st.sampled_from(ways), st.lists(block, min_size=2, max_size=3).map(tuple))
        return st.one_of(leaf, branch)

    return st.lists(st.recursive(leaf, deeper, max_leaves=10), min_size=1, max_size=4).map(tuple)


def blocks(*, threads: bool) -> st.SearchStrategy[Block]:
    """Random programs whose calls have labels of their own; `threads`: some of it runs in threads."""
    return _statements(threads).map(lambda block: _labelled(block, "s"))


def _labelled(block: Block, path: str) -> Block:
    made: list[Statement] = []
    for n, statement in enumerate(block):
        here = f"{path}{n}"
        if isinstance(statement, Ask):
            made.append(replace(statement, label=here))
        elif isinstance(statement, Branch):
            inside = tuple(_labelled(b, f"{here}.{k}/") for k, b in enumerate(statement.blocks))
            made.append(replace(statement, blocks=inside))
        else:
            made.append(statement)
    return tuple(made)


def asks_in(block: Block) -> Iterator[Ask]:
    """All calls of a program, in the order of its text."""
    for statement in block:
        if isinstance(statement, Ask):
            yield statement
        elif isinstance(statement, Branch):
            for inner in statement.blocks:
                yield from asks_in(inner)


def changed(block: Block, label: str, edit: Callable[[Ask], tuple[Ask, ...]]) -> Block:
    """The program with one of its calls replaced by others."""
    made: list[Statement] = []
    for statement in block:
        if isinstance(statement, Ask):
            made += edit(statement) if statement.label == label else (statement,)
        elif isinstance(statement, Branch):
            inside = tuple(changed(inner, label, edit) for inner in statement.blocks)
            made.append(replace(statement, blocks=inside))
        else:
            made.append(statement)
    return tuple(made)


# --- running ----------------------------------------------------------------------------------------------------------


class _Machine:
    """Runs one program and keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note(self, label: str, what: object) -> None:
        self.seen.append((label, what))

    # in a loop

    async def walk(self, block: Block) -> None:
        for n, statement in enumerate(block):
            if isinstance(statement, Pause):
                await asyncio.sleep(statement.tenths / 1e4)
            elif isinstance(statement, Ask):
                await self._ask(statement)
            else:
                await self._branch(statement, n)

    async def _ask(self, ask: Ask) -> None:
        tool = {"fetch": fetch_async, "breaks": breaks_async, "reluctant": reluctant}[ask.tool]
        try:
            self.note(ask.label, await tool(label=ask.label, seen=len(self.seen)))
        except ValueError as error:
            self.note(ask.label, repr(error))
        except asyncio.CancelledError:
            self.note(ask.label, "cancelled")
            raise

    async def _branch(self, branch: Branch, n: int) -> None:
        if branch.how == "away":
            await asyncio.gather(*(asyncio.to_thread(self.walk_here, inner) for inner in branch.blocks))
            return
        tasks = [asyncio.create_task(self.walk(inner), name=str(k)) for k, inner in enumerate(branch.blocks)]
        if branch.how == "all":
            await asyncio.gather(*tasks)
        elif branch.how == "first":
            done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.note("first", sorted(task.get_name() for task in done))
            await self._stop(list(rest))
        elif branch.how == "limit":
            try:
                async with asyncio.timeout(0.003):
                    await asyncio.gather(*tasks)
            except TimeoutError:
                self.note("limit", [task.done() for task in tasks])
                await asyncio.gather(*tasks, return_exceptions=True)
        else:
            await asyncio.sleep(0.0001 * n)
            await self._stop(tasks)

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        self.note("stop", [task.cancel() for task in tasks])
        await asyncio.gather(*tasks, return_exceptions=True)
        self.note("stopped", [task.cancelled() for task in tasks])

    # in a thread

    def walk_here(self, block: Block) -> None:
        for n, statement in enumerate(block):
            if isinstance(statement, Pause):
                time.sleep(statement.tenths / 1e4)
            elif isinstance(statement, Ask):
                self._ask_here(statement)
            else:
                self._branch_here(statement, n)

    def _ask_here(self, ask: Ask) -> None:
        tool = breaks if ask.tool == "breaks" else fetch
        try:
            self.note(ask.label, tool(label=ask.label, seen=len(self.seen)))
        except ValueError as error:
            self.note(ask.label, repr(error))

    def _branch_here(self, branch: Branch, n: int) -> None:
        if branch.how == "away":
            asyncio.run(self.walk(tuple(s for inner in branch.blocks for s in inner)))
        elif branch.how == "all":
            threads = [threading.Thread(target=self.walk_here, args=(inner,)) for inner in branch.blocks]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(0.001) if n % 2 else thread.join()
            for thread in threads:
                thread.join()
        else:
            self._pool(branch)

    def _pool(self, branch: Branch) -> None:
        with futures.ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(self.walk_here, inner) for inner in branch.blocks]
            if branch.how == "first":
                futures.wait(jobs, return_when=futures.FIRST_COMPLETED)
            elif branch.how == "limit":
                futures.wait(jobs, timeout=0.002)
            self.note("pool", [(job.done(), job.running()) for job in jobs])
            self.note("pool", [job.cancel() for job in jobs])


def program_of(block: Block, *, loop: bool) -> Callable[[], Any]:
    """The program of a tree: an async one, or one that begins in a thread."""
    if loop:

        async def asynchronous() -> Any:
            machine = _Machine()
            await machine.walk(block)
            return machine.seen

        return asynchronous

    def synchronous() -> Any:
        machine = _Machine()
        machine.walk_here(block)
        return machine.seen

    return synchronous
