"""Nothing on any screen keeps a reader out: axe finds nothing grave, in either theme."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.e2e.served import AXE, Served
from tests.e2e.work import Work
from tests.e2e.world import World

SCREENS = [
    "/runs",
    "/runs?status=interrupted",
    "/runs/{candidate}",
    "/runs/{candidate}?tab=diff&side=tree",
    "/runs/{candidate}?tab=context",
    "/runs/{observed}?tab=messages&step=3",
    "/runs/{observed}?tab=raw",
    "/runs/{nested}?tab=events",
    "/runs/{candidate}?panel=evidence",
    "/runs/{candidate}/events?event=9",
    "/runs/{candidate}/events?type=tool.finished&step=1",
    "/runs/{failed}",
    "/runs/{hostile}?tab=messages",
    "/runs/nobody-knows-it",
    "/compare?a={observed}&b={candidate}",
    "/compare",
    "/summary?run={observed}&run={candidate}&run={control}",
    "/lineage?run={observed}",
    "/runs/{observed}/fork?from=3",
    "/jobs",
    "/jobs/{waiting}",
    "/jobs/{lacking}",
    "/jobs/{limited}",
    "/replays",
    "/replays?run={run}",
    "/replays/{diverged}",
    "/replays/{passed}",
    "/effects",
    "/settings",
    "/nowhere",
]


def filled(screen: str, world: World, work: Work) -> str:
    """The address of a screen, with the runs and jobs that it names."""
    runs = {"candidate": world.candidates[0], "control": world.controls[0]}
    named = {name: getattr(made, name) for made in (world, work) for name in made.__dataclass_fields__}
    return screen.format(**{**named, **runs})


def grave(page: Page, asked: str = "{}") -> list[str]:
    """What axe finds serious or critical on a page that is shown."""
    found: list[dict[str, Any]] = page.evaluate(f"axe.run({asked}).then(result => result.violations)")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found if one["impact"] in {"serious", "critical"}
    ]


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_keeps_a_reader_out(page: Page, server: Served, world: World, work: Work, screen: str) -> None:
    if not AXE.is_file():
        pytest.skip("needs axe-core (make page)")
    server.show(page, filled(screen, world, work), theme="light")
    page.evaluate(AXE.read_text())
    assert grave(page) == []
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert grave(page, "{runOnly: ['color-contrast', 'link-in-text-block']}") == []
