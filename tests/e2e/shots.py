"""Pictures of every screen: `python -m tests.e2e.shots [FOLDER]`, or `make page-shots`, which also makes those of the docs anew."""

from __future__ import annotations

import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from agentloupe.engine.project import Projector
from agentloupe.store.opening import open_url
from agentloupe.verbs.deleting import delete_run
from agentloupe.verbs.effects import open_effects
from tests.e2e.model import modelled
from tests.e2e.served import Served, browsing, missing, serving
from tests.e2e.work import make_work
from tests.e2e.world import World, long_run, make_world, recorded
from tests.support import ROOT
from tests.unfinished import killed

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
    "effects": "/effects",
    "effects-settle": "/effects?run={killed}&call={call}",
    "run-killed": "/runs/{killed}",
    "run-evidence": "/runs/{observed}?panel=evidence",
    "run-unchecked": "/runs/{failed}?panel=evidence",
    "events": "/runs/{candidate}/events?event=9",
    "events-filtered": "/runs/{long}/events?type=tool.finished&event=900",
    "run-failed": "/runs/{failed}",
    "run-nested": "/runs/{nested}",
    "run-hostile": "/runs/{hostile}",
    "run-long": "/runs/{long}?step=700",
    "run-found": "/runs/{observed}?q=Frost",
    "run-unknown": "/runs/nobody-knows-it",
    "run-deleted": "/runs/{deleted}",
    "fork": "/runs/{observed}/fork?from=3",
    "fork-refused": "/runs/{observed}/fork?from=1",
    "replays": "/replays",
    "replays-start": "/replays?run={run}",
    "report-diverged": "/replays/{diverged}",
    "report-passed": "/replays/{passed}",
    "jobs": "/jobs",
    "job-waiting": "/jobs/{waiting}",
    "job-limited": "/jobs/{limited}",
    "job-failed": "/jobs/{failed_job}",
    "job-lacking": "/jobs/{lacking}",
    "settings": "/settings",
    "compare": "/compare?a={observed}&b={candidate}",
    "summary": "/summary?{all}",
    "lineage": "/lineage?run={candidate}",
    "nowhere": "/nowhere",
}
LOOKS: Final = (("light", "en", 1440), ("dark", "zh-CN", 1280))


def taken(browser: Browser, served: Served, made: Mapping[str, str], world: World, folder: Path) -> int:
    """Takes all pictures; how many."""
    forks = (*world.controls, *world.candidates)
    named = {
        **made,
        "observed": world.observed,
        "candidate": world.candidates[0],
        "control": world.controls[0],
        "failed": world.failed,
        "nested": world.nested,
        "hostile": world.hostile,
        "all": "&".join(f"run={run}" for run in (world.observed, *forks)),
    }
    for theme, language, width in LOOKS:
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.request.get(served.at(f"/api/runs/{world.observed}/verify"))
        for name, path in SCREENS.items():
            served.show(page, path.format(**named), theme=theme, lang=language)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / f"{name}-{theme}-{language}-{width}.png")
        page.close()
    return len(SCREENS) * len(LOOKS)


GUIDE: Final = {
    "page": "run",
    "fork": "fork",
    "evidence": "run-evidence",
    "events": "events",
    "effects": "effects-settle",
}
"""Pictures of the docs, by the screens that they show."""

# The browser itself makes them smaller: it writes the same pixels in a form that takes less than half of the room.
_REDUCED: Final = """async picture => {
    const shown = await createImageBitmap(await (await fetch(`data:image/png;base64,${picture}`)).blob());
    const canvas = Object.assign(document.createElement('canvas'), { width: shown.width, height: shown.height });
    canvas.getContext('2d').drawImage(shown, 0, 0);
    return canvas.toDataURL('image/webp', 0.75).split(',')[1];
}"""


def reduced(browser: Browser, taken_in: Path, to: Path) -> int:
    """Writes the pictures of the docs from those that were taken, reduced; how many bytes they have together."""
    theme, language, width = LOOKS[0]
    page = browser.new_page()
    total = 0
    for name, screen in GUIDE.items():
        whole = (taken_in / f"{screen}-{theme}-{language}-{width}.png").read_bytes()
        small = b64decode(page.evaluate(_REDUCED, b64encode(whole).decode()))
        (to / f"{name}.webp").write_bytes(small)
        total += len(small)
    page.close()
    return total


def main(folder: Path) -> int:
    """Makes the runs, serves them, takes the pictures, and writes those of the docs; the exit code."""
    if (lacking := missing()) is not None:
        print(f"page-shots: {lacking}", file=sys.stderr)
        return 3
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        db = Path(made) / "runs.db"
        with closing(open_url(db, new_fold=Projector)) as store:
            world = make_world(store)
            work = make_work(store, world.observed)
            deleted = recorded(store, lambda: None)
            delete_run(store, deleted)
            made_of = {"run": work.run, "diverged": work.diverged, "passed": work.passed, "waiting": work.waiting}
            made_of |= {"limited": work.limited, "failed_job": work.failed, "lacking": work.lacking}
            made_of |= {"killed": (gone := killed(store, 5, 7)), "call": open_effects(store, gone).items[0].call_id}
            made_of |= {"long": long_run(store, 1500), "deleted": deleted}
        with (
            modelled() as model,
            serving(db, **model.variables) as served,
            browsing() as browser,
        ):
            print(f"page-shots: {taken(browser, served, made_of, world, folder)} pictures in {folder}")
            pictures = ROOT / "docs" / "pictures"
            kilobytes = reduced(browser, folder, pictures) / 1000
            print(f"page-shots: {len(GUIDE)} pictures of the docs in {pictures}, {kilobytes:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "web" / "shots"))
