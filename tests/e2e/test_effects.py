"""Open effects on the page: found from the run, settled with who and why, once; refused while the process lives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from agentloupe.engine.project import Projector
from agentloupe.ports.protocols import Store
from agentloupe.store.opening import open_url
from agentloupe.store.owners import this_process
from agentloupe.verbs.effects import open_effects, settle_effect
from tests.e2e.served import AXE, Served, serving
from tests.e2e.test_access import grave
from tests.unfinished import killed


@pytest.fixture(scope="module")
def there(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Store]]:
    """A server of their own: elsewhere no run is interrupted."""
    db = tmp_path_factory.mktemp("effects") / "runs.db"
    with closing(open_url(db, new_fold=Projector)) as made, serving(db) as served:
        yield served, made


@pytest.fixture
def server(there: tuple[Served, Store]) -> Served:
    return there[0]


@pytest.fixture
def store(there: tuple[Served, Store]) -> Store:
    return there[1]


def form(page: Page) -> Locator:
    return page.get_by_role("dialog", name="What became of this effect?")


def test_an_effect_is_settled_from_its_run_with_who_and_why(page: Page, server: Served, store: Store) -> None:
    run = killed(store, 5, 7)
    server.show(page, f"/runs/{run}")
    page.get_by_role("link", name="1 open effect").click()
    row = page.get_by_role("row").filter(has_text=run)
    expect(row).to_contain_text("charge")
    expect(row).to_contain_text("process gone")
    row.get_by_role("button", name="Settle").click()
    expect(form(page)).to_contain_text('{"amount":7}')
    say = form(page).get_by_role("button", name=re.compile("Say that|Settle"))
    expect(say).to_be_disabled()
    # The sheet of the run's page stays loaded: it must not reach into this form.
    assert form(page).locator("form").evaluate("form => form.scrollHeight <= form.clientHeight")
    expect(say).to_have_accessible_description("Choose an outcome.")
    form(page).get_by_label("It was done.").check()
    form(page).get_by_label("What the tool would have returned").fill('{"charge": ')
    expect(say).to_have_accessible_description("The result is not JSON.")
    form(page).get_by_label("What the tool would have returned").fill('{"charge": "ch_7"}')
    form(page).get_by_label("Id that the receiver gave it").fill("ch_7")
    form(page).get_by_label("How you know").fill("the bank's list has it")
    form(page).get_by_label("Your name").fill("anna")
    form(page).get_by_role("button", name="Say that it was done").click()
    expect(form(page)).to_contain_text("charge is noted as done.")
    expect(form(page)).to_contain_text(f"agentloupe resume {run}")
    form(page).get_by_role("link", name=re.compile("event")).click()
    expect(page.locator("[aria-current]").filter(has_text="tool.confirmed")).to_be_visible()
    assert open_effects(store, run).items == ()
    server.show(page, f"/runs/{run}")
    expect(page.get_by_role("link", name="1 open effect")).to_have_count(0)
    server.show(page, f"/effects?run={run}")
    expect(page.get_by_text("No effect is open.")).to_be_visible()


def test_whoever_is_late_is_told_and_what_was_written_stays(page: Page, server: Served, store: Store) -> None:
    run = killed(store, 3)
    (effect,) = open_effects(store, run).items
    server.show(page, f"/effects?run={run}&call={effect.call_id}")
    form(page).get_by_label("It was not done.").check()
    form(page).get_by_label("How you know").fill("nothing on the list")
    form(page).get_by_label("Your name").fill("ben")
    settle_effect(run, effect.call_id, "failed", why="the bank said no", by="anna", store=store)
    form(page).get_by_role("button", name="Say that it was not done").click()
    expect(form(page).get_by_role("alert")).to_contain_text("is settled already: failed")
    expect(form(page)).to_contain_text("what was written first stays")


def test_while_the_process_lives_it_is_said_that_it_may_see_the_end(page: Page, server: Served, store: Store) -> None:
    run = killed(store, 4)
    writer = store.take_over(run, Projector, owner=this_process())
    (effect,) = open_effects(store, run).items
    server.show(page, f"/effects?run={run}")
    expect(page.get_by_role("row").filter(has_text=run)).to_contain_text("its process lives")
    page.keyboard.press("Enter")
    form(page).get_by_label("It was not done.").check()
    form(page).get_by_label("How you know").fill("a guess")
    form(page).get_by_label("Your name").fill("ben")
    form(page).get_by_role("button", name="Say that it was not done").click()
    expect(form(page).get_by_role("alert")).to_contain_text("may see the end itself")
    writer.close()
    assert [one.call_id for one in open_effects(store, run).items] == [effect.call_id]


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_nothing_keeps_a_reader_out_of_the_list_and_the_form(
    page: Page, server: Served, store: Store, language: str
) -> None:
    run = killed(store, 6)
    (effect,) = open_effects(store, run).items
    for screen in (f"/effects?run={run}", f"/effects?run={run}&call={effect.call_id}", f"/runs/{run}?panel=evidence"):
        server.show(page, screen, theme="light", lang=language)
        page.evaluate(AXE.read_text())
        assert grave(page) == []
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        assert grave(page, "{runOnly: ['color-contrast', 'link-in-text-block']}") == []
