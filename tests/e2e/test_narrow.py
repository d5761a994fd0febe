"""Half a screen, and a phone: nothing that can be pressed or that heads a part is cut off, and nothing is moved aside."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import Served
from tests.e2e.test_access import filled
from tests.e2e.work import Work
from tests.e2e.world import World

SCREENS = [
    "/runs?sel={candidate}&sel={control}",
    "/runs/{candidate}",
    "/runs/{observed}?panel=evidence",
    "/runs/{hostile}?tab=messages",
    "/runs/{candidate}/events?event=9",
    "/runs/{observed}/fork?from=3",
    "/compare?a={observed}&b={candidate}",
    "/summary?run={observed}&run={candidate}&run={control}",
    "/lineage?run={observed}",
    "/jobs/{waiting}",
    "/replays?run={run}",
    "/replays/{diverged}",
    "/effects",
    "/settings",
]

# Out of the window, and nothing around it can be moved to show it.
_CUT_OFF = """() => [...document.querySelectorAll('h1, h2, a, button, input, select, textarea')]
    .filter(one => one.checkVisibility() && !one.closest('.vh, .skip, [aria-hidden]'))
    .filter(one => {
        const { left, right, width } = one.getBoundingClientRect();
        if (width > 0 && left >= 0 && right <= innerWidth + 1) return false;
        for (let around = one.parentElement; around; around = around.parentElement) {
            const moves = ['auto', 'scroll'].includes(getComputedStyle(around).overflowX);
            if (width > 0 && moves && around.clientWidth > 200) return false;
        }
        return true;
    })
    .map(one => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("width", [390, 800])
@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_is_cut_off_in_a_narrow_window(
    page: Page, server: Served, world: World, work: Work, screen: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    server.show(page, filled(screen, world, work))
    assert page.evaluate(_CUT_OFF) == []
    assert page.evaluate("document.querySelector('#app').scrollWidth") <= width


def test_the_parts_of_a_run_are_below_each_other_and_can_be_read(page: Page, server: Served, world: World) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    server.show(page, f"/runs/{world.observed}?step=3")
    parts = [page.get_by_role("navigation", name="Steps"), page.get_by_role("region", name="Transcript")]
    parts.append(page.get_by_role("complementary", name="Step 3"))
    ends = 0.0
    for part in parts:
        part.scroll_into_view_if_needed()
        expect(part).to_be_in_viewport()
        box = part.bounding_box()
        assert box is not None
        assert box["width"] > 350
        top = box["y"] + page.evaluate("document.querySelector('#app').scrollTop")
        assert top >= ends - 1
        ends = top + box["height"]
