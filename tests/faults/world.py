"""The world outside of a program that is killed: it does what it is asked for, counts that by key, and may be who kills.

    with World() as world:
        world.arm(Kill(nth=3, when="after"))     # at the third thing that it is asked for, once that is done
        ...                                      # a process asks it, see `ask`
        assert world.done == {key: 1}

It does one thing after the other, in the order in which the requests came: what a dead process had asked for is done or
refused before anybody else is answered. A key that comes twice is done twice, and seen.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self

When = Literal["before", "after", "answered"]


@dataclass(frozen=True)
class Kill:
    """When whoever asks is killed: at the nth request, before or after it is done, or some microseconds after its answer."""

    nth: int
    when: When = "after"
    microseconds: int = 0


def ask(port: int, do: str, what: str, key: str = "") -> Any:
    """Asks the world for something; returns its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(json.dumps({"do": do, "what": what, "key": key, "pid": os.getpid()}).encode() + b"\n")
        said = line.makefile("rb").readline()
    if not said:
        raise ConnectionError("the world has said nothing")
    return json.loads(said)["said"]


@dataclass
class World:
    """See the module.

    Attributes:
        done: how often each key's effect was done.
        receipts: what it said of each effect.
        told: how often everything else was asked for, as (what was done, about what).
    """

    done: Counter[str] = field(default_factory=Counter)
    receipts: dict[str, str] = field(default_factory=dict)
    told: Counter[tuple[str, str]] = field(default_factory=Counter)
    _kill: Kill | None = None
    _asked: int = 0

    def __enter__(self) -> Self:
        world = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                world._answer(self.rfile.readline(), self.wfile.write)

        self._server = socketserver.TCPServer(("127.0.0.1", 0), Handler)  # one request after the other
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Where it is asked."""
        return self._server.server_address[1]

    def arm(self, kill: Kill | None) -> None:
        """Has whoever asks for the nth thing from now on killed."""
        self._kill, self._asked = kill, 0

    def _answer(self, told: bytes, say: Callable[[bytes], object]) -> None:
        if not told.endswith(b"\n"):
            return  # who asked died over it
        asked = json.loads(told)
        self._asked += 1
        kill = self._kill if self._kill is not None and self._kill.nth == self._asked else None
        if kill is not None and kill.when == "before":
            os.kill(asked["pid"], signal.SIGKILL)
            return
        answer = json.dumps({"said": self._do(asked["do"], asked["what"], asked["key"])}).encode() + b"\n"
        if kill is not None and kill.when == "after":
            _kill(asked["pid"], kill.microseconds)
        try:
            say(answer)
        except OSError:
            return
        if kill is not None and kill.when == "answered":
            _kill(asked["pid"], kill.microseconds)

    def _do(self, do: str, what: str, key: str) -> Any:
        if do == "lookup":
            return self.receipts.get(key)
        if do == "charge":
            self.done[key] += 1
            self.receipts[key] = f"R-{what}"
            return self.receipts[key]
        self.told[do, what] += 1
        if what == "slow":
            time.sleep(0.3)  # longer than it takes the thread in the background to settle what waits
        return {"order": what, "price": 10 + len(what)}


def _kill(pid: int, microseconds: int) -> None:
    """Kills a process after a moment, unless it is gone meanwhile."""
    if microseconds:
        until = time.monotonic_ns() + 1000 * microseconds
        while time.monotonic_ns() < until:
            pass
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
