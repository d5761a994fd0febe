"""`agentloupe worker`: runs forks and replays of your own agents, for the page."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from agentloupe.cli.common import Database, Debug, opened
from agentloupe.cli.output import Output
from agentloupe.words.errors import LoupeError


def command(
    modules: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE[:AGENT]...",
            help="Modules or files with agents, or single agents of them.",
            show_default=False,
        ),
    ],
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Run forks and replays of your own agents for the page, until Ctrl-C.

    The code runs here, with your rights; the server never loads it.

    Example: agentloupe worker my_app.agents path/to/script.py
    """
    from agentloupe.ports.ambient import random_hex
    from agentloupe.ports.jobs import Worker
    from agentloupe.store.owners import this_process
    from agentloupe.store.sqlite import SqliteStore
    from agentloupe.verbs.importing import agents_of
    from agentloupe.verbs.working import Workbench

    agents = agents_of(modules)
    out = Output()
    with opened(db, create=True) as store:
        if not isinstance(store, SqliteStore):
            raise LoupeError("a worker needs a store in a file", hint="--db FILE")
        worker = Worker(id=f"worker-{random_hex(8)}", owner=this_process(), agents=tuple(sorted(agents)))
        with Workbench(store, store.jobs, worker, agents, modules, hands=1).working():
            out.line(f"{worker.id} has {', '.join(worker.agents)}; Ctrl-C stops it")
            _until_told()


def _until_told() -> None:
    """Waits for Ctrl-C, or for being ended."""
    over = threading.Event()

    def told(_number: int, _frame: FrameType | None) -> None:
        over.set()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        over.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
