"""Every row of the measurements can be measured: once, with its smallest sizes. No timings are judged here."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from agentloupe.server.app import PAGE
from bench import apart
from bench.browser import chromium
from bench.peers import servers
from bench.rows import NAMES
from tests.support import some_of

ALWAYS = ("fork", "headers", "request", "streams")
"""Rows that are measured in `make test` too: of the engine, the store and the clients, with curves and with peers."""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", some_of([(name,) for name in NAMES], lambda number: NAMES[number] in ALWAYS))
def test_a_row_is_measured(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PEERS", tmp_path)  # they take minutes to start: as if not installed
    if name == "page" and (chromium() is None or not (PAGE / "index.html").is_file()):
        pytest.skip("needs Chromium and the built page (apt-get install chromium; make page)")
    found = apart.measured_here(name, 0.01, 1)
    assert found.figures
    for figure in found.figures:
        assert figure.row == name
        assert math.isfinite(figure.measured), figure.name
        assert all(peer.value is None or math.isfinite(peer.value) for peer in figure.peers), figure.name
    for curve in found.curves:
        assert len(curve.sizes) == len(curve.values) > 1
