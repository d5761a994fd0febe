"""Phoenix and MLflow as a person starts them, each in an environment of its own below `.venv/peers` (`make bench-peers` makes them)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.aside import ROOT
from bench.peers import Absent

PEERS = ROOT / ".venv" / "peers"
_PATIENCE_S = 200.0


class _Server(NamedTuple):
    """How a peer is started: its program, the words behind it, the address that says that it is healthy, its variables."""

    program: str
    words: Callable[[int, Path], list[str]]
    healthy: str
    variables: Callable[[int, Path], dict[str, str]]


_SERVERS = {
    "phoenix": _Server(
        "phoenix",
        lambda port, folder: ["serve"],
        "/healthz",
        lambda port, folder: {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": "0", "PHOENIX_WORKING_DIR": str(folder)},
    ),
    "mlflow": _Server(
        "mlflow",
        lambda port, folder: [
            *("server", "--host", "127.0.0.1", "--port", str(port)),
            *("--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--default-artifact-root", str(folder)),
        ],
        "/health",
        lambda port, folder: {},
    ),
}


def installed_mb(name: str) -> float:
    """What its environment takes on the disk, in MB. Raises `Absent`."""
    _program(name)
    files = (path for path in (PEERS / name).rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if "__pycache__" not in path.parts) / 1e6


def _program(name: str) -> Path:
    program = PEERS / name / "bin" / _SERVERS[name].program
    if not program.is_file():
        raise Absent(name)
    return program


def start(name: str, folder: Path) -> float:
    """Seconds from the command to healthy, by the clock; it is stopped again. Raises `Absent`: also where it never gets there."""
    server = _SERVERS[name]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, **server.variables(port, folder)}
    command = [str(_program(name)), *server.words(port, folder)]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while time.perf_counter() - began < _PATIENCE_S and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{server.healthy}", timeout=5):
                    return time.perf_counter() - began
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        raise Absent(name)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
