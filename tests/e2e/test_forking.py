"""Forks from the page: what is shown before, what is sent, how it goes, where it leads."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from agentloupe.ports.protocols import Store
from tests.e2e.served import Served
from tests.e2e.world import NEW_PROMPT, World


def edited(page: Page, text: str) -> None:
    """Types a new prompt in place of the recorded one."""
    editor = page.get_by_role("textbox", name="edited here")
    editor.click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(text)


def test_a_changed_prompt_is_forked_watched_and_compared(
    page: Page, server: Served, world: World, store: Store
) -> None:
    server.show(page, f"/runs/{world.observed}?step=3")
    card = page.get_by_role("article", name="Step 3")
    card.get_by_role("link", name="Fork from here").click()
    expect(page.get_by_role("heading", name="Fork from step 3")).to_be_visible()
    expect(page.get_by_text("issue_refund is not run, whatever happens.")).to_be_visible()
    expect(page.get_by_text("Nothing is changed yet")).to_be_visible()
    edited(page, NEW_PROMPT)
    expect(page.get_by_role("complementary").get_by_text("system prompt", exact=True)).to_be_visible()
    page.get_by_role("button", name=re.compile("Run 1 fork")).click()
    expect(page).to_have_url(re.compile("/compare"), timeout=60_000)
    expect(page.get_by_role("status").get_by_text(re.compile("miss(es)? in B"))).to_be_visible()
    made = page.url.rpartition("b=")[2].partition("&")[0]
    run = store.run(made)
    assert run is not None
    assert run.parent_run_id == world.observed
    assert run.forked_from_step == 3
    assert [one["path"] for one in run.overrides] == ["messages[0].content"]


def test_a_draft_waits_in_its_tab_and_is_reverted(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    edited(page, "Another prompt.")
    page.get_by_label("Temperature").fill("0.7")
    beside = page.get_by_role("complementary")
    expect(beside.get_by_text("system prompt", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    expect(beside.get_by_text("system prompt", exact=True)).to_be_visible()
    expect(beside.get_by_text("temperature = 0.7")).to_be_visible()
    page.get_by_role("button", name="Revert").click()
    expect(beside.get_by_text("system prompt", exact=True)).to_have_count(0)
    expect(beside.get_by_text("temperature = 0.7")).to_be_visible()


def test_a_person_answers_what_was_never_recorded(page: Page, server: Served, world: World, store: Store) -> None:
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    edited(page, NEW_PROMPT)
    page.get_by_role("radio", name="human (ask me)").check()
    page.get_by_role("button", name=re.compile("Run 1 fork")).click()
    for tool, answer in (("calculate", "11.7"), ("issue_refund", '{"receipt": "by hand"}')):
        expect(page.locator(".asking").get_by_text(tool, exact=True)).to_be_visible(timeout=60_000)
        page.get_by_role("textbox", name="Result as JSON").fill(answer)
        page.get_by_role("textbox", name="Your name").fill("anna")
        page.get_by_role("button", name="Give this result").click()
    expect(page).to_have_url(re.compile("/compare"), timeout=60_000)
    made = page.url.rpartition("b=")[2].partition("&")[0]
    assert [step.source for step in store.steps(made)].count("human") == 2


def test_where_no_fork_can_start_the_reason_is_told(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}/fork?from=1")
    expect(page.get_by_role("alert")).to_contain_text("step 1")


def test_an_address_that_names_no_place_to_fork_from_leads_back_to_the_run(
    page: Page, server: Served, world: World
) -> None:
    server.show(page, f"/runs/{world.observed}/fork?from=bogus")
    expect(page.get_by_role("heading", name="Fork from step 0")).to_be_visible()
    page.goto(server.at(f"/runs/{world.observed}/fork?from=1"))
    expect(page.get_by_role("alert")).to_contain_text("it is no model step")
    page.get_by_role("link", name="Choose another step of the run").click()
    expect(page).to_have_url(re.compile(rf"/runs/{world.observed}(\?|$)"))
    page.goto(server.at(f"/runs/{world.observed}?step=999"))
    expect(page.get_by_text("There is no step 999: this run has the steps 0 to")).to_be_visible()


def test_what_cannot_be_read_yet_is_not_called_unchanged(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}/fork?from=3")
    expect(page.get_by_text("Nothing is changed yet")).to_be_visible()
    page.get_by_role("button", name="Other JSON").click()
    page.get_by_role("textbox", name="Other JSON, edited here").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text("{{{ broken")
    expect(page.get_by_text("What was changed cannot be read yet")).to_be_visible()
    expect(page.get_by_text("Nothing is changed yet")).to_have_count(0)
