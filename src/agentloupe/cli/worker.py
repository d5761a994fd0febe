"""`agentloupe worker`: runs forks and replays of your own agents, for the page."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated, Any

import typer

from agentloupe.cli.common import Database, Debug, opened
from agentloupe.cli.output import Output
from agentloupe.words.errors import LoupeError, UsageError


def command(
    modules: Annotated[
        list[str],
        typer.Argument(metavar="MODULE[:AGENT]...", help="Modules with agents, or single agents.", show_default=False),
    ],
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Run forks and replays of your own agents for the page, until Ctrl-C.

    The code runs here, with your rights; the server never loads it. Example: agentloupe worker my_app.agents
    """
    from agentloupe.ports.ambient import random_hex
    from agentloupe.ports.jobs import Worker
    from agentloupe.store.owners import this_process
    from agentloupe.store.sqlite import SqliteStore
    from agentloupe.verbs.working import Workbench

    agents: dict[str, Callable[..., Any]] = {}
    for name in modules:
        agents |= _agents(name)
    out = Output()
    with opened(db, create=True) as store:
        if not isinstance(store, SqliteStore):
            raise LoupeError("a worker needs a store in a file", hint="--db FILE")
        worker = Worker(id=f"worker-{random_hex(8)}", owner=this_process(), agents=tuple(sorted(agents)))
        with Workbench(store, store.jobs, worker, agents, hands=1).working():
            out.line(f"{worker.id} has {', '.join(worker.agents)}; Ctrl-C stops it")
            _until_told()


def _agents(name: str) -> dict[str, Callable[..., Any]]:
    """The agents of a module by name, or the one that is named."""
    from agentloupe.verbs.importing import imported
    from agentloupe.verbs.instrument import agents_in

    module_name, _, wanted = name.partition(":")
    try:
        module = imported(module_name)
    except ImportError as wrong:
        raise LoupeError(
            f"{module_name} cannot be loaded: {wrong}",
            hint="modules are looked for in the current folder and where Python looks",
            reason="no_code",
        ) from wrong
    found = agents_in(vars(module))
    if not found:
        raise UsageError(f"{module_name} has no agent", hint="decorate it with @loupe.agent")
    if not wanted:
        return found
    named = {agent: code for agent, code in found.items() if wanted in (agent, getattr(code, "__name__", None))}
    if not named:
        raise UsageError(f"{module_name} has no agent {wanted}", hint=f"its agents: {', '.join(sorted(found))}")
    return named


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
