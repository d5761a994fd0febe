"""The server: how long it takes to be healthy, and to open a 10,000-step run through its API, headers first."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from starlette.testclient import TestClient

from agentloupe.ports.settings import Settings
from agentloupe.server.app import make_app
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found
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

    def opened() -> int:
        client = TestClient(make_app(store, settings, token=None), base_url="http://127.0.0.1")
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
            row="server", name=what, unit="ms", measured=taken[name].ms, median=taken[name].median * 1e3, target=target
        )
        found.figures.append(figure)
    return found
