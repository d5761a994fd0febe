"""A server over a store with a few runs, without a network: requests go straight to the application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentloupe.ports.protocols import Store
from tests.server.serving import TOKEN, client_of, store_in


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store in a file."""
    made = store_in(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(store: Store) -> TestClient:
    """Who knows the token and may write."""
    return client_of(store, TOKEN)
