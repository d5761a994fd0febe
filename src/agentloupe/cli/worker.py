"""`agentloupe worker`: runs forks and replays of your own agents, for the page."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from agentloupe.cli.common import Database, Debug, opened
from agentloupe.cli.output import Output
from agentloupe.words.errors import LoupeError, UsageError


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
    """The agents of a module or a file by name, or the one that is named."""
    from agentloupe.verbs.importing import imported, imported_file
    from agentloupe.verbs.instrument import agents_in

    module_name, wanted = _parted(name)
    by_file = module_name.endswith(".py") or "/" in module_name
    try:
        module = imported_file(Path(module_name)) if by_file else imported(module_name)
    except ImportError as wrong:
        raise LoupeError(
            f"{module_name} cannot be loaded: {wrong}",
            hint="files by their path, modules in the current folder and where Python looks",
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


def _parted(name: str) -> tuple[str, str]:
    """Module or file, and the agent. A colon that stands before a slash is a drive's, not ours."""
    module, colon, wanted = name.rpartition(":")
    return (module, wanted) if colon and "/" not in wanted and "\\" not in wanted else (name, "")


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
