"""Runs the server: binds, says where it is, serves until it is told to stop."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from urllib.parse import quote

import uvicorn

from agentloupe.ports.ambient import random_hex
from agentloupe.ports.jobs import Worker
from agentloupe.ports.protocols import Store
from agentloupe.ports.settings import Settings
from agentloupe.server.app import make_app
from agentloupe.server.context import Context
from agentloupe.server.watched import watched
from agentloupe.store.owners import this_process
from agentloupe.store.sqlite import SqliteStore
from agentloupe.verbs.working import Workbench
from agentloupe.words.errors import LoupeError

__all__ = ["serve"]

_BACKLOG = 128
_GRACE = 3


class _Server(uvicorn.Server):
    """Tells streams to end before it waits for them."""

    def __init__(self, config: uvicorn.Config, context: Context) -> None:
        super().__init__(config)
        self._context = context

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._context.closing.set()
        super().handle_exit(sig, frame)


def serve(store: Store, settings: Settings, *, host: str, port: int, token: str, ready: Callable[[str], None]) -> None:
    """Serves a store until the process is interrupted.

    Args:
        store: where runs are.
        settings: of the project.
        host: address or name to listen at; it is answered to as well.
        port: to listen at; 0: any that is free.
        token: what a request must show.
        ready: called with the address, token and all, as soon as connections are taken.

    Raises:
        LoupeError: the address cannot be listened at (reason `address`).
    """
    listening = _bound(host, port)
    at = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    app = make_app(store, settings, token=token, cookie=f"loupe_token_{at}", names=(host,))
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE
    )
    with listening, _embedded(store, app.state.context):
        ready(f"http://{shown}:{at}/?token={quote(token)}")
        try:
            _Server(config, app.state.context).run(sockets=[listening])
        except KeyboardInterrupt:
            return  # it has ended; the signal is handed on once more afterwards


@contextmanager
def _embedded(store: Store, context: Context) -> Generator[None]:
    """The server's own worker: for work that needs no code of the user's."""
    if not isinstance(store, SqliteStore):
        yield
        return
    worker = Worker(id=f"server-{random_hex(8)}", owner=this_process())
    with Workbench(watched(store, context.metrics), store.jobs, worker).working():
        yield


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as wrong:
        listening.close()
        elsewhere = isinstance(wrong, socket.gaierror) or wrong.errno == errno.EADDRNOTAVAIL
        raise LoupeError(
            f"cannot listen at {host} port {port}: {wrong.strerror or wrong}",
            hint="--host takes an address of this machine" if elsewhere else "--port 0 takes any free port",
            reason="address",
        ) from wrong
    return listening
