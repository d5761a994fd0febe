"""What the page says of itself and of the project: an older page, settings that are changed, a comparison in sentences."""

from __future__ import annotations

import json
import re
from contextlib import closing
from pathlib import Path

from playwright.sync_api import Browser, Page, Route, expect

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from tests.e2e.served import Served, serving
from tests.e2e.world import World


def test_a_comparison_says_what_differs_and_what_each_side_did(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/compare?a={world.observed}&b={world.candidates[0]}")
    expect(page.get_by_text("Step 3: the model answered differently, after its input was changed.")).to_be_visible()
    warned = page.get_by_role("status")
    expect(warned.get_by_text("issue_refund", exact=True)).to_be_visible()
    expect(warned.get_by_text("was not run.")).to_be_visible()
    rows = page.get_by_role("table", name="Compare").get_by_role("row")
    expect(rows.nth(1)).to_contain_text('{"city":"Beijing"}')
    expect(rows.filter(has_text="miss in B")).to_contain_text("write, done for real")
    halves = page.locator(".detail .half")
    expect(halves.first).not_to_contain_text("Never do sums in your head.")
    expect(halves.last.locator("ins").filter(has_text="Never do sums in your head.")).to_be_visible()
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile(f"/runs/{world.observed}\\?step=3"))


def test_a_page_that_is_older_than_its_server_says_so_and_is_loaded_anew(
    page: Page, server: Served, world: World
) -> None:
    def newer(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "page": "0123456789ab"})

    server.show(page, f"/runs/{world.observed}")
    expect(page.get_by_text("This page is older than its server.")).to_have_count(0)
    page.route("**/api/about", newer)
    server.show(page, f"/runs/{world.observed}")
    expect(page.get_by_text("This page is older than its server.")).to_be_visible()
    page.unroute("**/api/about")
    with page.expect_navigation():
        page.get_by_role("button", name="Reload").click()
    expect(page.get_by_text("This page is older than its server.")).to_have_count(0)


def test_tools_and_prices_are_set_from_the_page(browser: Browser, page: Page, tmp_path: Path) -> None:
    with closing(open_url(tmp_path / "runs.db", new_fold=Projector)):
        pass
    (tmp_path / "loupe.toml").write_text("# of the shop\n[live]\nlook = 'reads only'\n", "utf-8")
    with serving(tmp_path / "runs.db") as served:
        served.show(page, "/settings")
        live = page.get_by_role("region", name="Tools that may run live")
        expect(live.get_by_text("loupe.toml:3")).to_be_visible()
        live.get_by_role("button", name="Change").click()
        live.get_by_role("button", name="Add a tool").click()
        save = live.get_by_role("button", name="Write loupe.toml")
        expect(save).to_be_disabled()
        expect(live.get_by_text("Each tool needs a name and a reason.")).to_be_visible()
        live.get_by_role("textbox", name="Tool").last.fill("calculate")
        live.get_by_role("textbox", name="Why it may run for real").last.fill("arithmetic only")
        save.click()
        expect(live.get_by_text("arithmetic only")).to_be_visible()
        prices = page.get_by_role("region", name="Prices")
        prices.get_by_role("button", name="Change").click()
        prices.get_by_role("textbox", name="Model", exact=True).fill("demo-large")
        for column, amount in (("Input", "2.50"), ("Output", "much")):
            prices.get_by_role("textbox", name=f"demo-large {column}", exact=True).fill(amount)
        expect(prices.get_by_role("button", name="Write prices.json")).to_be_disabled()
        prices.get_by_role("textbox", name="demo-large Output", exact=True).fill("10.00")
        prices.get_by_role("button", name="Write prices.json").click()
        expect(prices.get_by_role("cell", name="10.00")).to_be_visible()
    written = (tmp_path / "loupe.toml").read_text("utf-8")
    assert "# of the shop" in written
    assert "calculate" in written
    assert "2.50" in json.dumps(json.loads((tmp_path / "prices.json").read_text("utf-8")))
