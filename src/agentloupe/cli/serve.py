"""`agentloupe serve`: the page, and the API beneath it."""

from __future__ import annotations

from typing import Annotated

import typer

from agentloupe.cli.common import Database, Debug, opened
from agentloupe.cli.output import Output
from agentloupe.ports import ambient
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import load
from agentloupe.words.errors import LoupeError

_TOKEN_BYTES = 24


def command(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes any free one.")] = 8321,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
    token: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What a request must show. Default: a new random one.", show_default=False),
    ] = None,
    db: Database = None,
    debug: Debug = False,
) -> None:
    """Serve the page on this machine, at an address that holds a token; nobody else gets in.

    Example: agentloupe serve
    """
    try:
        from agentloupe.server.app import older_than_its_sources
        from agentloupe.server.run import serve
    except ModuleNotFoundError as missing:
        raise LoupeError(
            f"the server needs the package {missing.name}",
            hint="pip install 'agent-loupe[server]'",
            reason="no_server",
        ) from missing
    out = Output()

    def ready(address: str) -> None:
        out.line(f"Agent Loupe is at {address}")
        out.line("Ctrl-C stops it")
        for line in beside:
            out.line(line)
        if browser:
            _show(address)

    with opened(db, create=True) as store:
        beside = _others(store)
        if older_than_its_sources():
            beside.append("the page is older than its sources; make page builds it anew")
        serve(store, load(), host=host, port=port, token=token or ambient.random_hex(_TOKEN_BYTES * 2), ready=ready)


def _others(store: Store) -> list[str]:
    """What to know of servers that serve the same runs already."""
    from agentloupe.store.sqlite import SqliteStore

    found = store.jobs.workers() if isinstance(store, SqliteStore) else []
    servers = [str(worker.owner.pid) for worker in found if not worker.agents]
    return [f"process {', '.join(servers)} serves the same runs; jobs are shared, each is done once"] if servers else []


def _show(address: str) -> None:
    """Opens the page where there is a browser; whether there is one is not worth a failure."""
    import webbrowser

    webbrowser.open_new_tab(address)
