"""The page in a real browser: find a run, read it, go deep, come back."""

from __future__ import annotations

import re
import threading

import pytest
from playwright.sync_api import Page, expect

from agentloupe.ports.protocols import Store
from tests.e2e.served import Served
from tests.e2e.world import BIG, World, gated_run


def test_a_run_is_found_opened_and_read_by_keys_alone(page: Page, server: Served, world: World) -> None:
    server.show(page, "/")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert "token" not in page.url
    page.keyboard.press("/")
    page.keyboard.type(world.observed)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q="))
    rows = page.get_by_role("table", name="Runs").get_by_role("row")
    rows.filter(has_text=world.observed).last.click()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Frost refund")
    first = int(page.get_by_role("heading", name=re.compile(r"^Step \d+")).inner_text().split()[1])
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name=f"Step {first + 1}")).to_be_visible()
    page.keyboard.press("2")
    expect(page.get_by_role("tab", name="Messages")).to_have_attribute("aria-selected", "true")


def test_back_and_a_shared_link_lead_to_what_was_seen(page: Page, server: Served, world: World) -> None:
    server.show(page, "/runs")
    page.get_by_role("link", name="Weather watch").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Weather watch")
    page.keyboard.press("End")
    page.keyboard.press("5")
    expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    link = page.url
    page.go_back()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    page.goto(link)
    expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("heading", name="Step 9")).to_be_visible()


def test_a_fork_shows_what_it_kept_what_is_new_and_what_was_missed(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.candidates[0]}")
    transcript = page.get_by_role("region", name="Transcript")
    expect(transcript.get_by_text("cut at step 3")).to_be_visible()
    expect(transcript.get_by_text("System prompt changed here.")).to_be_visible()
    expect(transcript.get_by_text("cassette miss: no recorded result for issue_refund")).to_be_visible()
    expect(transcript.get_by_text("Declared write: never run in a fork.")).to_be_visible()
    expect(page.get_by_text("hypothetical from step 7").first).to_be_visible()
    transcript.get_by_text("See the diff").click()
    expect(page.locator("ins", has_text="Never do sums in your head.")).to_be_visible()


def test_integers_beyond_doubles_keep_every_digit(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}?step=6&tab=raw")
    expect(page.locator(".editor")).to_contain_text(str(BIG))


def test_text_of_a_run_stays_text(page: Page, server: Served, world: World) -> None:
    page.on("dialog", lambda _: pytest.fail("a script of a run was run"))
    for path in ("/runs", f"/runs/{world.hostile}?tab=messages", f"/compare?a={world.hostile}&b={world.failed}"):
        server.show(page, path)
        expect(page.get_by_text("<script>alert(1)</script>").filter(visible=True).first).to_be_visible()
        expect(page.locator(".sign", has_text="202E").filter(visible=True).first).to_be_visible()
        assert page.locator("a[href^='javascript:']").count() == 0


def test_a_sub_agent_opens_in_place_and_equal_calls_fold(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.nested}")
    expect(page.get_by_text("get_weather ×8")).to_be_visible()
    page.get_by_role("button", name=re.compile("Open inside")).click()
    expect(page.get_by_role("region", name=re.compile("sub-agent")).get_by_text("search_policy").first).to_be_visible()


def test_two_runs_are_chosen_and_compared(page: Page, server: Served, world: World) -> None:
    server.show(page, "/runs")
    for run in (world.observed, world.candidates[0]):
        page.get_by_role("row").filter(has=page.get_by_text(run, exact=True)).get_by_role("checkbox").check()
    page.get_by_role("button", name=re.compile("Compare 2 selected")).click()
    expect(page.get_by_text("1 miss in B")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="miss in B")).to_be_visible()
    page.keyboard.press("s")
    expect(page.get_by_text("1 miss in A")).to_be_visible()
    page.keyboard.press("d")
    expect(page.get_by_role("button", name=re.compile("Differences"))).to_have_attribute("aria-pressed", "true")


def test_several_runs_are_summed_up_without_a_verdict(page: Page, server: Served, world: World) -> None:
    runs = "&".join(f"run={run}" for run in (world.observed, *world.controls, *world.candidates))
    server.show(page, f"/summary?{runs}")
    expect(page.get_by_text("4 of 7 runs end with the same answer")).to_be_visible()
    expect(page.get_by_text("Agreement is no verdict")).to_be_visible()
    expect(page.get_by_role("img", name="Where the runs went together")).to_be_visible()


def test_a_family_is_walked_both_ways(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.candidates[0]}")
    page.get_by_role("link", name="Lineage").last.click()
    expect(page.get_by_text(re.compile(r"\d+ runs in this family"))).to_be_visible()
    for run in (*world.candidates, *world.controls):
        expect(page.locator(f"main a[href*='/runs/{run}']").first).to_be_visible()
    page.get_by_role("link", name="Frost refund, order A-1042", exact=True).click()
    expect(page.get_by_text(re.compile(r"forked \d+ times")).first).to_be_visible()


def test_language_and_theme_are_kept(page: Page, server: Served) -> None:
    server.show(page, "/runs")
    page.get_by_role("button", name="中文").click()
    page.get_by_role("button", name="深色").click()
    page.reload()
    expect(page.get_by_role("heading", name="运行")).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.documentElement.lang") == "zh-CN"


def test_an_unknown_run_is_told_with_a_way_out(page: Page, server: Served) -> None:
    server.show(page, "/runs/nobody-knows-it")
    expect(page.get_by_role("alert")).to_contain_text("nobody-knows-it")
    expect(page.get_by_role("button", name="Try again")).not_to_be_visible()
    page.get_by_role("alert").get_by_role("link", name="Go to the runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


@pytest.mark.parametrize(
    ("asked", "heading"),
    [
        ("/jobs?status=bogus", "Jobs"),
        ("/runs?status=bogus&coverage=most&since=ever", "Runs"),
        ("/replays?first=-1", "Replays"),
    ],
)
def test_an_address_made_by_hand_is_read_as_far_as_it_makes_sense(
    page: Page, server: Served, asked: str, heading: str
) -> None:
    server.show(page, asked)
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    expect(page.get_by_role("alert")).not_to_be_visible()
    page.wait_for_function("location.search === ''")


def test_a_filter_without_hits_names_itself_and_offers_to_go(page: Page, server: Served) -> None:
    server.show(page, "/runs?status=interrupted")
    expect(page.get_by_text("No run matches: Status interrupted.")).to_be_visible()
    page.locator(".state").get_by_role("button", name="Clear the filters").click()
    expect(page.get_by_role("link", name="Weather watch")).to_be_visible()


def test_what_is_found_in_a_run_is_walked_through(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.observed}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Frost refund")
    page.keyboard.press("/")
    page.keyboard.type("Frost guarantee")
    page.keyboard.press("Enter")
    status = page.get_by_role("status").filter(has_text="Frost guarantee")
    expect(status).to_contain_text("8 of 8 steps searched")
    before = page.url
    page.keyboard.press("n")
    expect(page).not_to_have_url(before)


def test_letters_do_nothing_where_they_were_turned_off(page: Page, server: Served, world: World) -> None:
    server.show(page, f"/runs/{world.failed}?step=2")
    page.keyboard.press("?")
    page.get_by_role("checkbox", name="Single keys do something").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Step 2")).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("heading", name="Step 3")).to_be_visible()


def test_a_growing_run_grows_on_the_page_and_nothing_moves(page: Page, server: Served, store: Store) -> None:
    go, run_id = threading.Semaphore(0), "growing-260301-abcdef"
    writer = threading.Thread(target=gated_run, args=(store, run_id, go, 40))
    writer.start()
    try:
        for _ in range(20):
            go.release()
        server.show(page, f"/runs/{run_id}")
        expect(page.get_by_role("button", name=re.compile("^30"))).to_be_attached()
        top = page.locator("article").first
        where = top.bounding_box()
        for _ in range(20):
            go.release()
        expect(page.get_by_text(re.compile("8[01] of 8[01] steps shown"))).to_be_visible()
        assert top.bounding_box() == where
    finally:
        for _ in range(40):
            go.release()
        writer.join()


DROPPED = '{"messages": [{"role": "user", "content": "Dropped here"}, {"role": "assistant", "content": "Taken"}]}\n'


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("dropped.json", DROPPED, r"1 run imported"),
        ("cut.jsonl", DROPPED.replace("here", "whole") + DROPPED[:40], r"1 file only in part: line 2.*not strict JSON"),
    ],
)
def test_files_are_imported_by_dropping_them(page: Page, server: Served, name: str, text: str, said: str) -> None:
    server.show(page, "/runs")
    page.evaluate(
        """([name, text]) => {
            const carried = new DataTransfer();
            carried.items.add(new File([text], name, { type: 'application/json' }));
            const init = { dataTransfer: carried, bubbles: true, cancelable: true };
            window.dispatchEvent(new DragEvent('dragover', init));
            window.dispatchEvent(new DragEvent('drop', init));
        }""",
        [name, text],
    )
    expect(page.get_by_text(re.compile(said))).to_be_visible()


def test_a_silent_server_is_told_and_what_was_shown_stays(page: Page, server: Served) -> None:
    server.show(page, "/runs")
    expect(page.get_by_role("link", name="Weather watch")).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    expect(page.get_by_text(re.compile("The server has not answered since"))).to_be_visible()
    expect(page.get_by_role("link", name="Weather watch")).to_be_visible()
    page.unroute("**/api/**")
    expect(page.get_by_text(re.compile("The server has not answered since"))).to_be_hidden()


def test_the_time_line_is_zoomed_by_wheel_and_keys_and_follows_the_open_step(
    page: Page, server: Served, world: World
) -> None:
    server.show(page, f"/runs/{world.observed}?step=1")
    steps = page.get_by_role("navigation", name="Steps")
    axis, whole = steps.locator(".axis"), steps.get_by_role("button", name="Whole time line")
    before = axis.inner_text()
    expect(whole).to_have_count(0)
    bars = steps.locator(".wfr").nth(1).locator(".tr")
    bars.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -800)
    page.keyboard.up("Control")
    expect(whole).to_be_visible()
    assert axis.inner_text() != before
    page.keyboard.press("End")
    expect(steps.locator("[aria-current=step] .tr i")).to_be_visible()
    page.keyboard.press("0")
    expect(whole).to_have_count(0)
    assert axis.inner_text() == before
    page.keyboard.press("+")
    expect(whole).to_be_visible()
    page.keyboard.press("-")
    expect(whole).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("1+1")
    expect(page.locator("input:focus")).to_have_value("1+1")
    expect(whole).to_have_count(0)


def test_the_address_shows_the_part_of_the_time_line_that_its_sender_saw(
    page: Page, server: Served, world: World
) -> None:
    server.show(page, f"/runs/{world.observed}?step=1")
    steps = page.get_by_role("navigation", name="Steps")
    axis, whole = steps.locator(".axis"), steps.get_by_role("button", name="Whole time line")
    expect(axis).to_contain_text(re.compile(r"\d"))
    before, entries = axis.inner_text(), page.evaluate("history.length")
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"[?&]range=[\d.]+\.\.[\d.]+(&|$)"))
    assert page.evaluate("history.length") == entries
    sent, seen = page.url, axis.inner_text()
    assert seen != before
    page.keyboard.press("0")
    page.wait_for_url(lambda url: "range" not in url)
    assert axis.inner_text() == before

    last = re.sub(r"step=\d+", f"step={steps.locator('.wfr').count() - 1}", sent)
    for address in (sent, last):  # a step that lies elsewhere does not move what was sent
        page.goto(address)
        expect(whole).to_be_visible()
        assert axis.inner_text() == seen
    page.goto(re.sub(r"range=[^&]*", "range=2..1", sent))
    expect(axis).to_have_text(before, use_inner_text=True)
    expect(whole).to_have_count(0)
