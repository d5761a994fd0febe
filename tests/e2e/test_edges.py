"""The page at its edges: nothing recorded yet, keys alone, every screen in Chinese."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from tests.e2e.model import Model
from tests.e2e.served import Served, serving
from tests.e2e.test_access import SCREENS, filled
from tests.e2e.work import Work
from tests.e2e.world import World
from tests.made import Maker
from tests.support import ROOT


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


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_value_of_ten_megabytes_is_cut_in_its_card_and_whole_in_raw(page: Page, tmp_path: Path) -> None:
    size = 10_000_000
    with closing(open_url(tmp_path / "big.db", new_fold=Projector)) as store:
        made = Maker("big")
        made.call("tool", "read_file", {"path": "a"}, "x" * (size - 3) + "END")
        recording = made.finish()
        store.insert("big", recording.events, recording.get, Projector)
    with serving(tmp_path / "big.db") as served:
        served.show(page, "/runs/big?step=0")
        assert page.evaluate("document.body.innerText.length") < 100_000
        page.get_by_role("tab", name="Raw").click()
        expect(page.get_by_text(f"{size + 2:,}")).to_be_visible(timeout=60_000)
        page.get_by_role("tab", name="Overview").click()
        expect(page.get_by_role("tabpanel").get_by_text("read_file")).to_be_visible()


PAIR = re.compile(r"^  '([\w.]+)':\s+'((?:[^'\\]|\\.)+)'", re.MULTILINE)

SAID = re.compile("[A-Z][a-z]{2}|[a-z]{2} [a-z]{2}")
"""What is a text of the page and nothing else; a single small word may be a name in a run, or a role."""


def words(language: str) -> dict[str, str]:
    """The texts of the page in a language, by name; those with several forms left out."""
    folder = ROOT / "web" / "src" / "base" / "words"
    files = [folder / f"{language}.ts", *sorted(folder.glob(f"*.{language}.ts"))]
    return {name: text for file in files for name, text in PAIR.findall(file.read_text("utf-8"))}


@pytest.mark.parametrize("screen", SCREENS)
def test_every_word_of_the_page_is_there_in_chinese(
    page: Page, server: Served, world: World, work: Work, screen: str
) -> None:
    english, chinese = words("en"), words("zh")
    assert len(english) > 400
    assert set(english) <= set(chinese)
    foreign = {text for name, text in english.items() if chinese[name] != text and SAID.search(text)}
    server.show(page, filled(screen, world, work), lang="zh-CN")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    shown = page.evaluate(
        """() => {
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
            const found = [];
            while (walker.nextNode()) found.push(walker.currentNode.data.trim());
            for (const one of document.querySelectorAll('[aria-label], [title], [placeholder]'))
                for (const name of ['aria-label', 'title', 'placeholder']) found.push(one.getAttribute(name));
            return found;
        }"""
    )
    assert foreign & set(shown) == set()
    expect(page.get_by_role("navigation").first).to_contain_text("运行")
