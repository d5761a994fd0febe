"""The page's client is made from the interface that the server has now."""

from __future__ import annotations

import json

from agentloupe.server.app import openapi
from tests.support import ROOT


def test_the_page_knows_the_interface_as_it_is() -> None:
    written = json.loads((ROOT / "web" / "src" / "api" / "openapi.json").read_text())
    assert written == json.loads(json.dumps(openapi())), "stale: run `make page-api`"
