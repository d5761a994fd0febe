"""What a killed process leaves: calls that can be read after SIGKILL, of those that were made. Not a time, but measured."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from agentloupe.engine.project import Projector
from agentloupe.store import open_url
from bench import clients
from bench.aside import ROOT, python_of
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.peers import Absent, cassettes, tapes

_CALLS = 20
_PEERS = ("vcrpy", "cassetter", "agent-rewind", "rewind-agent")


def measure(context: Context) -> Found:
    """Each recorder in a process that kills itself after its last call."""
    with clients.server() as url:
        store = context.path("killed").with_suffix(".db")
        _killed(sys.executable, "bench.rows.killed", "loupe", url, str(store))
        peers = [Peer(cassettes.LABELS[name], _kept(name, url, context.path("killed"))) for name in _PEERS]
        asked = context.written("requests", clients.short(_CALLS).requests)
        peers += [
            Peer(label, _kept_apart(keeping, url, asked, str(context.path(f"killed-{keeping}"))))
            for keeping, label in tapes.KEEPING.items()
        ]
    found = Found()
    found.figures.append(
        Figure(
            row="killed",
            name=f"calls that can be read, of {_CALLS}",
            unit="",
            measured=_read(store),
            better="more",
            target=float(_CALLS),
            peers=peers,
        )
    )
    return found


def _kept(name: str, url: str, path: Path) -> float | None:
    recorder = cassettes.found(name)
    if recorder is None:
        return None
    _killed(sys.executable, "bench.rows.killed", name, url, str(path))
    return float(recorder.kept(path))


def _kept_apart(keeping: str, url: str, asked: str, path: str) -> float | None:
    """The same by tracefork, in its own Python."""
    try:
        python = python_of(tapes.PEER)
    except Absent:
        return None
    _killed(python, tapes.__name__, "killed", path, keeping, url, asked)
    if not Path(path).exists():
        return 0.0
    return float(subprocess.check_output([python, "-m", tapes.__name__, "kept", path], cwd=ROOT))


def _read(path: Path) -> float:
    store = open_url(path, new_fold=Projector)  # as every command opens it
    try:
        return float(sum(step.kind == "llm" for run in store.runs() for step in store.steps(run.id)))
    finally:
        store.close()


def _killed(python: str, module: str, *args: str) -> None:
    ended = subprocess.run([python, "-m", module, *args], check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def _die(name: str, url: str, path: Path) -> None:
    import os

    from agentloupe.ports import ambient
    from bench.agents import opened

    talk = clients.short(_CALLS)
    if name == "loupe":
        store = open_url(path)
        with ambient.inside(opened(store).boundary):
            talk.by(clients.wrapped(url))
            os.kill(os.getpid(), signal.SIGKILL)
    recorder = cassettes.found(name)
    assert recorder is not None
    with recorder.recording(path):
        talk.by(clients.bare(url))
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _die(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
