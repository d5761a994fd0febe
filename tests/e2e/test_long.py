"""A run of very many steps: the page holds what is in view, and every step can be reached."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from tests.e2e.served import serving
from tests.e2e.world import long_run

MOST = 2500
"""Elements that the page has at most, however long the run is."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [10_000, pytest.param(100_000, marks=pytest.mark.many)])
def test_every_step_of_a_long_run_is_reached_and_few_are_held(page: Page, tmp_path: Path, steps: int) -> None:
    db = tmp_path / "long.db"
    with closing(open_url(db, new_fold=Projector)) as store:
        run = long_run(store, steps)
        last = len(store.steps(run)) - 1
    with serving(db) as served:
        served.show(page, f"/runs/{run}")
        expect(page.get_by_text(f"{last + 1:,} of {last + 1:,} steps shown")).to_be_visible()
        held = "document.querySelectorAll('*').length"
        assert page.evaluate(held) < MOST
        page.locator("#transcript").hover()
        for _ in range(10):
            page.mouse.wheel(0, 5000)
            assert page.evaluate(held) < MOST
        page.keyboard.press("End")
        expect(page.get_by_role("heading", name=f"Step {last}")).to_be_visible()
        expect(page.get_by_role("region", name="Transcript").locator(".no", has_text=str(last))).to_be_visible()
        page.keyboard.press("k")
        expect(page.get_by_role("heading", name=f"Step {last - 1}")).to_be_visible()
        assert page.evaluate(held) < MOST
        page.keyboard.press("Home")
        expect(page.get_by_role("heading", name="Step 0")).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type(str(last // 2 - 1))
        page.keyboard.press("Enter")
        status = page.get_by_role("status").filter(has_text="steps searched")
        expect(status).to_contain_text(f"{last + 1:,} of {last + 1:,} steps searched", timeout=60_000 + 2 * steps)
        page.keyboard.press("p")
        expect(page.get_by_role("heading", name=f"Step {last}")).to_be_visible()
        assert page.evaluate(held) < MOST
