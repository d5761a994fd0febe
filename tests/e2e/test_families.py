"""The list by family: a run with its forks beneath it, and without them."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.e2e.served import Served
from tests.e2e.world import World


def shown(page: Page) -> list[str]:
    """Ids of the rows, from the top."""
    return page.locator(".rr .about .mono").all_inner_texts()


def test_a_family_stands_together_and_the_address_keeps_it(page: Page, server: Served, world: World) -> None:
    server.show(page, "/runs")
    page.get_by_role("button", name="Family, newest first").click()
    expect(page).to_have_url(re.compile("sort=family"))
    forks = {*world.candidates, *world.controls}
    root = page.get_by_role("row").filter(has=page.get_by_text(world.observed, exact=True))
    behind = root.locator("xpath=following-sibling::*")
    for fork in forks:
        expect(behind.filter(has=page.get_by_text(fork, exact=True))).to_have_count(1)
    ids = shown(page)
    at = ids.index(world.observed)
    below = ids[at + 1 : at + 1 + len(forks)]
    assert forks <= set(ids[at + 1 :])
    assert set(below) <= forks | {run for run in ids if run.startswith(world.observed)}
    page.reload()
    expect(page.get_by_role("button", name="Family, newest first")).to_have_attribute("aria-pressed", "true")
    expect(root).to_be_visible()
    assert shown(page).index(world.observed) == at
    page.get_by_role("button", name="Time", exact=True).last.click()
    expect(page).not_to_have_url(re.compile("sort="))


def test_forks_are_left_out_of_a_list_of_roots(page: Page, server: Served, world: World) -> None:
    server.show(page, "/runs")
    expect(page.get_by_text(world.candidates[0], exact=True)).to_be_visible()
    page.get_by_role("button", name="Only roots").click()
    expect(page).to_have_url(re.compile("roots=1"))
    expect(page.get_by_text(world.candidates[0], exact=True)).to_have_count(0)
    expect(page.get_by_text(world.observed, exact=True)).to_be_visible()
