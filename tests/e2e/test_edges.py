"""The page at its edges: nothing recorded yet, keys alone, every screen in Chinese."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from tests.e2e.model import Model
from tests.e2e.served import Served, serving
from tests.e2e.world import World


def test_from_the_list_to_a_fork_that_has_ended_by_keys_alone(
    page: Page, server: Served, world: World, model: Model
) -> None:
    server.show(page, f"/runs?q={world.observed}&sort=time")
    row = page.get_by_role("table", name="Runs").get_by_role("row")
    expect(row.filter(has=page.get_by_text(world.observed, exact=True))).to_be_visible()
    page.keyboard.press("End")
    for _ in range(40):
        page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Frost refund, order A-1042")
    page.keyboard.press("Home")
    expect(page.get_by_role("heading", name="Step 0")).to_be_visible()
    for step in (1, 2, 3):
        page.keyboard.press("j")
        expect(page.get_by_role("heading", name=f"Step {step}")).to_be_visible()
    page.keyboard.press("f")
    expect(page.get_by_role("heading", name="Fork from step 3")).to_be_visible()
    expect(page.get_by_role("button", name="Run 1 fork")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile("/compare"))
    page.go_back()
    expect(page.get_by_role("heading", name="Fork from step 3")).to_be_visible()


def test_an_empty_store_names_the_one_command(page: Page, tmp_path: Path) -> None:
    db = tmp_path / "empty.db"
    open_url(db, new_fold=Projector).close()
    with serving(db) as served:
        served.show(page, "/")
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        expect(page.get_by_text("agentloupe demo")).to_be_visible()
        for screen in ("/jobs", "/replays", "/settings", "/lineage", "/compare", "/summary"):
            served.show(page, screen)
            expect(page.get_by_role("main")).to_be_visible()
            expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("screen", ["/runs", "/runs/{run}", "/runs/{run}/fork?from=3", "/compare?a={run}&b={other}"])
def test_every_word_of_the_page_is_there_in_chinese(page: Page, server: Served, world: World, screen: str) -> None:
    where = screen.format(run=world.observed, other=world.candidates[0])
    server.show(page, where, lang="zh-CN")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    buttons = [text for text in page.get_by_role("button").all_inner_texts() if re.search("[A-Za-z]{4}", text)]
    english = {"Fork from here", "Cancel", "Compare", "Export", "Replay", "Revert", "Swap", "Import"}
    assert [text for text in buttons if english & {part.strip() for part in text.splitlines()}] == []
    expect(page.get_by_role("navigation").first).to_contain_text("运行")
