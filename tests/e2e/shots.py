"""Pictures of every screen: `python -m tests.e2e.shots [FOLDER]`, or `make page-shots`."""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from tests.e2e.model import modelled
from tests.e2e.served import Served, browsing, missing, serving
from tests.e2e.world import World, long_run, make_world
from tests.support import ROOT

SCREENS: Final = {
    "runs": "/runs?sel={candidate}&sel={control}",
    "runs-filtered": "/runs?status=interrupted",
    "run": "/runs/{candidate}",
    "run-observed": "/runs/{observed}?step=6",
    "run-messages": "/runs/{candidate}?tab=messages",
    "run-context": "/runs/{candidate}?tab=context",
    "run-diff": "/runs/{candidate}?tab=diff",
    "run-raw": "/runs/{observed}?tab=raw&step=6",
    "run-events": "/runs/{candidate}?tab=events&side=tree",
    "run-failed": "/runs/{failed}",
    "run-nested": "/runs/{nested}",
    "run-hostile": "/runs/{hostile}",
    "run-long": "/runs/{long}?step=700",
    "run-found": "/runs/{observed}?q=Frost",
    "run-unknown": "/runs/nobody-knows-it",
    "fork": "/runs/{observed}/fork?from=3",
    "replays": "/replays",
    "jobs": "/jobs",
    "settings": "/settings",
    "compare": "/compare?a={observed}&b={candidate}",
    "summary": "/summary?{all}",
    "lineage": "/lineage?run={candidate}",
    "nowhere": "/nowhere",
}
LOOKS: Final = (("light", "en", 1440), ("dark", "zh-CN", 1280))


def taken(browser: Browser, served: Served, world: World, long: str, folder: Path) -> int:
    """Takes all pictures; how many."""
    forks = (*world.controls, *world.candidates)
    named = {
        "observed": world.observed,
        "candidate": world.candidates[0],
        "control": world.controls[0],
        "failed": world.failed,
        "nested": world.nested,
        "hostile": world.hostile,
        "long": long,
        "all": "&".join(f"run={run}" for run in (world.observed, *forks)),
    }
    for theme, language, width in LOOKS:
        page = browser.new_page(viewport={"width": width, "height": 900})
        for name, path in SCREENS.items():
            page.goto(served.at(path.format(**named), theme=theme, lang=language))
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / f"{name}-{theme}-{language}-{width}.png")
        page.close()
    return len(SCREENS) * len(LOOKS)


def main(folder: Path) -> int:
    """Makes the runs, serves them, takes the pictures; the exit code."""
    if (lacking := missing()) is not None:
        print(f"page-shots: {lacking}", file=sys.stderr)
        return 3
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        db = Path(made) / "runs.db"
        with closing(open_url(db, new_fold=Projector)) as store:
            world, long = make_world(store), long_run(store, 1500)
        with (
            modelled() as model,
            serving(db, **model.variables) as served,
            browsing() as browser,
        ):
            print(f"page-shots: {taken(browser, served, world, long, folder)} pictures in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "web" / "shots"))
