"""A list of a million runs: every row can be reached, and nothing of it is held that is not in view."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from agentloupe.store.sqlite import SqliteStore
from bench.rows.listing import filled
from tests.e2e.served import Served, serving
from tests.e2e.test_long import MOST
from tests.server.test_load import MB, peak

RUNS = 1_000_000
HEAP = 60 * MB
"""What the page's own objects may take."""


def row(page: Page, number: int) -> Locator:
    return page.locator(f"[role=row][aria-rowindex='{number + 1}']")


def heap(page: Page) -> int:
    wire = page.context.new_cdp_session(page)
    wire.send("HeapProfiler.collectGarbage")
    return int(wire.send("Runtime.getHeapUsage")["usedSize"])


def filters_narrow_it(served: Served, page: Page) -> None:
    some = (
        ("status=error", "100,000"),
        ("status=error&agent=agent-10", "5,000"),
        ("tag=tag-7&tool=look_up", None),
        ("q=one-off+77", None),
        ("q=copy-0000077", "10"),
        ("since=2023-11-20", None),
    )
    for asked, count in some:
        served.show(page, f"/runs?{asked}")
        expect(row(page, 1)).to_be_visible()
        assert page.evaluate("document.querySelectorAll('*').length") < MOST, asked
        if count is not None:
            expect(page.get_by_text(re.compile(rf"rows 1 to \d+ of {count}\b"))).to_be_visible()


@pytest.mark.slow
@pytest.mark.many
@pytest.mark.timeout(900)
def test_every_row_of_a_million_runs_is_reached_and_few_are_held(page: Page, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    with closing(open_url(db, new_fold=Projector)) as store:
        assert isinstance(store, SqliteStore)
        filled(store, RUNS)
    with serving(db) as served:
        served.show(page, "/runs")
        everything = f"{RUNS + 1:,}"
        expect(page.get_by_text(f"of {everything}")).to_be_visible()
        page.keyboard.press("End")
        expect(page.get_by_text(f"to {everything} of {everything}")).to_be_visible()
        expect(row(page, RUNS + 1)).to_be_in_viewport()
        page.keyboard.press("k")
        expect(row(page, RUNS)).to_have_class(re.compile("cur"))
        page.get_by_role("table", name="Runs").hover()
        for _ in range(20):
            page.mouse.wheel(0, 1_000_000)
            assert page.evaluate("document.querySelectorAll('*').length") < MOST
        expect(page.locator(".rr .skel")).to_have_count(0)
        page.keyboard.press("Home")
        expect(row(page, 1)).to_be_in_viewport()
        expect(page.get_by_text("live updates")).to_be_visible()
        filters_narrow_it(served, page)
        served.show(page, "/runs?status=error")
        row(page, 3).get_by_role("link").click()
        expect(page).to_have_url(re.compile("/runs/model_and_tool"))
        page.go_back()
        expect(page.get_by_text("of 100,000")).to_be_visible()
        assert heap(page) < HEAP
        assert peak(served.process.pid) < 400 * MB
