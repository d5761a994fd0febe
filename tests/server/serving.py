"""What the tests of the server share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.ports.recording import Recording
from agentloupe.ports.settings import Settings
from agentloupe.server.app import make_app
from agentloupe.store.opening import open_url

TOKEN = "a-token-for-tests"
HOST = "http://127.0.0.1:8321"


def store_in(folder: Path) -> Store:
    """A new store in a folder."""
    return open_url(folder / "runs.db", new_fold=Projector)


def put(store: Store, recording: Recording) -> str:
    """Puts a recording into a store; returns its id."""
    store.insert(recording.run_id, recording.events, recording.get, Projector)
    return recording.run_id


def app_of(store: Store, **settings: Any) -> Any:
    """The application over a store, with `TOKEN`; its project is the folder that the store lies in."""
    root = Path(store.url.removeprefix("sqlite:///")).parent
    return make_app(store, Settings(root=root, db="", **settings), token=TOKEN)


def client_of(store: Store, token: str | None = None, **settings: Any) -> TestClient:
    """A client of a server over a store; with a token it knows it and may write."""
    headers = {"Authorization": f"Bearer {token}", "X-Loupe": "1"} if token else {}
    return TestClient(app_of(store, **settings), base_url=HOST, headers=headers, follow_redirects=False)
