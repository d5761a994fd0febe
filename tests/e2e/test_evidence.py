"""What is proven of a run, in words: not looked at yet, whole, signed up to an event, cut behind it, deleted."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.verbs.anchoring import make_anchor_key, write_anchor
from agentloupe.verbs.deleting import delete_run
from tests.e2e.served import Served, serving
from tests.e2e.world import World
from tests.made import Maker


@dataclass(frozen=True)
class Signed:
    """A server whose settings name anchors, and the runs of it."""

    served: Served
    whole: str = "whole"
    cut: str = "cut"
    deleted: str = "deleted"
    later: str = "later"


def _made(store: Store, run_id: str) -> None:
    made = Maker(run_id)
    made.model([{"role": "user", "content": "q"}], {"role": "assistant", "content": "a"})
    made.call("tool", "look", {}, 1)
    recording = made.finish()
    store.insert(run_id, recording.events, recording.get, Projector)


@pytest.fixture(scope="module")
def signed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signed]:
    """Three runs that were signed, one of which lost its tail since and one its content; and one that came later."""
    pytest.importorskip("cryptography", reason="needs the extra agent-loupe[sign]")
    folder = tmp_path_factory.mktemp("signed")
    key, anchors, db = folder / "anchor.key", folder / "anchors.jsonl", folder / "runs.db"
    make_anchor_key(key)
    with closing(open_url(db, new_fold=Projector)) as store:
        for run_id in ("whole", "cut", "deleted"):
            _made(store, run_id)
        write_anchor(store, anchors, key=key)
        delete_run(store, "deleted")
        _made(store, "later")
    with closing(sqlite3.connect(db)) as file, file:
        file.execute("DROP TRIGGER events_are_never_removed")
        ((rid, last),) = file.execute("SELECT rid, last_sequence FROM runs WHERE id = 'cut'").fetchall()
        file.execute("DELETE FROM events WHERE key = ?", ((rid << 32) + last,))
        (head,) = file.execute("SELECT hash FROM events WHERE key = ?", ((rid << 32) + last - 1,)).fetchone()
        file.execute("UPDATE runs SET last_sequence = ?, head = ? WHERE rid = ?", (last - 1, head, rid))
    with serving(db, LOUPE_ANCHORS=str(anchors), LOUPE_ANCHOR_KEY=str(folder / "anchor.key.pub")) as served:
        yield Signed(served)


def opened(page: Page, served: Served, run: str) -> Locator:
    """The panel of a run, checked now."""
    served.show(page, f"/runs/{run}?panel=evidence")
    panel = page.get_by_role("dialog", name="Evidence")
    panel.get_by_role("button", name=re.compile("Verify")).click()
    expect(panel.get_by_role("button", name="Verify again")).to_be_visible()
    return panel


def test_the_panel_says_what_is_proven_and_what_is_not(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}")
    page.get_by_role("button", name="chain not checked").click()
    panel = page.get_by_role("dialog", name="Evidence")
    expect(panel.get_by_role("status")).to_have_text("whole")
    expect(panel).to_contain_text(re.compile(r"Events 1 to \d+ are linked"))
    expect(panel).to_contain_text(re.compile(r"\d+ bodies fit their digests"))
    expect(panel).to_contain_text("nothing outside of the store says where the run ends")
    expect(panel).to_contain_text(f"agentloupe verify {world.observed}")
    about = panel.locator("section", has=page.get_by_role("heading", name="Coverage and snapshot"))
    expect(about).to_contain_text(
        re.compile(r"(control flow|limited replay|full).*snapshot ?([0-9a-f]{64}|none recorded)")
    )
    assert "panel=evidence" in page.url
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    assert "panel" not in page.url
    expect(page.get_by_role("button", name="chain whole")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="chain whole")).to_be_visible()


def test_a_run_that_nobody_looked_at_says_so(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.controls[1]}?panel=evidence")
    panel = page.get_by_role("dialog", name="Evidence")
    expect(panel).to_contain_text("Nobody has looked yet.")
    expect(panel.get_by_role("button", name="Verify now")).to_be_focused()


def test_a_signed_run_says_up_to_where_and_by_which_key(page: Page, signed: Signed) -> None:
    panel = opened(page, signed.served, signed.whole)
    expect(panel).to_contain_text(re.compile(r"are those that were signed at .* with the key [0-9a-f]{12}"))
    expect(panel).not_to_contain_text("nothing outside of the store")
    page.keyboard.press("Escape")
    expect(page.get_by_text(re.compile(r"anchor signed to event \d+"))).to_be_visible()


def test_a_run_that_came_after_the_last_anchor_says_so(page: Page, signed: Signed) -> None:
    expect(opened(page, signed.served, signed.later)).to_contain_text("no anchor names this run yet")


def test_a_tail_that_was_cut_is_found_by_what_was_signed(page: Page, signed: Signed) -> None:
    panel = opened(page, signed.served, signed.cut)
    expect(panel.get_by_role("status")).to_have_text("damaged")
    expect(panel).to_contain_text(re.compile(r"The tail was cut behind event \d+"))


def test_a_deleted_run_is_whole_and_says_what_is_gone(page: Page, signed: Signed) -> None:
    panel = opened(page, signed.served, signed.deleted)
    expect(panel.get_by_role("status")).to_have_text("whole, its content deleted")
    expect(panel).to_contain_text("What was said: it was deleted, and an event says so.")
    expect(panel).to_contain_text(re.compile(r"are those that were signed at"))
