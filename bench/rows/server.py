"""The server: how long it takes to be healthy, and to open a 10,000-step run through its API, headers first."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from starlette.testclient import TestClient

from agentloupe.ports.settings import Settings
from agentloupe.server.app import make_app
from agentloupe.server.reading import Reader
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found, Peer
from bench.peers import Absent, servers
from bench.rows.request import STEPS
from bench.timing import by_turns


def _healthy(database: Path) -> int:
    """Starts a server as a person does, and stops it once it answers."""
    argv = [sys.executable, "-m", "agentloupe", "serve", "--no-browser", "--port", "0", "--db", str(database)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1].partition("/?")[0]
        with urllib.request.urlopen(f"{address}/healthz", timeout=60) as answer:
            assert answer.status == 200
        process.kill()
    return 1


def _installed_mb() -> float:
    """What `agent-loupe[server]` and all that it needs take on the disk, in MB, by what each says that it has installed."""
    todo, seen, size = [("agent-loupe", "server")], set[str](), 0
    while todo:
        name, extra = todo.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # of another platform or an older Python
        if name not in seen:
            seen.add(name)
            files = [found.locate_file(file) for file in found.files or () if "__pycache__" not in file.parts]
            size += sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file())
        for line in found.requires or ():
            needed = Requirement(line)
            wanted = needed.marker is None or needed.marker.evaluate({"extra": extra})
            if wanted and needed.name not in seen:
                todo.append((needed.name, next(iter(needed.extras), "")))
    package = Path(__file__).parents[2] / "src" / "agentloupe"
    own = sum(file.stat().st_size for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return (size + own) / 1e6


def _peers(measured: Callable[[str], float]) -> list[Peer]:
    """Phoenix and MLflow by the same measure; without a value where they are not installed."""
    found: list[Peer] = []
    for name, title in (("phoenix", "Phoenix"), ("mlflow", "MLflow")):
        try:
            found.append(Peer(title, measured(name)))
        except Absent:
            found.append(Peer(title, None))
    return found


def _peer_start(context: Context, name: str) -> float:
    """Milliseconds of a start that is not the first one: what is made once is there."""
    folder = context.path(name)
    folder.mkdir()
    servers.start(name, folder)
    return servers.start(name, folder) * 1e3


def measure(context: Context) -> Found:
    """A start with nothing loaded, and what a page asks first of a run that nobody has looked at yet."""
    steps = context.size(STEPS, 200)
    context.say(f"recording a run of {steps:,} steps")
    store = context.store("server")
    run = recorded(store, model_and_tool, steps, new=200)
    settings = Settings(root=context.folder, db="")
    first = (f"/api/runs/{run}", f"/api/runs/{run}/steps?limit=200", f"/api/runs/{run}/transcript?limit=50")
    started = time.perf_counter()
    _healthy(context.path("start").with_suffix(".db"))
    context.say(f"a first start took {time.perf_counter() - started:.1f} s")

    app = make_app(store, settings, token=None)
    client = TestClient(app, base_url="http://127.0.0.1")

    def opened() -> int:
        app.state.context.reader = Reader(store)  # nothing of the run is kept from the time before
        for path in first:
            assert client.get(path).status_code == 200
        return 1

    opened()
    taken = by_turns(
        {"start": lambda: _healthy(context.path("start").with_suffix(".db")), "open": opened},
        context.few,
        waits=["start"],
    )
    found = Found()
    for name, what, target in (
        ("start", "from the command to healthy", 2000.0),
        ("open", f"{steps:,} steps opened: row, first 200 headers, first 50 cards", 150.0),
    ):
        figure = Figure(
            row="server",
            name=what,
            unit="ms",
            measured=taken[name].ms,
            median=taken[name].median * 1e3,
            target=target,
            peers=_peers(partial(_peer_start, context)) if name == "start" else (),
        )
        found.figures.append(figure)
    found.figures.append(
        Figure(
            row="server",
            name="installed, with everything that it needs",
            unit="MB",
            measured=_installed_mb(),
            target=120.0,
            peers=_peers(servers.installed_mb),
            note="of peers the whole of an environment that holds nothing else",
        )
    )
    return found
