"""The log of a run on the page: from a step to its events and back, by type, by number, and ten thousand of them."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from tests.e2e.served import Served, serving
from tests.e2e.test_long import MOST
from tests.e2e.world import World, long_run


def log(page: Page) -> Locator:
    return page.get_by_role("table", name="Events")


def aside(page: Page, sequence: int) -> Locator:
    return page.get_by_role("complementary", name=f"event {sequence}")


def test_a_step_leads_to_its_events_and_an_event_back_to_its_step(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}?step=1&tab=events")
    panel = page.get_by_role("tabpanel")
    expect(panel.get_by_role("cell", name="tool.finished")).to_be_visible()
    row = panel.get_by_role("row").filter(has_text="tool.finished")
    sequence = int(row.get_by_role("link").inner_text())
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile(f"/events.*event={sequence}"))
    expect(aside(page, sequence)).to_contain_text("As it was sealed")
    expect(aside(page, sequence)).to_contain_text(f'"sequence": {sequence}')
    current = log(page).locator("[aria-current]")
    expect(current).to_contain_text("tool.finished")
    page.keyboard.press("k")
    expect(aside(page, sequence - 1)).to_be_visible()
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="Step 1", exact=True)).to_be_visible()
    expect(page.get_by_role("tab", name="Events")).to_have_attribute("aria-selected", "true")
    page.go_back()
    expect(aside(page, sequence - 1)).to_be_visible()


def test_events_are_kept_by_type_and_by_step(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}/events?step=1")
    expect(log(page).get_by_role("row")).to_have_count(1 + 3)
    page.get_by_role("button", name="of step 1").click()
    expect(log(page).get_by_role("row").nth(5)).to_be_visible()
    page.get_by_role("button", name="Type").click()
    page.get_by_role("menuitemradio", name=re.compile("tool.finished")).click()
    types = log(page).get_by_role("row").filter(has_not=page.get_by_role("columnheader"))
    expect(types.filter(has_not_text="tool.finished")).to_have_count(0)
    expect(page).to_have_url(re.compile("type=tool.finished"))
    page.get_by_role("button", name="Clear the filters").click()
    expect(types.filter(has_text="run.started")).to_be_visible()


def test_an_event_that_is_not_there_is_said(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}/events?type=model.failed")
    expect(page.get_by_text("No event of the run is of this kind.")).to_be_visible()
    server.show(page, f"/runs/{world.observed}/events?event=99999")
    expect(log(page).locator("[aria-current]")).to_contain_text("run.finished")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_events_are_walked_and_few_are_held(page: Page, tmp_path: Path) -> None:
    db = tmp_path / "long.db"
    with closing(open_url(db, new_fold=Projector)) as store:
        run = long_run(store, 5000)
        row = store.run(run)
        assert row is not None
        last = row.events
    assert last > 10_000
    held = "document.querySelectorAll('*').length"
    with serving(db) as served:
        served.show(page, f"/runs/{run}/events?event={last // 2}")
        expect(log(page).locator("[aria-current]")).to_contain_text(str(last // 2))
        log(page).hover()
        for _ in range(10):
            page.mouse.wheel(0, 20_000)
            assert page.evaluate(held) < MOST
        served.show(page, f"/runs/{run}/events?type=tool.finished&event={last}")
        expect(log(page).locator("[aria-current]")).to_contain_text("tool.finished")
        before = int(log(page).locator("[aria-current]").get_by_role("cell").first.inner_text())
        page.keyboard.press("k")
        expect(log(page).locator("[aria-current]").get_by_role("cell").first).not_to_have_text(str(before))
        assert page.evaluate(held) < MOST
