"""What a page asks first of a 10,000-step run that nobody has looked at yet, through the API of the server."""

from __future__ import annotations

from starlette.testclient import TestClient

from agentloupe.ports.settings import Settings
from agentloupe.server.app import make_app
from agentloupe.server.reading import Reader
from bench.agents import model_and_tool, recorded
from bench.context import Context
from bench.figures import Figure, Found
from bench.rows.request import STEPS
from bench.timing import sample


def measure(context: Context) -> Found:
    """Headers first: the row of the run, 200 headers, 50 cards."""
    steps = context.size(STEPS, 200)
    context.say(f"recording a run of {steps:,} steps")
    store = context.store("server")
    run = recorded(store, model_and_tool, steps, new=200)
    settings = Settings(root=context.folder, db="")
    first = (f"/api/runs/{run}", f"/api/runs/{run}/steps?limit=200", f"/api/runs/{run}/transcript?limit=50")

    app = make_app(store, settings, token=None)
    client = TestClient(app, base_url="http://127.0.0.1")

    def opened() -> int:
        app.state.context.reader = Reader(store)  # nothing of the run is kept from the time before
        for path in first:
            assert client.get(path).status_code == 200
        return 1

    opened()
    taken = sample(opened, context.few)
    name = f"{steps:,} steps opened: row, first 200 headers, first 50 cards"
    return Found(
        [Figure(row="server", name=name, unit="ms", measured=taken.ms, median=taken.median * 1e3, target=150.0)]
    )
